"""Batch files (``.hsr``): header, reports, trailer; and a reader that loses no good report to a bad one.

Source: docs/formats.md, section 4. The writer runs on the device, the reader at the aggregator.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from protocol.digest import bulk_sha256, sha256
from protocol.errors import InputError
from protocol.report import FIXED_BYTES, Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MARK = b"\x96\xa4hsyb"
END = b"\x93\xa3end"
FILE_VERSION = 1
MAX_RECORDS = (1 << 32) - 1
MAX_RECORD_LENGTH = (1 << 16) + 4
TRAILER_BYTES = 44
MAX_WASTED = 4
"""Digests that turn out wrong may cost a reader this many times the bytes that it has read so far."""
_MAX_RUNS = 1 << 17
_COUNT_HEAD = b"\xce"
_DIGEST_HEAD = b"\xc4\x20"
_UNKNOWN: Mapping[bytes, Layout] = MappingProxyType({})


class Header(NamedTuple):
    """The first value of a batch."""

    campaign: bytes
    layout: int
    record_length: int

    def to_bytes(self) -> bytes:
        """``96 "hsyb" 1 campaign layout L {}``, shortest integers: 44 bytes up to L = 127."""
        return b"".join(
            (
                MARK,
                bytes((FILE_VERSION,)),
                _DIGEST_HEAD,
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


def read_header(data: bytes, position: int) -> tuple[Header, int] | None:
    """The header at ``position`` and where it ends; None if there is none that this reader understands."""
    start = position + len(MARK)
    if data[position:start] != MARK or data[start : start + 1] != bytes((FILE_VERSION,)):
        return None
    if data[start + 1 : start + 3] != _DIGEST_HEAD:
        return None
    campaign, rest = data[start + 3 : start + 35], data[start + 35 : start + 42]
    width = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(rest[1], 0) if len(rest) > 1 else 0
    length_end = 2 + width
    if len(rest) <= length_end or rest[0] not in (1, 2, 3):
        return None
    length = int.from_bytes(rest[2:length_end], "big") if width else rest[1]
    if rest[1:length_end] != _pack_length(length) or rest[length_end] != 0x80:
        return None
    if not 0 < length <= MAX_RECORD_LENGTH:
        return None
    return Header(campaign, rest[0], length), start + 35 + length_end + 1


def trailer(count: int, digest: bytes) -> bytes:
    """``93 "end" N digest``: N reports, SHA-256 of all bytes of the batch before the trailer."""
    return END + _COUNT_HEAD + count.to_bytes(4, "big") + _DIGEST_HEAD + digest


def write_batch(header: Header, records: Iterable[bytes]) -> bytes:
    """A whole batch in memory.

    Raises:
        InputError: ``batch_invalid``: a record of another length, or more than 2^32 − 1 of them.
    """
    records = list(records)
    if len(records) > MAX_RECORDS or any(len(record) != header.record_length for record in records):
        raise InputError("batch_invalid", "the records of a batch are too many or of different lengths")
    body = header.to_bytes() + b"".join(records)
    return body + trailer(len(records), sha256(body).digest())


class Batch(NamedTuple):
    """One batch as found in a file.

    Attributes:
        header: what it says of itself.
        spans: runs of adjacent records, as (position of the first, number of records).
        proven: its digest and number of records are right.
        truncated: it has no trailer.
    """

    header: Header
    spans: tuple[tuple[int, int], ...]
    proven: bool
    truncated: bool


class Damage(NamedTuple):
    """A stretch of bytes that is no report, no header and no trailer.

    ``reason`` is ``truncated`` where a report or header begins but the file or batch ends in it, else
    ``invalid_message``.
    """

    reason: str
    position: int
    length: int


def read_batches(data: bytes, layouts: Mapping[bytes, Layout] = _UNKNOWN) -> Iterator[Batch | Damage]:
    """Everything in a file of concatenated batches, in order. Never raises, whatever the bytes.

    The spans and stretches cover all bytes besides headers and trailers, each byte once. Time and memory
    are proportional to the file, also where its author means harm.

    Args:
        data: the whole file.
        layouts: campaign id → layout, of campaigns that are known. This tells the two layouts of bits
            apart that share the length 18 (one byte of bits after ``c7 0f 02``, two after ``d8 02``);
            for other campaigns the first record of each batch decides.
    """
    scan = _Scan(data)
    position = 0
    while position < len(data):
        found = read_header(data, position)
        if found is None:
            start, position = position, scan.next_header(position + 1)
            yield Damage("truncated" if _is_cut_header(data, start) else "invalid_message", start, position - start)
            continue
        header, records = found
        prefix = _prefix(header, layouts.get(header.campaign), data[records : records + 4])
        whole = _read_whole(scan, position, records, header, prefix)
        if whole is not None:
            batch, position = whole
            yield batch
        else:
            batch, damage, position = _salvage(scan, records, header, prefix)
            yield batch
            yield from damage


class _Scan:
    """What one pass over a file has learnt, so that nothing is looked for or hashed again and again.

    A record may hold a whole header, and that one records with headers in them: without this memory each
    would be the reason to read the rest of the file once more. Positions are asked for in rising order.
    """

    __slots__ = ("_ends", "_header", "_marks", "_runs", "_wasted", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._marks = self._ends = self._header = -1  # the next of each, as far as it was looked for
        self._runs: dict[tuple[bytes, int], int] = {}
        self._wasted = 0

    def next_mark(self, position: int) -> int:
        """Where the next header begins, readable or not; the end of the file if nowhere."""
        if self._marks < position:
            self._marks = _find(self.data, MARK, position)
        return self._marks

    def next_end(self, position: int) -> int:
        """Where the next trailer begins; the end of the file if nowhere."""
        if self._ends < position:
            self._ends = _find(self.data, END, position)
        return self._ends

    def next_header(self, position: int) -> int:
        """Where the next readable header begins; the end of the file if nowhere."""
        if self._header < position:
            at = self.next_mark(position)
            while at < len(self.data) and read_header(self.data, at) is None:
                at = _find(self.data, MARK, at + 1)
            self._header = at
        return self._header

    def run_end(self, position: int, length: int, prefix: bytes) -> int:
        """Where adjacent records of one prefix and length, the first one here, end."""
        key = prefix, position % length  # the prefix states the length
        known = self._runs.get(key, -1)
        if known >= position:
            return known
        end = position
        while prefix and self.data.startswith(prefix, end) and end + length <= len(self.data):
            end += length
        if end > position:
            if len(self._runs) >= _MAX_RUNS:  # those that end further on have a prefix near here: not so many
                self._runs = {each: stop for each, stop in self._runs.items() if stop >= position}
            self._runs[key] = end
        return end

    def is_proven(self, start: int, end: int, count: int) -> bool:
        """Whether a trailer stands at ``end`` with this count and the digest of all bytes from ``start``.

        The digest is taken last, and not at all once wrong ones have cost :data:`MAX_WASTED` times what
        was read: overlapping batches could otherwise make a reader hash everything thousands of times.
        """
        head = END + _COUNT_HEAD + count.to_bytes(4, "big") + _DIGEST_HEAD if count <= MAX_RECORDS else None
        if head is None or not self.data.startswith(head, end) or end + TRAILER_BYTES > len(self.data):
            return False
        if self._wasted + end - start > MAX_WASTED * end:
            return False
        digest = bulk_sha256(memoryview(self.data)[start:end]).digest()
        proven = self.data.startswith(digest, end + len(head))
        self._wasted += 0 if proven else end - start
        return proven


def _find(data: bytes, what: bytes, position: int) -> int:
    place = data.find(what, position)
    return len(data) if place < 0 else place


def _is_cut_header(data: bytes, position: int) -> bool:
    """Whether the file ends in something that more bytes would make a readable header."""
    rest = data[position : position + 64]
    if len(rest) == 64:
        return False
    examples = (Header(bytes(32), 1, length).to_bytes() for length in (1, 1 << 7, 1 << 8, 1 << 16))
    return any(len(rest) < len(whole) and read_header(rest + whole[len(rest) :], 0) is not None for whole in examples)


def _prefix(header: Header, known: Layout | None, first: bytes) -> bytes:
    """The fixed first bytes of the batch's records; ``first`` is how the first of them begins.

    Layout and length leave one answer, but for layout 2 with L = 18.
    """
    if known is not None and (known.kind, known.record_length) == (header.layout, header.record_length):
        return known.prefix
    fitting = _prefixes(header.layout, header.record_length)
    return next((prefix for prefix in fitting if first.startswith(prefix)), fitting[0] if fitting else b"")


@lru_cache(maxsize=4096)
def _prefixes(kind: int, record_length: int) -> tuple[bytes, ...]:
    """How records of this layout and length may begin."""
    widths = (record_length - head - FIXED_BYTES for head in (2, 3, 4))
    layouts = [Layout(kind, width) for width in widths if 0 < width < (1 << 16) - FIXED_BYTES]
    return tuple(layout.prefix for layout in layouts if layout.record_length == record_length)


def _read_whole(scan: _Scan, start: int, records: int, header: Header, prefix: bytes) -> tuple[Batch, int] | None:
    """The batch if its digest and count are right, and where it ends."""
    end = scan.run_end(records, header.record_length, prefix)
    count = (end - records) // header.record_length
    if not scan.is_proven(start, end, count):
        return None
    spans = ((records, count),) if count else ()
    return Batch(header, spans, proven=True, truncated=False), end + TRAILER_BYTES


def _salvage(scan: _Scan, position: int, header: Header, prefix: bytes) -> tuple[Batch, list[Damage], int]:
    """Records of a damaged batch that are followed by something plausible; the rest byte by byte."""
    data, length, end = scan.data, header.record_length, len(scan.data)
    spans: list[tuple[int, int]] = []
    damage: list[Damage] = []
    lost_from = -1  # start of the current undecodable stretch
    truncated = True

    def close(stop: int, *, cut: bool) -> None:
        nonlocal lost_from
        if lost_from >= 0:
            begun = data.startswith(prefix, lost_from) or END.startswith(data[lost_from : lost_from + len(END)])
            whole = length if data.startswith(prefix, lost_from) else TRAILER_BYTES
            reason = "truncated" if cut and begun and stop - lost_from < whole else "invalid_message"
            damage.append(Damage(reason, lost_from, stop - lost_from))
            lost_from = -1

    while position < end:
        if prefix and data.startswith(prefix, position) and _is_record(scan, position, length, prefix):
            close(position, cut=False)
            if spans and spans[-1][0] + spans[-1][1] * length == position:
                spans[-1] = (spans[-1][0], spans[-1][1] + 1)
            else:
                spans.append((position, 1))
            position += length
        elif position == scan.next_mark(position):
            break  # also where the header is not understood: what follows belongs to another campaign
        elif position == scan.next_end(position) and position + TRAILER_BYTES <= scan.next_header(position):
            close(position, cut=False)
            position += TRAILER_BYTES
            truncated = False
            break
        else:
            if lost_from < 0:
                lost_from = position
            position = _next_sign(scan, position + 1, prefix)
    close(position, cut=True)
    return Batch(header, tuple(spans), proven=False, truncated=truncated), damage, position


def _next_sign(scan: _Scan, position: int, prefix: bytes) -> int:
    """Where the next record, header or trailer may begin; the end of the file if nowhere."""
    stop = min(scan.next_mark(position), scan.next_end(position))
    place = scan.data.find(prefix, position, stop + len(prefix)) if prefix else -1
    return stop if place < 0 else place


def _is_record(scan: _Scan, position: int, length: int, prefix: bytes) -> bool:
    """Whether a whole record stands here: it may end where it would, and no batch begins inside it."""
    return _plausible(scan.data, position + length, prefix) and scan.next_header(position) >= position + length


def _plausible(data: bytes, position: int, prefix: bytes) -> bool:
    """Whether a record may end here: a record, header or trailer follows, or the file ends."""
    return position == len(data) or (position < len(data) and data.startswith((prefix, MARK, END), position))
