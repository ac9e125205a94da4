"""Files of any size, some megabytes at a time: what is mapped counts as memory once it is touched.

Pages of a mapped file that were looked at are given back; whoever looks again finds them as they were, most
often still in the system's cache.
"""

from __future__ import annotations

import mmap
from hashlib import sha256
from typing import TypeAlias

Source: TypeAlias = bytes | mmap.mmap
"""A whole file: its bytes, or a map of it."""

_STEP = 8 << 20


def give_back(data: Source, start: int, stop: int) -> None:
    """The pages of a mapped file between two places are not needed for now. Of bytes nothing is given back."""
    if not isinstance(data, mmap.mmap):
        return
    first = start - start % mmap.PAGESIZE
    if stop > first and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED, first, stop - first)


def piecewise_digest(data: Source, start: int, stop: int) -> bytes:
    """SHA-256 of the bytes between two places."""
    taken = sha256()
    for place in range(start, stop, _STEP):
        end = min(place + _STEP, stop)
        with memoryview(data) as view, view[place:end] as piece:
            taken.update(piece)
        give_back(data, place, end)
    return taken.digest()
