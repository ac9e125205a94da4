"""The outbox: a folder of sealed files that wait to be sent and acknowledged."""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from edge_sdk.storage.atomic_files import TEMPORARY_SUFFIX
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTBOX = "outbox"
NAME_BYTES = 16
_BLOCK = 1 << 16
_NAME = re.compile(rf"[0-9a-f]{{{2 * NAME_BYTES}}}\.hsr")
_UNFINISHED = re.compile(rf"\.{_NAME.pattern}\.[0-9a-f]{{16}}{re.escape(TEMPORARY_SUFFIX)}")


class Outbox:
    """The folder ``outbox`` in another folder. Its files have random names, which reveal nothing about the device."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(os.path.abspath(folder), OUTBOX)

    def new(self, chance: bytes) -> str:
        """The path for a new file. The folder is made if needed, the file is not.

        Args:
            chance: 16 random bytes; the name has their hexadecimal digits.

        Raises:
            StorageError: ``io_failed``, ``disk_full``.
        """
        with _storage_errors(), suppress(FileExistsError):
            os.mkdir(self._path, 0o700)
        return os.path.join(self._path, f"{chance.hex()}.hsr")

    def waiting(self) -> list[str]:
        """Paths of the waiting files: regular files with a name of the outbox's form.

        Raises:
            StorageError: ``io_failed``.
        """
        return self._files(_NAME)

    def _files(self, name: re.Pattern[str]) -> list[str]:
        with _storage_errors(), suppress(FileNotFoundError), os.scandir(self._path) as entries:
            return sorted(
                entry.path for entry in entries if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            )
        return []

    @staticmethod
    def is_whole(path: str) -> bool:
        """Whether a file exists and can be read to its end. A failing memory card may lose parts of files."""
        with suppress(OSError), open(path, "rb") as file:
            while file.read(_BLOCK):
                pass
            return True
        return False

    @staticmethod
    def remove(path: str) -> None:
        """Remove a file, if it exists.

        Raises:
            StorageError: ``io_failed``.
        """
        with _storage_errors(), suppress(FileNotFoundError):
            os.unlink(path)

    def clear(self) -> None:
        """Remove all waiting files, and unfinished files that a crash left.

        Raises:
            StorageError: ``io_failed``; some files may be left.
        """
        for path in [*self.waiting(), *self._files(_UNFINISHED)]:
            self.remove(path)


@contextmanager
def _storage_errors() -> Iterator[None]:
    problem = 0
    try:
        yield
    except OSError as error:
        problem = error.errno or errno.EIO
    if problem in (errno.ENOSPC, errno.EDQUOT):
        raise StorageError("disk_full", "there is no space left for the outbox")
    if problem:
        raise StorageError("io_failed", f"the outbox can not be used: {os.strerror(problem)}")
