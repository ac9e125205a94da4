"""An ingest: how its workers share the files, and how what they found becomes the next manifest.

Only :class:`Ingest`, which holds the store's lock, commits.
"""

from __future__ import annotations

import stat
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from aggregator.intake.reader import Read, Reader
from aggregator.intake.sources import Source, Unreadable, read_source, shares
from aggregator.intake.work_sharing import WorkSharingPool
from aggregator.storage.compaction import compact
from aggregator.storage.input_index import Inputs, numbers
from aggregator.storage.manifest import FORGOTTEN, INPUTS, REPORTS
from aggregator.storage.part_writer import PartWriter
from aggregator.storage.quarantine import EMPTY_FILE, Quarantine

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aggregator.intake.enrolment import Enrolled
    from aggregator.storage.manifest import Manifest, Part
    from protocol.documents.campaign import Campaign

QUARANTINE = "quarantine"
_OFFERED = 4


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
            pool = ThreadPoolExecutor(self._workers)
            team = WorkSharingPool(pool, _OFFERED * self._workers) if self._workers > 1 else None
            reader = self._reader(stack, team)
            stack.enter_context(pool)  # left before the reader's parts are: by then nobody writes

            again: list[tuple[int, str]] = []
            report = Progress(progress, len(files))
            pending: set[Future[list[Read]]] = set()
            for share in shares(files):
                self._unreadable += share.unreadable
                again += share.again
                report(len(share.unreadable))
                pending.add(pool.submit(reader.read, share.sources))
                while len(pending) > self._workers:  # what was read and not yet judged is in memory
                    pending = self._collect(pending, report)
            while pending:
                pending = self._collect(pending, report)
            for number, file in again:
                self._again(reader, number, file)
                report(1)
            self._parts += reader.finish()

    def _reader(self, stack: ExitStack, team: WorkSharingPool | None = None) -> Reader:
        name = f"{self._manifest.generation + 1:08d}-0"
        writer = stack.enter_context(PartWriter(self._folder, self._campaign.layout, self._manifest.buckets, name))
        first_period = self._manifest.first_period
        judging = (self._now, self._enrolled, team)
        return Reader(self._campaign, self._inputs, writer, first_period, *judging)

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
        self._quarantine.keep_empty(found.file for found in self.unreadable if found.reason == EMPTY_FILE)
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
