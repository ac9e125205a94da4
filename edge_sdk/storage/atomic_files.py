"""Files that appear whole or not at all: written beside, flushed, then given their name.

The unfinished file has a name that nobody can know beforehand and is made by this call or not at all,
so a link planted in a shared folder leads nowhere; the finished one never replaces another.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TEMPORARY_SUFFIX = ".tmp"
ABANDONED_SECONDS = 3600
_NO_LINKS = frozenset((errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV))
"""What file systems without hard links (FAT among them), or a jail around them, answer to ``link``."""


def write_new(path: str, write: Callable[[IO[bytes]], None]) -> None:
    """Make a new file with what ``write`` puts into it, private to its owner and flushed to disk.

    Raises:
        FileExistsError: there is something of that name, a dangling link included; it is untouched.
        OSError: nothing was left behind, at ``path`` or beside it.
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
    placed = False
    try:
        with open(temporary, "xb", opener=_private) as file:
            remove_abandoned(folder or ".", os.fstat(file.fileno()))
            write(file)
            file.flush()
            os.fsync(file.fileno())
        _place(temporary, path)
        placed = True
        flush_folder(folder or ".")
    except BaseException:
        remove(temporary)
        if placed:
            remove(path)
        raise


def replace(path: str, content: bytes) -> None:
    """Give a file new content, all of it or none, private to its owner and flushed to disk.

    Raises:
        OSError: the old content stays, and nothing is left beside it.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}{TEMPORARY_SUFFIX}")
    try:
        with open(temporary, "xb", opener=_private) as file:
            remove_abandoned(folder or ".", os.fstat(file.fileno()))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    flush_folder(folder or ".")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _place(temporary: str, path: str) -> None:
    """Give the finished file its name. A link, unlike a rename, fails where the name is taken meanwhile."""
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
    """Remove unfinished files that a crash left in a folder: this user's, and of another hour than ``mine``.

    Compares times of the folder's own file system, so a wrong clock does no harm. A slow writer that
    loses its file this way fails before anything has its final name, and keeps its reports.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(".") and _is_temporary(entry.name)):
                continue
            found = entry.stat(follow_symlinks=False)
            if found.st_uid == mine.st_uid and abs(found.st_mtime - mine.st_mtime) > ABANDONED_SECONDS:
                remove(entry.path)


def _is_temporary(name: str) -> bool:
    """Whether a name is of the form ``.NAME.<16 hex digits>.tmp``."""
    digits = name.removesuffix(TEMPORARY_SUFFIX).rpartition(".")[2]
    return name.endswith(TEMPORARY_SUFFIX) and len(digits) == 16 and set(digits) <= set("0123456789abcdef")


def remove(path: str) -> None:
    """Remove a file if that is possible."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def make_folder(path: str) -> None:
    """See that there is a folder, private to its owner where this makes it, that no power cut takes back.

    Its name is flushed even if it is there: who made it may have been stopped before that.

    Raises:
        OSError: it can not be made, or something else has its name.
    """
    missing = [path]
    while not os.path.isdir(above := os.path.dirname(missing[-1]) or "."):
        missing.append(above)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o700)
        try:
            flush_folder(os.path.dirname(each) or ".")
        except PermissionError:  # a folder above may be passed through and not be read
            os.sync()
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def flush_folder(folder: str) -> None:
    """Make the names in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
