"""Read report files: check their records by the campaign's rules, and write good ones into parts (Parquet files)."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from aggregator.reports.decoding.columns import Columns
from aggregator.reports.decoding.content import FileShortenedError
from aggregator.reports.decoding.decode import MAX_PIECES, BatchStanding, Block, Decoder, RecordSpan, Rejected
from aggregator.reports.intake.enrolment import REASON as NOT_ENROLLED
from aggregator.reports.intake.enrolment import Enrolled
from aggregator.reports.intake.sources import SHORTENED_REASON, Source, Unreadable
from aggregator.reports.storage.input_index import (
    TAIL_BYTES,
    Ingested,
    Inputs,
    identity,
    pack_places,
    tail,
    unpack_places,
)
from aggregator.reports.storage.manifest import Part
from aggregator.reports.storage.parts import PartWriter, Stored
from protocol.batches.batch import TRAILER_BYTES, Header
from protocol.documents.campaign import Campaign
from protocol.errors import StorageError


class Read(NamedTuple):
    """What was found in one file.

    ``number``: the file's index. ``entry``: for the index of input files, in place of ``known``; None if the store has
    the whole content. ``proven``, ``unproven``: good records added. ``claims``: of damaged batches, as numbers.
    ``pieces``: rejected, for the quarantine. ``unreadable``: why nothing of the file is stored, or None. ``received``:
    number of bytes as they came.
    """

    number: int
    entry: Ingested | None
    known: Ingested | None = None
    proven: int = 0
    unproven: int = 0
    claims: frozenset[int] = frozenset()
    pieces: tuple[Rejected, ...] = ()
    unreadable: Unreadable | None = None
    received: int = 0


class Division(NamedTuple):
    """Rows of good records: to be added (None: all), of forgotten periods, not of an enrolled device."""

    records: Columns
    rows: NDArray[np.intp] | None
    forgotten: NDArray[np.intp]
    foreign: NDArray[np.intp]


class BlockResult(NamedTuple):
    """The result of one block of records. Pairs are numbers of (unproven, proven) records.

    ``added``: records written into the parts; ``good``: of kept periods and enrolled devices, whether new or not;
    ``forgotten``: number of records of forgotten periods; ``foreign``: (E,) int64, offsets of the records that no
    enrolled device made; ``pieces``: some of these, for the quarantine.
    """

    block: Block
    added: tuple[int, int]
    good: tuple[int, int]
    forgotten: int
    foreign: NDArray[np.int64]
    pieces: tuple[Rejected, ...]


FORGOTTEN = "period_forgotten"
_BLOCK = 1 << 16
"""Number of records of a file that are checked at a time."""
_SMALL_BYTES = 1 << 16
"""Files up to this size are read together."""
SHARED_BYTES = 4 << 20
"""Files of at least this size are divided among threads."""


class _File:
    """One file that is being read: its digest and earlier entry, each None if unknown, and what is stored of it."""

    def __init__(self, source: Source, name: bytes | None, known: Ingested | None) -> None:
        self.source = source
        self.name = name
        self.known = known
        self.kept = False
        self.open_places = np.empty(0, np.int64) if known is None else unpack_places(known.refused)


def _new_rows(block: Block, file: _File) -> NDArray[np.intp] | None:
    """Return the M rows, (M,) intp, that an earlier reading refused and that may be good now; None for all rows."""
    if file.known is None:
        return None
    is_open = np.isin(block.positions, file.open_places) if len(file.open_places) else False
    return np.flatnonzero((block.records.period > file.known.present) | is_open)


class Reader:
    """Checks the records of files, and writes the good ones into parts (Parquet files). Threads may share one reader.

    The arguments: the campaign, whose rules judge; the index of read files; the ``writer`` of good records;
    ``first_period``, before which reports are ``period_forgotten``; ``now``, in seconds since 1970; ``enrolled``, ids
    of a closed fleet, or None; ``sharing``, a pool whose threads read blocks of large files, or None.
    """

    def __init__(
        self,
        campaign: Campaign,
        inputs: Inputs,
        writer: PartWriter,
        first_period: int,
        now: int,
        enrolled: Enrolled | None = None,
        sharing: WorkSharingPool | None = None,
    ) -> None:
        self._sharing = sharing
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
        """Write the records that still wait in memory, and return all parts (Parquet files), after the last file."""
        return self._writer.finish()

    def read(self, sources: Sequence[Source], *, may_repeat: bool = False) -> list[Read]:
        """Read files of different contents, and return one result for each file, in any order.

        ``may_repeat``: whether this ingest may have read one of the contents before. Raises StorageError
        ``input_shortened``: a file became shorter after some of it was written. Raises InputError ``file_not_found``,
        ``ids_invalid``: the file of the enrolled ids changed after it was opened. Raises MemoryError: a file does not
        fit into memory, and some of it was written.
        """
        found = []
        small = []
        for source in sources:
            name = known = None
            if may_repeat or self._inputs.may_know(tail(source.data)):
                try:
                    name = identity(source.data)
                except FileShortenedError:
                    found.append(Read(source.number, None, unreadable=Unreadable(source.file, SHORTENED_REASON)))
                    continue
                if self._inputs.has_all(name, self._present, self._enrolment):
                    found.append(Read(source.number, None))
                    continue
                known = self._inputs.get(name)
            if known is None and len(source.data) <= _SMALL_BYTES:
                small.append(source)
            else:
                found.append(self._alone(source, name, known))
        try:
            return found + self._many(small)
        except MemoryError:
            return found + [self._alone(source, None, None) for source in small]

    def read_anew(self, source: Source) -> Read:
        """Read the file ``source`` as if it came for the first time. The store must hold no record of the file."""
        name = identity(source.data)
        known = self._inputs.get(name)
        return self._alone(source, name, None)._replace(known=known)

    def _alone(self, source: Source, name: bytes | None, known: Ingested | None) -> Read:
        """Read one file by itself. If it fails before a record is written into the parts, the result says why."""
        file = _File(source, name, known)
        try:
            return self._whole(file)
        except MemoryError:
            if file.kept:
                raise
            reason = "too_large"
        except FileShortenedError:
            if file.kept:
                problem = f"'{source.file}' became shorter while it was read; nothing was added; try again"
                raise StorageError("input_shortened", problem) from None
            reason = SHORTENED_REASON
        return Read(source.number, None, unreadable=Unreadable(source.file, reason))

    def _many(self, sources: list[Source]) -> list[Read]:
        """Read small files, all complete ones at once, since most of the work of a small file is per call."""
        if len(sources) < 2:
            return [self._alone(source, None, None) for source in sources]
        found = self._decoder.whole_files([source.data[:] for source in sources], now=self._now)
        records, file, rest = found.records, found.file, set(found.left_over)
        if self._enrolled is not None:
            # Files with records of unknown devices are read one by one, which keeps these records for the quarantine.
            foreign = np.unique(file[~self._enrolled.accepts(records)])
            sound = ~np.isin(file, foreign)
            records, file, rest = records.take(sound), file[sound], rest | set(foreign.tolist())
        kept = self._kept(records)
        self._writer.add(Stored(kept.records, None))
        totals = np.bincount(file, minlength=len(sources))
        forgotten = np.bincount(file[kept.forgotten], minlength=len(sources))
        good = (totals - forgotten).tolist()
        reads = []
        for place, source in enumerate(sources):
            if place in rest:
                reads.append(self._alone(source, None, None))
                continue
            rejected = {FORGOTTEN: int(forgotten[place])} if forgotten[place] else {}
            entry = self._entry(source, None, (good[place], 0), rejected, found.digests[place])
            reads.append(Read(source.number, entry, None, good[place]))
        return reads

    def _whole(self, file: _File) -> Read:
        """Read one file block by block. Records that an earlier ingest added are not added again."""
        source, known = file.source, file.known
        blocks, name = self._blocks(file), self._naming(file)
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
        return Read(
            source.number,
            entry,
            known,
            added[True],
            added[False],
            frozenset(claims),
            tuple(pieces),
            received=source.received,
        )

    def _naming(self, file: _File) -> Callable[[], bytes] | None:
        """Return a function that gives the file's digest, begun in another thread; None if no thread began it."""
        data, known = file.source.data, file.name
        if known is not None:
            return lambda: known
        if self._sharing is None or len(data) < SHARED_BYTES or self._decoder.states_one_batch(data):
            return None
        return self._sharing.begin(identity, data)

    def _blocks(self, file: _File) -> Iterator[BlockResult]:
        """Yield the results of all blocks of a file, in order. Threads share the blocks of a large file."""
        spans = self._decoder.spans(file.source.data, most=_BLOCK)
        if self._sharing is None or len(file.source.data) < SHARED_BYTES:
            return map(partial(self._take, file), spans)
        return self._sharing.each(partial(self._take, file), spans)

    def _take(self, file: _File, span: RecordSpan) -> BlockResult:
        """Check a block of records, and write its good new records into the Parquet parts."""
        data = file.source.data
        # Records that were once in time do not become too early when the clock is set back.
        last = 0 if file.known is None else file.known.present * self._period_seconds
        block = self._decoder.judge(data, span, now=max(self._now, last))
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
        return BlockResult(rest, added, good, len(kept.forgotten), places, tuple(refused))

    def _kept(self, records: Columns, rows: NDArray[np.intp] | None = None) -> Division:
        """Divide good records, or their M ``rows``, (M,) intp, by what becomes of them."""
        none = np.empty(0, np.intp)
        forgets = self._first_period and records.size and int(records.period.min()) < self._first_period
        if rows is None and self._enrolled is None and not forgets:
            return Division(records, None, none, none)
        rows = np.arange(records.size) if rows is None else rows
        is_forgotten = records.period[rows] < self._first_period
        forgotten, rows, foreign = rows[is_forgotten], rows[~is_forgotten], none
        if self._enrolled is not None:
            accepted = self._enrolled.accepts(records.take(rows))
            foreign, rows = rows[~accepted], rows[accepted]
        return Division(records.take(rows), rows, forgotten, foreign)

    def _entry(
        self,
        source: Source,
        name: bytes | None,
        good: tuple[int, int],
        rejected: dict[str, int],
        digests: Sequence[bytes],
    ) -> Ingested:
        """Return the entry of a file for the index. ``good`` are its numbers of (proven, unproven) good records."""
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


def _claim(standing: BatchStanding) -> int:
    """Return the first eight bytes, as a number, of the digest that a damaged batch states; 0 if it states none."""
    return int.from_bytes(standing.claim[:TAIL_BYTES])


def _claims(block: Block, rows: NDArray[np.intp] | None) -> NDArray[np.uint64] | None:
    """Return for N records the digest that their damaged batch states, its first eight bytes: (N,) uint64, or None."""
    claims = np.array([_claim(standing) for standing in block.standings], np.uint64)
    if not claims.any():
        return None
    return claims[block.batch if rows is None else block.batch[rows]]


def _by_standing(proven: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the numbers of unproven and of proven records of N records, (N,) bool."""
    count = int(np.count_nonzero(proven))
    return len(proven) - count, count


Item = TypeVar("Item")
Result = TypeVar("Result")


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkSharingPool:
    """Divides a large piece of work among the threads of a pool. The pool's own threads may use it.

    A thread offers items of its work to the pool, and does those items itself that no other thread has begun. So a pool
    whose threads all offer items can not block itself. At most ``offered`` items of one call of :meth:`each` wait or
    run at a time, which bounds memory.
    """

    def __init__(self, pool: Executor, offered: int) -> None:
        self._pool = pool
        self._most = offered

    def begin(self, function: Callable[[Item], Result], item: Item) -> Callable[[], Result]:
        """Offer ``function(item)`` to the pool. Returns a function that gives its result, and calls it if none did."""
        future = self._pool.submit(function, item)
        return lambda: function(item) if future.cancel() else future.result()

    def each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` of every item, in order. After the iteration, also after an error, no call runs."""
        waiting: deque[tuple[Future[Result], Item]] = deque()
        try:
            for item in items:
                waiting.append((self._pool.submit(function, item), item))
                if len(waiting) >= self._most:
                    yield _first(function, waiting)
            while waiting:
                yield _first(function, waiting)
        finally:
            # Wait only for calls that have begun: a pool may tell wait() of a cancelled call much later.
            wait([future for future, _ in waiting if not future.cancel()])


def _first(function: Callable[[Item], Result], waiting: deque[tuple[Future[Result], Item]]) -> Result:
    """Return the result of the first of ``waiting``. If another thread computes it, compute later ones meanwhile."""
    for place, (future, item) in enumerate(waiting):
        if waiting[0][0].done():
            break
        if future.cancel():
            done: Future[Result] = Future()
            waiting[place] = (done, item)
            done.set_result(function(item))
    return waiting.popleft()[0].result()
