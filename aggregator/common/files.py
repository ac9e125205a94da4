"""Read other users' regular files, and write output files atomically with the right permissions from the first byte on.

Ordinary outputs have mode 0666 less the user's umask. Secrets, credentials and reports have mode 0600
(:data:`PRIVATE`), whatever the umask is and whatever file they replace.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from protocol.errors import InputError, StorageError

ORDINARY, PRIVATE = 0o666, 0o600
"""Permissions of new files: 0666, which the process's umask restricts, and 0600, for the owner alone."""
BUDGET_MARK = 0x48737962
"""``application_id`` of a curator's budget file, "Hsyb", at byte 68 of the SQLite file."""
DEALER_MARK = 0x48737964
"""``application_id`` of a dealer's journal, "Hsyd"."""
COLLECTOR_MARK = 0x48737963
"""``application_id`` of a collector's journal, "Hsyc"."""
_LEDGERS = {
    BUDGET_MARK: "a curator's budget",
    DEALER_MARK: "a dealer's journal",
    COLLECTOR_MARK: "a collector's journal",
}
"""``application_id`` of the SQLite files that no output replaces → the kind of file in words."""
_SQLITE, _MARK_AT = b"SQLite format 3\0", 68
_NEVER_REPLACED = (
    (stat.S_ISLNK, "a symbolic link; name the file that it leads to"),
    (stat.S_ISCHR, "a device; choose another name"),
    (stat.S_ISBLK, "a device; choose another name"),
    (stat.S_ISFIFO, "a pipe; choose another name"),
    (stat.S_ISSOCK, "a socket; choose another name"),
)
"""Tests of a file's mode, each with the kind of file in words. A move onto such a file would replace it."""


def failure_of(error: OSError) -> tuple[str, str]:
    """Return the reason for an error of the system (``disk_full`` or ``io_failed``), and its cause without a path."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk_full", "there is no space left"
    return "io_failed", error.strerror or type(error).__name__


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Context manager that turns an ``OSError`` into a ``StorageError`` whose text begins with ``what``."""
    try:
        yield
        return
    except OSError as error:
        reason, problem = failure_of(error)
    failure = StorageError(reason, f"{what}: {problem}")
    try:
        raise failure
    finally:
        failure.__context__ = None  # An error of this package shows no text of another error.


def check_output(path: Path, *, force: bool) -> None:
    """Raise an error if ``path`` is no path for an output, before any work is done.

    Raises InputError: ``output_exists``: something is there, without ``force``; ``output_invalid``: a folder, in no
    folder, a zero byte, ``-``, no regular file, a link, a curator's budget or a dealer's journal.
    """
    if str(path) == "-":
        raise InputError("output_invalid", "this command can not write to standard output; name a file")
    if "\0" in os.fspath(path):
        raise InputError("output_invalid", "the path of a file can not have a zero byte; choose another name")
    if path.is_dir() or not path.parent.is_dir():
        raise InputError("output_invalid", f"'{path}' is a folder, or in a folder that does not exist")
    _check_kind(path)
    if not force and os.path.lexists(path):
        raise InputError(
            "output_exists", f"'{path}' exists; choose another name, or --force (in Python force=True) to replace it"
        )
    ledger = _ledger_at(path)
    if ledger:
        raise InputError("output_invalid", f"'{path}' is {ledger}, which no output replaces; choose another name")


def _check_kind(path: Path) -> None:
    """Raise ``output_invalid`` if something other than a regular file or a folder is at a path."""
    mode = 0
    with suppress(OSError):
        mode = path.lstat().st_mode
    for is_kind, words in _NEVER_REPLACED:
        if is_kind(mode):
            raise InputError("output_invalid", f"'{path}' is {words}")


def check_outputs(outputs: Sequence[Path], *, force: bool, inputs: Sequence[Path]) -> None:
    """Check a command's output paths before any work is done, and before any privacy budget is spent.

    Raises InputError as :func:`check_output`, ``output_invalid`` also, even with ``force``, if two outputs are one
    file, or an output is an input or its SQLite journal, directly or through links.
    """
    for number, path in enumerate(outputs):
        if any(_same_file(path, other) or _is_journal(path, other) for other in inputs):
            raise InputError("output_invalid", f"'{path}' is read by this command; choose another name")
        if any(_same_file(path, other) for other in outputs[:number]):
            raise InputError("output_invalid", f"'{path}' is named for two outputs; choose another name for one")
        check_output(path, force=force)


def _same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to one file. For files that do not exist yet, the resolved paths are compared."""
    with suppress(OSError, ValueError, RuntimeError):  # ValueError: a zero byte; RuntimeError: a circle of links
        return one.resolve() == other.resolve() or one.samefile(other)
    return False


def _is_journal(path: Path, database: Path) -> bool:
    """Return whether ``path`` is where SQLite puts the journal of the file ``database``."""
    with suppress(OSError, ValueError, RuntimeError):
        return path.resolve() == Path(f"{database.resolve()}-journal")
    return False


def _ledger_at(path: Path) -> str:
    """Return in words which ledger (curator's budget, dealer's journal) is at a path; empty for all other files."""
    with suppress(OSError, ValueError):
        if not path.is_file():
            return ""  # A pipe would block the reader.
        with path.open("rb") as file:
            header = file.read(_MARK_AT + 4)
        if header.startswith(_SQLITE):
            return _LEDGERS.get(int.from_bytes(header[_MARK_AT:], "big"), "")
    return ""


def write_output(path: Path, data: bytes, *, force: bool = False, mode: int = ORDINARY) -> None:
    """Write a file under a temporary name, and move it into place. Errors are those of :func:`open_output`."""
    with open_output(path, force=force, mode=mode) as file:
        file.write(data)


@contextmanager
def open_output(path: Path, *, force: bool = False, mode: int = ORDINARY) -> Iterator[IO[bytes]]:
    """Context manager to write an output file piece by piece, under a temporary name.

    After the block the file is flushed and moved to ``path``. If the block raises, what was at ``path`` is unchanged,
    unless only the flush of the folder failed. ``OSError`` becomes ``StorageError``. Raises as :func:`check_output`.
    """
    check_output(path, force=force)
    temporary = None
    try:
        handle, temporary = _begin(path, mode)
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _move(temporary, path, force=force)
        sync_folder(path.parent)
        return
    except FileExistsError:
        raise InputError("output_exists", f"'{path}' was written by someone else meanwhile") from None
    except OSError as error:
        reason, problem = failure_of(error)
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    raise StorageError(reason, f"'{path}' could not be written: {problem}")


def _begin(path: Path, mode: int) -> tuple[int, Path]:
    """Make an empty file beside ``path`` under a random name, and return its descriptor and its path."""
    temporary = path.parent / f".{path.name[:40]}.{secrets.token_hex(8)}.tmp"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(temporary, flags, mode), temporary


def _move(temporary: Path, path: Path, *, force: bool) -> None:
    """Move a file. Without ``force`` a hard link is made, which never replaces a file that has just appeared."""
    _check_kind(path)
    if not force:
        try:
            os.link(temporary, path)
            return
        except FileExistsError:
            raise
        except OSError:
            # The file system has no hard links, for example FAT. The rename may replace a file just made.
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
    temporary.replace(path)


@contextmanager
def new_folder(path: Path, what: str, *, mode: int = 0o700) -> Iterator[Path]:
    """Context manager that gives a hidden folder to fill; afterwards it is at ``path``, complete or not at all.

    ``what`` begins the text of a ``StorageError``, for example "the folder can not be made".
    """
    hidden = path.parent / f".{path.name[:40]}.{secrets.token_hex(4)}.tmp"
    try:
        with storage_errors(what):
            hidden.mkdir(mode=mode)
            yield hidden
            hidden.rename(path)
            sync_folder(path.absolute().parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to the disk. Without it a power cut may undo a rename."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: str | Path, most: int) -> bytes:
    """Return the bytes of a file of at most ``most`` bytes.

    Raises InputError: ``file_not_found``; ``unreadable``: a folder, no permission, or a path with a zero byte;
    ``too_large``.
    """
    path = Path(path)
    problem = ("unreadable", f"'{path}' is not a file that can be read")
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) <= most:
            return data
        problem = ("too_large", f"'{path}' has more than {most} bytes")
    except FileNotFoundError:
        problem = ("file_not_found", f"there is no file '{path}'")
    except IsADirectoryError:
        problem = ("unreadable", f"'{path}' is a folder; a file is needed")
    except (OSError, ValueError):
        pass  # ValueError: a path with a zero byte
    raise InputError(*problem)


def read_regular(path: Path | str, most: int = sys.maxsize) -> bytes:
    """Read a regular file of at most ``most`` bytes. Bytes that are appended meanwhile are left out.

    Pipes and devices are refused, since reading them may never end. Raises OSError: with ``errno`` ``EFBIG`` if the
    file has more than ``most`` bytes, ``EISDIR`` for a folder, ``EINVAL`` for anything else that is no regular file; or
    an error of the operating system. Raises ValueError: ``path`` has a zero byte in it.
    """
    _check(os.stat(path), most)  # noqa: PTH116 - making a Path takes as long as reading a small file
    # Another file may have taken the name since the check. So opening must not block, and the open file is checked.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        _check(found, most)
        return _read(descriptor, found.st_size)
    finally:
        os.close(descriptor)


def _read(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    if len(data) == size:
        return data
    pieces = [data]  # one call reads at most 2 GiB
    left = size - len(data)
    while left and pieces[-1]:
        pieces.append(os.read(descriptor, left))
        left -= len(pieces[-1])
    return b"".join(pieces)


def _check(found: os.stat_result, most: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a plain file")
    if found.st_size > most:
        raise too_large()


def too_large() -> OSError:
    """Make the ``OSError`` for content that exceeds its limit: ``errno`` is ``EFBIG``."""
    return OSError(errno.EFBIG, os.strerror(errno.EFBIG))
