"""Output files are there in full or not at all."""

import os
import socket
import stat
import threading
from contextlib import suppress

import pytest
from support.failures import refusal

from aggregator.common import files
from aggregator.common.files import ORDINARY, PRIVATE, check_outputs, open_output, read_file, write_output
from aggregator.publishing.schemas.schema_file import MAX_FILE_BYTES, load_schema


def names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("write", [write_output, open_output])
@pytest.mark.parametrize(
    ("umask", "mode", "expected"),
    [(0o022, ORDINARY, 0o644), (0o077, ORDINARY, 0o600), (0o000, PRIVATE, 0o600), (0o002, ORDINARY, 0o664)],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_file_has_its_mode_from_its_first_byte_on(tmp_path, monkeypatch, write, umask, mode, expected, there):
    if there:
        (tmp_path / "a").write_bytes(b"old")
        (tmp_path / "a").chmod(0o666)
    modes = set()
    flush = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: modes.add(stat.S_IMODE(os.fstat(handle).st_mode)) or flush(handle))
    monkeypatch.setattr(files, "sync_folder", lambda _: None)
    before = os.umask(umask)
    try:
        if write is write_output:
            write_output(tmp_path / "a", b"new", force=True, mode=mode)
        else:
            with open_output(tmp_path / "a", force=True, mode=mode) as file:
                modes |= {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob(".a.*.tmp")}
                file.write(b"new")
    finally:
        os.umask(before)
    assert modes == {expected}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == expected
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_an_existing_file_is_replaced_only_by_force(tmp_path, monkeypatch):
    write_output(tmp_path / "a", b"old")
    assert refusal(write_output, tmp_path / "a", b"new") == "output_exists"
    assert (tmp_path / "a").read_bytes() == b"old"
    assert refusal(write_output, tmp_path, b"") == "output_invalid"
    assert refusal(write_output, tmp_path / "b" / "a", b"") == "output_invalid"
    (tmp_path / "a").unlink()
    monkeypatch.setattr(files, "check_output", lambda *_, **__: (tmp_path / "a").write_bytes(b"theirs"))
    assert refusal(write_output, tmp_path / "a", b"ours") == "output_exists"  # one that appears meanwhile is kept
    assert ((tmp_path / "a").read_bytes(), names(tmp_path)) == (b"theirs", ["a"])

    def refuse(*_, **__):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert refusal(write_slowly, tmp_path / "a", lambda: (tmp_path / "a").write_bytes(b"theirs")) == "output_exists"
    assert (tmp_path / "a").read_bytes() == b"theirs"


def make_socket(path, monkeypatch):
    monkeypatch.chdir(path.parent)  # the name of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def make_device(path, _):
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make a device")


def make_link(path, _):
    (path.parent / "target").write_bytes(b"old")
    path.symlink_to("target")


def write_slowly(path, meanwhile, **options):
    with open_output(path, **options) as file:
        file.write(b"new")
        meanwhile()


NO_FILES = {
    "pipe": lambda path, _: os.mkfifo(path),
    "socket": make_socket,
    "device": make_device,
    "link": make_link,
    "dangling": lambda path, _: path.symlink_to("target"),
    "loop": lambda path, _: path.symlink_to(path.name),
}


def seen(folder):
    return {
        path.name: (
            path.lstat().st_mode,
            path.lstat().st_ino,
            path.is_symlink() and path.readlink(),
            path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b"",
        )
        for path in folder.iterdir()
    }


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_what_is_no_regular_file_is_never_replaced(tmp_path, monkeypatch, kind, force, late):
    place = tmp_path / "a"
    if late:
        before = {}

        def appear():
            NO_FILES[kind](place, monkeypatch)
            before.update((name, each) for name, each in seen(tmp_path).items() if not name.endswith(".tmp"))

        assert refusal(write_slowly, place, appear, force=force) == "output_invalid"
    else:
        NO_FILES[kind](place, monkeypatch)
        before = seen(tmp_path)
        assert refusal(write_output, place, b"new", force=force) == "output_invalid"
        assert refusal(check_outputs, [place], force=force, inputs=[]) == "output_invalid"
    assert seen(tmp_path) == before


@pytest.mark.parametrize("step", ["fsync", "open", "link", "replace"])
@pytest.mark.parametrize("force", [False, True])
def test_a_failing_disk_leaves_the_old_content(tmp_path, monkeypatch, step, force):
    """A file system without hard links is no failure."""
    if force:
        (tmp_path / "a").write_bytes(b"old")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link" if step == "replace" else step, fail)
    if step == "replace":
        monkeypatch.setattr(files.Path, "replace", fail)
    if step == "link":
        write_output(tmp_path / "a", b"new", force=force)
    else:
        assert refusal(write_output, tmp_path / "a", b"new", force=force) == "disk_full"
    assert names(tmp_path) == (["a"] if force or step == "link" else [])
    if names(tmp_path):
        assert (tmp_path / "a").read_bytes() == (b"new" if step == "link" else b"old")


@pytest.mark.parametrize("read", [lambda path: read_file(path, MAX_FILE_BYTES), load_schema])
def test_a_pipe_is_read_up_to_the_limit(tmp_path, read):
    """A pipe may come from ``<(…)``, and may never end."""
    os.mkfifo(tmp_path / "pipe")
    written = []

    def write():
        with suppress(BrokenPipeError), (tmp_path / "pipe").open("wb", buffering=0) as pipe:
            for _ in range(3 * MAX_FILE_BYTES >> 16):
                pipe.write(b"#" * (1 << 16))
                written.append(1 << 16)

    writer = threading.Thread(target=write)
    writer.start()
    refused = refusal(read, tmp_path / "pipe")
    writer.join()
    assert (refused, sum(written) < 2 * MAX_FILE_BYTES) == ("too_large", True)


def test_reading_is_bounded_also_from_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"12345",))
    writer.start()
    assert read_file(tmp_path / "pipe", 5) == b"12345"
    writer.join()
    (tmp_path / "a").write_bytes(b"12345")
    assert read_file(tmp_path / "a", 5) == b"12345"
    assert refusal(read_file, tmp_path / "a", 4) == "too_large"
    assert refusal(read_file, tmp_path / "absent", 4) == "file_not_found"
    assert refusal(read_file, tmp_path, 4) == "unreadable"
