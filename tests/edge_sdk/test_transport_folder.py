"""A folder as a source, with files, links and pipes that other users have put there."""

from __future__ import annotations

import errno
import os
import signal
import stat
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import failure, refusal

from edge_sdk.transport.folder import Folder, _same

PLACE = "campaigns/mushrooms.hsc"


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "campaigns").mkdir(parents=True)
    (root / "campaigns" / "mushrooms.hsc").write_bytes(b"content")
    return root


@pytest.fixture(autouse=True)
def impatient():
    """A device that reads from a pipe could wait for ever."""
    signal.alarm(20)
    yield
    signal.alarm(0)


def names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("left", [None, "reports"])
def test_an_empty_mount_point_is_not_the_disk_that_belongs_there(tmp_path, batch, left):
    """Batches in it would be hidden by the next mount, and their reports are forgotten: they would be lost."""
    point = tmp_path / "mnt"
    point.mkdir()
    if left:
        (point / left).mkdir()  # made by a device that took the mount point for the disk
    source = Folder(point)
    assert refusal(source.fetch, PLACE, 100) == "unreachable"
    assert refusal(source.send, "reports/a.hsr", str(batch)) == "unreachable"
    assert names(point) == ([left] if left else [])
    (point / "roots").mkdir()  # mounted
    assert source.fetch(PLACE, 100) is None
    source.send("reports/a.hsr", str(batch))
    assert (point / "reports" / "a.hsr").read_bytes() == batch.read_bytes()


def test_links_fifos_and_devices_are_not_read(tree, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (tree / "a").symlink_to(secret)
    (tree / "b").symlink_to(tmp_path)
    (tree / "c").symlink_to("c")
    (tree / "d").symlink_to("/dev/zero")
    os.mkfifo(tree / "e")
    (tree / "f").mkdir()
    source = Folder(tree)
    for place in ("a", "c", "d", "e", "f"):
        assert refusal(source.fetch, place, 100) == "io_failed", place
    assert source.fetch("b/secret", 100) is None  # as if the link were no folder


def test_a_source_may_itself_be_reached_by_a_link(tree, tmp_path, batch):
    (tmp_path / "current").symlink_to(tree)
    source = Folder(tmp_path / "current")
    assert source.fetch(PLACE, 100).content == b"content"
    source.send("reports/a.hsr", str(batch))
    assert (tree / "reports" / "a.hsr").read_bytes() == batch.read_bytes()


def test_a_batch_is_copied_once_and_never_replaces_another(tree, batch):
    source = Folder(tree)
    source.send("reports/a.hsr", str(batch))
    first = (tree / "reports" / "a.hsr").stat()
    source.send("reports/a.hsr", str(batch))
    assert (tree / "reports" / "a.hsr").stat() == first
    (tree / "reports" / "a.hsr").write_bytes(b"x" + batch.read_bytes()[1:])
    assert refusal(source.send, "reports/a.hsr", str(batch)) == "file_exists"
    assert (tree / "reports" / "a.hsr").read_bytes()[:1] == b"x"
    assert names(tree / "reports") == ["a.hsr"]


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_files_are_the_same_only_if_they_are(one, other):
    import io

    assert _same(io.BytesIO(one), io.BytesIO(other)) == (one == other)
    assert not _same(io.BytesIO(one), io.BytesIO(one + b"x"))


def test_links_do_not_lead_a_batch_elsewhere(tree, tmp_path, batch):
    source = Folder(tree)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tree / "reports").symlink_to(elsewhere)
    assert refusal(source.send, "reports/a.hsr", str(batch)) == "io_failed"
    (tree / "reports").unlink()
    (tree / "reports").mkdir()
    (tree / "reports" / "a.hsr").symlink_to(elsewhere / "b")
    assert refusal(source.send, "reports/a.hsr", str(batch)) in ("io_failed", "file_exists")
    os.mkfifo(tree / "reports" / "p.hsr")
    assert refusal(source.send, "reports/p.hsr", str(batch)) == "io_failed"
    assert names(elsewhere) == []


def test_the_folders_owner_decides_who_may_read(tree, batch):
    source = Folder(tree)
    source.send("reports/a.hsr", str(batch))
    assert stat.S_IMODE((tree / "reports" / "a.hsr").stat().st_mode) == 0o600
    (tree / "reports").chmod(0o2750)
    source.send("reports/b.hsr", str(batch))
    assert stat.S_IMODE((tree / "reports" / "b.hsr").stat().st_mode) == 0o640


@pytest.mark.parametrize(("problem", "reason"), [(errno.ENOSPC, "disk_full"), (errno.EIO, "io_failed")])
def test_a_disk_that_fails_leaves_nothing(tree, batch, monkeypatch, problem, reason):
    def fail(*_):
        raise OSError(problem, os.strerror(problem))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        assert refusal(Folder(tree).send, "reports/a.hsr", str(batch)) == reason
    with monkeypatch.context() as patched:  # a file that stops to be read
        patched.setattr("edge_sdk.transport.folder._open_source", lambda _: nullcontext(SimpleNamespace(read=fail)))
        assert "the file to be sent" in failure(Folder(tree).send, "reports/a.hsr", str(batch)).detail
    assert names(tree / "reports") == []


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe", "loop"])
def test_a_file_that_can_not_be_read_is_not_the_folders_fault(tree, tmp_path, kind):
    path = tmp_path / "mine.hsr"
    {
        "absent": lambda: None,
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "loop": lambda: path.symlink_to(path.name),
    }[kind]()
    for place in ("reports/a.hsr", PLACE):  # a new one, and one that is there
        error = failure(Folder(tree).send, place, str(path))
        assert (error.reason, error.detail.startswith("the file to be sent")) == ("io_failed", True)
    assert names(tree / "reports") == []
