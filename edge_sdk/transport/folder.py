"""A source that is a folder: a mounted disk, a stick carried by hand, a share, a folder that others synchronise.

No link below the folder is followed, and nothing but ordinary files is read: whoever can write there can
not point the device at other files of its own.
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


class Folder(Transport):
    """A transport over a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """The source at ``path``. It may be absent until it is used, as a stick may be."""
        self._path = os.path.abspath(path)

    @property
    def address(self) -> str:
        """The folder's absolute path."""
        return self._path

    def fetch(self, place: str, limit: int, tag: str = "") -> Found | None:  # noqa: ARG002
        """The file at a place. It is always read: that costs less than telling reliably that it is unchanged."""
        problem = 0
        try:
            with _opened(self._path, parts_of(place)) as file:
                content = file.read(limit + 1)
        except OSError as error:
            problem = error.errno or errno.EIO
            content = b""
        if problem in _ABSENT and os.path.isdir(self._path):
            return None
        if problem:
            raise self._failed(problem)
        if len(content) > limit:
            raise DocumentError("too_large", f"the file at {place} has more than {limit} bytes")
        return Found(content)

    def send(self, place: str, path: str) -> None:
        """Copy a file to a place, whole or not at all and flushed; the same file may be there already.

        It can be read by whoever may read the folder it is in, whose owner so decides.
        """
        *above, name = parts_of(place)
        folder = self._path
        problem = 0
        try:
            os.stat(folder)  # the source itself is never made: a stick that is not there is no empty folder
            for part in above:
                folder = os.path.join(folder, part)
                make_folder(folder)
                _check_folder(folder)
            _place(path, os.path.join(folder, name))
        except OSError as error:
            problem = error.errno or errno.EIO
        if problem == errno.EEXIST:
            raise StorageError("file_exists", f"another file is at {place} already, and is not replaced")
        if problem:
            raise self._failed(problem)

    def _failed(self, problem: int) -> StorageError:
        if problem in _FULL:
            return StorageError("disk_full", "there is no space left in the folder")
        if not os.path.isdir(self._path):
            return StorageError("unreachable", f"the folder '{self._path}' is not there")
        if problem == errno.ELOOP:
            return StorageError("io_failed", "there is a link in the folder where a file or folder is expected")
        return StorageError("io_failed", f"the folder can not be used: {os.strerror(problem)}")


def _opened(root: str, parts: list[str]) -> IO[bytes]:
    """An ordinary file below a folder, opened without following a link or waiting for anybody.

    Raises:
        OSError: ELOOP or ENOTDIR for a link, EINVAL for what is no ordinary file.
    """
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


def _place(source: str, target: str) -> None:
    """Copy to a new file.

    Raises:
        FileExistsError: there is something else of that name; OSError.
    """
    folder, name = os.path.split(target)
    rights = os.stat(folder).st_mode & 0o666

    def copy(file: IO[bytes]) -> None:
        with contextlib.suppress(OSError):  # some file systems have no rights to give
            os.fchmod(file.fileno(), rights | stat.S_IRUSR | stat.S_IWUSR)
        with open(source, "rb") as original:
            while block := original.read(_BLOCK):
                file.write(block)

    try:
        write_new(target, copy)
    except FileExistsError:
        with _opened(folder, [name]) as there, open(source, "rb") as original:
            if not _same(there, original):
                raise
            os.fsync(there.fileno())  # whoever put it there may have been stopped before that
        flush_folder(folder)


def _same(one: IO[bytes], other: IO[bytes]) -> bool:
    while True:
        block = one.read(_BLOCK)
        if block != other.read(_BLOCK):
            return False
        if not block:
            return True
