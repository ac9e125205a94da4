"""Judge every record of a file with array operations: good ones become columns, bad ones get a reason.

Source: docs/formats.md, sections 2 to 4. ``protocol.batch`` finds where batches, records and damage
are; this module looks into the records. A bad report is data, not an exception: nothing here raises,
whatever the bytes.

Each record gets at most one reason, the first that applies:

    1. ``unrecognized_campaign``   its batch's header names another campaign
    2. ``invalid_message``         its batch's header states another layout or length than the campaign
    3. ``question_unknown``        no question of the campaign has this number
    4. ``question_not_assigned``   the id's first four bytes are outside its question's interval
    5. ``value_out_of_domain``     no answer of the question's mechanism, or padding that is not zero
    6. ``report_too_late``         its period begins at or after the campaign's expiry
    7. ``report_too_early``        its period ended before the campaign began, or has not begun yet

What the store gets (``Decoder``, made once per campaign; picklable):

- ``blocks(data, now=…, most=1 << 20)``: one file, ``bytes`` or ``mmap``, as an iterator of ``Block``s in file
  order, each of at most ``most`` good records of one standing: ``records`` (Columns), ``positions``,
  ``proven`` (of all of them), ``digests`` (32 bytes each: of every proven batch that ends in this block),
  ``claim`` (unproven: the digest that the batch's trailer states, ``b""`` without trailer), ``rejected``
  {reason: count} and ``pieces`` of this block alone. The standing of a batch is known before its first
  block is yielded. Memory is bounded by ``most``, not by the file.
- ``whole_files(datas, now=…)``: many small files at once. Files that are nothing but proven batches of good
  records: their records in one Columns with the index of the file of each, and the digests per file; every
  other file is named as left over, for ``blocks``.
- ``count(data, now=…, verify=True)``: the sums by question alone, at memory speed, without de-duplication.

An unproven record is ignored not only where a proven one has its id, but also where its batch's ``claim``
is the digest of a batch that is proven anywhere in the store: it is then a damaged copy of that batch, and
a bit that changed in an id must not leave a second report behind.

Too late comes before too early so that ``report_too_early`` alone may mend with time (a clock that
runs ahead). Stretches of bytes that are no record are ``invalid_message`` or ``truncated``; one counts
once, however long.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.intake.columns import Columns, big_endian
from protocol.batch import Batch, Damage, Header, read_batches
from protocol.mechanisms import BITS, INTEGERS, SINGLE
from protocol.report import FIXED_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from protocol.campaign import Campaign
    from protocol.mechanisms import Mechanism
    from protocol.report import Layout

MAX_KEPT_BYTES = 64
"""Of a rejected piece, how many bytes are kept to look at."""
MAX_PIECES = 1000
"""Of one file, how many rejected pieces are kept; all are counted."""
_BLOCK_BYTES = 1 << 22

_FAULTS = ("question_unknown", "question_not_assigned", "value_out_of_domain", "report_too_late", "report_too_early")


class Rejected(NamedTuple):
    """A record or stretch of bytes that was set aside: why, where, how long, and how it begins."""

    reason: str
    offset: int
    length: int
    data: bytes


class Decoded(NamedTuple):
    """What one file holds.

    Attributes:
        records: the good ones, in file order.
        positions: shape (N,), where in the file each of them starts.
        rejected: how many records and stretches were set aside, by reason; zeros left out.
        pieces: those set aside, in file order; if there are more, :data:`MAX_PIECES` of them.
    """

    records: Columns
    positions: NDArray[np.int64]
    rejected: dict[str, int]
    pieces: tuple[Rejected, ...]


class _Span(NamedTuple):
    """Adjacent records under a header that fits the campaign."""

    start: int
    records: int
    proven: bool


def decode_batches(data: bytes, campaign: Campaign, *, now: int) -> Decoded:
    """Everything in a file of concatenated batches. Run by the aggregator.

    Args:
        data: the whole file.
        campaign: whose reports are wanted.
        now: the aggregator's present in seconds since 1970; later periods are too early.
    """
    return Decoder(campaign).decode(data, now=now)


class Decoder:
    """The rules of one campaign as arrays, made once for many files."""

    def __init__(self, campaign: Campaign) -> None:
        questions = campaign.questions
        intervals = [campaign.assignment.interval(i, question.stratum) for i, question in enumerate(questions)]
        mechanisms = [question.mechanism for question in questions]
        self._campaign = campaign
        self._layout = campaign.layout
        self._header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length)
        self._low = np.array([low for low, _ in intervals], np.uint64)
        self._high = np.array([high for _, high in intervals], np.uint64)
        self._limit = np.array([_limit(mechanism) for mechanism in mechanisms], np.uint64)
        self._zero = np.stack([_must_be_zero(mechanism, campaign.layout) for mechanism in mechanisms])

    def decode(self, data: bytes, *, now: int) -> Decoded:
        """As :func:`decode_batches`."""
        counts: Counter[str] = Counter()
        pieces: list[Rejected] = []

        def reject(reason: str, offset: int, length: int) -> None:
            counts[reason] += 1
            if len(pieces) < MAX_PIECES:
                pieces.append(Rejected(reason, offset, length, data[offset : offset + min(length, MAX_KEPT_BYTES)]))

        spans: list[_Span] = []
        for found in read_batches(data, {self._campaign.id: self._layout}):
            if isinstance(found, Damage):
                reject(found.reason, found.position, found.length)
            elif (reason := self._header_fault(found.header)) is None:
                spans.extend(_Span(start, count, found.proven) for start, count in found.spans)
            else:
                for offset in _record_offsets(found):
                    reject(reason, offset, found.header.record_length)

        kept: list[Columns] = []
        kept_positions: list[NDArray[np.int64]] = []
        for records, positions in self._blocks(data, spans):
            fault = self._judge(records, now)
            kept.append(records.take(fault == 0))
            kept_positions.append(positions[fault == 0])
            for row in np.flatnonzero(fault):
                reject(_FAULTS[fault[row] - 1], int(positions[row]), self._layout.record_length)
        pieces.sort(key=lambda piece: piece.offset)
        return Decoded(
            Columns.join(kept, self._layout.answer_bytes),
            np.concatenate([np.empty(0, np.int64), *kept_positions]),
            dict(sorted(counts.items())),
            tuple(pieces),
        )

    def _header_fault(self, header: Header) -> str | None:
        if header.campaign != self._header.campaign:
            return "unrecognized_campaign"
        return None if header == self._header else "invalid_message"

    def _blocks(self, data: bytes, spans: list[_Span]) -> Iterator[tuple[Columns, NDArray[np.int64]]]:
        """The spans' records as columns, some megabytes at a time, with their positions in the file."""
        length = self._layout.record_length
        rows_per_block = max(1, _BLOCK_BYTES // length)
        raw = np.frombuffer(data, np.uint8)
        waiting: list[_Span] = []
        room = rows_per_block
        for span in spans:
            start, count, proven = span
            while count:
                part = _Span(start, min(count, room), proven)
                waiting.append(part)
                start, count, room = start + part.records * length, count - part.records, room - part.records
                if room == 0:
                    yield self._columns(raw, waiting)
                    waiting, room = [], rows_per_block
        if waiting:
            yield self._columns(raw, waiting)

    def _columns(self, raw: NDArray[np.uint8], spans: list[_Span]) -> tuple[Columns, NDArray[np.int64]]:
        """The rows of N × L bytes that the spans cover, cut into columns."""
        length = self._layout.record_length
        rows = np.concatenate([raw[at : at + n * length].reshape(n, length) for at, n, _ in spans])
        positions = np.concatenate([at + length * np.arange(n, dtype=np.int64) for at, n, _ in spans])
        proven = np.repeat([span.proven for span in spans], [span.records for span in spans])
        head = len(self._layout.prefix)
        columns = Columns(
            big_endian(rows[:, head : head + 8], ">u8")[:, 0].astype(np.uint64),
            big_endian(rows[:, head + 8 : head + 12], ">u4")[:, 0].astype(np.uint32),
            big_endian(rows[:, head + 12 : head + 14], ">u2")[:, 0].astype(np.uint16),
            rows[:, head + FIXED_BYTES :],
            proven,
        )
        return columns, positions

    def _judge(self, records: Columns, now: int) -> NDArray[np.intp]:
        """Per record 0 if it is good, else 1 + the index in ``_FAULTS`` of the first fault that applies."""
        campaign = self._campaign
        known = records.question < len(campaign.questions)
        question = np.where(known, records.question, 0)
        first_four = records.id >> np.uint64(32)
        period = records.period.astype(np.int64)
        # (period + 1)·precision ≤ not_before and period·precision ≥ expires, without products that overflow.
        first_period = campaign.header.not_before // campaign.time_precision
        end_period = -(-campaign.header.expires // campaign.time_precision)
        faults = np.stack(
            [
                ~known,
                (first_four < self._low[question]) | (first_four >= self._high[question]),
                self._out_of_domain(records.answer, question),
                period >= end_period,
                (period < first_period) | (period > campaign.period_at(now)),
            ]
        )
        return np.where(faults.any(axis=0), 1 + faults.argmax(axis=0), 0)

    def _out_of_domain(self, answer: NDArray[np.uint8], question: NDArray[np.uint16]) -> NDArray[np.bool_]:
        """Where bits that must be zero are not, or a single value is not below its limit."""
        padding = (answer & self._zero[question]).any(axis=1)
        width = 4 if self._layout.kind == INTEGERS else 2
        if not (self._limit < _NO_LIMIT).any():  # bits only: the field may be one byte wide
            return np.asarray(padding, np.bool_)
        value = big_endian(answer[:, :width], f">u{width}")[:, 0]
        return np.asarray(padding | (value >= self._limit[question]), np.bool_)


_NO_LIMIT = 1 << 32


def _limit(mechanism: Mechanism) -> int:
    """Single values are below this; other answers have no limit of this kind."""
    return mechanism.answers if mechanism.layout == SINGLE else _NO_LIMIT


def _must_be_zero(mechanism: Mechanism, layout: Layout) -> NDArray[np.uint8]:
    """Shape (A,): the bits of the answer field beyond the mechanism's own answer."""
    if mechanism.layout == SINGLE:
        used = 32 if layout.kind == INTEGERS else 16
    else:
        used = mechanism.answers * (1 if mechanism.layout == BITS else 32)
    bits = np.ones(8 * layout.answer_bytes, np.uint8)
    bits[:used] = 0
    return np.packbits(bits)


def _record_offsets(batch: Batch) -> Iterator[int]:
    length = batch.header.record_length
    for start, count in batch.spans:
        yield from range(start, start + count * length, length)
