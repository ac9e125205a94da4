"""One pass over a file of batches: where headers, trailers and runs of records stand.

Source: docs/formats.md, section 4. ``protocol.batches.batch`` asks, in rising order of positions; what was found
is remembered. A record may hold a whole header, and that one records with headers in them: without this
memory each would be the reason to read the rest of the file once more.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from protocol.batches.framing import (
    COUNT_HEAD,
    DIGEST_HEAD,
    END,
    MARK,
    MAX_RECORDS,
    TRAILER_BYTES,
    Header,
    one_bit_apart,
    read_header,
)
from protocol.digest import bulk_sha256 as sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from mmap import mmap
    from typing import TypeAlias

    Source: TypeAlias = bytes | mmap
    Adjacent: TypeAlias = Callable[[Source, int, int, bytes], int]
    Digest: TypeAlias = Callable[[Source, int, int], bytes]

MAX_WASTED = 4
"""Digests that turn out wrong may cost a reader this many times the bytes that it has read so far."""
_MAX_RUNS = 1 << 17
_HALF = 22
"""Of two parts of a header in which one bit changed, one is as it was: its first bytes, or the rest."""
_FEW, _MANY = 16, 1 << 14


class Scan:
    """What is known of one file so far.

    Args:
        data: the whole file.
        known: the headers of campaigns that the reader knows: they are found with one wrong bit, too.
        adjacent: as :func:`count_adjacent`.
        verify: without it no digest is taken; what a trailer states is believed.
        digest: as :func:`digest_of`.
    """

    __slots__ = (
        "_adjacent",
        "_digest",
        "_ends",
        "_header",
        "_known",
        "_marks",
        "_near",
        "_readable",
        "_runs",
        "_wasted",
        "data",
        "size",
        "verify",
    )

    def __init__(
        self,
        data: Source,
        known: Sequence[Header],
        adjacent: Adjacent,
        *,
        verify: bool = True,
        digest: Digest | None = None,
    ) -> None:
        self._digest = digest or digest_of
        self.data = data
        self.verify = verify
        self.size = len(data)
        self._known = [(header, header.to_bytes()) for header in known]
        self._adjacent = adjacent
        self._marks = self._ends = self._readable = self._header = -1  # the next of each, as far as it was looked for
        self._near: dict[bytes, int] = {}
        self._runs: dict[tuple[bytes, int], int] = {}
        self._wasted = 0

    def fork(self) -> Scan:
        """The same, for a reader that looks ahead and whose questions do not rise with those of this one."""
        other = copy(self)
        for name in ("_near", "_runs"):
            setattr(other, name, dict(getattr(self, name)))
        return other

    def stands(self, what: bytes, position: int) -> bool:
        """Whether these bytes stand here."""
        return self.data[position : position + len(what)] == what

    def is_sign(self, position: int, prefix: bytes) -> bool:
        """Whether a record, header or trailer begins here, as far as its first bytes tell."""
        found = self.data[position : position + len(MARK)]
        return found.startswith((prefix, MARK, END)) if prefix else found.startswith((MARK, END))

    def next_mark(self, position: int) -> int:
        """Where the next header begins, readable or not; the end of the file if nowhere."""
        if self._marks < position:
            self._marks = self._find(MARK, position)
        return self._marks

    def next_end(self, position: int) -> int:
        """Where the next trailer begins; the end of the file if nowhere."""
        if self._ends < position:
            self._ends = self._find(END, position)
        return self._ends

    def next_header(self, position: int) -> int:
        """Where the next header begins that is readable or known but for one bit; the end of the file if nowhere."""
        if self._header < position:
            near = (self._next_near(whole, position) for _, whole in self._known)
            self._header = min([self._next_readable(position), *near])
        return self._header

    def _next_readable(self, position: int) -> int:
        """Where the next readable header begins; remembered by itself, since damaged ones may stand before it."""
        if self._readable < position:
            at = self.next_mark(position)
            while at < self.size and read_header(self.data, at) is None:
                at = self._find(MARK, at + 1)
            self._readable = at
        return self._readable

    def near_header(self, position: int) -> tuple[Header, int] | None:
        """The known header that stands here but for one bit, and where it ends."""
        for header, whole in self._known:
            if one_bit_apart(self.data[position : position + len(whole)], whole):
                return header, position + len(whole)
        return None

    def _next_near(self, whole: bytes, position: int) -> int:
        """Where the next bytes begin that differ in one bit from a known header."""
        nearest = self.size
        for offset, half in ((0, whole[:_HALF]), (_HALF, whole[_HALF:])):
            at = self._near.get(half, -1)
            if at < position:
                place = self._find(half, position + offset)
                while place < self.size and not one_bit_apart(
                    self.data[place - offset : place - offset + len(whole)], whole
                ):
                    place = self._find(half, place + 1)
                at = place - offset if place < self.size else self.size
                self._near[half] = at
            nearest = min(nearest, at)
        return nearest

    def run_end(self, position: int, length: int, prefix: bytes) -> int:
        """Where adjacent whole records of one prefix and length, the first one here, end."""
        key = prefix, position % length  # the prefix states the length
        known = self._runs.get(key, -1)
        if known >= position:
            return known
        end = position + length * self._adjacent(self.data, position, length, prefix) if prefix else position
        if end > position:
            if len(self._runs) >= _MAX_RUNS:  # those that end further on have a prefix near here: not so many
                self._runs = {each: stop for each, stop in self._runs.items() if stop >= position}
            self._runs[key] = end
        return end

    def proof(self, start: int, end: int, count: int) -> bytes | None:
        """The digest of all bytes from ``start``, if a trailer stands at ``end`` that says so and has this count.

        The digest is taken last, and not at all once wrong ones have cost :data:`MAX_WASTED` times what
        was read: overlapping batches could otherwise make a reader hash everything thousands of times.
        """
        if count > MAX_RECORDS or end + TRAILER_BYTES > self.size:
            return None
        head = END + COUNT_HEAD + count.to_bytes(4, "big") + DIGEST_HEAD
        if not self.stands(head, end) or self._wasted + end - start > MAX_WASTED * end:
            return None
        if not self.verify:
            return self.data[end + len(head) : end + TRAILER_BYTES]
        digest = self._digest(self.data, start, end)
        if self.stands(digest, end + len(head)):
            return digest
        self._wasted += end - start
        return None

    def _find(self, what: bytes, position: int) -> int:
        place = self.data.find(what, position)
        return self.size if place < 0 else place


def digest_of(data: Source, start: int, end: int) -> bytes:
    """SHA-256 of the bytes between two places."""
    with memoryview(data) as view, view[start:end] as batch:
        return sha256(batch).digest()


def count_adjacent(data: Source, position: int, length: int, prefix: bytes) -> int:
    """How many whole records of this prefix and length stand one after another from ``position`` on.

    Callers with numpy have a faster one. Here columns of bytes are compared: those of the prefix's first
    byte in some thousands of records, then those of the second, and so on.
    """
    most = (len(data) - position) // length
    count, step = 0, _FEW
    while count < most:
        start = position + count * length
        rows = min(step, most - count)
        good = rows
        for place, byte in enumerate(prefix):
            column = data[start + place : start + place + (good - 1) * length + 1 : length]
            good = len(column) - len(column.lstrip(bytes((byte,))))
            if not good:
                break
        count += good
        if good < rows:
            break
        step = min(2 * step, _MANY)
    return count
