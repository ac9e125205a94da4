"""A device is provisioned once. A state that is lost later is never replaced by a new one unasked."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import pytest
from support.failures import failure, reason
from support.killed import killed_before
from support.publisher import DAY, NOW, Publisher, installed

import edge_sdk.opening
import edge_sdk.storage.marker
from edge_sdk import Device
from edge_sdk.carriers import open_transport
from edge_sdk.status import disk_may_forget
from edge_sdk.storage.database import State
from edge_sdk.storage.marker import Marker, note_in_marker, read_marker, system_machine, used_mark, write_marker
from edge_sdk.storage.rows import SCHEMA
from edge_sdk.sync import sync
from protocol.batches.report import report_id
from protocol.documents.provisioning import Provisioning, build_provisioning
from protocol.errors import StorageError

RECORD = {"odor": "n"}
SECRET = bytes(range(32))
FILE = build_provisioning(Provisioning("pumps", "pump 7", SECRET))


def new_file(number):
    return build_provisioning(Provisioning("pumps", "pump 7", bytes([number]) * 32))


@pytest.fixture
def lived(tmp_path, publisher, clock):
    """The folder of a device that has answered three times."""
    folder = tmp_path / "state"
    with Device.provision(folder, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        for _ in range(3):
            device.report(campaign.id, RECORD)
            clock.now += DAY
    return folder


def lose(folder, how):
    if how == "missing":
        (folder / "state.db").unlink()
    elif how == "empty":
        os.truncate(folder / "state.db", 0)
    elif how == "overwritten":
        (folder / "state.db").write_bytes(b"\xff" * 8192)
    elif how == "fewer lines":
        connection = sqlite3.connect(folder / "state.db")
        with connection:
            connection.execute("DELETE FROM ledger WHERE number = 2")
        connection.close()


LOSSES = ["missing", "empty", "overwritten", "fewer lines"]


@pytest.mark.parametrize("how", LOSSES)
def test_a_lost_state_is_refused_and_a_reset_makes_a_new_secret_and_counts_the_whole_budget(
    lived, publisher, clock, how
):
    with Device.open(lived, clock=clock) as device:
        campaign = device.campaigns()[0]
        old = device.report(campaign.id, RECORD)
    lose(lived, how)
    for root in (None, publisher.root()):
        assert reason(Device.provision, lived, root, clock=clock) == "state_lost"
    assert Device.reset(lived, publisher.root(), clock=clock) == 100_000_000
    with Device.open(lived, clock=clock) as device:
        assert device.status().left_micro == 0
        assert device.campaigns() == []
        assert [line.campaign for line in device.history()] == [""]
        device.enrol(publisher.campaign())
        assert reason(device.report, campaign.id, RECORD) == "budget_exhausted"
    (lived / "policy.toml").write_text('epsilon_lifetime = "101"\n')
    with Device.open(lived, clock=clock) as device:
        new = device.report(campaign.id, RECORD)
        assert new[2:10] != old[2:10]
        assert device.status().left_micro == 0
    assert sorted(path.name for path in lived.iterdir()) == [
        "highest",
        "installed",
        "policy.toml",
        "state.db",
        "state.db-journal",
    ]


def test_a_reset_that_can_not_trust_the_root_changes_nothing(lived, publisher, clock):
    broken = bytearray(publisher.root())
    broken[-1] ^= 1
    before = (lived / "state.db").read_bytes()
    assert reason(Device.reset, lived, bytes(broken), clock=clock) == "bad_signature"
    assert (lived / "state.db").read_bytes() == before
    with Device.open(lived, clock=clock) as device:
        assert device.status().spent_micro == 3_000_000


@pytest.mark.parametrize("damaged", [False, True])
def test_a_killed_reset_leaves_the_old_state_or_the_new_with_all_paid_periods(
    lived, publisher, clock, tmp_path, damaged
):
    """A damaged state is one that may be taken away meanwhile: then there is none, which is refused."""
    if damaged:
        lose(lived, "overwritten")
    shutil.copytree(lived, tmp_path / "kept")
    seen = set()
    for number in count(1 + damaged, 4):
        if not killed_before(lambda: Device.reset(lived, publisher.root(), clock=clock), number):
            break
        found = reason(Device.open, lived, clock=clock)
        assert found in ((None, "state_lost") if damaged else (None,))
        for _ in range(2):
            if found is None:
                with Device.open(lived, clock=clock) as device:
                    seen.add(device.status().spent_micro)
                    paid = [line.period for line in device.history() if line.campaign]
                assert paid == ([] if damaged else [NOW // DAY, NOW // DAY + 1, NOW // DAY + 2])
            assert Device.reset(lived, publisher.root(), clock=clock) == 100_000_000
            found = None
        shutil.rmtree(lived)
        shutil.copytree(tmp_path / "kept", lived)
    assert seen == ({100_000_000} if damaged else {3_000_000, 100_000_000})


def test_an_installation_that_stopped_before_its_marker_is_finished_next_time(tmp_path, publisher, clock, monkeypatch):
    def power(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(edge_sdk.storage.marker, "write_marker", power)
        with pytest.raises(KeyboardInterrupt):
            Device.provision(tmp_path, trust=publisher.root(), clock=clock)
    assert not (tmp_path / "installed").exists()
    with Device.open(tmp_path, clock=clock) as device:
        assert (tmp_path / "installed").exists()
        assert device.status().root_version == 1


def test_a_state_that_is_taken_away_while_it_is_used_is_lost(tmp_path, publisher, clock):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        (tmp_path / "state.db").unlink()
        assert reason(device.report, campaign.id, RECORD) == "state_lost"
    assert reason(Device.open, tmp_path, clock=clock) == "state_lost"


def open_on(machine, folder, publisher, clock):
    """Open, or provision, on a machine with an id (None: without one)."""
    return installed(Device, folder, publisher.root(), clock=clock, machine=lambda: machine)


@pytest.mark.parametrize(
    ("made", "used"), [(b"a" * 32, b"b" * 32), (b"a" * 32, None), (None, b"b" * 32)], ids=["other", "lost", "image"]
)
def test_a_copy_on_another_machine_classifies_and_answers_nothing(tmp_path, publisher, clock, made, used):
    """``image``: provisioned where there is no id, as in an image, and used on machines that have one."""
    with open_on(made, tmp_path / "here", publisher, clock) as device:
        campaign = device.enrol(publisher.campaign())
        device.report(campaign.id, RECORD)
        device.install(publisher.model())
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    clock.now += DAY
    with open_on(used, tmp_path / "there", publisher, clock) as device:
        assert device.status().copied
        assert device.status().to_json()["machine"] == ("ids" if made else "none")
        for act in (
            lambda: device.report(campaign.id, RECORD),
            lambda: device.enrol(publisher.campaign(name="other")),
            device.enable,
        ):
            assert reason(act) == "state_copied"
        assert device.model().predict(RECORD) in device.model().classes
        device.install(publisher.model(version=2))
        assert device.drain(tmp_path / "old.hsr") == 1  # the same bytes as the original's
        device.disable()
        assert reason(device.enable) == "state_copied"
    with open_on(made, tmp_path / "here", publisher, clock) as device:
        assert not device.status().copied
        device.report(campaign.id, RECORD)
    Device.reset(tmp_path / "there", publisher.root(), clock=clock, machine=lambda: used)
    with open_on(used, tmp_path / "there", publisher, clock) as device:
        assert (device.status().left_micro, device.status().copied) == (0, False)


def test_a_file_tells_machines_from_others(tmp_path, publisher, clock):
    """The state names it, so that every program that opens the state reads it."""
    file = tmp_path / "board"
    make = partial(Device.provision, tmp_path / "s", publisher.root(), clock=clock, machine_id=file)
    begin_anew = partial(Device.reset, tmp_path / "s", publisher.root(), clock=clock, machine_id=file)
    for content in (None, b" \n"):
        if content is not None:
            file.write_bytes(content)
        assert (reason(make), reason(begin_anew)) == ("machine_unknown", "machine_unknown")
        assert not (tmp_path / "s").exists()
    file.write_bytes(b"pump 7\n")
    assert reason(make, machine=lambda: b"a" * 32) == "argument_invalid"
    make().close()
    for content, copied in ((b"pump 7", False), (b"pump 8", True), (b"", True)):
        file.write_bytes(content)
        with Device.open(tmp_path / "s", clock=clock) as device:
            assert (device.status().machine, device.status().copied) == (str(file), copied)
    file.write_bytes(b"pump 8")
    Device.reset(tmp_path / "s", publisher.root(), clock=clock)  # the file that the old state names
    with Device.open(tmp_path / "s", clock=clock) as device:
        assert (device.status().machine, device.status().copied) == (str(file), False)
    file.unlink()
    with Device.open(tmp_path / "s", clock=clock) as device:
        assert device.status().copied


def test_a_program_that_opens_makes_no_device(tmp_path, publisher, clock):
    """With a root at hand too: a folder that is gone is no place for a second answer of the period."""
    folder = tmp_path / "state"
    assert reason(Device.open, folder, publisher.root(), clock=clock) == "not_provisioned"
    with Device.provision(folder, publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        device.report(campaign.id, RECORD)
    assert reason(Device.provision, folder, publisher.root(), clock=clock) == "already_provisioned"
    with Device.open(folder, publisher.root(), clock=clock) as device:
        assert device.status().spent_micro == 1_000_000
    shutil.rmtree(folder)
    for root in (None, publisher.root()):
        error = failure(Device.open, folder, root, clock=clock)
        assert error.reason == "not_provisioned"
        assert "there is no such folder" in error.detail
        assert "do not provision" in error.detail
    assert not folder.exists()
    folder.mkdir()  # a disk that is not mounted
    error = failure(Device.open, folder, publisher.root(), clock=clock)
    assert "no device is installed in it" in error.detail
    assert "do not provision" in error.detail
    assert not list(folder.iterdir())
    assert reason(Device.open, None, clock=clock) == "not_provisioned"


def test_the_folder_of_another_user_is_no_empty_one(tmp_path, publisher, clock, monkeypatch):
    Device.provision(tmp_path, publisher.root(), clock=clock).close()
    plain = {"lstat": os.lstat, "open": os.open}

    def refused(plain):
        def call(path, *arguments, **options):
            if os.fspath(path).startswith(str(tmp_path) + "/"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return plain(path, *arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name, function in plain.items():
            patch.setattr(os, name, refused(function))
        found = [failure(each, tmp_path, publisher.root(), clock=clock) for each in (Device.open, Device.provision)]
        found.append(failure(Device.reset, tmp_path, publisher.root(), clock=clock))
        assert reason(read_marker, str(tmp_path / "installed")) == "io_failed"
    assert [each.reason for each in found] == ["io_failed"] * 3
    assert all("Permission denied" in each.detail and "the user who" in each.detail for each in found)


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"\xff", b'{"epsilon_lifetime_micro": 5, "enrolments": []}', b"[" * 9000]
)
def test_a_marker_that_can_not_be_read_still_is_one(tmp_path, raw):
    (tmp_path / "installed").write_bytes(raw)
    assert read_marker(str(tmp_path / "installed")) == Marker(whole=False)
    assert reason(Device.provision, tmp_path, Publisher().root()) == "state_lost"


def test_a_marker_says_no_more_than_it_must(tmp_path):
    place = str(tmp_path / "installed")
    assert read_marker(place) is None
    write_marker(place, Marker(5, ("ab",)))
    assert read_marker(place) == Marker(5, ("ab",))
    first, gap, second, end = (tmp_path / "installed").read_bytes().split(b"\n")
    assert (first, gap, end) == (second, b"", b"")
    assert json.loads(first[65:]) == {
        "format": 2,
        "epsilon_lifetime_micro": 5,
        "enrolments": ["ab"],
        "whole": True,
        "policy": False,
    }
    assert (tmp_path / "installed").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("digits", [1, 2])
def test_a_rotten_marker_lets_no_used_provisioning_file_in(tmp_path, publisher, clock, digits):
    """A changed digit in one copy of the mark is harmless. In both copies, no provisioning file is accepted."""
    place = tmp_path / "installed"
    with Device.provision(tmp_path, trust=publisher.root(), enrolment=FILE, clock=clock) as device:
        device.report(device.enrol(publisher.campaign()).id, RECORD)
    mark = used_mark(SECRET).encode()
    place.write_bytes(place.read_bytes().replace(mark, b"x" + mark[1:], digits))
    used = reason(Device.reset, tmp_path, publisher.root(), enrolment=FILE, clock=clock)
    assert used == ("enrolment_used" if digits == 1 else "state_damaged")
    fresh = new_file(7)
    with Device.open(tmp_path, clock=clock) as device:  # the state knows the one secret that it has
        device.disable()
        assert reason(device.enable, FILE) == used
        assert reason(device.enable, fresh) == (None if digits == 1 else "state_damaged")
    assert used_mark(SECRET) in read_marker(str(place)).enrolments
    if digits == 2:  # the owner says that the new file was never used
        place.unlink()
        assert Device.reset(tmp_path, publisher.root(), enrolment=fresh, clock=clock) > 0


def test_a_marker_that_is_written_late_names_the_secret_of_the_state(tmp_path, publisher, clock):
    Device.provision(tmp_path, trust=publisher.root(), enrolment=FILE, clock=clock).close()
    (tmp_path / "installed").unlink()  # the files after a power cut that follows the making of the state
    Device.open(tmp_path, clock=clock).close()
    assert reason(Device.reset, tmp_path, publisher.root(), enrolment=FILE, clock=clock) == "enrolment_used"


def test_a_provisioning_file_makes_the_ids_and_is_used_once_it_reached_the_disk(
    tmp_path, publisher, clock, monkeypatch
):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    with Device.provision(tmp_path, trust=publisher.root(), enrolment=FILE, clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        said = device.report(campaign.id, RECORD)
    assert said[2:10] == report_id(SECRET, campaign.id, NOW // DAY, 0)
    assert reason(Device.open, tmp_path, enrolment=new_file(8), clock=clock) == "enrolment_late"
    with Device.open(tmp_path, enrolment=FILE, clock=clock) as device:  # the same once more does no harm
        assert device.report(campaign.id, RECORD) == said
        device.disable()
        with monkeypatch.context() as patch:
            patch.setattr(State, "_commit", full)
            assert failure(device.enable, new_file(9)).reason == "disk_full"
        assert reason(device.enable, FILE) == "enrolment_used"
        device.enable(new_file(9))
        device.disable()
        assert reason(device.enable, new_file(9)) == "enrolment_used"
    (tmp_path / "state.db").unlink()
    for used in (FILE, new_file(9), build_provisioning(Provisioning("other", "name", bytes([9]) * 32))):
        error = failure(Device.reset, tmp_path, publisher.root(), enrolment=used, clock=clock)
        assert error.reason == "enrolment_used"
        assert SECRET.hex() not in str(error)
    assert Device.reset(tmp_path, publisher.root(), enrolment=new_file(7), clock=clock) > 0


@pytest.mark.parametrize("state", ["whole", "overwritten", "missing"])
def test_a_file_is_used_once_a_state_on_the_disk_has_its_secret_and_never_before(tmp_path, publisher, clock, state):
    """A reset is killed before every fifth change of the folder, then repeated with the same file and killed, too."""
    folder, kept = tmp_path / "state", tmp_path / "kept"
    with Device.provision(kept, publisher.root(), enrolment=FILE, clock=clock) as device:
        device.disable()
    if state != "whole":
        lose(kept, state)

    def reset(file):
        return reason(Device.reset, folder, publisher.root(), enrolment=file, clock=clock)

    seen, killed = set(), True
    for number in count(1, 5):
        shutil.copytree(kept, folder)
        killed = all(killed_before(lambda: reset(new_file(9)), each) for each in (number, number // 2 + 1))
        used = False
        with contextlib.suppress(StorageError), Device.open(folder, clock=clock) as device:
            used = device._state.meta("secret") == bytes([9]) * 32
        assert reset(new_file(9)) == ("enrolment_used" if used else None), number
        assert reset(FILE) == "enrolment_used"
        (folder / "state.db").unlink()
        assert reset(new_file(9)) == "enrolment_used"
        seen.add((killed, used))
        shutil.rmtree(folder)
        if not killed:
            break
    assert {(True, False), (False, True)} <= seen


def test_a_lost_state_after_a_stopped_reset_lets_no_used_file_in(tmp_path, publisher, clock, monkeypatch):
    """An enable whose note in the marker was still missing, a loss, a stopped reset with another file."""
    with Device.provision(tmp_path, publisher.root(), enrolment=FILE, clock=clock) as device:
        device.disable()
        with monkeypatch.context() as patch:
            patch.setattr("edge_sdk.storage.secret.note_uses", lambda _: None)
            device.enable(new_file(9))
    lose(tmp_path, "missing")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(edge_sdk.opening, "note_in_marker", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            Device.reset(tmp_path, publisher.root(), enrolment=new_file(8), clock=clock)
    assert reason(Device.reset, tmp_path, publisher.root(), enrolment=new_file(9), clock=clock) == "enrolment_used"
    assert reason(Device.reset, tmp_path, publisher.root(), enrolment=new_file(8), clock=clock) is None


def test_writers_of_the_marker_lose_nothing_of_each_other(tmp_path):
    """Each of 8 threads adds marks of its own; without a lock some are overwritten."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: note_in_marker(str(tmp_path), uses=[f"{number:02}"]), range(64)))
    assert len(read_marker(str(tmp_path / "installed")).enrolments) == 64


@pytest.mark.parametrize("answers", [False, True])
def test_a_reset_counts_the_largest_lifetime_under_which_something_was_answered(tmp_path, publisher, clock, answers):
    """The owner's policy is often written after the provisioning, under which the defaults held for a moment."""
    with Device.provision(tmp_path, publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        assert device.status().left_micro == 100_000_000
        if answers:
            device.report(campaign.id, RECORD)
    for lifetime in (20, 30, 7):
        (tmp_path / "policy.toml").write_text(f'epsilon_lifetime = "{lifetime}"\n')
        with Device.open(tmp_path, clock=clock) as device:
            clock.now += DAY
            assert lifetime == 7 or device.report(campaign.id, RECORD)
    lose(tmp_path, "missing")
    assert Device.reset(tmp_path, publisher.root(), clock=clock) == (100_000_000 if answers else 30_000_000)


def test_a_state_of_older_software_without_a_machine_is_bound_to_the_first_with_an_id(tmp_path, publisher, clock):
    Device.provision(tmp_path, publisher.root(), clock=clock, machine=lambda: None).close()
    state = State(str(tmp_path / "state.db"))
    with state.transaction():
        state.remove_meta("machine")
    state.close()
    for machine, copied in ((None, False), (b"a" * 32, False), (b"b" * 32, True)):
        with Device.open(tmp_path, clock=clock, machine=lambda machine=machine: machine) as device:
            assert device.status().copied == copied


def test_the_word_of_a_first_start_is_no_id(tmp_path, monkeypatch):
    for name, content in (("id", b"uninitialized\n"), ("serial", b"")):
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr("protocol.database._MACHINE_FILES", (tmp_path / "id", tmp_path / "serial"))
    assert system_machine() is None
    (tmp_path / "id").write_bytes(b"0123456789abcdef\n")
    assert system_machine() is not None


@pytest.mark.parametrize(("kind", "told"), [("overlay", "overlay"), ("tmpfs", "tmpfs"), ("ext4", None), ("vfat", None)])
def test_a_disk_that_may_forget_is_named(tmp_path, kind, told):
    number = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 0:999999 / /other rw - tmpfs tmpfs rw\n"
        f"22 1 {os.major(number)}:{os.minor(number)} / / rw,relatime shared:1 - {kind} /dev/root rw\n"
    )
    assert disk_may_forget(str(tmp_path), str(mounts)) == told
    mounts.write_bytes(b"odd\n\xff - \n")
    assert disk_may_forget(str(tmp_path), str(mounts)) is None
    assert disk_may_forget(str(tmp_path / "absent")) is None


PUMP = True, "pumps", "pump 7"


def fleet(device):
    """Whether a device is in a closed fleet, and the names of both."""
    shown = device.status()
    found = shown.closed_fleet, shown.fleet, shown.device
    assert found == tuple(shown.to_json()[name] for name in ("closed_fleet", "fleet", "device"))
    return found


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_device_of_a_closed_fleet_says_its_name_and_leaves_it_only_if_its_owner_says_so(
    tmp_path, publisher, clock, in_memory
):
    """Under a random secret it would go on spending ε for reports that its fleet does not count."""
    folder = None if in_memory else tmp_path / "state"
    other = build_provisioning(Provisioning("wells", "well 9", bytes([9]) * 32))
    with Device.provision(folder, publisher.root(), enrolment=FILE, clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        assert b"pump" not in device.report(campaign.id, RECORD)
        assert fleet(device) == PUMP
        error = failure(device.enable, leave_fleet=True)
        assert (error.reason, "'disable'" in error.detail) == ("enrolment_late", True)
        device.disable()
        assert fleet(device) == PUMP
        assert reason(device.enable) == "enrolment_missing"
        assert reason(device.report, campaign.id, RECORD) == "disabled"
        assert reason(device.enable, other, leave_fleet=True) == "argument_invalid"
        for _ in ("new", "said twice"):
            device.enable(other)
        assert fleet(device) == (True, "wells", "well 9")
        clock.now += DAY
        assert device.report(campaign.id, RECORD)[2:10] == report_id(bytes([9]) * 32, campaign.id, NOW // DAY + 1, 0)
        device.disable()
        for _ in ("leaves", "has left"):
            device.enable(leave_fleet=True)
        assert fleet(device) == (False, None, None)
        device.disable()
        device.enable()  # it is in no fleet any more
        error = failure(device.enable, new_file(1))
        assert (error.reason, "disable" in error.detail) == ("enrolment_late", True)
        device.disable()
        if folder is not None:
            late = failure(Device.open, folder, enrolment=new_file(1), clock=clock)
            assert (late.reason, "opted this device out" in late.detail) == ("enrolment_late", True)
        device.enable(new_file(1))  # a device may join a fleet when it takes part again
        assert fleet(device) == PUMP


@pytest.mark.parametrize("lost", [False, True])
def test_a_reset_keeps_a_device_in_its_fleet(tmp_path, publisher, clock, lost):
    def begin(**how):
        if lost:
            (tmp_path / "state.db").unlink()
        return reason(Device.reset, tmp_path, publisher.root(), clock=clock, **how)

    Device.provision(tmp_path, publisher.root(), enrolment=FILE, clock=clock).close()
    before = read_marker(str(tmp_path / "installed"))
    assert begin() == "enrolment_missing"
    assert read_marker(str(tmp_path / "installed")) == before
    lost = False
    assert begin(enrolment=new_file(1), leave_fleet=True) == "argument_invalid"
    assert begin(enrolment=new_file(1)) is None
    with Device.open(tmp_path, clock=clock) as device:
        assert fleet(device) == PUMP
    assert begin() == "enrolment_missing"
    assert begin(leave_fleet=True) is None
    assert begin() is None


@pytest.mark.parametrize("at", ["enable", "open"])
def test_a_state_of_older_software_says_only_that_it_is_in_a_fleet_until_its_file_is_given_again(
    tmp_path, publisher, clock, at
):
    Device.provision(tmp_path, publisher.root(), enrolment=FILE, clock=clock).close()
    state = State(str(tmp_path / "state.db"))
    with state.transaction():
        state.write_meta("enrolled", b"1")
    state.close()
    with Device.open(tmp_path, enrolment=FILE if at == "open" else None, clock=clock) as device:
        if at == "enable":
            assert fleet(device) == (True, None, None)
            device.enable(FILE)
        assert fleet(device) == PUMP


def owners(folder):
    """Names of files in a folder, and of those below it, by the number of the user whose they are."""
    found = {}
    for path in folder.rglob("*"):
        found.setdefault(path.lstat().st_uid, set()).add(path.name)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_what_root_makes_in_a_users_state_folder_is_the_users(tmp_path, publisher, clock):
    """One report as root left a marker, and one sync an outbox, that the service could not open."""
    folder, tree, user = tmp_path / "state", tmp_path / "tree", 65_534
    folder.mkdir(mode=0o700)
    os.chown(folder, user, user)
    with Device.provision(folder, publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        device.report(campaign.id, RECORD)
        (folder / "policy.toml").write_text("# defaults")
        os.chown(folder / "policy.toml", user, user)
    with Device.open(folder, clock=clock) as device:
        sync(device, open_transport(str(tree)), folder=folder)
    assert list(owners(folder)) == [user]
    assert {"state.db", "installed", "highest", "outbox"} <= owners(folder)[user]
    for name in ("highest", "installed"):
        (folder / name).unlink()
    clock.now += DAY
    with Device.open(folder, clock=clock) as device:
        device.report(campaign.id, RECORD)
    Device.reset(folder, publisher.root(), clock=clock)
    with Device.open(folder, clock=clock) as device:
        device.disable()
    assert list(owners(folder)) == [user]
    folder.chmod(0o770)  # a folder where others may write, too: whose is what a program makes there is not told
    with Device.open(folder, clock=clock) as device:
        device.drain(folder / "none")
        (folder / "installed").unlink()
    Device.open(folder, clock=clock).close()
    assert owners(folder)[0] == {"installed"}


def test_a_reset_waits_for_no_program_that_holds_the_state(lived, publisher, clock, monkeypatch):
    """Its ledger could be read later, and would be lost."""
    before = (lived / "state.db").read_bytes()
    holder = sqlite3.connect(lived / "state.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr("edge_sdk.storage.database.SCHEMA", SCHEMA._replace(busy_seconds=0.01))
    assert reason(Device.reset, lived, publisher.root(), clock=clock) == "state_busy"
    holder.close()
    assert (lived / "state.db").read_bytes() == before


@pytest.mark.parametrize("way", ["disable", "reset"])
def test_what_waits_in_outboxes_is_taken_back(tmp_path, publisher, clock, way):
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    (elsewhere / "outbox").mkdir(parents=True)
    left = [folder / "outbox" / f".{'0a' * 16}.hsr.{'1b' * 8}.tmp" for folder in (state, elsewhere)]
    kept = [elsewhere / "outbox" / f"{'0c' * 16}.hsr", elsewhere / "outbox" / "notes.hsr", tmp_path / "today.hsr"]
    with Device.provision(state, publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        device.report(campaign.id, RECORD)
        device.drain(kept[2])
        done = sync(device, open_transport(str(tmp_path / "absent")), folder=elsewhere)
        (elsewhere / "fetched.json").touch()
        assert done.refusals[0].step == "outbox"
        (waiting,) = (elsewhere / "outbox").iterdir()
        (state / "outbox").mkdir()
        for path in (*left, *kept[:2]):
            path.touch()
        if way == "disable":
            device.disable()
    if way == "reset":
        Device.reset(state, publisher.root(), clock=clock)
    assert [path for path in (waiting, *left, elsewhere / "fetched.json") if path.exists()] == []
    assert [path for path in kept if not path.exists()] == []  # of another device, of a person, sealed by drain


def test_unfinished_files_do_not_wait_for_the_next_seal(tmp_path, publisher, clock):
    left = [tmp_path / "outbox" / f".{'0a' * 16}.hsr.{str(number) * 16}.tmp" for number in (1, 2)]
    with Device.provision(tmp_path, publisher.root(), clock=clock) as device:
        left[0].parent.mkdir()
        for path in left:
            path.touch()
        os.utime(left[0], (1, 1))
        sync(device, open_transport(str(tmp_path / "absent")))  # there is nothing to seal
    assert list(left[0].parent.iterdir()) == left[1:]  # a writer may still be at the young one


def test_a_disabled_device_answers_nothing_and_keeps_its_ledger(tmp_path, publisher, clock):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        device.install(publisher.model())
        said = device.report(campaign.id, RECORD)
        secret = device._state.meta("secret")
        device.disable()
        for path in tmp_path.iterdir():
            assert said not in path.read_bytes()
            assert secret not in path.read_bytes()
        assert reason(device.report, campaign.id, RECORD) == "disabled"
        assert reason(device.enrol, publisher.campaign(name="other")) == "disabled"
        assert device.drain(tmp_path / "x.hsr") == 0
        assert device.model().predict(RECORD) == "e"
        status = device.status()
        assert (status.disabled, status.spent_micro, status.spooled) == (True, 1_000_000, 0)
        assert status.spool.dropped == {"disabled": 1}
        assert "its owner has opted out (disabled)" in device.explain(publisher.campaign(name="other"))
    with Device.open(tmp_path, clock=clock) as device:
        assert device.status().disabled
        device.enable()
        assert reason(device.report, campaign.id, RECORD) == "period_answered"
        clock.now += DAY
        again = device.report(campaign.id, RECORD)
        assert len(again) == len(said)
        assert device.status().spent_micro == 2_000_000
        assert [line.period for line in device.history()] == [NOW // DAY, NOW // DAY + 1]


def test_on_a_card_that_became_read_only_it_still_classifies_and_tells(tmp_path, publisher, clock, monkeypatch):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        device.install(publisher.model())
        device.report(campaign.id, RECORD)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    plain = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and plain(path, mode))
    with Device.open(tmp_path, clock=clock) as device:
        assert device.model().predict(RECORD) == "e"
        assert device.status().spent_micro == 1_000_000
        assert len(device.history()) == 1
        clock.now += DAY
        for change in (
            lambda: device.report(campaign.id, RECORD),
            lambda: device.enrol(publisher.campaign(name="other")),
            lambda: device.drain(tmp_path / "x.hsr"),
            device.disable,
        ):
            assert reason(change) == "io_failed"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with Device.open(tmp_path, clock=clock, machine=lambda: b"o" * 32) as device:
        assert device.status().copied
