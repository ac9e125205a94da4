"""A damaged, truncated or lost state is a HearsayError, never a new beginning; forks and closing are harmless."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from support.examples import examples
from support.failures import failing, refusal
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, HearsayError, Policy
from edge_sdk.storage.database import State
from edge_sdk.storage.ledger import Ledger, Line
from edge_sdk.storage.rows import CAMPAIGNS, LEDGER, SPOOL, Rows, seal
from edge_sdk.storage.spool import Limits
from protocol.documents.campaign import Series

RECORD = {"odor": "n", "width": 3.2}


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """The state of a device that has used every method once and has a report to send."""
    folder = tmp_path_factory.mktemp("lived") / "state"
    publisher = Publisher()
    with Device.provision(folder, trust=publisher.root(), clock=lambda: NOW) as device:
        device.report(device.enrol(publisher.campaign()).id, RECORD, label="e")
        device.install(publisher.model())
    return folder


@pytest.fixture
def state_dir(lived, tmp_path):
    return shutil.copytree(lived, tmp_path / "state")


def change(folder, statement, *values):
    connection = sqlite3.connect(folder / "state.db")
    with connection:
        connection.execute(statement, values)
    connection.close()


def opened(folder):
    return Device.open(folder, clock=lambda: NOW)


@pytest.mark.parametrize("column", ["envelope", "digest"])
@pytest.mark.parametrize("role", ["campaign", "model"])
def test_a_stored_document_that_is_not_the_accepted_one_is_damage(state_dir, role, column):
    with opened(state_dir) as device:
        campaign = device.campaigns()[0]
        other = device._documents.all("model" if role == "campaign" else "campaign")[0]
    new = other[2] if column == "envelope" else bytes(32)
    change(state_dir, f"UPDATE documents SET {column} = ? WHERE role = ?", new, role)
    with opened(state_dir) as device:
        assert refusal(device._documents.all, role) == "state_damaged"
        assert refusal(device.campaigns if role == "campaign" else device.model) == "state_damaged"
        assert refusal(device.status) == "state_damaged"
        if (role, column) == ("campaign", "envelope"):
            assert refusal(device.report, campaign.id, RECORD) == "state_damaged"
            assert refusal(device._documents.payload, "campaign", campaign.id) == "state_damaged"
        assert "can not be read" in repr(device) or role == "model"


DAMAGE = {
    "open": [
        "UPDATE meta SET value = x'00' WHERE key = 'root'",
        "UPDATE meta SET value = 'text' WHERE key = 'root'",
        "UPDATE meta SET value = x'31322e35' WHERE key = 'time_floor'",
        "UPDATE meta SET value = 7 WHERE key = 'secret'",
        "DELETE FROM meta WHERE key = 'secret'",
        "DELETE FROM meta WHERE key = 'root'",
        "DELETE FROM meta WHERE key = 'time_floor'",
        "UPDATE floors SET version = 'one'",
        "UPDATE floors SET digest = 7",
        "UPDATE ledger SET epsilon_micro = -5",
        "UPDATE ledger SET epsilon_micro = 'much'",
        "UPDATE ledger SET epsilon_micro = 0.5",
        "UPDATE ledger SET period = 'now'",
        "UPDATE ledger SET total_micro = 0",
        "UPDATE ledger SET number = 2",
        "UPDATE ledger SET answered_at = answered_at - 1",
        "DELETE FROM ledger",
        "DROP TABLE ledger",
        "UPDATE campaigns SET id = x'00'",
        "UPDATE campaigns SET number = 2",
        "UPDATE campaigns SET period = period + 1",
        "UPDATE campaigns SET time_precision = 1",
        "DELETE FROM campaigns",
        (
            "INSERT INTO campaigns SELECT number + 1, id, name, version, time_precision, line, period, body_digest,"
            " seal, reports FROM campaigns"
        ),
        "UPDATE counts SET rows = 0 WHERE name = 'campaigns'",
        "UPDATE counts SET rows = rows - 1 WHERE name = 'floors'",
        "DELETE FROM counts WHERE name = 'meta'",
    ],
    "report": ["UPDATE campaigns SET reports = 5"],
    "status": ["UPDATE documents SET name = CAST(x'ff' AS TEXT)"],
    "drain": [
        "UPDATE spool SET reports = x''",
        "UPDATE spool SET reports = 3",
        "UPDATE spool SET answers = 7",
        "UPDATE spool SET campaign = x'00'",
        "INSERT INTO spool SELECT number + 1, campaign, 1, made_at, 2, 36, reports || x'00', seal FROM spool",
        "UPDATE spool SET number = number + 1",
        "DELETE FROM spool",
    ],
}
"""The step that finds the damage, and statements that do it. What is found at the opening is a lost state."""


@pytest.mark.parametrize(("step", "statement"), [(step, each) for step in DAMAGE for each in DAMAGE[step]])
def test_a_row_that_is_not_the_stored_one_is_damage(state_dir, tmp_path, step, statement):
    change(state_dir, statement)
    if step == "open":
        for trust in (None, Publisher().root()):
            assert refusal(Device.provision, state_dir, trust) == "state_lost"
        return
    with opened(state_dir) as device:
        steps = {
            "status": device.status,
            "report": lambda: device.report(sha256(Publisher().campaign_payload()).digest(), RECORD),
            "drain": lambda: device.drain(tmp_path / "x.hsr"),
        }
        assert refusal(steps[step]) == "state_damaged"
    assert not (tmp_path / "x.hsr").exists()


def test_damage_that_shows_while_rows_are_fetched_is_ours(state_dir):
    """A page in the middle of a long table is overwritten, so a query fails after its first rows."""
    with opened(state_dir) as device, device._state.transaction():
        for number in range(10, 2010):
            Rows(device._state, SPOOL).add((number, 1, 1, NOW, number, 18 * number, bytes(18)))
    raw = bytearray((state_dir / "state.db").read_bytes())
    page = 4096
    for start in range(len(raw) - 8 * page, len(raw), page):
        raw[start : start + page] = b"\xff" * page
    (state_dir / "state.db").write_bytes(raw)
    with opened(state_dir) as device:
        assert refusal(device._state.run, "SELECT reports FROM spool") == "state_damaged"
        assert refusal(device._reporting.spool.reports) == "state_damaged"


@pytest.mark.parametrize("length", [0, 1, 100, 4096, 8192])
def test_a_cut_state_is_damage_and_not_a_new_device(state_dir, length):
    os.truncate(state_dir / "state.db", length)
    for trust in (None, Publisher().root()):
        device = failing(Device.provision, state_dir, trust, clock=lambda: NOW)
        if isinstance(device, Device):  # the first pages may be enough to open
            with device:
                assert refusal(device.status) == "state_damaged"
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
    assert refusal(Device.provision, tmp_path, Publisher().root()) == "state_damaged"


def test_a_new_state_has_never_been_empty(tmp_path, monkeypatch):
    """A creation that is killed when the file gets its name leaves no file or a complete one, never an empty one."""
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
    assert refusal(Device.open, tmp_path) == "not_provisioned"
    Device.provision(tmp_path, Publisher().root()).close()


def test_a_dangling_link_in_the_place_of_the_state_is_refused(tmp_path):
    (tmp_path / "state.db").symlink_to(tmp_path / "elsewhere.db")
    assert refusal(Device.provision, tmp_path, Publisher().root()) == "io_failed"
    assert not (tmp_path / "elsewhere.db").exists()


def test_two_that_create_one_state_share_it(tmp_path):
    code = "import sys; from edge_sdk.storage.database import State; State(sys.argv[1] + '/state.db').close()"
    children = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [child.wait() for child in children] == [0] * 2
    assert {path.name for path in tmp_path.iterdir()} <= {"state.db", "state.db-journal"}


def test_forks_leave_no_lock_behind(device, publisher):
    for _ in range(3):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    campaign = device.enrol(publisher.campaign())
    assert len(device.report(campaign.id, RECORD)) == 18
    from edge_sdk.storage import database as forks

    gc.collect()  # what tests before this one left
    before = len(forks._locks)
    State(None).close()
    assert len(forks._locks) == before
    assert forks._taken == []


def test_a_ledger_of_many_campaigns_opens_in_one_walk(state_dir):
    """Five years of weekly versions: opening reads every line once, not once for every campaign."""
    work = 0

    def count():
        nonlocal work
        work += 1

    state = State(str(state_dir / "state.db"))
    ledger = Ledger(state)
    last = ledger._newest()
    campaigns = Rows(state, CAMPAIGNS)
    for step in range(1, 2501):
        before = last
        row = (before.number + 1, 2 + step // 10, step, 1, 0, before.latest, before.total_micro + 1)
        last = Line(*row, seal(LEDGER.name, (before.seal, *row)))
        state.run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)", last)
        if step % 10 == 9 or step == 2500:
            number = 2 + step // 10
            campaigns.add((number, b"%32d" % number, "many", number, 1, last.number, step), b"x" * 18)
    state._connection.set_progress_handler(count, 1000)
    ledger.check()
    state.run("UPDATE campaigns SET period = 7 WHERE number = 100")
    assert refusal(ledger.check) == "state_damaged"
    state.close()
    assert work < 250


# An older copy in the place of the state ------------------------------------------------------------------


def in_place(path, content):
    """Write other content into the same file, as restoring a backup by `cp` does."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


@pytest.mark.parametrize("act", ["report", "drain", "enrol"])
def test_an_older_copy_written_over_the_open_state_is_noticed(tmp_path, publisher, clock, act):
    folder = tmp_path / "state"
    with Device.provision(folder, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        device.report(campaign.id, RECORD)
        older = (folder / "state.db").read_bytes()
        clock.now += DAY
        device.report(campaign.id, RECORD)
        in_place(folder / "state.db", older)
        acts = {
            "report": lambda: device.report(campaign.id, RECORD),
            "drain": lambda: device.drain(tmp_path / "x.hsr"),
            "enrol": lambda: device.enrol(publisher.campaign(version=2)),
        }
        assert refusal(acts[act]) == "state_lost"
    assert refusal(Device.open, folder, clock=clock) == "state_lost"
    assert Device.reset(folder, publisher.root(), clock=clock) > 0
    with Device.open(folder, clock=clock) as device:
        assert device.enrol(publisher.campaign(version=2)).id


def test_an_older_copy_is_noticed_when_it_is_opened_though_its_line_was_written_again(tmp_path, publisher, clock):
    folder, other = tmp_path / "state", tmp_path / "other"
    with Device.provision(folder, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign(time_precision=60))
        older = (folder / "state.db").read_bytes()
        device.report(campaign.id, RECORD)
    shutil.copytree(folder, other)
    (other / "state.db").write_bytes(older)
    (other / "highest").unlink()
    clock.now += 60
    with Device.open(other, clock=clock) as device:
        device.report(campaign.id, RECORD)
    in_place(folder / "state.db", (other / "state.db").read_bytes())
    assert refusal(Device.open, folder, clock=clock) == "state_lost"


@pytest.mark.parametrize("before", [0, 1])
def test_an_older_copy_is_noticed_though_another_process_saw_the_newer_line(tmp_path, publisher, clock, before):
    folder = tmp_path / "state"
    with Device.provision(folder, trust=publisher.root(), clock=clock) as stale:
        campaign = stale.enrol(publisher.campaign())
        for _ in range(before):
            stale.report(campaign.id, RECORD)
            clock.now += DAY
        older = (folder / "state.db").read_bytes()
        with Device.open(folder, clock=clock) as other:
            other.report(campaign.id, RECORD)
        in_place(folder / "state.db", older)
        noted = (folder / "highest").read_bytes()
        for act in (lambda: stale.report(campaign.id, RECORD), lambda: stale.drain(tmp_path / "x.hsr")):
            assert refusal(act) == "state_lost"
        assert (folder / "highest").read_bytes() == noted
    assert refusal(Device.open, folder, clock=clock) == "state_lost"


def test_the_note_of_the_highest_line_is_not_taken_back_by_who_is_behind(tmp_path, publisher, clock):
    folder = tmp_path / "state"
    with Device.provision(folder, trust=publisher.root(), clock=clock) as one, Device.open(folder, clock=clock) as two:
        campaign = one.enrol(publisher.campaign())
        for device in (one, two):
            device.report(campaign.id, RECORD)
            clock.now += DAY
        ahead = (folder / "highest").read_bytes()
        one.drain(tmp_path / "x.hsr")
        assert (folder / "highest").read_bytes() == ahead


@pytest.mark.parametrize("content", [None, b"", b"\0" * 24, b"x" * 24, b"x" * 4096])
def test_a_lost_note_of_the_highest_line_says_nothing(state_dir, content):
    place = state_dir / "highest"
    assert place.stat().st_size == 24
    assert place.stat().st_mode & 0o777 == 0o600
    place.unlink()
    if content is not None:
        place.write_bytes(content)
    opened(state_dir).close()


def test_a_device_may_begin_where_only_the_note_of_another_is_left(state_dir):
    for name in ("state.db", "installed"):
        (state_dir / name).unlink()
    with Device.provision(state_dir, Publisher().root(), clock=lambda: NOW) as device:
        assert device.status().spent_micro == 0


def test_a_path_that_is_no_text_can_be_sealed_and_acknowledged(state_dir, tmp_path):
    place = os.fsencode(tmp_path) + b"/\xff.hsr"
    with opened(state_dir) as device:
        assert device.drain(os.fsdecode(place)) == 1
        Path(os.fsdecode(place)).unlink()
        assert device.ack(os.fsdecode(place)) == 1


# One changed bit anywhere ------------------------------------------------------------------------------------

OTHER = {"odor": "f", "width": 1.0}
# Places are drawn by SHA-256 of "rot N": 400 in the slow tier, a quarter in make test, thousands in make faults.
FLIPS = 1000 * int(os.environ.get("HEARSAY_FAULT_SEEDS") or 0) or examples(400).max_examples
POLICY = Policy(day_micro=4_000_000, window_micro=30_000_000, spool=Limits(5, 1_000_000, 365 * DAY))
LAST = NOW + 6 * DAY


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory):
    """A state with rows in every table: answers of four campaigns, a series, sealed files, drops, an ended document."""
    folder = tmp_path_factory.mktemp("many_rows") / "state"
    publisher = Publisher()
    clock = [NOW]
    with Device.provision(folder, trust=publisher.root(), policy=POLICY, clock=lambda: clock[0]) as device:
        for name in ("mushrooms", "ferns"):
            device.enrol(publisher.campaign(name=name))
        for name in ("first", "second"):
            device.enrol(publisher.campaign(name=name, series=Series("pilot", NOW)))
        for day in range(7):
            clock[0] = NOW + day * DAY
            if day == 3:
                device.enrol(publisher.campaign(name="mushrooms", version=2))
            for campaign in device.campaigns():
                failing(device.report, campaign.id, RECORD, label="e")
            if day in (1, 5):
                device.drain(folder.parent / f"sealed-{day}.hsr")
        device.ack(folder.parent / "sealed-1.hsr")
        device.install(publisher.model())
    (folder / "state.db-journal").unlink(missing_ok=True)
    return folder


def told(folder, out):
    """The results of all calls within the period of the last answers, with other records and other noise."""
    found = {}
    device = failing(Device.open, folder, policy=POLICY, clock=lambda: LAST, entropy=lambda count: b"\x55" * count)
    if not isinstance(device, Device):
        return {}
    with device:
        campaigns = failing(device.campaigns)
        if not isinstance(campaigns, HearsayError):
            for campaign in campaigns:
                name = campaign.header.name
                found[f"campaign {name}"] = campaign.id
                found[f"report {name}"] = failing(device.report, campaign.id, OTHER, label="p")
        found["history"] = failing(device.history)
        status = failing(device.status)
        found["status"] = status if isinstance(status, HearsayError) else status.to_json()
        found["evidence"] = failing(device.evidence)
        model = failing(device.model)
        found["model"] = model if isinstance(model, HearsayError) else (model.name, model.version)
        found["rollback"] = failing(device.enrol, Publisher().campaign(name="mushrooms"))
        found["drain"] = failing(device.drain, out)
        failing(device.explain, Publisher().campaign(name="other"))
        failing(device.install, Publisher().model(version=2))
        found["batch"] = out.read_bytes() if out.exists() else None
        found["ack"] = failing(device.ack, folder.parent / "sealed-5.hsr")
        if isinstance(found["ack"], int):  # else nothing was released, and the rest tells nothing
            found["left"] = failing(lambda: device.status().spooled)
    return {key: value for key, value in found.items() if not isinstance(value, HearsayError) and value is not None}


def test_no_rotten_bit_makes_a_second_noise_or_alters_what_is_told(many_rows, tmp_path):
    whole = (many_rows / "state.db").read_bytes()
    used = [place for place, byte in enumerate(whole) if byte]  # most of a page is empty
    room = tmp_path / "room"
    shutil.copytree(many_rows.parent, room)
    folder, out = room / "state", room / "out.hsr"
    before = told(folder, out)
    assert len(before) == 14, sorted(before)
    refused = 0
    wrong = []
    for number in range(FLIPS):
        draw = int.from_bytes(sha256(b"rot %d" % number).digest()[:8], "big")
        bit = 8 * used[draw // 8 % len(used)] + draw % 8
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (folder / "state.db").write_bytes(damaged)
        (folder / "highest").unlink(missing_ok=True)
        out.unlink(missing_ok=True)
        after = told(folder, out)
        refused += len(after) < len(before)
        wrong += [(bit, key) for key, value in after.items() if before.get(key) != value]
    assert wrong == []
    assert refused > FLIPS // 4
