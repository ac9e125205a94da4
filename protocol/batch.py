"""Batch files (``.hsr``): header, reports, trailer; and a reader that loses no good report to a bad one.

Source: docs/formats.md, section 4. The writer runs on the device, the reader at the aggregator.
"""

from __future__ import annotations

from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

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

    The spans and stretches cover all bytes besides headers and trailers, each byte once.

    Args:
        data: the whole file.
        layouts: campaign id → layout, of campaigns that are known. This tells the two layouts of bits
            apart that share the length 18 (one byte of bits after ``c7 0f 02``, two after ``d8 02``);
            for other campaigns the first record of each batch decides.
    """
    position = 0
    while position < len(data):
        found = read_header(data, position)
        if found is None:
            start, position = position, _next_mark(data, position + 1)
            yield Damage("truncated" if _is_cut_header(data, start) else "invalid_message", start, position - start)
            continue
        header, records = found
        prefix = _prefix(header, layouts.get(header.campaign), data[records : records + 4])
        whole = _read_whole(data, position, records, header, prefix)
        if whole is not None:
            batch, position = whole
            yield batch
        else:
            batch, damage, position = _salvage(data, records, header, prefix)
            yield batch
            yield from damage


def _next_mark(data: bytes, position: int, within: int | None = None) -> int:
    """Where the next readable header starts: in all that follows, or ``within`` so many bytes; else the end."""
    stop = len(data) if within is None else position + within
    while (position := data.find(MARK, position, stop + len(MARK) - 1)) >= 0:
        if read_header(data, position) is not None:
            return position
        position += 1
    return len(data)


def _is_cut_header(data: bytes, position: int) -> bool:
    """Whether the file ends in something that more bytes would make a readable header."""
    rest = data[position : position + 64]
    examples = (Header(bytes(32), 1, length).to_bytes() for length in (1, 1 << 7, 1 << 8, 1 << 16))
    return any(len(rest) < len(whole) and read_header(rest + whole[len(rest) :], 0) is not None for whole in examples)


def _prefix(header: Header, known: Layout | None, first: bytes) -> bytes:
    """The fixed first bytes of the batch's records; ``first`` is how the first of them begins.

    Layout and length leave one answer, but for layout 2 with L = 18.
    """
    if known is not None and (known.kind, known.record_length) == (header.layout, header.record_length):
        return known.prefix
    widths = (header.record_length - head - FIXED_BYTES for head in (2, 3, 4))
    layouts = [Layout(header.layout, width) for width in widths if 0 < width < (1 << 16) - FIXED_BYTES]
    fitting = [layout.prefix for layout in layouts if layout.record_length == header.record_length]
    return next((prefix for prefix in fitting if first.startswith(prefix)), fitting[0] if fitting else b"")


def _read_whole(data: bytes, start: int, records: int, header: Header, prefix: bytes) -> tuple[Batch, int] | None:
    """The batch if its digest and count are right, and where it ends."""
    length, position = header.record_length, records
    while prefix and data.startswith(prefix, position) and position + length <= len(data):
        position += length
    count = (position - records) // length
    digest = sha256(memoryview(data)[start:position]).digest()
    if data[position : position + TRAILER_BYTES] != trailer(count, digest):
        return None
    spans = ((records, count),) if count else ()
    return Batch(header, spans, proven=True, truncated=False), position + TRAILER_BYTES


def _salvage(data: bytes, position: int, header: Header, prefix: bytes) -> tuple[Batch, list[Damage], int]:
    """Records of a damaged batch that are followed by something plausible; the rest byte by byte."""
    length, end = header.record_length, len(data)
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
        if prefix and data.startswith(prefix, position) and _is_record(data, position, length, prefix):
            close(position, cut=False)
            if spans and spans[-1][0] + spans[-1][1] * length == position:
                spans[-1] = (spans[-1][0], spans[-1][1] + 1)
            else:
                spans.append((position, 1))
            position += length
        elif data.startswith(MARK, position):
            break  # also where the header is not understood: what follows belongs to another campaign
        elif data.startswith(END, position) and position + TRAILER_BYTES <= _next_mark(data, position, TRAILER_BYTES):
            close(position, cut=False)
            position += TRAILER_BYTES
            truncated = False
            break
        else:
            if lost_from < 0:
                lost_from = position
            position += 1
    close(position, cut=True)
    return Batch(header, tuple(spans), proven=False, truncated=truncated), damage, position


def _is_record(data: bytes, position: int, length: int, prefix: bytes) -> bool:
    """Whether a whole record stands here: it may end where it would, and no batch begins inside it."""
    return _plausible(data, position + length, prefix) and _next_mark(data, position, length) >= position + length


def _plausible(data: bytes, position: int, prefix: bytes) -> bool:
    """Whether a record may end here: a record, header or trailer follows, or the file ends."""
    return position == len(data) or (position < len(data) and data.startswith((prefix, MARK, END), position))
