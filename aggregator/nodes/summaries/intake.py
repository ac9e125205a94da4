"""Reading the files of nodes' envelopes: bounded, decompressed, or the reason why a file can not be read."""

from __future__ import annotations

import os
from pathlib import Path

from aggregator.reports.intake.sources import Unreadable, read_source

MAX_FILE_BYTES = 1 << 30
_MOST_GROWTH = 64
"""How many times its length a compressed file may hold: counts with little noise shrink further than reports."""
"""Largest content of a file, after decompression. A larger file can be cut anywhere between two summaries."""


def suffixes(suffix: str) -> tuple[str, ...]:
    """Ends of the names of the files that are read from folders. Other files, and hidden files, are not read.

    Args:
        suffix: of the files, for example ``.hsn``; compressed ones have another end.
    """
    return suffix, f"{suffix}.gz", f"{suffix}.zst"


def content_of(file: str | Path | os.PathLike[str]) -> bytes | Unreadable:
    """The content of a file or URL, decompressed, or the reason why it can not be read.

    ``too_large`` is the reason for content of more than :data:`MAX_FILE_BYTES`.
    """
    found = read_source(file, MAX_FILE_BYTES, _MOST_GROWTH)
    if isinstance(found, Unreadable):
        return found
    if not isinstance(found.data, bytes) and len(found.data) > MAX_FILE_BYTES:
        return Unreadable(os.fspath(file), "too_large")
    return bytes(found.data[:])
