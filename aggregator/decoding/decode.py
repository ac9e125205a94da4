"""Judge every record of a file with array operations: good ones become columns or counts, bad ones get a reason.

Source: docs/formats.md, sections 2 to 4. ``protocol.batches.batch`` finds where batches, records and damage
are; this module looks into the records, by ``rules``. A bad report is data, not an exception: nothing here
raises, whatever the bytes.

Each record gets at most one reason, the first that applies:

    1. ``unrecognized_campaign``   its batch's header names another campaign
    2. ``invalid_message``         its batch's header states another layout or length than the campaign
    3. ``question_unknown``        no question of the campaign has this number
    4. ``question_not_assigned``   the id's first four bytes are outside its question's interval
    5. ``value_out_of_domain``     no answer of the question's mechanism, or padding that is not zero
    6. ``report_too_late``         its period begins at or after the campaign's expiry
    7. ``report_too_early``        its period ended before the campaign began, or has not begun yet

Too late comes before too early so that ``report_too_early`` alone may mend with time (a clock that
runs ahead). Stretches of bytes that are no record are ``invalid_message`` or ``truncated``; one counts
once, however long.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.decoding.columns import Columns
from aggregator.decoding.mapped import give_back, piecewise_digest
from aggregator.decoding.matrix import Matrix, copied, count_adjacent, matrices
from aggregator.decoding.rules import FAULTS, Fields, Rules
from protocol.batches.batch import Batch, Damage, Header, read_batches
from protocol.batches.framing import COUNT_HEAD, DIGEST_HEAD, END, TRAILER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from aggregator.decoding.mapped import Source
    from protocol.batches.report import Layout
    from protocol.documents.campaign import Campaign

MAX_KEPT_BYTES = 64
"""Of a stretch of bytes that is no record of the campaign, how many are kept to look at."""
MAX_PIECES = 1000
"""Of one file, how many rejected pieces are kept; all are counted."""
BLOCK = 1 << 20


class Rejected(NamedTuple):
    """A record or stretch of bytes that was set aside.

    Attributes:
        reason: why.
        offset, length: where in the file.
        data: a record of the campaign whole, so that it can be judged again; of all else how it begins.
        proven: of a record of the campaign, the standing of its batch; None for all else.
        claim: of an unproven record, the digest that its batch's trailer states, if it has one.
    """

    reason: str
    offset: int
    length: int
    data: bytes
    proven: bool | None = None
    claim: bytes = b""


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


class Standing(NamedTuple):
    """What a record's batch says for it.

    Attributes:
        proven: whether the batch has the right digest and number of records.
        claim: of an unproven batch, the digest that its trailer states; empty without a trailer. If a batch
            with this digest is proven anywhere, these records are copies of that one's, or damaged.
    """

    proven: bool
    claim: bytes


class Block(NamedTuple):
    """Some good records in file order, and what was set aside on the way.

    Attributes:
        records: the good ones.
        positions: shape (N,), where in the file each of them starts.
        batch: shape (N,), index in ``standings`` of each.
        standings: of all batches that records were judged of, neighbours that are alike once.
        digests: of every proven batch that ends in this block, 32 bytes each.
        rejected: how many records and stretches were set aside, by reason.
        pieces: those set aside; of a whole file no more than :data:`MAX_PIECES`.
    """

    records: Columns
    positions: NDArray[np.int64]
    batch: NDArray[np.intp]
    standings: tuple[Standing, ...]
    digests: tuple[bytes, ...]
    rejected: dict[str, int]
    pieces: tuple[Rejected, ...]


class RecordSpan(NamedTuple):
    """Where the records of a block are, before anybody looked into them.

    Attributes:
        runs: where adjacent records begin, and how many they are, in file order.
        standings: as in :class:`Block`.
        counts: how many records each of these is about, in the order of the runs.
        digests: as in :class:`Block`.
        rejected, pieces: as in :class:`Block`, of the bytes that are no record of the campaign.
    """

    runs: tuple[tuple[int, int], ...]
    standings: tuple[Standing, ...]
    counts: tuple[int, ...]
    digests: tuple[bytes, ...]
    rejected: dict[str, int]
    pieces: tuple[Rejected, ...]


class WholeFiles(NamedTuple):
    """What many small files hold that have no fault.

    Attributes:
        records: all of them proven.
        file: shape (N,), index of the file of each.
        digests: per file those of its batches; empty for a file that is left over.
        left_over: indices of the files that are more, or less, than one proven batch of good records.
    """

    records: Columns
    file: NDArray[np.int64]
    digests: tuple[tuple[bytes, ...], ...]
    left_over: tuple[int, ...]


def decode_batches(data: Source, campaign: Campaign, *, now: int) -> Decoded:
    """Everything in a file of concatenated batches. Run by the aggregator.

    Args:
        data: the whole file.
        campaign: whose reports are wanted.
        now: the aggregator's present in seconds since 1970; later periods are too early.
    """
    return Decoder(campaign).decode(data, now=now)


class Decoder:
    """The rules of one campaign as arrays, made once for many files. Picklable, and never changed."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign.id
        self._layout = campaign.layout
        self._header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length)
        self._head = self._header.to_bytes()
        self._rules = Rules(campaign)

    def decode(self, data: Source, *, now: int) -> Decoded:
        """As :func:`decode_batches`: the whole file in memory."""
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

    def blocks(self, data: Source, *, now: int, most: int = BLOCK) -> Iterator[Block]:
        """One file, some records at a time. Memory is bounded by ``most``, not by the file.

        The standing of a batch is known before its first block is given.

        Args:
            data: the whole file, or a map of it.
            now: the aggregator's present in seconds since 1970.
            most: good records in one block.
        """
        room = MAX_PIECES
        for stretch in self.stretches(data, most=most):
            block = self.judge(data, stretch, now=now)
            block = block._replace(pieces=block.pieces[:room])
            room -= len(block.pieces)
            yield block

    def stretches(self, data: Source, *, most: int = BLOCK) -> Iterator[RecordSpan]:
        """What :meth:`blocks` does first: where the records of each block are, which is known in file order only."""
        gathered = _Gathered(data, self._layout, most)
        layouts = {self._campaign: self._layout}
        for found in read_batches(data, layouts, adjacent=count_adjacent, digest=piecewise_digest):
            if isinstance(found, Damage):
                gathered.reject(found.reason, found.position, found.length, found.length)
            elif (reason := self._header_fault(found.header)) is not None:
                length = found.header.record_length
                for start, count in found.spans:
                    gathered.reject(reason, start, length, count * length)
            else:
                yield from gathered.add(found)
        yield from gathered.rest()

    def judge(self, data: Source, stretch: RecordSpan, *, now: int) -> Block:
        """What :meth:`blocks` does then: the stretches of a file can be judged in any order, by any thread.

        A block's pieces are its own first :data:`MAX_PIECES`.
        """
        bad = _SetAside(Counter(stretch.rejected), [])
        batch = np.repeat(np.arange(len(stretch.counts)), stretch.counts)
        judged = []
        for rows, runs in matrices(data, stretch.runs, self._layout):
            positions = np.concatenate([run.positions() for run in runs])
            judged.append(self._judge(_Judged(rows, positions, batch[: rows.rows]), stretch.standings, now, bad))
            batch = batch[rows.rows :]
        if stretch.runs:
            (first, _), (last, count) = stretch.runs[0], stretch.runs[-1]
            give_back(data, first, last + count * self._layout.record_length)
        pieces = sorted([*stretch.pieces, *bad.pieces], key=lambda piece: piece.offset)
        return Block(
            Columns.join([records for records, _, _ in judged], self._layout.answer_bytes),
            np.concatenate([np.empty(0, np.int64), *(positions for _, positions, _ in judged)]),
            np.concatenate([np.empty(0, np.intp), *(numbers for _, _, numbers in judged)]),
            stretch.standings,
            stretch.digests,
            dict(bad.rejected),
            tuple(pieces[:MAX_PIECES]),
        )

    def _judge(
        self, judged: _Judged, standings: Sequence[Standing], now: int, bad: _SetAside
    ) -> tuple[Columns, NDArray[np.int64], NDArray[np.intp]]:
        """The good ones of some records, with their places and batches; the others are set aside."""
        rows, positions, batch = judged
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

    def states_one_batch(self, data: Source) -> bool:
        """Whether a file begins and ends as one batch of this campaign that fills it would."""
        stated = self._stated(len(data))
        if stated is None or data[: len(self._head)] != self._head:
            return False
        place = len(data) - TRAILER_BYTES
        return data[place : place + len(stated)] == stated

    def whole_files(self, datas: Sequence[bytes], *, now: int) -> WholeFiles:
        """Many small files at once: most of their time is spent once for all of them.

        Args:
            datas: the files.
            now: the aggregator's present in seconds since 1970.
        """
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
            is_good[file[self._rules.faults(fields, now) != 0]] = False  # wrong first bytes are in no interval
            records, file = records.take(is_good[file]), file[is_good[file]]
        return WholeFiles(
            records,
            file,
            tuple((digest,) if digest and good else () for digest, good in zip(digests, is_good, strict=True)),
            tuple(np.flatnonzero(~is_good).tolist()),
        )

    def _whole_digest(self, data: bytes) -> bytes | None:
        """The digest of a file that looks like one whole batch of this campaign, if it is right."""
        if not self.states_one_batch(data):
            return None
        with memoryview(data) as view, view[:-TRAILER_BYTES] as body:
            digest = sha256(body).digest()
        return digest if data.endswith(digest) else None

    def _stated(self, size: int) -> bytes | None:
        """How the trailer of a batch begins that is so long with it; None if no batch is."""
        count, rest = divmod(size - len(self._head) - TRAILER_BYTES, self._layout.record_length)
        return None if rest or not 0 <= count < 1 << 32 else END + COUNT_HEAD + count.to_bytes(4, "big") + DIGEST_HEAD

    def _header_fault(self, header: Header) -> str | None:
        if header.campaign != self._campaign:
            return "unrecognized_campaign"
        return None if header == self._header else "invalid_message"


class _SetAside(NamedTuple):
    """What a block's records that are not good leave: how many by reason, and some of them."""

    rejected: Counter[str]
    pieces: list[Rejected]


class _Judged(NamedTuple):
    """Records to be judged together.

    Attributes:
        rows: their bytes.
        positions: shape (N,), where in the file each of them starts.
        batch: shape (N,), index of its batch's standing.
    """

    rows: Matrix
    positions: NDArray[np.int64]
    batch: NDArray[np.intp]


class _Gathered:
    """Records of one file on their way into stretches: of as many batches as it takes to fill one."""

    def __init__(self, data: Source, layout: Layout, most: int) -> None:
        self._data = data
        self._layout = layout
        self._most = most
        self._kept_pieces = 0
        self._begin()

    def _begin(self) -> None:
        self._runs: list[tuple[int, int]] = []
        self._room = self._most
        self._standings: list[Standing] = []
        self._counts: list[int] = []
        self._digests: list[bytes] = []
        self._rejected: Counter[str] = Counter()
        self._pieces: list[Rejected] = []

    def reject(self, reason: str, offset: int, length: int, total: int) -> None:
        """Set aside adjacent pieces of one length, ``total`` bytes of them."""
        count = total // length
        self._rejected[reason] += count
        for place in range(offset, offset + total, length)[: MAX_PIECES - self._kept_pieces]:
            kept = self._data[place : place + min(length, MAX_KEPT_BYTES)]
            self._pieces.append(Rejected(reason, place, length, kept))
            self._kept_pieces += 1

    def add(self, batch: Batch) -> Iterator[RecordSpan]:
        """A batch of the campaign. Small ones share a stretch, proven or not."""
        standing = Standing(batch.proven, b"" if batch.proven else batch.digest)
        length = self._layout.record_length
        for start, count in batch.spans:
            done = 0
            while done < count:
                records = min(count - done, self._room)
                self._run(start + done * length, records, standing)
                done, self._room = done + records, self._room - records
                if not self._room:
                    yield self._stretch()
        if batch.proven:
            self._digests.append(batch.digest)

    def _run(self, start: int, records: int, standing: Standing) -> None:
        self._runs.append((start, records))
        if self._standings and self._standings[-1] == standing:
            self._counts[-1] += records
        else:
            self._standings.append(standing)
            self._counts.append(records)

    def rest(self) -> Iterator[RecordSpan]:
        """What waits, if anything does."""
        if self._runs or self._digests or self._rejected:
            yield self._stretch()

    def _stretch(self) -> RecordSpan:
        places = tuple(self._runs), tuple(self._standings), tuple(self._counts)
        stretch = RecordSpan(*places, tuple(self._digests), dict(self._rejected), tuple(self._pieces))
        self._begin()
        return stretch


def columns(fields: Fields, *, proven: bool | NDArray[np.bool_]) -> Columns:
    """The records of a matrix, cut into columns; ``proven`` of all, or of each."""
    rows = fields.rows
    return Columns(
        rows.ids(),
        (fields.head >> 32).astype(np.uint32),
        fields.question.astype(np.uint16),
        copied(rows.answers()),
        np.full(rows.rows, proven, np.bool_),
    )
