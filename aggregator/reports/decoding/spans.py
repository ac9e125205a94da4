"""Where the records of a file are: runs of adjacent records, grouped into spans of bounded size.

A file is split into spans in file order. Each span can then be judged on its own, by any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from aggregator.reports.decoding.mapped import Source
from protocol.batches.batch import Batch
from protocol.batches.report import Layout

MAX_KEPT_BYTES = 64
"""Number of bytes that are kept of a rejected piece that is no record of the campaign."""
MAX_PIECES = 1000
"""Largest number of rejected pieces of one file that are kept. All rejected pieces are counted."""


class Rejected(NamedTuple):
    """A rejected piece of a file: a record, or bytes that are no record.

    Attributes:
        reason: why it is rejected.
        offset: byte position of the piece in the file.
        length: number of its bytes.
        data: all bytes of a record of the campaign, so that it can be judged again; the first
            :data:`MAX_KEPT_BYTES` of other bytes.
        proven: whether the record's batch is proven; None for bytes that are no record of the campaign.
        claim: the digest that the trailer of an unproven batch states; empty without one.
    """

    reason: str
    offset: int
    length: int
    data: bytes
    proven: bool | None = None
    claim: bytes = b""


class Standing(NamedTuple):
    """Whether the batch of a record is complete.

    Attributes:
        proven: whether the batch has the right digest and number of records.
        claim: the digest that the trailer of an unproven batch states; empty without a trailer. If another
            batch with this digest is proven, the records here are copies of its records, or damaged.
    """

    proven: bool
    claim: bytes


class RecordSpan(NamedTuple):
    """The positions of some records of a file. The records are not judged yet.

    Attributes:
        runs: position and number of records of every run of adjacent records, in file order.
        standings: of the batches of the records; equal neighbours appear once.
        counts: for each entry of ``standings`` the number of its records, which follow one another in the runs.
        digests: 32 bytes of every proven batch that ends in this span.
        rejected: number of rejected pieces that are no record of the campaign, by reason.
        pieces: rejected pieces that are no record of the campaign, at most :data:`MAX_PIECES` in one file.
    """

    runs: tuple[tuple[int, int], ...]
    standings: tuple[Standing, ...]
    counts: tuple[int, ...]
    digests: tuple[bytes, ...]
    rejected: dict[str, int]
    pieces: tuple[Rejected, ...]


class SpanBuilder:
    """Groups the batches of one file into spans. A span holds a part of a batch, or several batches.

    Args:
        data: the file.
        layout: layout of the campaign's records.
        most: largest number of records in one span.
    """

    def __init__(self, data: Source, layout: Layout, most: int) -> None:
        self._data = data
        self._layout = layout
        self._most = most
        self._kept_pieces = 0
        self._reset()

    def _reset(self) -> None:
        self._runs: list[tuple[int, int]] = []
        self._room = self._most
        self._standings: list[Standing] = []
        self._counts: list[int] = []
        self._digests: list[bytes] = []
        self._rejected: Counter[str] = Counter()
        self._pieces: list[Rejected] = []

    def reject(self, reason: str, offset: int, length: int, total: int) -> None:
        """Reject ``total`` adjacent bytes from ``offset`` on, as pieces of ``length`` bytes, all for ``reason``."""
        count = total // length
        self._rejected[reason] += count
        for place in range(offset, offset + total, length)[: MAX_PIECES - self._kept_pieces]:
            kept = self._data[place : place + min(length, MAX_KEPT_BYTES)]
            self._pieces.append(Rejected(reason, place, length, kept))
            self._kept_pieces += 1

    def add(self, batch: Batch) -> Iterator[RecordSpan]:
        """Add a batch of the campaign, and yield each span that becomes full. Small batches share a span."""
        standing = Standing(batch.proven, b"" if batch.proven else batch.digest)
        length = self._layout.record_length
        for start, count in batch.spans:
            done = 0
            while done < count:
                records = min(count - done, self._room)
                self._add_run(start + done * length, records, standing)
                done, self._room = done + records, self._room - records
                if not self._room:
                    yield self._take_span()
        if batch.proven:
            self._digests.append(batch.digest)

    def _add_run(self, start: int, records: int, standing: Standing) -> None:
        self._runs.append((start, records))
        if self._standings and self._standings[-1] == standing:
            self._counts[-1] += records
        else:
            self._standings.append(standing)
            self._counts.append(records)

    def rest(self) -> Iterator[RecordSpan]:
        """Yield the last span, which is not full; nothing if it is empty. Call it after the last batch."""
        if self._runs or self._digests or self._rejected:
            yield self._take_span()

    def _take_span(self) -> RecordSpan:
        places = tuple(self._runs), tuple(self._standings), tuple(self._counts)
        span = RecordSpan(*places, tuple(self._digests), dict(self._rejected), tuple(self._pieces))
        self._reset()
        return span
