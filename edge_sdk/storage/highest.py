"""The newest line of the ledger that was ever seen: a state without it is an older copy.

It is kept in memory while the state is open, and between runs in a small file beside it. The file is written after
each line and never flushed: a card should not wear twice for one report. What a power cut makes of it says less,
never something false, since the line it names was flushed before. The install marker, which must not be lost, is
another file for that reason.
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
    """A line of the ledger: its number, and its seal, which depends on all lines before it."""

    line: int
    seal: bytes


def read_highest(path: str) -> Highest | None:
    """What the file says; None if there is none, or it is damaged: then nothing is known."""
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
    """Say so in the file, by one write into its place. What can not be written is not known later, and no more."""
    number = highest.line.to_bytes(_NUMBER_BYTES, "big")
    content = number + highest.seal + seal(HIGHEST_FILE, (number, highest.seal))
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)
