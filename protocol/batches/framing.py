"""Header and trailer of a batch: their bytes, and a search for them in a file, with a memory of what was found.

The device writes them; the aggregator's reader searches a file for them in rising order of positions. A record may hold
a header, whose records hold headers again: without the memory each would cause another search of the rest of the file.
Source: docs/formats.md, section 4.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple, Protocol

from protocol.errors import InputError
from protocol.stream import bulk_sha256, sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from mmap import mmap
    from typing import Any, TypeAlias

    Adjacent: TypeAlias = Callable[[Any, int, int, bytes], int]  # data, position, length, prefix → records
    Digest: TypeAlias = Callable[[Any, int, int], bytes]  # data, start, end → SHA-256
    from collections.abc import Iterable

MARK = b"\x96\xa4hsyb"
END = b"\x93\xa3end"
FILE_VERSION = 1
MAX_RECORDS = (1 << 32) - 1
MAX_RECORD_LENGTH = (1 << 16) + 4
TRAILER_BYTES = 44
COUNT_HEAD = b"\xce"
DIGEST_HEAD = b"\xc4\x20"


class Source(Protocol):
    """The content of a whole file: ``bytes``, a memory map, or an object that reads pieces of a file."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> bytes: ...

    def find(self, what: bytes, start: int = ..., stop: int = ..., /) -> int:
        """Return the position of the first ``what`` in [start, stop), like ``bytes.find``, or −1 if there is none."""


class Header(NamedTuple):
    """The header of a batch: the 32-byte id of its campaign, and layout and length in bytes of every record.

    The layout is ``SINGLE``, ``BITS`` or ``INTEGERS`` of :mod:`protocol.mechanisms` (1, 2 or 3), or 4: shared answers.
    """

    campaign: bytes
    layout: int
    record_length: int

    def to_bytes(self) -> bytes:
        """Encode the header: ``96 "hsyb" 1 campaign layout L {}``, with integers in their shortest form.

        L is the record length. The header has 44 bytes up to L = 127.
        """
        return b"".join(
            (
                MARK,
                bytes((FILE_VERSION,)),
                DIGEST_HEAD,
                self.campaign,
                bytes((self.layout,)),
                _pack_length(self.record_length),
                b"\x80",
            )
        )


def _pack_length(length: int) -> bytes:
    if length < 1 << 7:
        return bytes((length,))
    if length < 1 << 8:
        return bytes((0xCC, length))
    if length < 1 << 16:
        return b"\xcd" + length.to_bytes(2, "big")
    return b"\xce" + length.to_bytes(4, "big")


def read_header(data: Source, position: int) -> tuple[Header, int] | None:
    """Return the header at ``position`` of ``data`` and the position after it, or None.

    The result is None if no undamaged header is there.
    """
    start = position + len(MARK)
    if data[position:start] != MARK or data[start : start + 1] != bytes((FILE_VERSION,)):
        return None
    if data[start + 1 : start + 3] != DIGEST_HEAD:
        return None
    campaign, rest = data[start + 3 : start + 35], data[start + 35 : start + 42]
    width = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(rest[1], 0) if len(rest) > 1 else 0
    length_end = 2 + width
    if len(rest) <= length_end or rest[0] not in (1, 2, 3, 4):
        return None
    length = int.from_bytes(rest[2:length_end], "big") if width else rest[1]
    if rest[1:length_end] != _pack_length(length) or rest[length_end] != 0x80:
        return None
    if not 0 < length <= MAX_RECORD_LENGTH:
        return None
    return Header(campaign, rest[0], length), start + 35 + length_end + 1


def trailer(count: int, digest: bytes) -> bytes:
    """Encode the trailer ``93 "end" N digest``, 44 bytes, of N = ``count`` records and the SHA-256 of all before it."""
    return END + COUNT_HEAD + count.to_bytes(4, "big") + DIGEST_HEAD + digest


def is_cut_header(rest: bytes) -> bool:
    """Return whether the last bytes of a file are the beginning of a header that the end of the file cuts off.

    ``rest`` holds all bytes up to the end of the file. The caller must have checked that it is no complete header.
    """
    if len(rest) >= 64:
        return False
    examples = (Header(bytes(32), 1, length).to_bytes() for length in (1, 1 << 7, 1 << 8, 1 << 16))
    return any(len(rest) < len(each) and read_header(rest + each[len(rest) :], 0) is not None for each in examples)


def one_bit_apart(found: bytes, header: bytes) -> bool:
    """Return whether ``found`` and ``header`` have equal length and differ in exactly one bit."""
    return len(found) == len(header) and (int.from_bytes(found) ^ int.from_bytes(header)).bit_count() == 1


def write_batch(header: Header, records: Iterable[bytes]) -> bytes:
    """Encode a complete batch in memory: ``header``, ``records``, trailer.

    Raises InputError ``batch_invalid``: a record that has not the header's length, or more than 2^32 − 1 records.
    """
    records = list(records)
    if len(records) > MAX_RECORDS or any(len(record) != header.record_length for record in records):
        raise InputError("batch_invalid", "the records of a batch are too many or of different lengths")
    body = header.to_bytes() + b"".join(records)
    return body + trailer(len(records), sha256(body).digest())


MAX_WASTED = 4
"""Most bytes that are hashed for digests that turn out wrong, as a multiple of the bytes that were read so far."""
_MAX_RUNS = 1 << 17
_HALF = 22
"""A header is searched as two halves: its first 22 bytes, and the rest. One wrong bit leaves one half unchanged."""
_FEW, _MANY = 16, 1 << 14


class Scan:
    """A search for the positions of headers, trailers and runs of records in one file.

    The methods whose names begin with ``next`` find positions at or after the given one. They and :meth:`run_end` must
    be called with rising positions. The arguments are those of :func:`protocol.batches.batch.read_batches`, but
    ``known`` holds the headers of known campaigns.
    """

    def __init__(
        self,
        data: Source,
        known: Sequence[Header],
        adjacent: Adjacent,
        *,
        verify: bool = True,
        digest: Digest | None = None,
    ) -> None:
        self._digest: Digest = digest or digest_of
        self.data = data
        self.verify = verify
        self.size = len(data)
        self._known = [(header, header.to_bytes()) for header in known]
        self._adjacent = adjacent
        # Positions found last, one of each kind; -1: none found yet.
        self._marks = self._ends = self._readable = self._header = -1
        # Half of a known header → position of the damaged header that was found by it; the file's size if none is left.
        self._damaged: dict[bytes, int] = {}
        # (prefix, position mod record length) → end of the run of records that was found last.
        self._runs: dict[tuple[bytes, int], int] = {}
        self._wasted = 0  # bytes hashed for digests that were wrong

    def fork(self) -> Scan:
        """Return an independent copy, for a reader that looks ahead: positions must rise only within each copy."""
        other = copy(self)
        for name in ("_damaged", "_runs"):
            setattr(other, name, dict(getattr(self, name)))
        return other

    def matches(self, expected: bytes, position: int) -> bool:
        """Return whether the bytes at ``position`` equal ``expected``."""
        return self.data[position : position + len(expected)] == expected

    def is_sign(self, position: int, prefix: bytes) -> bool:
        """Return whether the bytes at ``position`` are the first bytes of a record, header or trailer.

        ``prefix`` holds the first bytes of a record; if it is empty, records are not looked for.
        """
        found = self.data[position : position + len(MARK)]
        return found.startswith((prefix, MARK, END)) if prefix else found.startswith((MARK, END))

    def next_mark(self, position: int) -> int:
        """Return the position of the next :data:`MARK`, which begins a header, or the file's end if none is left."""
        if self._marks < position:
            self._marks = self._find(MARK, position)
        return self._marks

    def next_end(self, position: int) -> int:
        """Return the position of the next :data:`END`, which begins a trailer, or the file's end if none is left."""
        if self._ends < position:
            self._ends = self._find(END, position)
        return self._ends

    def next_header(self, position: int) -> int:
        """Return the position of the first header from ``position`` on, or the file's end if none is left.

        A header of a known campaign is found also with one wrong bit.
        """
        if self._header < position:
            damaged = (self._next_damaged(encoded, position) for _, encoded in self._known)
            self._header = min([self._next_readable(position), *damaged])
        return self._header

    def _next_readable(self, position: int) -> int:
        if self._readable < position:
            at = self.next_mark(position)
            while at < self.size and read_header(self.data, at) is None:
                at = self._find(MARK, at + 1)
            self._readable = at
        return self._readable

    def damaged_header(self, position: int) -> tuple[Header, int] | None:
        """Return the known header that differs in one bit from the bytes at ``position``, and its end, or None."""
        for header, encoded in self._known:
            if one_bit_apart(self.data[position : position + len(encoded)], encoded):
                return header, position + len(encoded)
        return None

    def _next_damaged(self, encoded: bytes, position: int) -> int:
        """Return the position of the next bytes that differ in one bit from ``encoded``, a known header."""
        nearest = self.size
        for offset, half in ((0, encoded[:_HALF]), (_HALF, encoded[_HALF:])):
            at = self._damaged.get(half, -1)
            if at < position:
                place = self._find(half, position + offset)
                while place < self.size and not one_bit_apart(
                    self.data[place - offset : place - offset + len(encoded)], encoded
                ):
                    place = self._find(half, place + 1)
                at = place - offset if place < self.size else self.size
                self._damaged[half] = at
            nearest = min(nearest, at)
        return nearest

    def run_end(self, position: int, length: int, prefix: bytes) -> int:
        """Return the end of the run of adjacent records of ``length`` bytes and this ``prefix`` at ``position``.

        The result is ``position`` if no such record begins there.
        """
        # The key needs no record length: the prefix determines it.
        key = prefix, position % length
        known = self._runs.get(key, -1)
        if known >= position:
            return known
        end = position + length * self._adjacent(self.data, position, length, prefix) if prefix else position
        if end > position:
            if len(self._runs) >= _MAX_RUNS:  # keep only the runs that end at or after this position
                self._runs = {each: stop for each, stop in self._runs.items() if stop >= position}
            self._runs[key] = end
        return end

    def trailer_digest(self, start: int, end: int, count: int) -> bytes | None:
        """Return the digest in the trailer at ``end``, or None if it is no right trailer of data[start:end].

        If ``verify`` is False, the digest is not compared. The result is None, too, if wrong digests have cost more
        than :data:`MAX_WASTED` times the bytes read: overlapping batches could make a reader hash the same bytes many
        times.
        """
        if count > MAX_RECORDS or end + TRAILER_BYTES > self.size:
            return None
        head = END + COUNT_HEAD + count.to_bytes(4, "big") + DIGEST_HEAD
        if not self.matches(head, end) or self._wasted + end - start > MAX_WASTED * end:
            return None
        if not self.verify:
            return self.data[end + len(head) : end + TRAILER_BYTES]
        digest = self._digest(self.data, start, end)
        if self.matches(digest, end + len(head)):
            return digest
        self._wasted += end - start
        return None

    def _find(self, wanted: bytes, position: int) -> int:
        """Return the position of the next ``wanted`` bytes, or the end of the file if there are none."""
        place = self.data.find(wanted, position)
        return self.size if place < 0 else place


def digest_of(data: bytes | mmap, start: int, end: int) -> bytes:
    """Return SHA-256 of data[start:end]."""
    with memoryview(data) as view, view[start:end] as batch:
        return bulk_sha256(batch).digest()


def count_adjacent(data: Source, position: int, length: int, prefix: bytes) -> int:
    """Return the number of complete adjacent records of ``data`` from ``position`` on, or 0 if none begins there.

    Each record has ``length`` bytes and begins with ``prefix``. Columns of bytes are compared: the first byte of the
    prefix in some thousands of records at once, then the second byte, and so on.
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
