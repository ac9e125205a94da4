"""The outbox: a folder of sealed files that wait to be sent and acknowledged. An opt-out or a reset removes them."""

from __future__ import annotations

import errno
import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from edge_sdk.storage.atomic_files import TEMPORARY_SUFFIX, make_private_folder, remove_old_temporaries
from edge_sdk.storage.fetched import forget_fetched
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OUTBOX = "outbox"
NAME_BYTES = 16
_BLOCK = 1 << 16
REPORTS, SUMMARIES, MESSAGES = ".hsr", ".hsn", ".hse"
"""How the names of files end: of a device's reports, and of a node's summaries and encrypted sums."""
_NAME = re.compile(rf"[0-9a-f]{{{2 * NAME_BYTES}}}\.hs[rne]")
_UNFINISHED = re.compile(rf"\.{_NAME.pattern}\.[0-9a-f]{{16}}{re.escape(TEMPORARY_SUFFIX)}")


class Outbox:
    """The folder ``outbox`` in a given folder. Its files have random names, which reveal nothing about the device."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(os.path.abspath(folder), OUTBOX)

    def new(self, chance: bytes, suffix: str) -> str:
        """The path for a new file. The folder is made if needed, the file is not.

        Args:
            chance: 16 random bytes; the name has their hexadecimal digits.
            suffix: the end of the name, for example :data:`REPORTS`.

        Raises:
            StorageError: ``io_failed``, ``disk_full``: the folder can not be made.
        """
        with _storage_errors(), suppress(FileExistsError):
            make_private_folder(self._path)
        return os.path.join(self._path, f"{chance.hex()}{suffix}")

    def waiting(self) -> list[str]:
        """Paths of the files that wait to be sent: regular files named with 32 hex digits and a known ending.

        Raises:
            StorageError: ``io_failed``: the folder can not be read.
        """
        return self._files(_NAME)

    def _files(self, name: re.Pattern[str]) -> list[str]:
        with _storage_errors(), suppress(FileNotFoundError), os.scandir(self._path) as entries:
            return sorted(
                entry.path for entry in entries if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
            )
        return []

    def remove_unfinished(self) -> None:
        """Remove unfinished files that a crash left more than an hour ago. Errors are ignored."""
        with suppress(StorageError):
            if self._files(_UNFINISHED):
                remove_old_temporaries(self._path)

    @staticmethod
    def is_whole(path: str) -> bool:
        """Whether the file at ``path`` can be read to its end. A failing memory card may lose parts of files."""
        with suppress(OSError), open(path, "rb") as file:
            while file.read(_BLOCK):
                pass
            return True
        return False

    @staticmethod
    def remove(path: str) -> None:
        """Remove the file at ``path``, if it exists.

        Raises:
            StorageError: ``io_failed``: it can not be removed.
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

    def take_back(self, path: str) -> None:
        """Remove the sealed file at ``path``, and all unfinished files that a crash left in the outbox.

        Raises:
            StorageError: ``io_failed``: a file can not be removed, and others may be left too.
        """
        for each in [path, *self._files(_UNFINISHED)]:
            self.remove(each)


def clear_outboxes(folder: str | None, sealed: Iterable[str]) -> None:
    """Remove the files in the outbox of a state folder, and files that its device has sealed into other outboxes.

    The notes on fetched documents beside each outbox are removed too. Other devices may use an outbox elsewhere, so
    there only unfinished files and the files in ``sealed`` are removed. Files outside of outboxes stay.

    Args:
        folder: the state folder; None for a state in memory.
        sealed: paths of the files that the device has sealed.

    Raises:
        StorageError: ``io_failed``; some files may be left.
    """
    if folder is not None:
        Outbox(folder).clear()
        forget_fetched(folder)
    for path in sealed:
        above, name = os.path.split(path)
        place, last = os.path.split(above)
        if last == OUTBOX and _NAME.fullmatch(name) and place != folder:
            Outbox(place).take_back(path)
            forget_fetched(place)


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
