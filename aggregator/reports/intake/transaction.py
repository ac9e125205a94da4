"""What one ingest has read so far, and the manifest that names all of it.

The caller, who holds the store's lock, writes the manifest that :meth:`IngestTransaction.commit` returns.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from aggregator.common.notebooks import facts
from aggregator.reports.intake.enrolment import Enrolled
from aggregator.reports.intake.reader import Read, Reader, WorkSharingPool
from aggregator.reports.intake.sources import Unreadable, read_source, shares
from aggregator.reports.storage.input_index import Inputs, numbers
from aggregator.reports.storage.manifest import Manifest, Part
from aggregator.reports.storage.parts import PartWriter, compact
from aggregator.reports.storage.quarantine import EMPTY_FILE, Quarantine
from protocol.documents.campaign import Campaign


class IngestSummary(NamedTuple):
    """The result of one call of :meth:`aggregator.operations.report_store.Store.ingest`.

    ``files_repeated``: files skipped, since the store or another file of this call has the same content;
    ``unreadable``: files with the reason, nothing of which is stored; ``proven``, ``unproven``: good records added from
    complete and from damaged batches; ``rejected``: records and byte ranges, by reason.
    """

    files: int
    files_repeated: int
    unreadable: tuple[Unreadable, ...]
    proven: int
    unproven: int
    rejected: Mapping[str, int]

    @property
    def accepted(self) -> int:
        """Return the number of good records added, proven and unproven. Records that repeat an id are included."""
        return self.proven + self.unproven

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"files": self.files, "of these repeated": self.files_repeated}
        about |= {"proven records": self.proven, "unproven records": self.unproven}
        about |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        about |= {f"not read: {each.file}": each.reason for each in self.unreadable}
        return facts("Ingest", about)


def joined(steps: Sequence[IngestSummary]) -> IngestSummary:
    """Return the sum of the results of all steps, at least one, of one ingest."""
    return IngestSummary(
        sum(step.files for step in steps),
        sum(step.files_repeated for step in steps),
        tuple(found for step in steps for found in step.unreadable),
        sum(step.proven for step in steps),
        sum(step.unproven for step in steps),
        dict(sorted(sum((Counter(step.rejected) for step in steps), Counter[str]()).items())),
    )


class IngestTransaction:
    """The results of one ingest under the store's lock. Used by one thread.

    Ingests and :mod:`aggregator.operations.retry` share it. ``quarantine`` keeps rejected pieces of files; None keeps
    none. The public counts are those of :class:`IngestSummary`. ``inputs`` is the index of the input files, with new
    ones. Raises StorageError ``store_damaged``: the index of input files is not as it was written.
    """

    def __init__(self, folder: Path, campaign: Campaign, manifest: Manifest, quarantine: Quarantine | None) -> None:
        self.folder = folder
        self.campaign = campaign
        self.manifest = manifest
        self.inputs = Inputs(folder, manifest.inputs)
        self.repeated = self.proven = self.unproven = 0
        self.rejected: Counter[str] = Counter()
        self._quarantine = quarantine
        self._parts: list[Part] = []
        self._totals = Counter(manifest.rejected)
        self._claims: set[int] = set()
        self._digests: list[bytes] = []
        self._unreadable: list[tuple[int, Unreadable]] = []

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """Return the files that could not be read, in the order in which they were given."""
        return tuple(found for _, found in sorted(self._unreadable))

    @contextmanager
    def reader(self, now: int, enrolled: Enrolled | None, sharing: WorkSharingPool | None = None) -> Iterator[Reader]:
        """Open the one reader whose Parquet parts belong to this ingest. The arguments are those of :class:`Reader`."""
        name = f"{self.manifest.generation + 1:08d}-0"
        with PartWriter(self.folder, self.campaign.layout, self.manifest.buckets, name) as writer:
            first_period = self.manifest.first_period
            yield Reader(self.campaign, self.inputs, writer, first_period, now, enrolled, sharing)

    def note(self, read: Read) -> None:
        """Add the result of one file: its entry in the index, its counts, its rejected pieces for the quarantine."""
        entry, known = read.entry, read.known
        if read.unreadable is not None:
            self.note_unreadable(read.number, read.unreadable)
            return
        if entry is None:
            self.repeated += 1
            return
        self.inputs.add(entry)
        self._digests.append(entry.batches)
        self._claims |= read.claims
        self.proven += read.proven
        self.unproven += read.unproven
        if known is None and not entry.rejected:  # nothing to quarantine or to correct, as for most files
            return
        if self._quarantine is not None and (read.pieces or known is not None):
            self._quarantine.keep(entry.identity.hex(), entry.name, read.pieces, received=read.received)
        before = Counter(known.rejected) if known is not None else Counter[str]()
        self.correct_totals(fewer=before, more=Counter(entry.rejected))
        self.rejected += Counter(entry.rejected) - before

    def note_unreadable(self, number: int, found: Unreadable) -> None:
        """Add the file with index ``number`` among those given to :attr:`unreadable`."""
        self._unreadable.append((number, found))

    def add_parts(self, parts: Iterable[Part]) -> None:
        """Add finished Parquet parts, which are on the disk, to the list that the next manifest names."""
        self._parts += parts

    def correct_totals(self, *, fewer: Counter[str], more: Counter[str]) -> None:
        """Change the store's totals of rejected pieces by reason: subtract ``fewer``, add ``more``."""
        self._totals.update(more)
        self._totals.subtract(fewer)

    def commit(self) -> Manifest | None:
        """Write the index, join small parts, and return the manifest for the caller to write; None if nothing changes.

        All files that the manifest names are on the disk. The quarantine is flushed, with the names of empty files.
        Raises StorageError ``store_damaged``: a part that is joined with others is not as it was written.
        """
        if self._quarantine is not None:
            self._quarantine.keep_empty(found.file for found in self.unreadable if found.reason == EMPTY_FILE)
            self._quarantine.flush()
        if not self.inputs.new:
            return None
        old, name = self.manifest, f"{self.manifest.generation + 1:08d}.parquet"
        claims = old.claims | self._claims
        superseded = old.superseded | self._superseded(claims)
        parts = compact(self.folder, self.campaign.layout, old, [*old.parts, *self._parts])
        return old._replace(
            generation=old.generation + 1,
            parts=tuple(parts),
            inputs=self.inputs.write(name),
            rejected={reason: number for reason, number in self._totals.items() if number},
            claims=claims - superseded,
            superseded=superseded,
        )

    def summary(self, files: int) -> IngestSummary:
        """Return the result for the operator. ``files``: number of files read."""
        rejected = dict(sorted(self.rejected.items()))
        return IngestSummary(files, self.repeated, self.unreadable, self.proven, self.unproven, rejected)

    def _superseded(self, claims: frozenset[int]) -> frozenset[int]:
        """Return those of the digests ``claims`` that a complete batch has, of this ingest or an earlier one."""
        if not claims:
            return frozenset()
        complete = np.concatenate([numbers(b"".join(self._digests)), self.inputs.batches()])
        claimed = np.array(sorted(claims), np.uint64)
        return frozenset(claimed[np.isin(claimed, complete)].tolist())


_OFFERED = 4
"""Number of blocks of one large file that wait or are checked at a time, for each thread."""


def read_with_threads(
    transaction: IngestTransaction,
    files: Sequence[str | os.PathLike[str]],
    *,
    now: int,
    enrolled: Enrolled | None,
    threads: int,
    enough: Callable[[], bool],
    progress: Callable[[int], None],
) -> int:
    """Read files with the threads of this process, and write their new records into parts (Parquet files).

    If ``enough`` returns True after a share of files, no further share is read. ``progress`` gets numbers of finished
    files. The result is how many of the first files were read. Raises as :meth:`Reader.read`.
    """
    pool = ThreadPoolExecutor(threads)
    sharing = WorkSharingPool(pool, _OFFERED * threads) if threads > 1 else None
    # The pool ends before the reader is closed: no thread then gives records to the reader any more.
    with transaction.reader(now, enrolled, sharing) as reader, pool:
        taken = 0
        similar: list[tuple[int, str]] = []
        pending: set[Future[list[Read]]] = set()
        for share in shares(files):
            for number, found in share.unreadable:
                transaction.note_unreadable(number, found)
            similar += share.similar
            progress(len(share.unreadable))
            pending.add(pool.submit(reader.read, share.sources))
            while len(pending) > threads:  # bounds the number of shares in memory
                pending = _note_some(transaction, pending, progress)
            taken += len(share.sources) + len(share.unreadable) + len(share.similar)
            if enough():
                break
        while pending:
            pending = _note_some(transaction, pending, progress)
        # A similar file (same length and last bytes) may be a copy of a file read above. The index of inputs can tell
        # only after all files read above are noted in it.
        for number, file in similar:
            loaded = read_source(file)
            if isinstance(loaded, Unreadable):
                transaction.note_unreadable(number, loaded)
            else:
                for read in reader.read([loaded._replace(number=number)], may_repeat=True):
                    transaction.note(read)
            progress(1)
        transaction.add_parts(reader.finish())
    return taken


def _note_some(
    transaction: IngestTransaction, pending: set[Future[list[Read]]], progress: Callable[[int], None]
) -> set[Future[list[Read]]]:
    """Wait for at least one share of files, and note its files. Returns the shares that are still being read."""
    done, rest = wait(pending, return_when=FIRST_COMPLETED)
    for future in done:
        for read in future.result():
            transaction.note(read)
            progress(1)
    return rest
