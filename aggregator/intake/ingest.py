"""Files into parts: what one worker does, and how the workers of an ingest share its files.

A worker is a function of bytes, campaign and folder: it writes parts that nothing names yet, and hands
back what the manifest has to say. Only :class:`Ingest`, which holds the store's lock, commits.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.intake.compaction import compact
from aggregator.intake.decode import MAX_PIECES, Decoder, Rejected
from aggregator.intake.enrolment import REASON as NOT_ENROLLED
from aggregator.intake.inputs import TAIL_BYTES, Ingested, Inputs, identity, numbers, tail
from aggregator.intake.manifest import FORGOTTEN, INPUTS, REPORTS
from aggregator.intake.parts import Stored
from aggregator.intake.quarantine import Quarantine
from aggregator.intake.sources import Share, Source, Unreadable, read_source, shares
from aggregator.intake.writing import PartWriter
from protocol.batch import TRAILER_BYTES, Header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from aggregator.intake.columns import Columns
    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.manifest import Manifest, Part
    from protocol.campaign import Campaign

QUARANTINE = "quarantine"
_FORGOTTEN = "period_forgotten"
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
                if self._inputs.has_all(name, end, self._present):
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
        kept = self._kept(records, None)
        self._writer.add(Stored(kept.records, None))
        totals = np.bincount(file, minlength=len(sources))
        gone = np.bincount(file[kept.forgotten], minlength=len(sources))
        good = (totals - gone).tolist()
        reads = []
        for place, source in enumerate(sources):
            if place in rest:
                reads.append(self._alone(source, None, None))
                continue
            rejected = {_FORGOTTEN: int(gone[place])} if gone[place] else {}
            entry = self._entry(source, None, (good[place], 0), rejected, found.digests[place])
            reads.append(Read(source.number, entry, None, good[place]))
        return reads

    def _one(self, source: Source, name: bytes | None, known: Ingested | None) -> Read:
        """One file, block by block. What an earlier ingest took of it stays as it is."""
        good, added = [0, 0], [0, 0]
        before = known.rejected if known is not None else {}
        counts = Counter({reason: before.get(reason, 0) for reason in (_FORGOTTEN, NOT_ENROLLED)})
        digests: list[bytes] = []
        claims: set[int] = set()
        pieces: list[Rejected] = []
        for block in self._decoder.blocks(source.data, now=self._now, most=_BLOCK):
            counts.update(block.rejected)
            pieces.extend(block.pieces)
            digests.extend(block.digests)
            kept = self._kept(block.records, known)
            counts[_FORGOTTEN] += len(kept.forgotten)
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
        return Read(source.number, entry, known, added[True], added[False], frozenset(claims), tuple(pieces))

    def _kept(self, records: Columns, known: Ingested | None) -> _Kept:
        """Which of the good records to add."""
        none = np.empty(0, np.intp)
        forgets = self._first_period and records.size and int(records.period.min()) < self._first_period
        if known is None and self._enrolled is None and not forgets:
            return _Kept(records, none, none)
        rows = np.arange(records.size) if known is None else np.flatnonzero(records.period > known.present)
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


class Ingest:
    """One ingest under the store's lock: what was read so far, and the manifest it will end in.

    Args:
        folder: the store's.
        campaign: whose reports it holds.
        manifest: what is in it.
        now: the present, in seconds since 1970.
        workers: how many threads read.
        enrolled: as for :class:`Reader`.

    Attributes:
        repeated, proven, unproven, rejected: as in ``IngestSummary``.
        unreadable: the same, in the order in which the files were given.
    """

    def __init__(
        self,
        folder: Path,
        campaign: Campaign,
        manifest: Manifest,
        now: int,
        workers: int,
        enrolled: Enrolled | None = None,
    ) -> None:
        self._folder = folder
        self._campaign = campaign
        self._manifest = manifest
        self._now = now
        self._workers = workers
        self._enrolled = enrolled
        self._inputs = Inputs(folder, manifest.inputs)
        self._quarantine = Quarantine(folder / QUARANTINE)
        self._parts: list[Part] = []
        self._totals = Counter(manifest.rejected)
        self._claims: set[int] = set()
        self._digests: list[bytes] = []
        self._unreadable: list[tuple[int, Unreadable]] = []
        self.repeated = self.proven = self.unproven = 0
        self.rejected: Counter[str] = Counter()

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """The files that could not be read."""
        return tuple(found for _, found in sorted(self._unreadable))

    def add(self, files: Sequence[str | os.PathLike[str]], progress: Callable[[int, int], None] | None) -> None:
        """Read files and write what is new in them into parts."""
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(self._workers))
            readers = [self._reader(stack, number) for number in range(self._workers)]
            idle: SimpleQueue[Reader] = SimpleQueue()
            for reader in readers:
                idle.put(reader)

            def work(share: Share) -> list[Read]:
                reader = idle.get()
                try:
                    return reader.read(share.sources)
                finally:
                    idle.put(reader)

            again: list[tuple[int, str]] = []
            report = Progress(progress, len(files))
            pending: set[Future[list[Read]]] = set()
            for share in shares(files):
                self._unreadable += share.unreadable
                again += share.again
                report(len(share.unreadable))
                pending.add(pool.submit(work, share))
                while len(pending) > self._workers:  # what was read and not yet judged is in memory
                    pending = self._collect(pending, report)
            while pending:
                pending = self._collect(pending, report)
            for number, file in again:
                self._again(readers[0], number, file)
                report(1)
            for parts in pool.map(Reader.finish, readers):
                self._parts += parts

    def _reader(self, stack: ExitStack, number: int) -> Reader:
        name = f"{self._manifest.generation + 1:08d}-{number}"
        writer = stack.enter_context(PartWriter(self._folder, self._campaign.layout, self._manifest.buckets, name))
        first_period = self._manifest.first_period
        return Reader(self._campaign, self._inputs, writer, first_period, self._now, self._enrolled)

    def _collect(self, pending: set[Future[list[Read]]], report: Progress) -> set[Future[list[Read]]]:
        done, rest = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            for read in future.result():
                self._note(read)
                report(1)
        return rest

    def _again(self, reader: Reader, number: int, file: str) -> None:
        """A file that ends as another one did: read when all others are known."""
        data = read_source(file)
        if isinstance(data, Unreadable):
            self._unreadable.append((number, data))
            return
        for read in reader.read([Source(number, file, data)], again=True):
            self._note(read)

    def _note(self, read: Read) -> None:
        entry, known = read.entry, read.known
        if read.too_large:
            self._unreadable.append((read.number, Unreadable(read.too_large, "too_large")))
            return
        if entry is None:
            self.repeated += 1
            return
        self._inputs.add(entry)
        self._digests.append(entry.batches)
        self._claims |= read.claims
        self.proven += read.proven
        self.unproven += read.unproven
        if known is None and not entry.rejected:  # as of most files, of which there may be very many
            return
        if read.pieces or known is not None:
            self._quarantine.keep(entry.identity.hex(), entry.name, read.pieces)
        before = Counter(known.rejected) if known is not None else Counter[str]()
        self._totals.update(entry.rejected)
        self._totals.subtract(before)
        self.rejected += Counter(entry.rejected) - before

    def commit(self) -> Manifest | None:
        """The manifest to write, once everything it names is on the disk; None if nothing changed."""
        if not self._inputs.new:
            return None
        old, name = self._manifest, f"{self._manifest.generation + 1:08d}.parquet"
        claims = old.claims | self._claims
        superseded = old.superseded | self._superseded(claims)
        parts = compact(self._folder, self._campaign.layout, old, [*old.parts, *self._parts])
        return old._replace(
            generation=old.generation + 1,
            parts=tuple(parts),
            inputs=self._inputs.write(name),
            rejected={reason: number for reason, number in self._totals.items() if number},
            claims=claims - superseded,
            superseded=superseded,
        )

    def _superseded(self, claims: frozenset[int]) -> frozenset[int]:
        """Those of the claims that are the digest of a whole batch, of this ingest or an earlier one."""
        if not claims:
            return frozenset()
        whole = np.concatenate([numbers(b"".join(self._digests)), self._inputs.batches()])
        claimed = np.array(sorted(claims), np.uint64)
        return frozenset(claimed[np.isin(claimed, whole)].tolist())


class Progress:
    """Counts files, for whoever watches."""

    def __init__(self, callback: Callable[[int, int], None] | None, files: int) -> None:
        self._callback = callback
        self._files = files
        self._done = 0

    def __call__(self, more: int) -> None:
        """So many more files are done."""
        for _ in range(more):
            self._done += 1
            if self._callback is not None:
                self._callback(self._done, self._files)


def remove_orphans(folder: Path, manifest: Manifest) -> None:
    """Delete the parts and temporary files that the manifest does not name: a crash left them.

    Nothing else: folders and files of other kinds are not from here.
    """
    named = {folder / path for path in manifest.paths()}
    places = (f"{REPORTS}/bucket=*", INPUTS, FORGOTTEN)
    ours = [f"{place}/*.{kind}" for place in places for kind in ("parquet", "tmp")]
    for pattern in (*ours, f"{QUARANTINE}/*.tmp", "*.tmp"):
        for path in folder.glob(pattern):
            if path not in named and stat.S_ISREG(path.lstat().st_mode):
                path.unlink()
