"""Use a folder as the source: a mounted disk, a memory stick, a network share, a synchronised folder.

A folder in which nothing was published is no source, but perhaps the mount point of a stick that is not plugged in.
Links below the folder are not followed, and only regular files are read. So a user who can write to the folder can not
make the device read its own files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import IO

from edge_sdk.storage.atomic_files import flush_folder, make_folder, write_new
from edge_sdk.transport.base import Found, Transport, parts_of
from protocol.errors import DocumentError, StorageError

_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG))
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_BLOCK = 1 << 16
_PUBLISHED = ("roots", "campaigns", "models")
"""Folders that ``hearsay publish --to`` makes. ``reports`` does not count, since devices made it too."""


class Folder(Transport):
    """A transport whose source is a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)

    @property
    def address(self) -> str:
        """The folder's absolute path."""
        return self._path

    def fetch(self, place: str, limit: int, tag: str = "") -> Found | None:  # noqa: ARG002
        """Return the file at ``place``; None if the source has no such file (:meth:`Transport.fetch`).

        ``tag`` is ignored, and the result has none: a reliable check for changes would cost more than reading. Raise
        ``unreachable`` if the folder is not there, or nothing was published in it; ``io_failed`` if the file can not be
        read, is not regular, or a link is on the way to it.
        """
        problem = 0
        try:
            with _opened(self._path, parts_of(place)) as file:
                content = file.read(limit + 1)
        except OSError as error:
            problem = error.errno or errno.EIO
            content = b""
        if problem in _ABSENT and self._is_source():
            return None
        if problem:
            raise self._failed(problem)
        if len(content) > limit:
            raise DocumentError("too_large", f"the file at {place} has more than {limit} bytes")
        return Found(content)

    def send(self, place: str, path: str) -> None:
        """Copy a file to ``place``, completely or not at all, and flush it (:meth:`Transport.send`).

        Missing folders on the way are made. Every user who may read the source's folder may read the copy.
        """
        *above, name = parts_of(place)
        folder = self._path
        problem, unread = 0, ""
        if not self._is_source():
            raise self._failed(errno.ENOENT)
        try:
            for part in above:
                folder = os.path.join(folder, part)
                make_folder(folder)
                _check_folder(folder)
            with _open_source(path) as original:
                _place(original, os.path.join(folder, name))
        except _SourceError as error:
            unread = os.strerror(error.errno or errno.EIO)
        except OSError as error:
            problem = error.errno or errno.EIO
        if unread:
            raise StorageError("io_failed", f"the file to be sent can not be read: {unread}")
        if problem == errno.EEXIST:
            raise StorageError("file_exists", f"another file is at {place} already, and is not replaced")
        if problem:
            raise self._failed(problem)

    def _is_source(self) -> bool:
        return any(os.path.isdir(os.path.join(self._path, name)) for name in _PUBLISHED)

    def _failed(self, problem: int) -> StorageError:
        if problem in _FULL:
            return StorageError("disk_full", "there is no space left in the folder")
        if not os.path.isdir(self._path):
            return StorageError("unreachable", f"the folder '{self._path}' is not there")
        if problem in _ABSENT and not self._is_source():
            return StorageError(
                "unreachable",
                f"nothing was published in the folder '{self._path}' (it has no roots/, campaigns/ or models/); "
                "mount the disk, or fill the folder with 'hearsay publish --to'",
            )
        if problem == errno.ELOOP:
            return StorageError("io_failed", "there is a link in the folder where a file or folder is expected")
        return StorageError("io_failed", f"the folder can not be used: {os.strerror(problem)}")


def _opened(root: str, parts: list[str]) -> IO[bytes]:
    """Open a regular file below a folder. Links are not followed, and pipes are not waited for."""
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        found = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    finally:
        os.close(here)
    file = os.fdopen(found, "rb")
    if stat.S_ISREG(os.fstat(found).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def _check_folder(path: str) -> None:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISDIR(mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


class _SourceError(OSError):
    """The file to be sent can not be read."""


def _open_source(path: str) -> IO[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise _SourceError(error.errno, "") from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise _SourceError(errno.EINVAL, "")


def _read_block(original: IO[bytes]) -> bytes:
    try:
        return original.read(_BLOCK)
    except OSError as error:
        raise _SourceError(error.errno, "") from None


def _place(original: IO[bytes], target: str) -> None:
    """Copy an open file to a new file ``target``. If an equal file has that name, only flush it."""
    folder, name = os.path.split(target)
    rights = os.stat(folder).st_mode & 0o666

    def copy(file: IO[bytes]) -> None:
        with contextlib.suppress(OSError):  # some file systems have no permissions
            os.fchmod(file.fileno(), rights | stat.S_IRUSR | stat.S_IWUSR)
        while block := _read_block(original):
            file.write(block)

    try:
        write_new(target, copy)
    except FileExistsError:
        with _opened(folder, [name]) as there:
            if not _same(there, original):
                raise
            # The program that made this copy may have stopped before it flushed the copy.
            os.fsync(there.fileno())
        flush_folder(folder)


def _same(one: IO[bytes], other: IO[bytes]) -> bool:
    while True:
        block = one.read(_BLOCK)
        if block != other.read(_BLOCK):
            return False
        if not block:
            return True
