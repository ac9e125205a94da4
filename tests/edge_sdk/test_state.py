"""A damaged, cut or lost state is an error of ours, never a fresh start; forks and closing do no harm."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from support.failures import failure
from support.publisher import NOW, Publisher

import edge_sdk.state
from edge_sdk import Device, HearsayError
from edge_sdk.ledger import Ledger
from edge_sdk.state import State

RECORD = {"odor": "n", "width": 3.2}
FLIPS = 400


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """The state of a device that has done everything once and has a report to send."""
    folder = tmp_path_factory.mktemp("lived") / "state"
    publisher = Publisher()
    with Device.open(folder, trust=publisher.root(), clock=lambda: NOW) as device:
        device.report(device.enrol(publisher.campaign()).id, RECORD, label="e")
        device.install(publisher.model())
    return folder


@pytest.fixture
def state_dir(lived, tmp_path):
    return shutil.copytree(lived, tmp_path / "state")


def reason(action, *arguments):
    """The stable reason of a refusal. SQLite's error may hang on to it: its text names no value of a record."""
    error = failure(action, *arguments)
    return None if error is None else error.reason


def change(folder, statement, *values):
    connection = sqlite3.connect(folder / "state.db")
    with connection:
        connection.execute(statement, values)
    connection.close()


def opened(folder):
    return Device.open(folder, clock=lambda: NOW)


def whole_life(folder, out):
    """Everything that a device does, each step though the one before was refused."""
    publisher = Publisher()
    for trust in (None, publisher.root()):
        device = failing(Device.open, folder, trust, clock=lambda: NOW)
        if not isinstance(device, Device):
            continue
        with device:
            enrolled = failing(device.campaigns)
            for campaign in enrolled if isinstance(enrolled, list) else []:
                failing(device.report, campaign.id, RECORD, label="e")
            failing(device.status)
            failing(device.explain, publisher.campaign(name="other"))
            failing(device.enrol, publisher.campaign(name="other"))
            model = failing(device.model)
            if not isinstance(model, HearsayError):
                model.predict(RECORD)
            failing(device.install, publisher.model(version=2))
            failing(device.drain, out)
            assert "Device" in repr(device)


def failing(action, *arguments, **options):
    """The result, or our error; any other is the test's failure."""
    try:
        return action(*arguments, **options)
    except HearsayError as error:
        return error


@pytest.fixture
def unflushed(monkeypatch):
    """No waiting for the disk, which takes nine tenths of the time and finds nothing here."""
    plain = edge_sdk.state._execute

    def execute(connection, statement, values=()):
        return plain(connection, statement.replace("= EXTRA", "= OFF"), values)

    monkeypatch.setattr(edge_sdk.state, "_execute", execute)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


def test_no_flipped_bit_of_the_state_raises_anything_but_our_errors(lived, tmp_path, unflushed):
    whole = (lived / "state.db").read_bytes()
    used = [place for place, byte in enumerate(whole) if byte]  # most of a page is empty
    folder = tmp_path / "state"
    folder.mkdir()
    refusals = 0
    for number in range(FLIPS):
        draw = int.from_bytes(sha256(b"flip %d" % number).digest()[:8], "big")
        bit = 8 * used[draw // 8 % len(used)] + draw % 8
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (folder / "state.db").write_bytes(damaged)
        whole_life(folder, tmp_path / f"{number}.hsr")
        refusals += isinstance(failing(opened, folder), HearsayError)
        for path in folder.iterdir():
            path.unlink()
    assert refusals > 0


@pytest.mark.parametrize("column", ["envelope", "digest"])
@pytest.mark.parametrize("role", ["campaign", "model"])
def test_a_stored_document_that_is_not_the_accepted_one_is_damage(state_dir, role, column):
    with opened(state_dir) as device:
        campaign = device.campaigns()[0]
        other = device._documents.all("model" if role == "campaign" else "campaign")[0]
    new = other[2] if column == "envelope" else bytes(32)
    change(state_dir, f"UPDATE documents SET {column} = ? WHERE role = ?", new, role)
    with opened(state_dir) as device:
        assert reason(device._documents.all, role) == "state_damaged"
        assert reason(device.campaigns if role == "campaign" else device.model) == "state_damaged"
        assert reason(device.status) == "state_damaged"
        if (role, column) == ("campaign", "envelope"):
            assert reason(device.report, campaign.id, RECORD) == "state_damaged"
            assert reason(device._documents.payload, "campaign", campaign.id) == "state_damaged"
        assert "can not be read" in repr(device) or role == "model"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE meta SET value = x'00' WHERE key = 'root'",
        "UPDATE meta SET value = 'text' WHERE key = 'root'",
        "UPDATE meta SET value = x'31322e35' WHERE key = 'time_floor'",
        "UPDATE meta SET value = 7 WHERE key = 'secret'",
        "DELETE FROM meta WHERE key = 'secret'",
        "DELETE FROM meta WHERE key = 'root'",
        "DELETE FROM meta WHERE key = 'time_floor'",
        "UPDATE floors SET version = 'one'",
        "UPDATE floors SET digest = 7",
    ],
)
def test_damaged_trust_is_found_when_the_state_is_opened(state_dir, statement):
    change(state_dir, statement)
    for trust in (None, Publisher().root()):
        assert reason(Device.open, state_dir, trust) == "state_lost"


@pytest.mark.parametrize(
    ("statement", "step"),
    [
        ("UPDATE newest SET reports = 5", "report"),
        ("UPDATE spool SET reports = x''", "drain"),
        ("UPDATE spool SET reports = 3", "drain"),
        ("UPDATE spool SET answers = 7", "drain"),
        ("UPDATE spool SET campaign = x'00'", "drain"),
        ("INSERT INTO spool SELECT sequence + 1, campaign, answers, reports || x'00', made_at FROM spool", "drain"),
        ("UPDATE campaigns SET id = x'00'", "drain"),
        ("UPDATE documents SET name = CAST(x'ff' AS TEXT)", "status"),
    ],
)
def test_a_stored_value_of_another_kind_is_damage(state_dir, tmp_path, statement, step):
    change(state_dir, statement)
    with opened(state_dir) as device:
        campaign_id = sha256(Publisher().campaign_payload()).digest()
        steps = {
            "status": device.status,
            "report": lambda: device.report(campaign_id, RECORD),
            "drain": lambda: device.drain(tmp_path / "x.hsr"),
        }
        assert reason(steps[step]) == "state_damaged"
    assert not (tmp_path / "x.hsr").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET epsilon_micro = -5",
        "UPDATE ledger SET epsilon_micro = 'much'",
        "UPDATE ledger SET epsilon_micro = 0.5",
        "UPDATE ledger SET period = 'now'",
        "UPDATE ledger SET total_micro = 0",
        "UPDATE ledger SET sequence = 2",
        "UPDATE newest SET period = period + 1",
        "DELETE FROM ledger",
        "DROP TABLE ledger",
    ],
)
def test_a_ledger_that_does_not_add_up_is_a_lost_state(state_dir, statement):
    change(state_dir, statement)
    assert reason(opened, state_dir) == "state_lost"


def test_damage_that_shows_while_rows_are_fetched_is_ours(state_dir):
    """A page in the middle of a long table is overwritten: the query begins well and fails on the way."""
    with opened(state_dir) as device:
        rows = [(number, 1, 1, bytes(18), NOW) for number in range(10, 2010)]
        with device._state.transaction():
            device._state.run_many("INSERT INTO spool VALUES (?, ?, ?, ?, ?)", rows)
    raw = bytearray((state_dir / "state.db").read_bytes())
    page = 4096
    for start in range(len(raw) - 8 * page, len(raw), page):
        raw[start : start + page] = b"\xff" * page
    (state_dir / "state.db").write_bytes(raw)
    with opened(state_dir) as device:
        assert reason(device._reporting.spool.reports) == "state_damaged"


@pytest.mark.parametrize("length", [0, 1, 100, 4096, 8192])
def test_a_cut_state_is_damage_and_not_a_new_device(state_dir, length):
    os.truncate(state_dir / "state.db", length)
    for trust in (None, Publisher().root()):
        device = failing(Device.open, state_dir, trust, clock=lambda: NOW)
        if isinstance(device, Device):  # the first pages may be enough to open
            with device:
                assert reason(device.status) == "state_damaged"
        else:
            assert device.reason == "state_lost"
    assert (state_dir / "state.db").stat().st_size == length


def test_another_programs_empty_database_is_not_taken_over(tmp_path):
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute("PRAGMA user_version = 0")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("DROP TABLE t")
    connection.close()
    assert (tmp_path / "state.db").stat().st_size > 0
    assert reason(Device.open, tmp_path, Publisher().root()) == "state_damaged"


def test_a_new_state_has_never_been_empty(tmp_path, monkeypatch):
    """Killed when the file gets its name, the creation left nothing or a whole file; both can be provisioned."""
    sizes = []
    plain = os.link

    def link(source, target):
        sizes.append(Path(source).stat().st_size)
        assert not os.path.lexists(target)
        plain(source, target)

    monkeypatch.setattr(os, "link", link)
    State(str(tmp_path / "state.db")).close()
    assert sizes
    assert sizes[0] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.db"]
    assert (tmp_path / "state.db").stat().st_mode & 0o777 == 0o600
    assert reason(Device.open, tmp_path) == "not_provisioned"
    Device.open(tmp_path, Publisher().root()).close()


def test_a_dangling_link_in_the_place_of_the_state_is_refused(tmp_path):
    (tmp_path / "state.db").symlink_to(tmp_path / "elsewhere.db")
    assert reason(Device.open, tmp_path, Publisher().root()) == "io_failed"
    assert not (tmp_path / "elsewhere.db").exists()


def test_two_that_create_one_state_share_it(tmp_path):
    code = "import sys; from edge_sdk.state import State; State(sys.argv[1] + '/state.db').close()"
    children = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    assert {path.name for path in tmp_path.iterdir()} <= {"state.db", "state.db-journal"}


def test_the_repr_of_a_closed_device_does_not_raise(state_dir):
    device = opened(state_dir)
    assert repr(device) == "<Device with 1 campaigns, 1 unsent reports>"
    device.close()
    assert repr(device) == "<Device whose state is closed or can not be read>"
    assert failure(device.status) is not None


FORKS = """
import os, sys, threading, time
sys.path.insert(0, "tests")
from edge_sdk import Device
from support.publisher import NOW, Publisher

inside = threading.Event()

def slow_entropy(count):
    inside.set()
    time.sleep(0.5)
    return os.urandom(count)

publisher = Publisher()
device = Device.open(sys.argv[1], trust=publisher.root(), clock=lambda: NOW, entropy=os.urandom)
campaign = device.enrol(publisher.campaign())
device._reporting.entropy = slow_entropy
answers = []
thread = threading.Thread(target=lambda: answers.append(device.report(campaign.id, {"odor": "n"})))
thread.start()
inside.wait()
read_end, write_end = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(write_end, device.report(campaign.id, {"odor": "a"}))
    os._exit(0)
thread.join()
assert os.waitpid(pid, 0)[1] == 0
assert [os.read(read_end, 100)] == answers, "the child answered otherwise"
assert device.status().spent_micro == 1_000_000
pid = os.fork()
if pid == 0:
    device.close()  # the parent's connection stays
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(device.drain(sys.argv[1] + "/x.hsr"), len(answers[0]))
"""


def test_a_fork_while_another_thread_reports_does_not_hang(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (result.stdout, result.stderr) == ("1 18\n", "")


def test_forks_leave_no_lock_behind(device, publisher):
    for _ in range(3):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    campaign = device.enrol(publisher.campaign())
    assert len(device.report(campaign.id, RECORD)) == 18
    from edge_sdk import forks

    before = len(forks._locks)
    State(None).close()
    assert len(forks._locks) == before
    assert forks._taken == []


def test_a_ledger_of_many_campaigns_opens_in_one_walk(state_dir):
    """Ten years of weekly versions: opening looks at every line once, not once for every campaign."""
    work = 0

    def count():
        nonlocal work
        work += 1

    with closing(sqlite3.connect(state_dir / "state.db")) as file:
        ((line, total),) = file.execute("SELECT max(sequence), max(total_micro) FROM ledger")
        for step in range(1, 5001):
            values = (line + step, 2 + step // 10, step, 1, 0, total + step)
            file.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)", values)
            if step % 10 == 9:
                file.execute("INSERT INTO newest VALUES (?, ?, x'00')", (2 + step // 10, step))
        file.commit()
    state = State(str(state_dir / "state.db"))
    state._connection.set_progress_handler(count, 1000)
    Ledger(state).check()
    state.run("UPDATE newest SET period = 7 WHERE campaign = 100")
    assert reason(Ledger(state).check) == "state_damaged"
    state.close()
    assert work < 500
