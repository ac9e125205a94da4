"""Batch files (``.hsr``): header, records, trailer. The reader goes on after damage.

A record is the bytes of one report. The writer runs on the device, the reader at the aggregator.
Source: docs/formats.md, section 4, which defines the terms *proven*, *sign*, *grid* and *held*.
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
    Scan,
    count_adjacent,
    is_cut_header,
    read_header,
    trailer,
    write_batch,
)
from protocol.batches.report import FIXED_BYTES, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from protocol.batches.framing import Adjacent, Digest, Source

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
"""Number of runs of records and damaged stretches at which a batch is returned in several pieces. A damaged batch may
have one for every byte."""
_UNKNOWN: Mapping[bytes, Layout] = MappingProxyType({})
_DIGEST_BYTES = 32


class Batch(NamedTuple):
    """One batch of a file, or one piece of a batch with very many damaged places.

    Attributes:
        header: the header; corrected if one bit of it was wrong.
        spans: runs of adjacent records, as (position of the first record, number of records).
        proven: whether the digest was computed, and the trailer states it and the right number of records.
        truncated: whether the batch has no trailer.
        digest: the digest that the trailer states, right or wrong; empty without a trailer.
        goes_on: whether this is a further piece of the batch before.
    """

    header: Header
    spans: tuple[tuple[int, int], ...]
    proven: bool
    truncated: bool
    digest: bytes
    goes_on: bool = False


class Damage(NamedTuple):
    """A stretch of bytes, with position and length, that is no record, no header and no trailer.

    Its reason is ``truncated`` if a record, header or trailer begins there and the batch or file ends within it, else
    ``invalid_message``.
    """

    reason: str
    position: int
    length: int


def read_batches(
    data: Source,
    layouts: Mapping[bytes, Layout] = _UNKNOWN,
    *,
    adjacent: Adjacent = count_adjacent,
    verify: bool = True,
    digest: Digest | None = None,
) -> Iterator[Batch | Damage]:
    """Yield the batches and the damage of a file of concatenated batches, in order. No bytes make it raise an error.

    The damage inside a batch follows the batch, or the piece of the batch that :data:`MAX_PIECES` cuts off. Runs of
    records and damaged stretches cover every byte outside headers and trailers exactly once. For a given number of
    known campaigns the time is proportional to the length of the file, and the memory for runs and stretches is
    bounded.

    Args:
        layouts: campaign id → layout, for the known campaigns. Their headers are found even with one wrong bit, and the
            layout decides between the two widths of bit answers in records of 18 bytes.
        adjacent: a faster replacement of :func:`protocol.batches.framing.count_adjacent`.
        verify: False skips the digests: no batch is proven, but a batch with a fitting trailer is read as complete.
        digest: a replacement of :func:`protocol.batches.framing.digest_of`, for mapped files larger than the memory.
    """
    known = [Header(campaign, layout.kind, layout.record_length) for campaign, layout in layouts.items()]
    scan = Scan(data, known, adjacent, verify=verify, digest=digest)
    position = 0
    while position < scan.size:
        readable = read_header(data, position)
        damaged = None if readable is not None and verify else scan.damaged_header(position)
        if readable is not None and damaged is None:
            complete = _read_complete(scan, position, *readable, layouts)
            if complete is not None:
                batch, position = complete
                yield batch
                continue
        found = damaged or scan.damaged_header(position) or readable
        if found is None:
            start, position = position, scan.next_header(position + 1)
            reason = "truncated" if is_cut_header(data[start : start + 64]) else "invalid_message"
            yield Damage(reason, start, position - start)
            continue
        unproven = _UnprovenReader(scan, *found, layouts)
        yield from unproven.read()
        position = unproven.position


def _prefix(header: Header, known: Layout | None, first: bytes) -> bytes:
    """Return the bytes with which all records of a batch begin. ``first``: the beginning of its first record."""
    if known is not None and (known.kind, known.record_length) == (header.layout, header.record_length):
        return known.prefix
    fitting = prefixes(header.layout, header.record_length)
    return next((prefix for prefix in fitting if first.startswith(prefix)), fitting[0] if fitting else b"")


@lru_cache(maxsize=4096)
def prefixes(kind: int, record_length: int) -> tuple[bytes, ...]:
    """Return the possible first bytes of records of layout ``kind`` and length ``record_length``.

    The result has no entry for an impossible length, two entries for rows of bits in records of 18 bytes, else one.
    """
    widths = (record_length - head - FIXED_BYTES for head in (2, 3, 4))
    layouts = [Layout(kind, width) for width in widths if 0 < width < (1 << 16) - FIXED_BYTES]
    return tuple(layout.prefix for layout in layouts if layout.record_length == record_length)


def _read_complete(
    scan: Scan, start: int, header: Header, records: int, layouts: Mapping[bytes, Layout]
) -> tuple[Batch, int] | None:
    """Return the batch at ``start`` and its end; None without a right trailer. ``records``: where its records begin."""
    prefix = _prefix(header, layouts.get(header.campaign), scan.data[records : records + 4])
    end = scan.run_end(records, header.record_length, prefix)
    count = (end - records) // header.record_length
    digest = scan.trailer_digest(start, end, count)
    if digest is None:
        return None
    spans = ((records, count),) if count else ()
    return Batch(header, spans, proven=scan.verify, truncated=False, digest=digest), end + TRAILER_BYTES


class _UnprovenReader:
    """A reader of the records of an unproven batch, by the rules of docs/formats.md, section 4.

    The positions of undamaged records form the *grid*. Bytes that begin like a record are kept as one, unless *signs*
    (first bytes of a record, header or trailer) show that bytes of this record are missing.
    """

    def __init__(self, scan: Scan, header: Header, records: int, layouts: Mapping[bytes, Layout]) -> None:
        self._scan = scan
        self._header = header
        self._length = header.record_length
        self._prefix = _prefix(header, layouts.get(header.campaign), scan.data[records : records + 4])
        self.position = self._grid = records
        self._held_at = -1  # position of the last record that was found by _next_held
        self._searched_to = -1  # end of the bytes that _next_held has searched
        self._damage_start = -1  # start of the current damaged stretch, or -1
        self._spans: list[tuple[int, int]] = []
        self._damage: list[Damage] = []
        self._digest = b""

    def read(self) -> Iterator[Batch | Damage]:
        """Yield the batch and its damage, in one piece or several. Afterwards ``position`` is the end of the batch."""
        ended, goes_on = self._advance(), False
        # The first piece states the digest in the batch's trailer. A trailer follows, so this may be in a later piece.
        if not ended and self._scan.next_end(self.position) < self._scan.size:
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
        """Return the digest in the trailer of a batch of several pieces. The first piece already needs this digest."""
        state = dict(vars(self))
        self._scan = self._scan.fork()
        ended = False
        while not ended:
            self._spans, self._damage = [], []
            ended = self._advance()
        digest = self._digest
        vars(self).update(state)
        return digest

    def _advance(self) -> bool:
        """Read until the batch ends or a piece is full. Return whether the batch ended."""
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
                break  # an unreadable header: the bytes after it belong to another batch
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
                if self._damage_start < 0:
                    self._damage_start = position
                self.position = self._next_sign(position + 1)
        self._close(self.position, cut=True)
        return True

    def _is_kept(self, position: int, header: int) -> bool:
        """Return whether bytes that begin like a record are kept as one; ``header`` is where the next header is."""
        end = position + self._length
        if end > header:
            return False
        off_grid = (position - self._grid) % self._length
        if off_grid and self._scan.is_sign(end - off_grid, self._prefix):
            return False
        return self._is_held(position, header) or not self._is_cut_short(position, end, header)

    def _is_in_record(self, position: int, header: int) -> bool:
        """Return whether ``position`` is inside a damaged record: off the grid, and a sign is next on the grid."""
        off_grid = (position - self._grid) % self._length
        after = position - off_grid + self._length
        return off_grid > 0 and after < header and self._scan.is_sign(after, self._prefix)

    def _is_held(self, position: int, header: int) -> bool:
        """Return whether a record is *held*: a sign, a header or the file's end is one or two record lengths on."""
        end, scan = position + self._length, self._scan
        if end == header or (end < header and scan.is_sign(end, self._prefix)):
            return True
        end += self._length
        return end == header or (end < header and scan.is_sign(end, self._prefix))

    def _is_cut_short(self, position: int, end: int, header: int) -> bool:
        """Return whether a trailer or a held record begins inside the record at ``position``."""
        trailer_at = self._scan.next_end(position)
        if trailer_at < end and trailer_at + TRAILER_BYTES <= header:
            return True
        return self._next_held(position + 1, end, header) < end

    def _next_held(self, start: int, stop: int, header: int) -> int:
        """Return the position of the first held record in [start, stop), or ``stop``. Calls must have rising starts."""
        if self._held_at < start:
            place = max(start, self._searched_to)
            while place < stop:
                place = self._scan.data.find(self._prefix, place, stop + len(self._prefix) - 1)
                if place < 0:
                    break
                if place + self._length <= header and self._is_held(place, header):
                    self._held_at = self._searched_to = place
                    return place
                place += 1
            self._searched_to = max(self._searched_to, stop)
            return stop
        return self._held_at

    def _keep(self, position: int, header: int) -> None:
        """Keep the record at ``position``, and the adjacent records after it that are held (followed by a sign)."""
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
        """End the current damaged stretch, if any, at ``stop``. ``cut``: whether the batch or file ends there."""
        start = self._damage_start
        if start < 0:
            return
        is_record = bool(self._prefix) and self._scan.matches(self._prefix, start)
        begun = is_record or END.startswith(self._scan.data[start : min(start + len(END), stop)])
        full_length = self._length if is_record else TRAILER_BYTES
        reason = "truncated" if cut and begun and stop - start < full_length else "invalid_message"
        self._damage.append(Damage(reason, start, stop - start))
        self._damage_start = -1

    def _next_sign(self, position: int) -> int:
        """Return the position of the next sign of a record, header or trailer, or the end of the file."""
        scan = self._scan
        stop = min(scan.next_mark(position), scan.next_end(position), scan.next_header(position))
        place = scan.data.find(self._prefix, position, stop + len(self._prefix)) if self._prefix else -1
        return stop if place < 0 else place
