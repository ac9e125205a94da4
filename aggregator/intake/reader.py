"""Files into parts: what one worker of an ingest does.

A worker judges bytes by the campaign's rules, writes parts that nothing names yet, and hands back what the
manifest has to say of each file.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.decoding.decode import MAX_PIECES, Decoder, Rejected
from aggregator.intake.enrolment import REASON as NOT_ENROLLED
from aggregator.storage.input_index import TAIL_BYTES, Ingested, Inputs, identity, pack_places, tail, unpack_places
from aggregator.storage.parts import Stored
from protocol.batches.batch import TRAILER_BYTES, Header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from aggregator.decoding.columns import Columns
    from aggregator.decoding.decode import Block, RecordSpan, Standing
    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.sources import Source
    from aggregator.intake.work_sharing import WorkSharingPool
    from aggregator.storage.manifest import Part
    from aggregator.storage.part_writer import PartWriter
    from protocol.documents.campaign import Campaign

FORGOTTEN = "period_forgotten"
_BLOCK = 1 << 16
_SMALL_BYTES = 1 << 16
SHARED_BYTES = 4 << 20
"""Files from this size on are shared among threads."""


class Read(NamedTuple):
    """What a worker found in one file.

    Attributes:
        number: the file's place among those given.
        entry: for the index of input files; None if the store has all of it already.
        known: the entry that this one replaces.
        proven, unproven: good records that it added to the store.
        claims: what its damaged batches claim to be, eight bytes each as a number.
        pieces: what was set aside.
        too_large: the file, if it did not fit into memory.
    """

    number: int
    entry: Ingested | None
    known: Ingested | None = None
    proven: int = 0
    unproven: int = 0
    claims: frozenset[int] = frozenset()
    pieces: tuple[Rejected, ...] = ()
    too_large: str = ""


class _Kept(NamedTuple):
    """Good records that are to be added, and rows of those that were not.

    Attributes:
        records: to be added.
        rows: which of all they are; None if they are all.
        forgotten: would be if their period had not been forgotten.
        foreign: would be if they were of an enrolled device.
    """

    records: Columns
    rows: NDArray[np.intp] | None
    forgotten: NDArray[np.intp]
    foreign: NDArray[np.intp]


class _File:
    """One file that is being read.

    Attributes:
        kept: something of it may be in the parts already.
        open_places: where the records are that were not enrolled when it was read last.
    """

    def __init__(self, source: Source, name: bytes | None, known: Ingested | None) -> None:
        self.source = source
        self.name = name
        self.known = known
        self.kept = False
        self.open_places = np.empty(0, np.int64) if known is None else unpack_places(known.refused)


class _Taken(NamedTuple):
    """What became of a block.

    Attributes:
        block: without its good records.
        added: how many of them are in the parts: unproven ones, proven ones.
        good: likewise, how many are neither forgotten nor foreign, be they new or not.
        forgotten: how many are.
        foreign: where in the file the records of devices that are not enrolled are.
        pieces: some of these, as the quarantine has them.
    """

    block: Block
    added: tuple[int, int]
    good: tuple[int, int]
    forgotten: int
    foreign: NDArray[np.int64]
    pieces: tuple[Rejected, ...]


def _new_rows(block: Block, file: _File) -> NDArray[np.intp] | None:
    """Of a known file, the rows that were too early or not enrolled when it was read; None for all rows."""
    if file.known is None:
        return None
    is_open = np.isin(block.positions, file.open_places) if len(file.open_places) else False
    return np.flatnonzero((block.records.period > file.known.present) | is_open)


class Reader:
    """Judges files and puts their good records into parts. Threads may use it together: nothing in it changes.

    Args:
        campaign: what was asked.
        inputs: what the store has read already; only looked at.
        writer: where the records go.
        first_period: reports of earlier periods are refused as ``period_forgotten``.
        now: the present, in seconds since 1970.
        enrolled: if the fleet is closed, whose reports are not refused as ``id_not_enrolled``.
        team: with whom the blocks of a large file are shared.
    """

    def __init__(
        self,
        campaign: Campaign,
        inputs: Inputs,
        writer: PartWriter,
        first_period: int,
        now: int,
        enrolled: Enrolled | None = None,
        team: WorkSharingPool | None = None,
    ) -> None:
        self._team = team
        self._inputs = inputs
        self._writer = writer
        self._decoder = Decoder(campaign)
        self._first_period = first_period
        self._enrolled = enrolled
        layout = campaign.layout
        self._record_bytes = layout.record_length
        self._frame_bytes = len(Header(campaign.id, layout.kind, layout.record_length).to_bytes()) + TRAILER_BYTES
        self._present = campaign.period_at(now)
        self._now = now
        self._period_seconds = campaign.time_precision
        self._enrolment = b"" if enrolled is None else enrolled.digest

    def finish(self) -> list[Part]:
        """Nothing more comes: the parts, on the disk."""
        return self._writer.finish()

    def read(self, sources: Sequence[Source], *, again: bool = False) -> list[Read]:
        """Read files that differ from one another; ``again`` if this ingest may have read them before."""
        found = []
        small = []
        for source in sources:
            end = tail(source.data)
            name = known = None
            if again or self._inputs.may_know(end):
                name = identity(source.data)
                if self._inputs.has_all(name, end, self._present, self._enrolment):
                    found.append(Read(source.number, None))
                    continue
                known = self._inputs.get(name, end)
            if known is None and len(source.data) <= _SMALL_BYTES:
                small.append(source)
            else:
                found.append(self._alone(source, name, known))
        try:
            return found + self._many(small)
        except MemoryError:
            return found + [self._alone(source, None, None) for source in small]

    def read_anew(self, source: Source) -> Read:
        """A known file of which nothing is in the store yet: judged as if it had come for the first time."""
        name = identity(source.data)
        known = self._inputs.get(name, tail(source.data))
        return self._alone(source, name, None)._replace(known=known)

    def _alone(self, source: Source, name: bytes | None, known: Ingested | None) -> Read:
        """One file, unless it does not fit into memory and nothing of it was kept yet."""
        file = _File(source, name, known)
        try:
            return self._one(file)
        except MemoryError:
            if file.kept:
                raise
            return Read(source.number, None, too_large=source.file)

    def _many(self, sources: list[Source]) -> list[Read]:
        """Small files: the sound ones in one piece, since most of the work is by the file."""
        if len(sources) < 2:
            return [self._alone(source, None, None) for source in sources]
        found = self._decoder.whole_files([bytes(source.data) for source in sources], now=self._now)
        records, file, rest = found.records, found.file, set(found.left_over)
        if self._enrolled is not None:  # what is set aside is read again, for the quarantine
            foreign = np.unique(file[~self._enrolled.accepts(records)])
            sound = ~np.isin(file, foreign)
            records, file, rest = records.take(sound), file[sound], rest | set(foreign.tolist())
        kept = self._kept(records)
        self._writer.add(Stored(kept.records, None))
        totals = np.bincount(file, minlength=len(sources))
        gone = np.bincount(file[kept.forgotten], minlength=len(sources))
        good = (totals - gone).tolist()
        reads = []
        for place, source in enumerate(sources):
            if place in rest:
                reads.append(self._alone(source, None, None))
                continue
            rejected = {FORGOTTEN: int(gone[place])} if gone[place] else {}
            entry = self._entry(source, None, (good[place], 0), rejected, found.digests[place])
            reads.append(Read(source.number, entry, None, good[place]))
        return reads

    def _one(self, file: _File) -> Read:
        """One file, block by block. What an earlier ingest took of it stays as it is."""
        return self._sum(file, self._blocks(file), self._naming(file))

    def _sum(
        self,
        file: _File,
        blocks: Iterable[_Taken],
        name: Callable[[], bytes] | None,
    ) -> Read:
        """What the blocks of a file come to."""
        source, known = file.source, file.known
        good, added = [0, 0], [0, 0]
        counts: Counter[str] = Counter()
        if known is not None:
            counts[FORGOTTEN] = known.rejected.get(FORGOTTEN, 0)
        refused: list[NDArray[np.int64]] = []
        digests: list[bytes] = []
        claims: set[int] = set()
        pieces: list[Rejected] = []
        room = MAX_PIECES
        for block, more, sound, forgotten, foreign, set_aside in blocks:
            counts.update(block.rejected)
            counts[FORGOTTEN] += forgotten
            counts[NOT_ENROLLED] += len(foreign)
            pieces.extend(block.pieces[:room])
            room -= min(room, len(block.pieces))
            pieces.extend(set_aside[: max(0, MAX_PIECES - len(pieces))])
            digests.extend(block.digests)
            for standing in (False, True):
                good[standing] += sound[standing]
                added[standing] += more[standing]
            refused.append(foreign)
            claims.update(filter(None, map(_claim, block.standings)))
        pieces.sort(key=lambda piece: piece.offset)
        rejected = {reason: number for reason, number in sorted(counts.items()) if number}
        entry = self._entry(source, name and name(), (good[True], good[False]), rejected, digests)
        places = np.sort(np.concatenate(refused)) if refused else np.empty(0, np.int64)
        entry = entry._replace(
            present=max(self._present, known.present if known is not None else 0),
            refused=pack_places(places),
            enrolment=self._enrolment if len(places) else b"",
        )
        return Read(source.number, entry, known, added[True], added[False], frozenset(claims), tuple(pieces))

    def _naming(self, file: _File) -> Callable[[], bytes] | None:
        """What gives the file's name; None if its only batch will, or nobody has time for it before."""
        data, known = file.source.data, file.name
        if known is not None:
            return lambda: known
        if self._team is None or len(data) < SHARED_BYTES or self._decoder.states_one_batch(data):
            return None
        return self._team.begin(identity, data)

    def _blocks(self, file: _File) -> Iterator[_Taken]:
        """All blocks of a file, in order; if it is large, others help."""
        stretches = self._decoder.stretches(file.source.data, most=_BLOCK)
        if self._team is None or len(file.source.data) < SHARED_BYTES:
            return map(partial(self._take, file), stretches)
        return self._team.each(partial(self._take, file), stretches)

    def _take(self, file: _File, stretch: RecordSpan) -> _Taken:
        """Judge a block and put what is good and new into the parts."""
        data = file.source.data
        block = self._decoder.judge(data, stretch, now=self._time_for(file))
        records = block.records
        kept = self._kept(records, _new_rows(block, file))
        places = block.positions[kept.foreign].astype(np.int64)
        refused = []
        for place, batch in zip(places[:MAX_PIECES].tolist(), block.batch[kept.foreign].tolist(), strict=False):
            record = bytes(data[place : place + self._record_bytes])
            refused.append(Rejected(NOT_ENROLLED, place, len(record), record, *block.standings[batch]))
        file.kept = True
        self._writer.add(Stored(kept.records, _claims(block, kept.rows)))
        without = records.take(slice(0))
        rest = block._replace(records=without, positions=block.positions[:0], batch=block.batch[:0])
        unwanted = _by_standing(records.proven[np.concatenate([kept.forgotten, kept.foreign])])
        unproven, proven = _by_standing(records.proven)
        good = unproven - unwanted[0], proven - unwanted[1]
        added = _by_standing(kept.records.proven)
        return _Taken(rest, added, good, len(kept.forgotten), places, tuple(refused))

    def _time_for(self, file: _File) -> int:
        """The present; never before the last reading of the file: a clock put back makes nothing early again."""
        return self._now if file.known is None else max(self._now, file.known.present * self._period_seconds)

    def _kept(self, records: Columns, rows: NDArray[np.intp] | None = None) -> _Kept:
        """Which of the good records to add: of all, or of some rows."""
        none = np.empty(0, np.intp)
        forgets = self._first_period and records.size and int(records.period.min()) < self._first_period
        if rows is None and self._enrolled is None and not forgets:
            return _Kept(records, None, none, none)
        rows = np.arange(records.size) if rows is None else rows
        is_gone = records.period[rows] < self._first_period
        forgotten, rows, foreign = rows[is_gone], rows[~is_gone], none
        if self._enrolled is not None:
            accepted = self._enrolled.accepts(records.take(rows))
            foreign, rows = rows[~accepted], rows[accepted]
        return _Kept(records.take(rows), rows, forgotten, foreign)

    def _entry(
        self,
        source: Source,
        name: bytes | None,
        good: tuple[int, int],
        rejected: dict[str, int],
        digests: Sequence[bytes],
    ) -> Ingested:
        proven, unproven = good
        if name is None:
            one_batch = len(digests) == 1 and len(source.data) == self._frame_bytes + proven * self._record_bytes
            name = identity(source.data, digests[0] if one_batch else None)
        return Ingested(
            name,
            tail(source.data),
            os.path.basename(source.file),  # noqa: PTH119 - cheaper than a Path
            len(source.data),
            self._present,
            proven,
            unproven,
            rejected,
            b"".join(digest[:TAIL_BYTES] for digest in digests),
        )


def _claim(standing: Standing) -> int:
    """What a part says of a batch that is damaged; 0 if there is nothing to say."""
    return int.from_bytes(standing.claim[:TAIL_BYTES])


def _claims(block: Block, rows: NDArray[np.intp] | None) -> NDArray[np.uint64] | None:
    """Shape (N,): the claims of some of a block's records, or all; None if there are none."""
    claims = np.array([_claim(standing) for standing in block.standings], np.uint64)
    if not claims.any():
        return None
    return claims[block.batch if rows is None else block.batch[rows]]


def _by_standing(proven: NDArray[np.bool_]) -> tuple[int, int]:
    """How many are unproven, and how many are proven."""
    count = int(np.count_nonzero(proven))
    return len(proven) - count, count
