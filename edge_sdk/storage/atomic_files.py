"""Make files that appear complete or not at all: write under a temporary name, flush, then give the name.

The temporary name is random, and the file must be new, so a planted link is never followed. What root makes in a folder
where only another user may write belongs to that user, whom one command as root would lock out otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import IO, TYPE_CHECKING

from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEMPORARY_SUFFIX = ".tmp"
ABANDONED_SECONDS = 3600
_NO_LINKS = frozenset((errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV))
"""Error numbers of ``link`` on file systems without hard links, FAT for example, and in sandboxes that forbid it."""


@contextlib.contextmanager
def os_errors(what: str) -> Iterator[None]:
    """Turn an OSError of the body of ``with`` into a StorageError, ``disk_full`` or ``io_failed``, on ``what``."""
    problem: OSError
    try:
        yield
    except OSError as error:
        problem = error
    else:
        return
    number = problem.errno or errno.EIO
    reason = "disk_full" if number in (errno.ENOSPC, errno.EDQUOT) else "io_failed"
    failure = StorageError(reason, f"{what}: {os.strerror(number)}")
    try:
        raise failure
    finally:
        failure.__context__ = None  # An error of this package shows no text of another error.


def write_new(path: str, write: Callable[[IO[bytes]], object]) -> None:
    """Make a new file that ``write`` fills. Only its owner can read it, and it is flushed to disk.

    Temporary files that a crash left in the folder are removed (:func:`remove_abandoned`). ``path``: path of the new
    file; its folder must exist.

    Raises:
        FileExistsError: the name is taken, perhaps by a dangling link; what has the name is unchanged.
        OSError: the file can not be written or flushed. After this and any error of ``write``, the new file and its
            temporary file are removed, if the system allows it.
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    placed = False
    try:
        with _temporary(path, write) as temporary:
            _place(temporary, path)
            placed = True
            flush_folder(os.path.dirname(path) or ".")
    except BaseException:
        if placed:
            remove(path)
        raise


@contextlib.contextmanager
def _temporary(path: str, write: Callable[[IO[bytes]], object]) -> Iterator[str]:
    """Yield the path of a filled, flushed temporary file beside ``path``; remove it if the body of ``with`` fails."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
    try:
        with open(temporary, "xb", opener=private) as file:
            remove_abandoned(folder or ".", os.fstat(file.fileno()))
            write(file)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    except BaseException:
        remove(temporary)
        raise


def replace(path: str, content: bytes) -> None:
    """Replace the content of the file at ``path`` by ``content``, or make the file, and flush it to disk.

    Only the file's owner can read it. Temporary files that a crash left in the folder are removed.

    Raises:
        OSError: EINVAL: a folder, pipe or device has the name, or a link that leads nowhere; it stays. After other
            error numbers the old content stays, or, if the last flush failed, a power cut may undo the new content.
    """
    with _temporary(path, lambda file: file.write(content)) as temporary:
        if is_no_file(path):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        os.rename(temporary, path)
    flush_folder(os.path.dirname(path) or ".")


def read_regular(path: str, limit: int) -> bytes:
    """Read at most ``limit`` bytes of a regular file. Links are followed; pipes are not waited for.

    Raise OSError EINVAL if it is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def is_no_file(path: str) -> bool:
    """Return whether a path is taken by something that is no regular file: a folder, pipe, device or dangling link."""
    return os.path.lexists(path) and not os.path.isfile(path)


def private(path: str, flags: int) -> int:
    """Open a new file that only its owner can read: the user of this process, or for root the folder's owner.

    ``flags`` are those of ``os.open``, with ``O_CREAT`` and ``O_EXCL``. Return the descriptor.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    _leave_to_owner(descriptor, os.path.dirname(path))
    return descriptor


def make_private_folder(path: str) -> None:
    """Make the folder ``path``, with mode 0700, for this process's user, or for root for the owner of the one above."""
    os.mkdir(path, 0o700)
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _leave_to_owner(descriptor, os.path.dirname(path))
        finally:
            os.close(descriptor)


def _leave_to_owner(descriptor: int, folder: str) -> None:
    """Give a new file to its folder's owner, if root made it and nobody else may write there. Errors are ignored."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # some file systems have no owners
            found = os.stat(folder or ".")
            if found.st_uid != 0 and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                os.fchown(descriptor, found.st_uid, found.st_gid)


def _place(temporary: str, path: str) -> None:
    """Give the finished file its name. A hard link fails if the name is taken meanwhile; a rename would replace it."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        remove(temporary)
        return
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.rename(temporary, path)


def remove_abandoned(folder: str, mine: os.stat_result) -> None:
    """Remove temporary files that a crash left in ``folder``. Errors are ignored.

    ``mine`` is the status of a file that was just made there. Temporary files of the same owner are removed if they
    were changed more than an hour before or after it, by the file system's clock. A slow writer that loses its file
    fails before the final name exists, and keeps its reports.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(".") and _is_temporary(entry.name)):
                continue
            found = entry.stat(follow_symlinks=False)
            if found.st_uid == mine.st_uid and abs(found.st_mtime - mine.st_mtime) > ABANDONED_SECONDS:
                remove(entry.path)


def remove_old_temporaries(folder: str) -> None:
    """Remove this user's temporary files that a crash left in ``folder`` more than an hour ago. Errors are ignored."""
    probe = os.path.join(folder, f".probe.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
    with contextlib.suppress(OSError):
        try:
            with open(probe, "xb", opener=private) as file:
                remove_abandoned(folder, os.fstat(file.fileno()))
        finally:
            remove(probe)


def _is_temporary(name: str) -> bool:
    """Return whether a name has the form ``.NAME.<16 hex digits>.tmp``."""
    digits = name.removesuffix(TEMPORARY_SUFFIX).rpartition(".")[2]
    return name.endswith(TEMPORARY_SUFFIX) and len(digits) == 16 and set(digits) <= set("0123456789abcdef")


def remove(path: str) -> None:
    """Remove the file at ``path``, if it exists. Errors are ignored."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def make_folder(path: str) -> None:
    """Make the folder ``path`` and the missing folders above it, with mode 0700, and flush their names to disk.

    If the folder exists, its name is flushed all the same: who made it may have stopped before.
    """
    missing = [path]
    while not os.path.isdir(above := os.path.dirname(missing[-1]) or "."):
        missing.append(above)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            make_private_folder(each)
        try:
            flush_folder(os.path.dirname(each) or ".")
        except PermissionError:
            # Flushing one folder needs the right to read it. Without this right, flush all disks.
            os.sync()
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def flush_folder(folder: str) -> None:
    """Flush the names of the files in ``folder`` to disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
