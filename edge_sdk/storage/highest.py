"""The newest ledger line that was ever committed. A state without this line is an older copy.

The line is noted in memory while the state is open, and in a small file beside the state between runs. The file is
written after each line and not flushed, to spare the memory card. After a power cut the file may name an older line,
which is still a line of the ledger, since lines are flushed before they are noted. The install marker must survive a
power cut, so it is another file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from edge_sdk.storage.rows import seal

HIGHEST_FILE = "highest"
_NUMBER_BYTES = 8
_SEAL_BYTES = 8


class Highest(NamedTuple):
    """A ledger line: its number and its seal. The seal depends on all earlier lines."""

    line: int
    seal: bytes


def read_highest(path: str) -> Highest | None:
    """The line that the file at ``path`` names; None if there is no file, or it can not be read, or is damaged."""
    raw = b""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            raw = file.read(64)
    number, line_seal, check = raw[:_NUMBER_BYTES], raw[_NUMBER_BYTES:-_SEAL_BYTES], raw[-_SEAL_BYTES:]
    if len(raw) != _NUMBER_BYTES + 2 * _SEAL_BYTES or check != seal(HIGHEST_FILE, (number, line_seal)):
        return None
    return Highest(int.from_bytes(number, "big"), line_seal)


def write_highest(path: str, highest: Highest) -> None:
    """Write the line ``highest`` to the file at ``path``, in one write.

    Errors are ignored: an older copy of the state may then stay unnoticed.
    """
    number = highest.line.to_bytes(_NUMBER_BYTES, "big")
    content = number + highest.seal + seal(HIGHEST_FILE, (number, highest.seal))
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)
