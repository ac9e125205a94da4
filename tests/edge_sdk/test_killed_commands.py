"""Commands as a shell starts them, killed at their middle and last call, and then repeated."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import pytest
from support.faults.disk import read_log
from support.faults.shim import TREE, build, environment
from support.publisher import Publisher
from support.reports import records_in

pytestmark = pytest.mark.slow

COMMANDS = {
    "provision": ["provision", "1.hst"],
    "enrol": ["enrol", "mushrooms.hsc"],
    "report": ["report", "--campaign", "mushrooms"],
    "drain": ["drain", "today.hsr"],
    "ack": ["ack", "today.hsr"],
    "install": ["install", "mushrooms.hsm"],
    "rotate": ["rotate", "3.hst", "2.hst"],
    "sync": ["sync", "source"],
    "disable": ["disable"],
}
"""In the order in which a device needs them. Files are in the world's folder."""
RECORD = b'{"odor": "n", "width": 3.2, "label": "e"}'


class Shell:
    """Runs commands in a world under the shim."""

    def __init__(self, library, folder):
        self.library, self.folder = library, folder
        folder.mkdir()

    def publish(self, world):
        publisher = Publisher(now=int(time.time()) - 60)
        files = {f"{version}.hst": publisher.root(version) for version in (1, 2, 3)}
        files |= {"mushrooms.hsc": publisher.campaign(), "mushrooms.hsm": publisher.model()}
        files |= {"source/campaigns/mushrooms.hsc": files["mushrooms.hsc"], "source/roots/3.hst": files["3.hst"]}
        for name, content in files.items():
            (world / name).parent.mkdir(parents=True, exist_ok=True)
            (world / name).write_bytes(content)

    def __call__(self, world, arguments, kill_at=0):
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        kind = {"HEARSAY_FAULTS_KIND": "kill" if kill_at else "none", "HEARSAY_FAULTS_AT": str(kill_at)}
        where = {"HEARSAY_FAULTS_UNDER": str(world), "HEARSAY_FAULTS_LOG": str(log)}
        command = [sys.executable, "-m", "edge_sdk.cli.main", "--state", "state", *arguments]
        surroundings = environment(self.library, **kind, **where)
        found = subprocess.run(command, cwd=world, env=surroundings, input=RECORD, capture_output=True, check=False)
        return found, len(read_log(log))


@pytest.fixture
def shell(tmp_path):
    return Shell(build(tmp_path), tmp_path / "shell")


def spent(shell, world):
    found, _ = shell(world, ["status", "--json"])
    status = json.loads(found.stdout)
    return status["epsilon_spent"], status["root_version"], [each["version"] for each in status["campaigns"]]


def test_every_command_may_be_killed_and_typed_again(shell, tmp_path):
    world = tmp_path / "world"
    world.mkdir()
    shell.publish(world)
    for name, arguments in COMMANDS.items():
        before = tmp_path / "before"
        shutil.copytree(world, before)
        found, calls = shell(world, arguments)
        assert found.returncode == 0, (name, found.stderr)
        assert calls > 0
        whole = spent(shell, world)
        for kill_at in sorted({max(1, calls // 2), calls}):
            broken = tmp_path / "broken"
            shutil.copytree(before, broken)
            killed, _ = shell(broken, arguments, kill_at)
            assert killed.returncode == -9, (name, kill_at, killed.stderr)
            again, _ = shell(broken, arguments)
            assert again.returncode == 0 or (name == "drain" and again.stderr.startswith(b"file_exists")), (
                name, kill_at, again.stderr,
            )  # fmt: skip
            assert spent(shell, broken) == whole, (name, kill_at)
            shutil.rmtree(broken)
        shutil.rmtree(before)
    assert len(records_in((world / "today.hsr").read_bytes())) == 1
    assert spent(shell, world)[0] == "1"


def test_the_shell_finds_this_tree(shell, tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", "import edge_sdk; print(edge_sdk.__file__)"],
        cwd=tmp_path, env=environment(shell.library), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.startswith(str(TREE))
