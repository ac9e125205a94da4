"""What the README shows is what the software says, from the first command to a device that classifies."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.commands import HEARSAY
from support.failures import reason
from support.publisher import NOW, Publisher

from edge_sdk import Device, Policy
from edge_sdk.cli.main import main as edge_main
from edge_sdk.policy import load_policy

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PYTHON = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
MOST_LINES = 120


def documents():
    long = {"lifetime": 1 << 33}
    return {"campaign_bytes": Publisher(now=1).campaign(**long), "model_bytes": Publisher(now=1).model(**long)}


def test_it_is_short_and_its_two_commands_are_those_of_the_makefile():
    assert len(README.splitlines()) <= MOST_LINES
    for target, runs in (("demo", ".venv/bin/hearsay demo"), ("test", ".venv/bin/pytest")):
        made = subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, text=True)
        assert runs in made.stdout


def test_the_python_lines_run_once_the_device_is_provisioned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Device.provision("state", trust=Publisher(now=1).root(lifetime=1 << 33)).close()
    scope = documents()
    exec(PYTHON, scope)
    with scope["device"] as device:
        assert device.status().spooled == 1  # until the file has arrived and is acknowledged
    (sealed,) = tmp_path.glob("*.hsr")
    assert sealed.stat().st_size == 44 + 18 + 44


def test_a_start_as_the_readme_shows_it_never_begins_a_new_device(tmp_path, monkeypatch):
    """The data partition is not mounted: nothing is there, the marker of the installation neither."""
    monkeypatch.chdir(tmp_path)
    assert reason(exec, PYTHON, documents()) == "not_provisioned"
    (tmp_path / "state").mkdir()  # the mount point
    assert reason(exec, PYTHON, documents()) == "not_provisioned"
    assert list((tmp_path / "state").iterdir()) == []


WHEEL = (ROOT / "distribution" / "README.md").read_text("utf-8")


def test_the_program_of_the_wheels_readme_gives_no_second_answer_where_its_folder_is_gone(tmp_path, monkeypatch):
    """It is run, its folder removed, and run again."""
    monkeypatch.chdir(tmp_path)
    publisher = Publisher(now=1)
    for name, raw in (("root.hst", publisher.root), ("c.hsc", publisher.campaign), ("m.hsm", publisher.model)):
        (tmp_path / name).write_bytes(raw(lifetime=1 << 33))
    program = re.search(r"```python\n(.*?)```", WHEEL, re.DOTALL)[1]
    (line,) = re.search(r"```bash\n(.*?)```", WHEEL, re.DOTALL)[1].splitlines()
    assert edge_main(shlex.split(line)[1:]) == 0
    exec(program, scope := {})
    scope["device"].close()
    (tmp_path / "reports.hsr").rename(tmp_path / "sent.hsr")
    shutil.rmtree("state")
    assert reason(exec, program, {}) == "not_provisioned"
    assert not (tmp_path / "reports.hsr").exists()
    assert "trust=" not in program


def shell_lines(heading):
    """The lines of a section's shell sessions, in order."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^ {4}(\S.*?)(?: {2,}#.*)?$", section, re.MULTILINE)


def pilot(path):
    """Some hundred records, as a newcomer's file: numbers, texts, and cells that are empty."""
    draw = random.Random(1)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["fever", "age", "diagnosis"])
        for _ in range(400):
            ill = draw.random() < 0.4
            fever = draw.choices(["none", "mild", "high", ""], [1, 2, 6, 1] if ill else [6, 2, 1, 1])[0]
            rows.writerow([fever, draw.randrange(40, 90) if ill else draw.randrange(20, 70), "ill" if ill else "well"])


@pytest.mark.slow
def test_every_shell_line_runs_in_order(tmp_path):
    """First the rehearsal, so that there are reports to ingest; the server runs while the device's lines do."""
    (tmp_path / "passphrase").write_text("correct horse battery staple", "utf-8")
    environment = {**os.environ, "HEARSAY_PASSPHRASE_FILE": str(tmp_path / "passphrase")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    pilot(tmp_path / "pilot.csv")

    def run(line):
        command = ["bash", "-e", "-c", line]
        done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    init, schema, campaign, ingest, publish, simulate, rehearse, report, serve = shell_lines("At the aggregator")
    for line in (init, schema, campaign, simulate, rehearse, ingest, publish, report):
        run(line)
    assert "fever" in (tmp_path / "page.html").read_text("utf-8")
    tree, server = serve.split(" && ")
    run(tree)
    command = [*HEARSAY, *server.split()[1:], "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = ""
        while "}" not in printed:
            printed += process.stdout.readline()
        address = json.loads(printed)["address"]
        shutil.copy(tmp_path / "work" / "root.hst", tmp_path / "root.hst")
        *lines, predict = (line.replace("http://127.0.0.1:8080", address) for line in shell_lines("On a device"))
        said = [run(line) for line in lines]
        run(next(line for line in lines if " sync " in line))  # what was reported is sent by the next sync
        assert "Cost: ε = 1 per day" in "".join(said)
        assert re.search(r"class +'ill'", run(predict))
        process.terminate()
        process.communicate(timeout=60)
    assert len(list((tmp_path / "www" / "reports").rglob("*.hsr"))) == 1


def test_the_explanation_of_the_guide_is_the_real_one(tmp_path):
    page = (ROOT / "docs" / "how-to" / "devices.md").read_text("utf-8")
    shown = re.search(r"^Once per day \(UTC\) the device answers.*?2\.719\.$", page, re.DOTALL | re.MULTILINE)[0]
    with Device.provision(tmp_path, trust=Publisher().root(), clock=lambda: NOW) as device:
        assert shown in textwrap.dedent(device.explain(Publisher().campaign()))


def test_the_policy_of_the_reference_is_read_and_the_defaults_are_as_told(tmp_path):
    page = (ROOT / "docs" / "reference" / "policy.md").read_text("utf-8")
    (tmp_path / "policy.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1], "utf-8")
    assert load_policy(tmp_path / "policy.toml") == Policy.of(
        epsilon_per_period=2,
        epsilon_lifetime=50,
        epsilon_per_day=4,
        shortest_period="1h",
        smallest_batch=100,
        features=["odor", "width", "label"],
        campaigns=["mushrooms*"],
        spool_days=90,
    )
    assert Policy() == Policy.of(epsilon_per_period=4, epsilon_lifetime=100, shortest_period="60s", smallest_batch=1)


@pytest.mark.slow
def test_the_demo_prints_the_lines_that_are_shown(tmp_path):
    """Every number may differ; of the last line the classes too."""

    def signs(text):
        return [re.sub(r"[\d.]+|malignant|benign|\s+", " ", line).split() for line in text.splitlines() if line]

    shown = re.search(r"^ {4}records  .*?^ {4}The first test record.*?$", README, re.DOTALL | re.MULTILINE)[0]
    command = [*HEARSAY, "demo", "--devices", "800", "--output", tmp_path / "out"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert signs(done.stdout.split("\nCampaign, reports")[0]) == signs(textwrap.dedent(shown))
