"""Check every record of a file with array operations. Good records become columns, bad records get a reason.

No content of a file raises an exception. Reasons and their order: docs/formats.md, section 4. Adjacent bytes that are
no record count as one piece. A record is *proven* if its batch's trailer states the right digest and number of records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.reports.decoding.columns import Columns, Matrix, copied, count_adjacent, matrices
from aggregator.reports.decoding.content import Content, give_back, piecewise_digest
from aggregator.reports.decoding.rules import FAULTS, Fields, Rules
from protocol.batches.batch import Batch, Damage, Header, read_batches
from protocol.batches.framing import COUNT_HEAD, DIGEST_HEAD, END, TRAILER_BYTES
from protocol.batches.report import Layout
from protocol.documents.campaign import Campaign

MAX_KEPT_BYTES = 64
"""Number of bytes that are kept of rejected bytes that are no record of the campaign."""
MAX_PIECES = 1000
"""Largest number of rejected pieces (records or byte ranges) of one file that are kept. All are counted."""


class Rejected(NamedTuple):
    """A rejected piece of a file: a record, or adjacent bytes that are no record.

    ``offset``, ``length``: where it is in the file, in bytes; ``data``: a record's bytes, or the first
    :data:`MAX_KEPT_BYTES` of others; ``proven``: whether the record's batch is complete, else None; ``claim``: the
    digest that the trailer of an incomplete batch states.
    """

    reason: str
    offset: int
    length: int
    data: bytes
    proven: bool | None = None
    claim: bytes = b""


class BatchStanding(NamedTuple):
    """Whether a record's batch is complete, and the digest that a damaged batch's trailer states, or no bytes."""

    proven: bool
    claim: bytes


class RecordSpan(NamedTuple):
    """The positions of some records of a file. The records are not checked yet.

    ``runs``: position and number of records of every run of adjacent records; ``standings``: one per batch, ``counts``:
    its records in ``runs``; ``digests``: 32 bytes for every complete batch that ends here; ``rejected``: pieces that
    are no record of the campaign, by reason; ``pieces``: these, at most :data:`MAX_PIECES` in one file.
    """

    runs: tuple[tuple[int, int], ...]
    standings: tuple[BatchStanding, ...]
    counts: tuple[int, ...]
    digests: tuple[bytes, ...]
    rejected: dict[str, int]
    pieces: tuple[Rejected, ...]


class SpanBuilder:
    """Groups the batches of one file into spans of at most ``most`` records: a part of a batch, or several."""

    def __init__(self, data: Content, layout: Layout, most: int) -> None:
        self._data = data
        self._layout = layout
        self._most = most
        self._kept_pieces = 0
        self._reset()

    def _reset(self) -> None:
        self._runs: list[tuple[int, int]] = []
        self._room = self._most
        self._standings: list[BatchStanding] = []
        self._counts: list[int] = []
        self._digests: list[bytes] = []
        self._rejected: Counter[str] = Counter()
        self._pieces: list[Rejected] = []

    def reject(self, reason: str, offset: int, length: int, total: int) -> None:
        """Reject ``total`` adjacent bytes from ``offset`` on, as records of ``length`` bytes, all for ``reason``."""
        count = total // length
        self._rejected[reason] += count
        for place in range(offset, offset + total, length)[: MAX_PIECES - self._kept_pieces]:
            kept = self._data[place : place + min(length, MAX_KEPT_BYTES)]
            self._pieces.append(Rejected(reason, place, length, kept))
            self._kept_pieces += 1

    def add(self, batch: Batch) -> Iterator[RecordSpan]:
        """Add a batch of the campaign, and yield each span that becomes full. Small batches share a span."""
        standing = BatchStanding(batch.proven, b"" if batch.proven else batch.digest)
        length = self._layout.record_length
        for start, count in batch.spans:
            done = 0
            while done < count:
                records = min(count - done, self._room)
                self._runs.append((start + done * length, records))
                if self._standings[-1:] != [standing]:
                    self._standings.append(standing)
                    self._counts.append(0)
                self._counts[-1] += records
                done, self._room = done + records, self._room - records
                if not self._room:
                    yield self._take_span()
        if batch.proven:
            self._digests.append(batch.digest)

    def rest(self) -> Iterator[RecordSpan]:
        """Yield the last span, which is not full, unless it is empty. Call it after the last batch."""
        if self._runs or self._digests or self._rejected:
            yield self._take_span()

    def _take_span(self) -> RecordSpan:
        places = tuple(self._runs), tuple(self._standings), tuple(self._counts)
        span = RecordSpan(*places, tuple(self._digests), dict(self._rejected), tuple(self._pieces))
        self._reset()
        return span


SPAN_RECORDS = 1 << 20
"""Largest number of records in one span."""


class Decoded(NamedTuple):
    """A file's N good records and their byte positions, (N,) int64; rejected pieces by reason, and the first ones."""

    records: Columns
    positions: NDArray[np.int64]
    rejected: dict[str, int]
    pieces: tuple[Rejected, ...]


class Block(NamedTuple):
    """The N good records of one span of a file, in file order, and what was rejected.

    ``positions``: (N,) int64, byte position of each good record in the file. ``batch``: (N,) intp, index in
    ``standings`` of each record's batch. ``standings``, ``digests``, ``rejected``, ``pieces``: as in
    :class:`RecordSpan`, with the rejected records.
    """

    records: Columns
    positions: NDArray[np.int64]
    batch: NDArray[np.intp]
    standings: tuple[BatchStanding, ...]
    digests: tuple[bytes, ...]
    rejected: dict[str, int]
    pieces: tuple[Rejected, ...]


class WholeFiles(NamedTuple):
    """The N records of all small files that are a single complete batch of good records.

    ``file``: (N,) int64, index of the file of each record. ``digests``: for every file the digest of its batch; empty
    for a file in ``left_over``. ``left_over``: indices of the files that are not a single complete batch of good
    records.
    """

    records: Columns
    file: NDArray[np.int64]
    digests: tuple[tuple[bytes, ...], ...]
    left_over: tuple[int, ...]


def decode_batches(data: Content, campaign: Campaign, *, now: int) -> Decoded:
    """Check all records of a file of batches, all in memory at a time. ``now`` is in seconds since 1970."""
    return Decoder(campaign).decode(data, now=now)


class Decoder:
    """Checks the records of files by the rules of one campaign. Immutable and picklable.

    In all methods ``now`` is the present in seconds since 1970: reports of later periods are too early. Every method
    that reads a large file raises ``FileShortenedError`` if the file became shorter.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._layout = campaign.layout
        self._header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length)
        self._head = self._header.to_bytes()
        self._rules = Rules(campaign)

    def decode(self, data: Content, *, now: int) -> Decoded:
        """Check all records of a file of concatenated batches. All its records are in memory at a time."""
        blocks = list(self.blocks(data, now=now))
        rejected: Counter[str] = Counter()
        for block in blocks:
            rejected.update(block.rejected)
        return Decoded(
            Columns.join([block.records for block in blocks], self._layout.answer_bytes),
            np.concatenate([np.empty(0, np.int64), *(block.positions for block in blocks)]),
            dict(sorted(rejected.items())),
            tuple(sorted((piece for block in blocks for piece in block.pieces), key=lambda piece: piece.offset)),
        )

    def blocks(self, data: Content, *, now: int, most: int = SPAN_RECORDS) -> Iterator[Block]:
        """Check one file, and yield its records in blocks of at most ``most`` records, which bounds the memory."""
        room = MAX_PIECES
        for span in self.spans(data, most=most):
            block = self.judge(data, span, now=now)
            block = block._replace(pieces=block.pieces[:room])
            room -= len(block.pieces)
            yield block

    def spans(self, data: Content, *, most: int = SPAN_RECORDS) -> Iterator[RecordSpan]:
        """Find the records of a file, and yield their positions in file order: the first step of :meth:`blocks`."""
        builder = SpanBuilder(data, self._layout, most)
        layouts = {self._header.campaign: self._layout}
        for found in read_batches(data, layouts, adjacent=count_adjacent, digest=piecewise_digest):
            if isinstance(found, Damage):
                builder.reject(found.reason, found.position, found.length, found.length)
            elif (reason := header_fault(found.header, self._header)) is not None:
                length = found.header.record_length
                for start, count in found.spans:
                    builder.reject(reason, start, length, count * length)
            else:
                yield from builder.add(found)
        yield from builder.rest()

    def judge(self, data: Content, span: RecordSpan, *, now: int) -> Block:
        """Check the records of one span of a file, the second step of :meth:`blocks`, in any order of the spans."""
        bad = _BadRecords(Counter(span.rejected), [])
        batch = np.repeat(np.arange(len(span.counts)), span.counts)
        judged = []
        for rows, runs in matrices(data, span.runs, self._layout):
            positions = np.concatenate([run.positions() for run in runs])
            judged.append(self._judge(rows, positions, batch[: rows.rows], span.standings, now, bad))
            batch = batch[rows.rows :]
        if span.runs:
            (first, _), (last, count) = span.runs[0], span.runs[-1]
            give_back(data, first, last + count * self._layout.record_length)
        pieces = sorted([*span.pieces, *bad.pieces], key=lambda piece: piece.offset)
        return Block(
            Columns.join([records for records, _, _ in judged], self._layout.answer_bytes),
            np.concatenate([np.empty(0, np.int64), *(positions for _, positions, _ in judged)]),
            np.concatenate([np.empty(0, np.intp), *(numbers for _, _, numbers in judged)]),
            span.standings,
            span.digests,
            dict(bad.rejected),
            tuple(pieces[:MAX_PIECES]),
        )

    def _judge(
        self,
        rows: Matrix,
        positions: NDArray[np.int64],
        batch: NDArray[np.intp],
        standings: Sequence[BatchStanding],
        now: int,
        bad: _BadRecords,
    ) -> tuple[Columns, NDArray[np.int64], NDArray[np.intp]]:
        """Return the good records among ``rows``, their positions and their batches. Add the bad records to ``bad``."""
        fields = Fields.of(rows)
        records = columns(fields, proven=np.array([standing.proven for standing in standings], np.bool_)[batch])
        if self._rules.is_sound(fields, now) and self._rules.in_domain(fields):
            return records, positions, batch
        fault = self._rules.faults(fields, now)
        length = self._layout.record_length
        for row in np.flatnonzero(fault)[: max(0, MAX_PIECES - len(bad.pieces))].tolist():
            place = row * length + rows.start
            record = bytes(rows.data[place : place + length])
            at = int(positions[row])
            bad.pieces.append(Rejected(FAULTS[fault[row] - 1], at, length, record, *standings[batch[row]]))
        for number, count in enumerate(np.bincount(fault, minlength=1 + len(FAULTS))[1:].tolist()):
            if count:
                bad.rejected[FAULTS[number]] += count
        good = fault == 0
        return records.take(good), positions[good], batch[good]

    def states_one_batch(self, data: Content) -> bool:
        """Return whether a file looks like one batch of the campaign, by its length, its first and its last bytes."""
        stated = self._stated(len(data))
        if stated is None or data[: len(self._head)] != self._head:
            return False
        place = len(data) - TRAILER_BYTES
        return data[place : place + len(stated)] == stated

    def whole_files(self, datas: Sequence[bytes], *, now: int) -> WholeFiles:
        """Read all files that are one complete batch of good records, at once. The other files are only listed."""
        digests = [self._whole_digest(data) for data in datas]
        head, length = len(self._head), self._layout.record_length
        bodies = [data[head:-TRAILER_BYTES] if digest else b"" for data, digest in zip(datas, digests, strict=True)]
        counts = np.array([len(body) // length for body in bodies], np.int64)
        rows = Matrix(b"".join(bodies), 0, int(counts.sum()), self._layout)
        file = np.repeat(np.arange(len(datas)), counts)
        is_good = np.array([digest is not None for digest in digests], np.bool_)
        fields = Fields.of(rows)
        records = columns(fields, proven=True)
        if not (self._rules.is_sound(fields, now) and self._rules.in_domain(fields)):
            # faults() finds a wrong prefix, too: the prefix is part of the number that must be in the interval of the
            # record's question.
            is_good[file[self._rules.faults(fields, now) != 0]] = False
            records, file = records.take(is_good[file]), file[is_good[file]]
        return WholeFiles(
            records,
            file,
            tuple((digest,) if digest and good else () for digest, good in zip(digests, is_good, strict=True)),
            tuple(np.flatnonzero(~is_good).tolist()),
        )

    def _whole_digest(self, data: bytes) -> bytes | None:
        """Return the digest of a file that is a single complete batch of the campaign; None for another file."""
        if not self.states_one_batch(data):
            return None
        with memoryview(data) as view, view[:-TRAILER_BYTES] as body:
            digest = sha256(body).digest()
        return digest if data.endswith(digest) else None

    def _stated(self, size: int) -> bytes | None:
        """Return the first bytes of the trailer of a batch of ``size`` bytes; None if no batch has this size."""
        count, rest = divmod(size - len(self._head) - TRAILER_BYTES, self._layout.record_length)
        return None if rest or not 0 <= count < 1 << 32 else END + COUNT_HEAD + count.to_bytes(4, "big") + DIGEST_HEAD


class _BadRecords(NamedTuple):
    """Bad records of a block: their number by reason, and the first of them, for the quarantine."""

    rejected: Counter[str]
    pieces: list[Rejected]


def header_fault(header: Header, wanted: Header) -> str | None:
    """Return the reason to reject all records of a batch; None if its header equals the ``wanted`` header."""
    if header.campaign != wanted.campaign:
        return "unrecognized_campaign"
    return None if header == wanted else "invalid_message"


def columns(fields: Fields, *, proven: bool | NDArray[np.bool_]) -> Columns:
    """Copy the fields of N records into columns. ``proven``, bool or (N,) bool: whether their batches are complete."""
    rows = fields.rows
    return Columns(
        rows.ids(),
        (fields.head >> 32).astype(np.uint32),
        fields.question.astype(np.uint16),
        copied(rows.answers()),
        np.full(rows.rows, proven, np.bool_),
    )
