"""Files into parts: what one worker of an ingest does.

A worker judges bytes by the campaign's rules, writes parts that nothing names yet, and hands back what the
manifest has to say of each file.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.intake.decode import MAX_PIECES, Decoder, Rejected
from aggregator.intake.enrolment import REASON as NOT_ENROLLED
from aggregator.intake.inputs import TAIL_BYTES, Ingested, Inputs, identity, pack_places, tail, unpack_places
from aggregator.intake.parts import Stored
from protocol.batch import TRAILER_BYTES, Header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from aggregator.intake.columns import Columns
    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.manifest import Part
    from aggregator.intake.sources import Source
    from aggregator.intake.writing import PartWriter
    from protocol.campaign import Campaign

FORGOTTEN = "period_forgotten"
_BLOCK = 1 << 16
_SMALL_BYTES = 1 << 16


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
        forgotten: would be if their period had not been forgotten.
        foreign: would be if they were of an enrolled device.
    """

    records: Columns
    forgotten: NDArray[np.intp]
    foreign: NDArray[np.intp]


class Reader:
    """One worker: judges files and puts their good records into parts. Used by one thread at a time.

    Args:
        campaign: what was asked.
        inputs: what the store has read already; only looked at.
        writer: where the records go.
        first_period: reports of earlier periods are refused as ``period_forgotten``.
        now: the present, in seconds since 1970.
        enrolled: if the fleet is closed, whose reports are not refused as ``id_not_enrolled``.
    """

    def __init__(
        self,
        campaign: Campaign,
        inputs: Inputs,
        writer: PartWriter,
        first_period: int,
        now: int,
        enrolled: Enrolled | None = None,
    ) -> None:
        self._inputs = inputs
        self._writer = writer
        self._decoder = Decoder(campaign)
        self._blocks_kept = 0
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
        before = self._blocks_kept
        try:
            return self._one(source, name, known)
        except MemoryError:
            if self._blocks_kept != before:
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

    def _one(self, source: Source, name: bytes | None, known: Ingested | None) -> Read:
        """One file, block by block. What an earlier ingest took of it stays as it is.

        Of a known file just those records are judged that were too early or not enrolled then.
        """
        good, added = [0, 0], [0, 0]
        now, open_places = self._now, np.empty(0, np.int64)
        counts: Counter[str] = Counter()
        if known is not None:
            counts[FORGOTTEN] = known.rejected.get(FORGOTTEN, 0)
            open_places = unpack_places(known.refused)
            now = max(now, known.present * self._period_seconds)  # a clock put back makes nothing early again
        refused: list[NDArray[np.int64]] = []
        digests: list[bytes] = []
        claims: set[int] = set()
        pieces: list[Rejected] = []
        for block in self._decoder.blocks(source.data, now=now, most=_BLOCK):
            counts.update(block.rejected)
            pieces.extend(block.pieces)
            digests.extend(block.digests)
            rows = None
            if known is not None:
                is_open = np.isin(block.positions, open_places) if len(open_places) else False
                rows = np.flatnonzero((block.records.period > known.present) | is_open)
            kept = self._kept(block.records, rows)
            refused.append(block.positions[kept.foreign].astype(np.int64))
            counts[FORGOTTEN] += len(kept.forgotten)
            counts[NOT_ENROLLED] += len(kept.foreign)
            for place in block.positions[kept.foreign[: max(0, MAX_PIECES - len(pieces))]].tolist():
                record = bytes(source.data[place : place + self._record_bytes])
                pieces.append(Rejected(NOT_ENROLLED, place, len(record), record, block.proven, block.claim))
            good[block.proven] += block.records.size - len(kept.forgotten) - len(kept.foreign)
            added[block.proven] += kept.records.size
            claim = 0 if block.proven else int.from_bytes(block.claim[:TAIL_BYTES])
            if claim:
                claims.add(claim)
            claimed = np.full(kept.records.size, claim, np.uint64) if claim else None
            self._blocks_kept += 1
            self._writer.add(Stored(kept.records, claimed))
        pieces.sort(key=lambda piece: piece.offset)
        rejected = {reason: number for reason, number in sorted(counts.items()) if number}
        entry = self._entry(source, name, (good[True], good[False]), rejected, digests)
        places = np.sort(np.concatenate(refused)) if refused else open_places[:0]
        entry = entry._replace(
            present=max(self._present, known.present if known is not None else 0),
            refused=pack_places(places),
            enrolment=self._enrolment if len(places) else b"",
        )
        return Read(source.number, entry, known, added[True], added[False], frozenset(claims), tuple(pieces))

    def _kept(self, records: Columns, rows: NDArray[np.intp] | None = None) -> _Kept:
        """Which of the good records to add: of all, or of some rows."""
        none = np.empty(0, np.intp)
        forgets = self._first_period and records.size and int(records.period.min()) < self._first_period
        if rows is None and self._enrolled is None and not forgets:
            return _Kept(records, none, none)
        rows = np.arange(records.size) if rows is None else rows
        is_gone = records.period[rows] < self._first_period
        forgotten, rows, foreign = rows[is_gone], rows[~is_gone], none
        if self._enrolled is not None:
            accepted = self._enrolled.accepts(records.take(rows))
            foreign, rows = rows[~accepted], rows[accepted]
        return _Kept(records.take(rows), forgotten, foreign)

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
