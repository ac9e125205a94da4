"""Output files are there in full or not at all."""

import os
import stat
import threading
from contextlib import suppress

import pytest

from aggregator import files
from aggregator.files import ORDINARY, PRIVATE, open_output, read_file, write_output
from aggregator.schema_file import MAX_FILE_BYTES, load_schema
from protocol.errors import HearsayError


def names(folder):
    return [path.name for path in folder.iterdir()]


def reason_of(function, *arguments, **options):
    with pytest.raises(HearsayError) as refused:
        function(*arguments, **options)
    return refused.value.reason


def test_a_file_is_written_with_its_mode_and_nothing_else_is_left(tmp_path):
    write_output(tmp_path / "a", b"data", mode=0o600)
    assert (tmp_path / "a").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("write", [write_output, open_output])
@pytest.mark.parametrize(
    ("umask", "mode", "expected"),
    [(0o022, ORDINARY, 0o644), (0o077, ORDINARY, 0o600), (0o000, PRIVATE, 0o600), (0o002, ORDINARY, 0o664)],
)
@pytest.mark.parametrize("there", [False, True])
def test_a_file_has_its_mode_from_its_first_byte_on(tmp_path, monkeypatch, write, umask, mode, expected, there):
    """An ordinary one as the user's umask says, a private one private, and so while it replaces a public one."""
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


def test_an_existing_file_is_replaced_only_by_force(tmp_path):
    write_output(tmp_path / "a", b"old")
    assert reason_of(write_output, tmp_path / "a", b"new") == "output_exists"
    assert (tmp_path / "a").read_bytes() == b"old"
    write_output(tmp_path / "a", b"new", force=True)
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "check_output", lambda *_, **__: (tmp_path / "a").write_bytes(b"theirs"))
    assert reason_of(write_output, tmp_path / "a", b"ours") == "output_exists"
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert names(tmp_path) == ["a"]


def test_a_folder_and_a_missing_folder_are_refused(tmp_path):
    assert reason_of(write_output, tmp_path, b"") == "output_invalid"
    assert reason_of(write_output, tmp_path / "b" / "a", b"") == "output_invalid"


@pytest.mark.parametrize("step", ["fsync", "open", "link", "replace"])
@pytest.mark.parametrize("force", [False, True])
def test_a_failing_disk_leaves_the_old_content(tmp_path, monkeypatch, step, force):
    if force:
        (tmp_path / "a").write_bytes(b"old")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    if step == "replace":
        monkeypatch.setattr(files.Path, "replace", fail)
        monkeypatch.setattr(os, "link", fail)
    elif step == "link":
        monkeypatch.setattr(os, "link", fail)
    else:
        monkeypatch.setattr(os, step, fail)
    if step == "link":  # a file system without hard links is no failure
        write_output(tmp_path / "a", b"new", force=force)
        assert (tmp_path / "a").read_bytes() == b"new"
        return
    assert reason_of(write_output, tmp_path / "a", b"new", force=force) == "disk_full"
    assert names(tmp_path) == (["a"] if force else [])
    if force:
        assert (tmp_path / "a").read_bytes() == b"old"


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
    refused = reason_of(read, tmp_path / "pipe")
    writer.join()
    assert (refused, sum(written) < 2 * MAX_FILE_BYTES) == ("too_large", True)


def test_what_comes_through_a_pipe_is_as_in_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"12345",))
    writer.start()
    assert read_file(tmp_path / "pipe", 5) == b"12345"
    writer.join()


def test_reading_is_bounded(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_file(tmp_path / "a", 5) == b"12345"
    assert reason_of(read_file, tmp_path / "a", 4) == "too_large"
    assert reason_of(read_file, tmp_path / "absent", 4) == "file_not_found"
    assert reason_of(read_file, tmp_path, 4) == "unreadable"
