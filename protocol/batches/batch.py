"""Batch files (``.hsr``): header, reports, trailer; and a reader that loses no good report to a bad one.

Source: docs/formats.md, section 4. The writer runs on the device, the reader at the aggregator.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from protocol.batches.framing import (
    END,
    FILE_VERSION,
    MARK,
    MAX_RECORD_LENGTH,
    MAX_RECORDS,
    TRAILER_BYTES,
    Header,
    is_cut_header,
    read_header,
    trailer,
    write_batch,
)
from protocol.batches.report import FIXED_BYTES, Layout
from protocol.batches.scan import Scan, count_adjacent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from mmap import mmap

    from protocol.batches.scan import Adjacent, Digest

__all__ = (
    "END",
    "FILE_VERSION",
    "MARK",
    "MAX_RECORDS",
    "MAX_RECORD_LENGTH",
    "TRAILER_BYTES",
    "Batch",
    "Damage",
    "Header",
    "read_batches",
    "read_header",
    "trailer",
    "write_batch",
)

MAX_PIECES = 1 << 14
"""So many runs and stretches of a damaged batch are given at once: it may have as many as the file has bytes."""
_UNKNOWN: Mapping[bytes, Layout] = MappingProxyType({})
_DIGEST_BYTES = 32


class Batch(NamedTuple):
    """One batch as found in a file, or a piece of one that is damaged in very many places.

    Attributes:
        header: what it says of itself; if one bit of it is wrong, what it must have said.
        spans: runs of adjacent records, as (position of the first, number of records).
        proven: its digest and number of records are right.
        truncated: it has no trailer.
        digest: what its trailer states, right or wrong; empty without a trailer.
        goes_on: what came before was a piece of the same batch.
    """

    header: Header
    spans: tuple[tuple[int, int], ...]
    proven: bool
    truncated: bool
    digest: bytes
    goes_on: bool = False


class Damage(NamedTuple):
    """A stretch of bytes that is no report, no header and no trailer.

    ``reason`` is ``truncated`` where a report or header begins but the file or batch ends in it, else
    ``invalid_message``.
    """

    reason: str
    position: int
    length: int


def read_batches(
    data: bytes | mmap,
    layouts: Mapping[bytes, Layout] = _UNKNOWN,
    *,
    adjacent: Adjacent = count_adjacent,
    verify: bool = True,
    digest: Digest | None = None,
) -> Iterator[Batch | Damage]:
    """Everything in a file of concatenated batches, in order. Never raises, whatever the bytes.

    The spans and stretches cover all bytes besides headers and trailers, each byte once. Time is proportional
    to the file, also where its author means harm; of one batch no more than :data:`MAX_PIECES` runs and
    stretches are held at a time.

    Args:
        data: the whole file.
        layouts: campaign id → layout, of campaigns that are known. Their headers are found although one
            bit of them is wrong. It also tells the two layouts of bits apart that share the length 18 (one
            byte of bits after ``c7 0f 02``, two after ``d8 02``); for other campaigns the first record of
            each batch decides.
        adjacent: as :func:`protocol.batches.scan.count_adjacent`, for callers that have a faster one.
        verify: without it no digest is taken, and no batch is proven; batches that look whole are read as such.
        digest: as :func:`protocol.batches.scan.digest_of`, for callers that map files larger than their memory.
    """
    known = [Header(campaign, layout.kind, layout.record_length) for campaign, layout in layouts.items()]
    scan = Scan(data, known, adjacent, verify=verify, digest=digest)
    position = 0
    while position < scan.size:
        stated = read_header(data, position)
        near = None if stated is not None and verify else scan.near_header(position)
        if stated is not None and near is None and (whole := _read_whole(scan, position, *stated, layouts)) is not None:
            batch, position = whole
            yield batch
            continue
        found = near or scan.near_header(position) or stated
        if found is None:
            start, position = position, scan.next_header(position + 1)
            reason = "truncated" if is_cut_header(data[start : start + 64]) else "invalid_message"
            yield Damage(reason, start, position - start)
            continue
        salvage = _Salvage(scan, *found, layouts)
        yield from salvage.read()
        position = salvage.position


def _prefix(header: Header, known: Layout | None, first: bytes) -> bytes:
    """The fixed first bytes of the batch's records; ``first`` is how the first of them begins.

    Layout and length leave one answer, but for layout 2 with L = 18.
    """
    if known is not None and (known.kind, known.record_length) == (header.layout, header.record_length):
        return known.prefix
    fitting = prefixes(header.layout, header.record_length)
    return next((prefix for prefix in fitting if first.startswith(prefix)), fitting[0] if fitting else b"")


@lru_cache(maxsize=4096)
def prefixes(kind: int, record_length: int) -> tuple[bytes, ...]:
    """How records of this layout and length may begin."""
    widths = (record_length - head - FIXED_BYTES for head in (2, 3, 4))
    layouts = [Layout(kind, width) for width in widths if 0 < width < (1 << 16) - FIXED_BYTES]
    return tuple(layout.prefix for layout in layouts if layout.record_length == record_length)


def _read_whole(
    scan: Scan, start: int, header: Header, records: int, layouts: Mapping[bytes, Layout]
) -> tuple[Batch, int] | None:
    """The batch if its digest and count are right, and where it ends."""
    prefix = _prefix(header, layouts.get(header.campaign), scan.data[records : records + 4])
    end = scan.run_end(records, header.record_length, prefix)
    count = (end - records) // header.record_length
    digest = scan.proof(start, end, count)
    if digest is None:
        return None
    spans = ((records, count),) if count else ()
    return Batch(header, spans, proven=scan.verify, truncated=False, digest=digest), end + TRAILER_BYTES


class _Salvage:
    """Reads the records of a batch that is not proven.

    Records of an undamaged stretch stand on a *grid*: each begins where the one before it ends. What looks like
    a record is kept unless it is shown that bytes are missing in it, another record or the trailer beginning
    before it would end; off the grid also unless the grid goes on inside it.
    """

    def __init__(self, scan: Scan, header: Header, records: int, layouts: Mapping[bytes, Layout]) -> None:
        self._scan = scan
        self._header = header
        self._length = header.record_length
        self._prefix = _prefix(header, layouts.get(header.campaign), scan.data[records : records + 4])
        self.position = self._grid = records
        self._held = self._looked = -1  # the next record that is held; up to where one was looked for
        self._lost_from = -1  # start of the current undecodable stretch
        self._spans: list[tuple[int, int]] = []
        self._damage: list[Damage] = []
        self._digest = b""

    def read(self) -> Iterator[Batch | Damage]:
        """The batch and the damage in it, in one piece or several; then ``position`` is where it ends."""
        ended, goes_on = self._advance(), False
        if not ended and self._scan.next_end(self.position) < self._scan.size:  # else no trailer can be its own
            digest = self._look_ahead()
        else:
            digest = self._digest
        while True:
            spans, damage = tuple(self._spans), self._damage
            self._spans, self._damage = [], []
            yield Batch(self._header, spans, proven=False, truncated=not digest, digest=digest, goes_on=goes_on)
            yield from damage
            if ended:
                return
            ended, goes_on = self._advance(), True

    def _look_ahead(self) -> bytes:
        """What the trailer states of a batch that is read in pieces: its records are to be had with it."""
        here = dict(vars(self))
        self._scan = self._scan.fork()
        ended = False
        while not ended:
            self._spans, self._damage = [], []
            ended = self._advance()
        digest = self._digest
        vars(self).update(here)
        return digest

    def _advance(self) -> bool:
        """Read on until the batch ends, or there is enough for a piece; whether it ended."""
        scan, prefix, width = self._scan, self._prefix, len(self._prefix)
        header = -1
        while self.position < scan.size:
            if len(self._spans) + len(self._damage) >= MAX_PIECES:
                return False
            position = self.position
            if header < position:
                header = scan.next_header(position)
            if width and scan.data[position : position + width] == prefix and self._is_kept(position, header):
                self._keep(position, header)
            elif position == header:
                break
            elif position == scan.next_mark(position) and not self._is_in_record(position, header):
                break  # a header that is not understood: what follows belongs to another campaign
            elif (
                position == scan.next_end(position)
                and position + TRAILER_BYTES <= header
                and not self._is_in_record(position, header)
            ):
                self._close(position, cut=False)
                self.position += TRAILER_BYTES
                self._digest = scan.data[self.position - _DIGEST_BYTES : self.position]
                break
            else:
                if self._lost_from < 0:
                    self._lost_from = position
                self.position = self._next_sign(position + 1)
        self._close(self.position, cut=True)
        return True

    def _is_kept(self, position: int, header: int) -> bool:
        """Whether the bytes here, which begin like a record, are one; ``header`` is where the next header begins."""
        end = position + self._length
        if end > header:
            return False
        off_grid = (position - self._grid) % self._length
        if off_grid and self._scan.is_sign(end - off_grid, self._prefix):
            return False
        return self._is_held(position, header) or not self._is_cut_short(position, end, header)

    def _is_in_record(self, position: int, header: int) -> bool:
        """Whether what stands here is inside a damaged record: off the grid, and the grid goes on after it."""
        off_grid = (position - self._grid) % self._length
        after = position - off_grid + self._length
        return off_grid > 0 and after < header and self._scan.is_sign(after, self._prefix)

    def _is_held(self, position: int, header: int) -> bool:
        """Whether a sign, the next header or the file's end stands one or two lengths further on."""
        end, scan = position + self._length, self._scan
        if end == header or (end < header and scan.is_sign(end, self._prefix)):
            return True
        end += self._length
        return end == header or (end < header and scan.is_sign(end, self._prefix))

    def _is_cut_short(self, position: int, end: int, header: int) -> bool:
        """Whether a trailer, or a record that is held, begins inside the record here."""
        trailer_at = self._scan.next_end(position)
        if trailer_at < end and trailer_at + TRAILER_BYTES <= header:
            return True
        return self._next_held(position + 1, end, header) < end

    def _next_held(self, start: int, stop: int, header: int) -> int:
        """Where the first record that is held begins, if before ``stop``. Starts are asked for in rising order."""
        if self._held < start:
            place = max(start, self._looked)
            while place < stop:
                place = self._scan.data.find(self._prefix, place, stop + len(self._prefix) - 1)
                if place < 0:
                    break
                if place + self._length <= header and self._is_held(place, header):
                    self._held = self._looked = place
                    return place
                place += 1
            self._looked = max(self._looked, stop)
            return stop
        return self._held

    def _keep(self, position: int, header: int) -> None:
        """The record here, and those after it that stand on its grid and are held by a neighbour."""
        self._close(position, cut=False)
        count, after = 1, position + self._length
        if self._scan.data[after : after + len(self._prefix)] == self._prefix:
            run = (self._scan.run_end(position, self._length, self._prefix) - position) // self._length
            count = max(1, min(run - 1, (header - position) // self._length))
        if self._spans and self._spans[-1][0] + self._spans[-1][1] * self._length == position:
            self._spans[-1] = (self._spans[-1][0], self._spans[-1][1] + count)
        else:
            self._spans.append((position, count))
        self.position = self._grid = position + count * self._length

    def _close(self, stop: int, *, cut: bool) -> None:
        """End the current undecodable stretch, if there is one."""
        start = self._lost_from
        if start < 0:
            return
        is_record = bool(self._prefix) and self._scan.stands(self._prefix, start)
        begun = is_record or END.startswith(self._scan.data[start : min(start + len(END), stop)])
        whole = self._length if is_record else TRAILER_BYTES
        reason = "truncated" if cut and begun and stop - start < whole else "invalid_message"
        self._damage.append(Damage(reason, start, stop - start))
        self._lost_from = -1

    def _next_sign(self, position: int) -> int:
        """Where the next record, header or trailer may begin; the end of the file if nowhere."""
        scan = self._scan
        stop = min(scan.next_mark(position), scan.next_end(position), scan.next_header(position))
        place = scan.data.find(self._prefix, position, stop + len(self._prefix)) if self._prefix else -1
        return stop if place < 0 else place
