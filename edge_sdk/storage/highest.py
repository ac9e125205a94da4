"""The newest ledger line that was ever committed. A state without this line is an older copy.

The line is noted in memory while the state is open, and in a small file beside the state between runs. The file is
written after each line and not flushed, to spare the memory card. After a power cut the file may name an older line,
which is still a line of the ledger, since lines are flushed before they are noted. The install marker must survive a
power cut, so it is another file.

During a reset the file names two lines: one of the old state and one of the new one. The folder then has either state,
and neither has an older copy of it. The reset, or else the next opening, removes the line that is not there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from edge_sdk.storage.atomic_files import private, replace
from edge_sdk.storage.rows import seal

HIGHEST_FILE = "highest"
_NUMBER_BYTES = 8
_SEAL_BYTES = 8


class Highest(NamedTuple):
    """A ledger line: its number and its seal. The seal depends on all earlier lines."""

    line: int
    seal: bytes


def read_highest(path: str) -> tuple[Highest, ...]:
    """The line that the file at ``path`` names, or both lines, if a reset has not ended.

    There are none if there is no file, or it can not be read, or is damaged.
    """
    raw = b""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            raw = file.read(64)
    size = _NUMBER_BYTES + _SEAL_BYTES
    fields = [raw[at : at + size] for at in range(0, len(raw) - _SEAL_BYTES, size)]
    lines = tuple(Highest(int.from_bytes(each[:_NUMBER_BYTES], "big"), each[_NUMBER_BYTES:]) for each in fields)
    return lines if len(lines) in (1, 2) and raw == _content(lines) else ()


def _content(lines: tuple[Highest, ...]) -> bytes:
    fields = [part for line in lines for part in (line.line.to_bytes(_NUMBER_BYTES, "big"), line.seal)]
    return b"".join(fields) + seal(HIGHEST_FILE, tuple(fields))


def replace_highest(path: str, lines: tuple[Highest, ...]) -> None:
    """Replace the file at ``path`` by one that names one or two ``lines``, and flush it to disk.

    Raises:
        OSError: it can not be written; the old file stays.
    """
    replace(path, _content(lines))


def write_highest(path: str, highest: Highest) -> None:
    """Write the line ``highest`` to the file at ``path``, in one write. The file names one line, or is none.

    Errors are ignored: an older copy of the state may then stay unnoticed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(path, flags, 0o600) if os.path.lexists(path) else private(path, flags | os.O_EXCL)
        try:
            os.pwrite(descriptor, _content((highest,)), 0)
        finally:
            os.close(descriptor)
