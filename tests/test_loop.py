"""The example of a loop: against a real server, in a thread, in asyncio, and when things go wrong."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.publisher import DAY, NOW, Publisher
from support.watched import wait_for

from aggregator.serving import TreeServer
from edge_sdk import Device
from edge_sdk.carriers import open_transport

EXAMPLE = Path(__file__).parent.parent / "examples" / "loop"
RECORD = {"odor": "n", "width": 2, "label": "e"}


@pytest.fixture
def modules(monkeypatch):
    """The example's files, as they import each other."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in ("loop", "in_thread", "in_asyncio"):
        specification = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, name, module)
        specification.loader.exec_module(module)
    return sys.modules["loop"], sys.modules["in_thread"], sys.modules["in_asyncio"]


class Clock:
    """Both clocks of a device's life, turned by hand."""

    def __init__(self):
        self.seconds = 0.0

    def wall(self):
        return NOW + int(self.seconds)

    def monotonic(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tree(tmp_path):
    """A published campaign and model."""
    publisher = Publisher()
    for place, content in (
        ("roots/1.hst", publisher.root()),
        ("campaigns/mushrooms.hsc", publisher.campaign()),
        ("models/mushrooms.hsm", publisher.model()),
        ("reports/.keep", b""),
    ):
        (tmp_path / "tree" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / place).write_bytes(content)
    return tmp_path / "tree"


@pytest.fixture
def make(modules, tmp_path, tree, clock):
    """Makes a loop over a device with the clock of the test, and the tree as a folder for its source."""
    opened = []

    def made(measure=lambda: RECORD, transport=None, trusted=tree / "roots" / "1.hst", **options):
        device = Device.provision(tmp_path / "state", trust=trusted.read_bytes(), clock=clock.wall)
        opened.append(device)
        transport = transport or open_transport(str(tree))
        options = {"campaigns": ["mushrooms"], "monotonic": clock.monotonic, **options}
        return modules[0].Loop(device, transport, measure, **options)

    yield made
    for device in opened:
        device.close()


def sent(tree):
    return len(list((tree / "reports").glob("*.hsr")))


def test_days_pass_and_every_period_is_answered_once_and_sent(make, tree, clock, caplog):
    """Ten days of steps, each as late as the one before asked for."""
    caplog.set_level(logging.INFO)
    loop = make(report_seconds=3600, sync_seconds=4 * 3600)
    turns, days = 0, set()
    while clock.seconds < 5 * DAY:
        days.add(clock.wall() // DAY)
        pause = loop.step()
        assert 0 < pause <= 1.1 * 3600
        clock.seconds += pause
        turns += 1
    assert turns >= 5 * 24 / 1.1
    said = [record.getMessage() for record in caplog.records if record.name == "edge_sdk"]
    assert said[:2] == ["enrol: mushrooms version 1", "install: mushrooms version 1"]
    answered = said.count("report: answered mushrooms version 1")
    assert answered == len(days)
    assert loop.device.status().spent_micro == 1_000_000 * answered
    assert said.count("sync: a file of reports has arrived") == sent(tree) >= answered - 1
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_a_device_whose_measuring_fails_answers_all_the_same_and_logs_no_value(make, caplog):
    def fail():
        raise ValueError("the pump says 3.14159")

    loop = make(measure=fail)
    loop.step()
    assert loop.device.status().spooled == 1
    assert "measuring failed, so the record is empty: ValueError" in caplog.text
    assert "3.14159" not in caplog.text


def test_troubles_are_logged_and_the_next_turn_mends_them(make, tree, tmp_path, clock, caplog):
    tree.rename(tmp_path / "away")
    loop = make(trusted=tmp_path / "away" / "roots" / "1.hst")
    clock.seconds += loop.step()
    assert "sync: roots/2.hst: unreachable" in caplog.text
    (tmp_path / "away").rename(tree)
    clock.seconds += 3600 * 1.1
    loop.step()
    clock.seconds += 3600 * 1.1
    loop.step()
    assert sent(tree) == 1


def test_what_is_no_refusal_does_not_end_the_loop_and_is_logged_by_its_type(make, tree, clock, caplog):
    class Wrong:
        address = "nowhere"

        def fetch(self, place, limit, tag=""):
            raise RuntimeError("secret")

        send = fetch

    loop = make(transport=Wrong())
    clock.seconds += loop.step()
    loop.step()
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


def test_a_spent_budget_is_logged_and_the_loop_goes_on(make, tree, clock, caplog, tmp_path):
    caplog.set_level(logging.INFO)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "policy.toml").write_text('epsilon_lifetime = "2"\n', "utf-8")
    loop = make(report_seconds=3600, sync_seconds=8 * 3600)
    while clock.seconds < 4 * DAY:
        clock.seconds += loop.step()
    assert "report refused: budget_exhausted" in caplog.text
    assert sent(tree) == 2


def test_a_thread_works_beside_the_application_and_ends_with_its_block(make, modules, tree):
    loop = make(report_seconds=0.01, sync_seconds=0.02, monotonic=time.monotonic)
    with modules[1].Background(loop):
        wait_for(lambda: sent(tree) == 1)
    assert "hearsay" not in {thread.name for thread in threading.enumerate()}
    assert loop.device.status().spooled == 0


def test_other_tasks_go_on_while_a_sync_waits_for_its_server(make, modules):
    """The source answers only once another task of the same loop of events has run: blocked, this would never end."""
    others = threading.Event()
    running = asked = None

    class Slow:
        address = "slow"

        def fetch(self, place, limit, tag=""):
            running.call_soon_threadsafe(asked.set)
            assert others.wait(60)

        def send(self, place, path):
            pass

    async def both():
        nonlocal running, asked
        running, asked, stop = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(modules[2].run(make(transport=Slow()), stop))
            await asked.wait()
            others.set()
            stop.set()

    asyncio.run(both())
    assert others.is_set()


@pytest.fixture
def pumps(tmp_path):
    """A published campaign about pumps that is open now."""
    schema = 'name = "pumps"\n[label]\nname = "failed"\nclasses = ["no", "yes"]\n'
    schema += '[[features]]\nname = "sound"\nkind = "categorical"\nvalues = ["calm", "rattling"]\n'
    (tmp_path / "schema.toml").write_text(schema, "utf-8")
    hearsay = [sys.executable, "-m", "aggregator.entry"]
    terms = ["--epsilon", "1", "--mechanism", "direct", "-o", "c.hsc"]
    for words in (["init", "work", "--no-passphrase"], ["campaign", "schema.toml", *terms], ["publish", "--to", "www"]):
        workspace = [] if words[0] == "init" else ["--workspace", "work"]
        subprocess.run([*hearsay, *words, *workspace], cwd=tmp_path, check=True, capture_output=True)
    with Device.provision(tmp_path / "state", trust=(tmp_path / "work" / "root.hst").read_bytes()):
        return tmp_path


@pytest.mark.parametrize("program", ["in_thread.py", pytest.param("in_asyncio.py", marks=pytest.mark.slow)])
def test_the_programs_as_the_readme_runs_them(pumps, program):
    with TreeServer(pumps / "www") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        command = [sys.executable, "-W", "error", EXAMPLE / program, "--state", "state", "--source", server.url]
        command += ["--campaign", "pumps", "--report-seconds", "0.1", "--sync-seconds", "0.2"]
        process = subprocess.Popen(command, cwd=pumps, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_for(lambda: sent(pumps / "www") or process.poll() is not None)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
            server.shutdown()
            thread.join()
    assert (process.returncode, out) == (0, ""), err
    for said in (
        "enrol: pumps version 1",
        "report: answered pumps version 1",
        "ack: 1 reports released",
        "loop ending",
    ):
        assert f"{said}\n" in err
    assert not re.search("calm|rattling|Traceback|WARNING|ERROR", err)
    with Device.open(pumps / "state") as device:
        assert device.status().spent_micro == 1_000_000


@pytest.mark.parametrize("program", ["in_thread.py", "in_asyncio.py"])
def test_a_device_that_is_not_provisioned_is_one_line(tmp_path, program):
    command = [sys.executable, EXAMPLE / program, "--state", tmp_path / "state", "--source", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch("(.* INFO edge_sdk .*\n)?not_provisioned: .*\n", done.stderr)


def test_a_token_that_can_not_be_read_is_one_line(tmp_path):
    command = [sys.executable, EXAMPLE / "in_thread.py", "--state", tmp_path / "s", "--source", tmp_path]
    run = subprocess.run([*command, "--token", tmp_path / "none"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.endswith(f"--token: {tmp_path / 'none'} can not be read: No such file or directory\n")


def test_the_readme_names_what_is_there():
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)` \| `(\w+\.py)` \|", readme, re.MULTILINE)
    assert [name for name, _ in named] == ["Loop", "Background", "run"]
    for name, file in named:
        assert re.search(rf"^(class|def|async def) {name}\b", (EXAMPLE / file).read_text("utf-8"), re.MULTILINE)
