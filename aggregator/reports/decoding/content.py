"""The content of files of any size, with bounded memory: bytes, a mapped temporary file, or a file read piece by piece.

A large file of another user is not mapped: if it became shorter, the system would end the process.
"""

from __future__ import annotations

import mmap
import os
import threading
from hashlib import sha256
from typing import TypeAlias

_BLOCK_BYTES = 1 << 18
"""Each thread keeps this many adjacent bytes of a file, for slices of less than a quarter of it."""
_END_BYTES = 64


class FileShortenedError(Exception):
    """A file became shorter while it was read."""


class LargeFile:
    """The first ``size`` bytes of an open file, whose descriptor is closed with this object. Threads may share it.

    It has what readers of batches need of ``bytes``: length, slices, ``find``. Raises FileShortenedError: the file has
    fewer than ``size`` bytes. Slices and ``find`` raise it, too. Raises OSError: the disk failed.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._kept = threading.local()
        self._end_start = max(0, size - _END_BYTES)
        self._end = self._read(self._end_start, size)

    def __del__(self) -> None:
        os.close(self._descriptor)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        start, stop, step = place.indices(self._size)
        if step != 1:
            return self._read(start, stop)[::step]
        if start >= self._end_start:
            return self._end[start - self._end_start : max(start, stop) - self._end_start]
        if stop - start > _BLOCK_BYTES // 4:
            return self._read(start, stop)
        first, block = self._block(start, stop)
        return block[start - first : max(start, stop) - first]

    def find(self, what: bytes, start: int = 0, stop: int | None = None, /) -> int:
        """Return the first position of a short ``what`` between ``start`` and ``stop``, or −1 if it is not there."""
        stop = self._size if stop is None else min(stop, self._size)
        while stop - start >= len(what):
            first, block = self._block(start, start + len(what))
            place = block.find(what, start - first, stop - first)
            if place >= 0:
                return first + place
            start = first + len(block) - len(what) + 1
        return -1

    def _block(self, start: int, stop: int) -> tuple[int, bytes]:
        """Return the block that this thread keeps, with its position; it is read anew if it lacks a byte."""
        first, block = getattr(self._kept, "block", (0, b""))
        if start < first or stop > first + len(block):
            first = start - start % (_BLOCK_BYTES // 4)
            block = self._read(first, min(first + _BLOCK_BYTES, self._size))
            self._kept.block = first, block
        return first, block

    def _read(self, start: int, stop: int) -> bytes:
        pieces = []
        while start < stop:  # A single call of os.pread reads at most 2 GiB.
            piece = os.pread(self._descriptor, stop - start, start)
            if not piece:
                raise FileShortenedError
            pieces.append(piece)
            start += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


Content: TypeAlias = bytes | mmap.mmap | LargeFile
"""The content of a whole file: bytes in memory, a map of a temporary file, or a large file read in pieces."""

_STEP = 1 << 20


def give_back(data: Content, start: int, stop: int) -> None:
    """Release the pages of a mapped file from position ``start`` to before ``stop``. Do nothing for other data."""
    if not isinstance(data, mmap.mmap):
        return
    first = start - start % mmap.PAGESIZE
    if stop > first and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED, first, stop - first)


def piecewise_digest(data: Content, start: int, stop: int) -> bytes:
    """Return the SHA-256 of ``data[start:stop]``, read piece by piece. Pages of a mapped file are released."""
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
