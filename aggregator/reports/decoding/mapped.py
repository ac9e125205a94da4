"""Read mapped files of any size with bounded memory.

A page of a mapped file counts as memory of the process after it is read. Pages are therefore released after use. They
can be read again, most often from the system's page cache.
"""

from __future__ import annotations

import mmap
from hashlib import sha256
from typing import TypeAlias

from aggregator.reports.decoding.large_file import LargeFile

Source: TypeAlias = bytes | mmap.mmap | LargeFile
"""The content of a whole file: bytes in memory, a map of a temporary file, or a large file read in pieces."""

_STEP = 1 << 20


def give_back(data: Source, start: int, stop: int) -> None:
    """Release the pages of a mapped file between two positions. Do nothing for other data.

    Args:
        data: the whole file.
        start, stop: positions in the file. The page that holds ``start`` is released, too.
    """
    if not isinstance(data, mmap.mmap):
        return
    first = start - start % mmap.PAGESIZE
    if stop > first and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED, first, stop - first)


def piecewise_digest(data: Source, start: int, stop: int) -> bytes:
    """SHA-256 of the bytes of ``data`` from ``start`` to before ``stop``, read piece by piece.

    The pages of a mapped file are released after each piece.
    """
    taken = sha256()
    for place in range(start, stop, _STEP):
        end = min(place + _STEP, stop)
        if isinstance(data, LargeFile):
            taken.update(data[place:end])
            continue
        with memoryview(data) as view, view[place:end] as piece:
            taken.update(piece)
        give_back(data, place, end)
    return taken.digest()
