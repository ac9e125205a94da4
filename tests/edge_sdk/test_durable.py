"""Batch files in shared folders: planted links, competing writers, leftover files, disks without hard links."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from support.failures import failure, reason
from support.reports import records_in

import edge_sdk.storage.atomic_files
from edge_sdk import Device
from edge_sdk.storage.atomic_files import ABANDONED_SECONDS, replace, write_new
from edge_sdk.storage.outbox import Fetched, FetchNote

RECORD = {"odor": "n", "width": 3.2}


@pytest.fixture
def reporting(device, publisher):
    device.report(device.enrol(publisher.campaign()).id, RECORD, label="e")
    return device


def unfinished(folder):
    return [path for path in folder.iterdir() if path.name.endswith(".tmp")]


def deny(monkeypatch, name, number, module=os):
    def denied(*_arguments, **_options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, name, denied)


@pytest.mark.parametrize("target_exists", [True, False])
def test_a_planted_link_is_not_followed(reporting, tmp_path, target_exists):
    outbox, treasure = tmp_path / "outbox", tmp_path / "treasure"
    outbox.mkdir()
    if target_exists:
        treasure.write_bytes(b"gold")
    (outbox / ".x.hsr.tmp").symlink_to(treasure)  # the name that an earlier version used
    (outbox / "x.hsr").symlink_to(treasure)
    assert reason(reporting.drain, outbox / "x.hsr") == "file_exists"
    assert reporting.drain(outbox / "y.hsr") == 1
    assert treasure.exists() == target_exists
    assert not target_exists or treasure.read_bytes() == b"gold"
    assert not (outbox / "y.hsr").is_symlink()


def test_the_unfinished_file_can_not_be_foreseen_and_is_private(tmp_path):
    names = set()

    def note(file):
        names.add(Path(file.name).name)
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600

    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        write_new(str(tmp_path / folder / "x.hsr"), note)
        assert [path.name for path in (tmp_path / folder).iterdir()] == ["x.hsr"]
    assert len(names) == 3


@pytest.mark.parametrize("links", [True, False])
def test_a_name_taken_meanwhile_is_not_overwritten(tmp_path, monkeypatch, links):
    if not links:
        deny(monkeypatch, "link", errno.EPERM)
    path = tmp_path / "x.hsr"
    with pytest.raises(FileExistsError):
        write_new(str(path), lambda _file: path.write_bytes(b"rival"))
    assert path.read_bytes() == b"rival"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("number", "expected"), [(errno.ENOSPC, "disk_full"), (errno.EIO, "io_failed")])
@pytest.mark.parametrize("step", ["link", "fsync", "rename", "flush_folder"])
def test_a_failing_step_leaves_neither_file_nor_leftover(reporting, tmp_path, monkeypatch, step, number, expected):
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    with monkeypatch.context() as patch:
        if step == "rename":
            deny(patch, "link", errno.EPERM)
        deny(patch, step, number, edge_sdk.storage.atomic_files if step == "flush_folder" else os)
        assert reason(reporting.drain, outbox / "x.hsr") == expected
    assert list(outbox.iterdir()) == []
    assert reporting.status().spooled == 1
    assert reporting.drain(outbox / "x.hsr") == 1


def test_leftovers_of_crashed_drains_go_and_everything_else_stays(reporting, tmp_path):
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    old, new, other = ".a.hsr.0123456789abcdef.tmp", ".b.hsr.0123456789abcdef.tmp", ".c.hsr.tmp"
    kept = [new, other, "d.0123456789abcdef.tmp", ".e.0123456789ABCDEF.tmp", ".f.0123456789abcdef", "g.hsr"]
    for name in (old, *kept):
        (outbox / name).write_bytes(b"x")
        age = 0 if name == new else ABANDONED_SECONDS + 60
        stamp = (outbox / name).stat().st_mtime - age
        os.utime(outbox / name, (stamp, stamp))
    (outbox / ".h.0123456789abcdef.tmp").mkdir()
    os.utime(outbox / ".h.0123456789abcdef.tmp", (0, 0))
    assert reporting.drain(outbox / "x.hsr") == 1
    left = {path.name for path in outbox.iterdir()}
    assert left == {*kept, "x.hsr", ".h.0123456789abcdef.tmp"}


class FullDisk:
    """A connection whose disk is full for statements for which ``fails`` is true."""

    def __init__(self, plain, fails):
        self.plain, self.fails = plain, fails

    def __getattr__(self, name):
        return getattr(self.plain, name)

    def execute(self, statement, values=()):
        if self.fails(statement):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        return self.plain.execute(statement, values)


@pytest.mark.parametrize("fault", ["INSERT INTO sealed", "COMMIT"])
def test_a_file_that_can_not_be_noted_is_said_and_nothing_is_lost(reporting, tmp_path, monkeypatch, fault):
    state = reporting._state
    monkeypatch.setattr(state, "_connection", FullDisk(state._connection, lambda each: each.startswith(fault)))
    error = failure(reporting.drain, tmp_path / "x.hsr")
    monkeypatch.undo()
    assert error.reason == "disk_full"
    assert "the batch file is whole and holds the reports" in error.detail
    assert error.__context__ is None
    assert len(records_in((tmp_path / "x.hsr").read_bytes())) == 1
    assert reporting.status().spooled == 1
    assert reporting.drain(tmp_path / "again.hsr") == 1
    assert (tmp_path / "again.hsr").read_bytes() == (tmp_path / "x.hsr").read_bytes()
    assert reporting.ack(tmp_path / "x.hsr") == 1
    assert reporting.status().spooled == 0


@pytest.mark.parametrize("helps", [True, False])
def test_the_owner_opts_out_on_a_full_disk_or_reads_what_was_changed(tmp_path, publisher, clock, monkeypatch, helps):
    """A journal in memory needs no space. If that does not help either, the outbox and the reports stay."""
    waiting = tmp_path / "outbox" / f"{'0' * 32}.hsr"
    waiting.parent.mkdir()
    with Device.provision(tmp_path, publisher.root(), clock=clock) as device:
        device.report(device.enrol(publisher.campaign()).id, RECORD, label="e")
        device.drain(waiting)
        state, in_memory = device._state, []

        def fails(statement):
            in_memory.extend([helps] * statement.endswith("journal_mode = MEMORY"))
            return statement.startswith(("INSERT", "REPLACE", "UPDATE", "DELETE")) and not any(in_memory)

        monkeypatch.setattr(state, "_connection", FullDisk(state._connection, fails))
        if helps:
            device.disable()
        else:
            error = failure(device.disable)
            assert (error.reason, "nothing was changed" in error.detail) == ("disk_full", False)
            assert "disable it again" in error.detail
        monkeypatch.undo()
        status = device.status()
        assert (status.disabled, status.spooled, waiting.exists()) == (helps, int(not helps), not helps)
        assert state.run("PRAGMA journal_mode") == [("truncate",)]
        device.disable()
        assert device.status().disabled
        assert not waiting.exists()


def made_no_file(path, kind):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root can make a device")
    else:
        path.symlink_to("absent")


@pytest.mark.parametrize("kind", ["pipe", "device", "dangling"])
def test_a_device_pipe_or_dangling_link_is_not_replaced(reporting, tmp_path, kind):
    """Neither by a drained batch, which is always a new file, nor by a file whose content is replaced."""
    place = tmp_path / "x.hsr"
    made_no_file(place, kind)
    before = place.lstat()
    assert reason(reporting.drain, place) == "file_exists"
    with pytest.raises(OSError, match="Invalid argument"):
        replace(str(place), b"new")
    assert (place.lstat().st_ino, place.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert unfinished(tmp_path) == []


@pytest.mark.parametrize("name", ["fetched.json", "fetched.json.new"])
@pytest.mark.parametrize("kind", ["pipe", "device", "dangling"])
def test_the_notes_of_sync_wait_for_no_pipe_and_replace_no_device(tmp_path, name, kind):
    made_no_file(tmp_path / name, kind)
    before = (tmp_path / name).lstat()
    notes = Fetched(str(tmp_path), "source")
    notes.put("campaigns/a.hsc", FetchNote(1, "00", ""))
    saved = threading.Thread(target=notes.save, daemon=True)
    saved.start()
    saved.join(10)
    assert not saved.is_alive()
    if name == "fetched.json":
        assert ((tmp_path / name).lstat().st_ino, (tmp_path / name).lstat().st_mode) == (before.st_ino, before.st_mode)
    else:
        assert Fetched(str(tmp_path), "source").get("campaigns/a.hsc", 1) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fetched.json"]
