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
from pathlib import Path

import pytest
from support.commands import run
from support.publisher import DAY, NOW, Publisher
from support.watched import wait_for

from aggregator.serving import TreeServer
from edge_sdk import Device
from edge_sdk.carriers import open_transport
from protocol.batches.batch import read_batches

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

    seconds = 0.0

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
    publisher, folder = Publisher(), tmp_path / "tree"
    files = {"roots/1.hst": publisher.root(), "campaigns/mushrooms.hsc": publisher.campaign()}
    for place, content in {**files, "models/mushrooms.hsm": publisher.model(), "reports/.keep": b""}.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    return folder


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


def reports_sent(tree):
    """All reports in all files: the loop's waits are random, so two periods may share a file."""
    pieces = [piece for file in (tree / "reports").glob("*.hsr") for piece in read_batches(file.read_bytes())]
    return sum(count for piece in pieces for _, count in piece.spans)


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


class Wrong:
    """A transport, and a measurement, with a fault that is no refusal."""

    address = "nowhere"

    def fetch(self, place=None, limit=0, tag=""):
        raise RuntimeError("the pump says 3.14159")

    send = fetch


def test_what_is_no_refusal_does_not_end_the_loop_and_is_logged_by_its_type(make, caplog):
    """A device whose measuring fails answers all the same."""
    loop = make(measure=Wrong().fetch, transport=Wrong())
    loop.device.enrol(Publisher().campaign())
    loop.step()
    assert loop.device.status().spooled == 1
    assert "measuring failed, so the record is empty: RuntimeError" in caplog.text
    assert (caplog.text.count("RuntimeError") > 1, "3.14159" in caplog.text) == (True, False)


def test_troubles_are_logged_and_the_next_turn_mends_them(make, tree, tmp_path, clock, caplog):
    """A source that is away for a while, then a budget that is spent."""
    caplog.set_level(logging.INFO)
    tree.rename(tmp_path / "away")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "policy.toml").write_text('epsilon_lifetime = "2"\n', "utf-8")
    loop = make(trusted=tmp_path / "away" / "roots" / "1.hst", report_seconds=3600, sync_seconds=8 * 3600)
    clock.seconds += loop.step()
    assert "sync: roots/2.hst: unreachable" in caplog.text
    (tmp_path / "away").rename(tree)
    while clock.seconds < 4 * DAY:
        clock.seconds += loop.step()
    assert "report refused: budget_exhausted" in caplog.text
    assert reports_sent(tree) == 2


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
def pumps(tmp_path, monkeypatch):
    """A published campaign about pumps that is open now."""
    monkeypatch.chdir(tmp_path)
    schema = 'name = "pumps"\n[label]\nname = "failed"\nclasses = ["no", "yes"]\n'
    schema += '[[features]]\nname = "sound"\nkind = "categorical"\nvalues = ["calm", "rattling"]\n'
    (tmp_path / "schema.toml").write_text(schema, "utf-8")
    terms = "campaign schema.toml --epsilon 1 --mechanism direct -o c.hsc --workspace work"
    for line in ("init work --no-passphrase", terms, "publish --to www --workspace work"):
        run(*line.split())
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
def test_a_device_that_is_not_provisioned_and_a_token_that_can_not_be_read_are_one_line(tmp_path, program):
    command = [sys.executable, EXAMPLE / program, "--state", tmp_path / "state", "--source", "http://127.0.0.1:9"]
    for more, status, said in (
        ((), 1, "(.* INFO edge_sdk .*\n)?not_provisioned: .*\n"),
        (("--token", tmp_path / "none"), 2, r"[^$]*--token: .*/none can not be read: No such file or directory\n"),
    ):
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (status, "")
        assert re.fullmatch(said, done.stderr)


def test_the_readme_names_what_is_there():
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)` \| `(\w+\.py)` \|", readme, re.MULTILINE)
    assert [name for name, _ in named] == ["Loop", "Background", "run"]
    for name, file in named:
        assert re.search(rf"^(class|def|async def) {name}\b", (EXAMPLE / file).read_text("utf-8"), re.MULTILINE)
