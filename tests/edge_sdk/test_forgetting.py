"""The model of a power cut in the tests: a flushed file keeps its content, a flushed folder keeps its names."""

from __future__ import annotations

import errno
import os

import pytest
from support.faults.disk import CREATE, LINK, RENAME, SYNC, SYNC_FOLDER, TRUNCATE, UNLINK, WRITE, Call, Disk

from edge_sdk.storage import atomic_files as durable


def call(op, first, second="", inode=7, offset=0, data=b"", error=0):
    return Call(op, error, first, second, inode, offset, data)


@pytest.fixture
def disk(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    return Disk(tmp_path)


def names(tree, disk):
    return {path.removeprefix(f"{disk.root}/"): content for path, content in tree.items()}


def test_nothing_counts_that_was_not_flushed_and_a_name_may_stand_without_its_contents(disk):
    new, folder = f"{disk.root}/new", str(disk.root)
    disk.replay([call(CREATE, new), call(WRITE, new, data=b"content")])
    assert names(disk.seen(), disk) == {"old": b"old", "new": b"content"}
    assert names(disk.after_power_cut(), disk) == {"old": b"old"}
    disk.replay([call(SYNC, new)])
    assert names(disk.after_power_cut(), disk) == {"old": b"old"}
    disk.replay([call(SYNC_FOLDER, folder), call(WRITE, new, offset=7, data=b"!"), call(TRUNCATE, new, offset=2)])
    assert names(disk.seen(), disk)["new"] == b"co"
    assert names(disk.after_power_cut(), disk)["new"] == b"content"
    other = f"{disk.root}/other"
    disk.replay([call(CREATE, other, inode=8), call(WRITE, other, inode=8, data=b"x"), call(SYNC_FOLDER, folder)])
    assert names(disk.after_power_cut(), disk)["other"] == b""


def test_a_rename_is_whole_or_not_at_all_and_links_are_names(disk):
    old, new, other = (f"{disk.root}/{name}" for name in ("old", "new", "other"))
    disk.replay([call(LINK, old, other), call(RENAME, old, new)])
    found = {frozenset(names(disk.after_power_cut(seed), disk)) for seed in range(40)}
    assert found == {frozenset(each) for each in (["old"], ["new"], ["old", "other"], ["new", "other"])}
    disk.replay([call(UNLINK, other), call(SYNC_FOLDER, str(disk.root))])
    assert names(disk.after_power_cut(), disk) == {"new": b"old"}


def test_what_a_failed_flush_loses_stays_lost(disk):
    new = f"{disk.root}/new"
    disk.replay([call(CREATE, new), call(SYNC_FOLDER, str(disk.root)), call(WRITE, new, data=b"content")])
    disk.replay([call(SYNC, new, error=errno.EIO), call(SYNC, new)])
    assert names(disk.seen(), disk)["new"] == b"content"
    assert names(disk.after_power_cut(), disk)["new"] == b""


def test_a_folder_is_made_with_those_above_and_every_name_flushed(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(durable, "flush_folder", flushed.append)
    wanted = tmp_path / "a" / "b" / "c"
    durable.make_folder(str(wanted))
    assert wanted.stat().st_mode & 0o777 == 0o700
    assert flushed == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    durable.make_folder(str(wanted))
    assert flushed[3:] == [str(tmp_path / "a" / "b")]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        durable.make_folder(str(tmp_path / "file"))


def test_above_a_folder_that_can_not_be_read_everything_is_flushed(tmp_path, monkeypatch):
    def refused(_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    synced = []
    monkeypatch.setattr(durable, "flush_folder", refused)
    monkeypatch.setattr(os, "sync", lambda: synced.append(1))
    durable.make_folder(str(tmp_path / "a"))
    assert synced == [1]
