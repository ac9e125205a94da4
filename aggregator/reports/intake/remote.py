"""Reading an ingest's files by the tasks of a remote executor; the client collects what they find.

1. Tasks tell the length and the end of every file.
2. Of the files that agree in length and end, the first is read with all other files. Each task reads a share of the
   files into parts of its own.
3. Tasks name the remaining files by digest. Of the files with the same digest one is read.

So every content is taken once, whichever tasks its copies come to.
"""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aggregator.reports.intake.enrolment import Enrolled
from aggregator.reports.intake.executor import Executor
from aggregator.reports.intake.results import Read
from aggregator.reports.intake.sources import Unreadable
from aggregator.reports.intake.tasks import Chosen, Found, Job, Mark, identities, job_of, marks, read_files
from aggregator.reports.intake.transaction import IngestTransaction
from aggregator.reports.intake.urls import is_url
from aggregator.reports.storage.compaction import MOST_SMALL, SMALL_RECORDS, compact
from aggregator.reports.storage.manifest import Part, read_manifest
from protocol.errors import PolicyError, StorageError

_LISTED = 2048
"""Files whose marks or digests one task finds, at most."""
_TASKS_EACH = 4
"""Tasks for each thread of the executor: fewer would leave some idle at the end, more make small parts."""
_TASK_BYTES = 1 << 30
"""A task reads about this much at most: it is read again when a worker is lost."""
_FILE_BYTES = 1 << 14
"""Opening a file takes as long as reading this much of it."""


def read_remotely(
    transaction: IngestTransaction,
    files: Sequence[str | os.PathLike[str]],
    executor: Executor,
    *,
    now: int,
    enrolled: Enrolled | None,
    progress: Callable[[int], None],
) -> None:
    """Have an executor read files and write their new records into parts. Run by a store's ingest.

    Args:
        transaction: collects what is found.
        files: paths and URLs without patterns; the executor's processes read them.
        executor: reads. All its processes see the store's folder.
        now: the present, in seconds since 1970.
        enrolled: ids of a closed fleet; reports with other ids are refused. None for all ids.
        progress: called with a number of files that are finished.

    Raises:
        PolicyError: ``cluster_open``: the secrets of a fleet would be sent unencrypted.
        InputError: ``protocol_unknown``, ``missing_extra``: a process can not read such a URL; ``file_not_found``,
            ``ids_invalid``: the file of the enrolled ids changed after it was opened.
        StorageError: ``store_not_shared``, ``cluster_lost``, ``cluster_differs``, ``store_damaged``;
            ``input_shortened``: a file became shorter while it was read.
        OSError: a part can not be written.
    """
    if enrolled is not None and enrolled.holds_secrets and not executor.is_private:
        problem = "a fleet list holds secrets, and tcp:// is not encrypted; use tls://, or --enrolled"
        raise PolicyError("cluster_open", problem)
    reading = _RemoteReading(transaction, files, executor, now, enrolled, progress)
    reading.read_all()
    transaction.add_parts(reading.joined_parts())


class _Unsure(NamedTuple):
    """A file with the length and end of another one.

    Attributes:
        number: index of the file among the files given, from 0.
        identity: 32 bytes that name its content; None if it can not be read.
    """

    number: int
    identity: bytes | None


class _RemoteReading:
    """The state of one call of :func:`read_remotely`. The arguments are those of that call."""

    def __init__(
        self,
        transaction: IngestTransaction,
        files: Sequence[str | os.PathLike[str]],
        executor: Executor,
        now: int,
        enrolled: Enrolled | None,
        report: Callable[[int], None],
    ) -> None:
        self._transaction = transaction
        self._executor = executor
        self._threads = executor.threads
        self._now = now
        self._report = report
        # Tasks compare the manifest on the disk with the job's. The transaction's manifest may differ from the one on
        # the disk: an ingest with enrolled ids has marked the transaction's manifest as a closed fleet's.
        self._job = job_of(transaction.folder, read_manifest(transaction.folder))
        self._given = [os.fspath(file) for file in files]
        self._names = [name if is_url(name) else os.path.abspath(name) for name in self._given]  # noqa: PTH100
        self._ids = None if enrolled is None else executor.share(enrolled)
        self._parts: list[Part] = []

    def read_all(self) -> None:
        """Read every content once."""
        listed = self._list()
        first, similar = [], []
        seen: set[Mark] = set()
        for number, mark in enumerate(listed):
            if mark is not None and mark in seen:
                similar.append(number)
                continue
            first.append(Chosen(number, self._names[number], mark))
            if mark is not None:
                seen.add(mark)
        similar += self._read(first, apart=False)
        self._read_similar(sorted(similar), listed)

    def joined_parts(self) -> list[Part]:
        """The parts of all tasks. Every task wrote a small one into each bucket; these are joined."""
        transaction = self._transaction
        parts = (transaction.folder, transaction.campaign.layout, transaction.manifest, self._parts)
        return compact(*parts, most_small=1, name="gathered")

    def _list(self) -> list[Mark | None]:
        """The marks of all files."""
        size = max(1, min(_LISTED, -(-len(self._names) // self._threads)))
        calls = [(start, self._names[start : start + size]) for start in range(0, len(self._names), size)]
        found = dict(self._executor.run(marks_from, calls))
        return [mark for start, _ in calls for mark in found[start]]

    def _read(self, chosen: Sequence[Chosen], *, apart: bool) -> list[int]:
        """Have files read. Returns the numbers of the files that changed after they were listed; these were not read.

        ``apart`` is true if some files agree in length and end, but no two have the same content.
        """
        changed: list[int] = []
        bucket_bytes = self._transaction.manifest.buckets * self._transaction.campaign.layout.record_length
        calls = [
            (self._job, share, self._now, self._ids, apart) for share in _balanced(chosen, self._threads, bucket_bytes)
        ]
        for found in self._executor.run(read_share, calls):
            self._take(found)
            changed += found.changed
        return changed

    def _take(self, found: Found) -> None:
        """Note the results of a task in the transaction. The parts must be visible in the store's folder here."""
        for part in found.parts:
            if not (self._transaction.folder / part.path).is_file():
                problem = "a worker wrote into another folder of the same name; all must see the store's"
                raise StorageError("store_not_shared", problem)
        self._parts += found.parts
        for number, reason in found.unreadable:
            self._transaction.note_unreadable(number, Unreadable(self._given[number], reason))
        for read in found.reads:
            bad = read.unreadable and read.unreadable._replace(file=self._given[read.number])
            self._transaction.note(read._replace(unreadable=bad))
        self._report(len(found.unreadable) + len(found.reads))

    def _read_similar(self, numbers: Sequence[int], listed: Sequence[Mark | None]) -> None:
        """Read files that have the length and end of another one; each content once."""
        size = max(1, min(_LISTED, -(-len(numbers) // self._threads)))
        groups = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        calls = [([(number, self._names[number]) for number in group],) for group in groups]
        unsure = sorted(_Unsure(*one) for group in self._executor.run(identities_of, calls) for one in group)
        while unsure:
            first, rest = [], []
            seen: set[bytes] = set()
            for file in unsure:
                if file.identity is not None and self._transaction.inputs.is_new(file.identity):
                    self._transaction.note(Read(file.number, None))
                    self._report(1)
                elif file.identity in seen:
                    rest.append(file)
                else:
                    first.append(Chosen(file.number, self._names[file.number], listed[file.number]))
                    if file.identity is not None:
                        seen.add(file.identity)
            self._read(first, apart=True)
            unsure = rest


def marks_from(start: int, files: Sequence[str]) -> tuple[int, list[Mark | None]]:
    """Task: the length and end of each file in ``files``. The result begins with ``start``, unchanged.

    Args:
        start: index of the first file among all files given.
        files: paths and URLs.
    """
    return start, marks(files)


def identities_of(files: Sequence[tuple[int, str]]) -> list[tuple[int, bytes | None]]:
    """Run by a worker: the SHA-256 that identifies each file's content, None for a file that can not be read.

    ``files`` holds pairs of a file's index among the files given and its name. The index is returned with the digest.
    """
    names = identities([name for _, name in files])
    return [(number, name) for (number, _), name in zip(files, names, strict=True)]


def read_share(job: Job, chosen: Sequence[Chosen], now: int, enrolled: Enrolled | None, apart: bool) -> Found:  # noqa: FBT001
    """Task: judge files and write their good records into parts, by :func:`aggregator.reports.intake.tasks.read_files`.

    The arguments are the same. An executor passes arguments by position only.
    """
    return read_files(job, chosen, now, enrolled, apart=apart)


def _balanced(chosen: Sequence[Chosen], threads: int, bucket_bytes: int) -> list[list[Chosen]]:
    """Divide files into shares of about the same work, each in order.

    If there is much to read, a share has enough records that its parts are not small.

    Args:
        chosen: the files.
        threads: of the executor.
        bucket_bytes: size of one record in every bucket.
    """
    weights = [_FILE_BYTES + (one.mark.size_bytes if one.mark is not None else 0) for one in chosen]
    total = sum(weights)
    no_small = total // (2 * SMALL_RECORDS * bucket_bytes)
    number = max(min(_TASKS_EACH * threads, max(MOST_SMALL * 3 // 4, no_small)), total // _TASK_BYTES)
    shares: dict[int, list[int]] = defaultdict(list)
    loads = [(0, share) for share in range(max(1, min(number, len(chosen))))]
    for place in sorted(range(len(chosen)), key=weights.__getitem__, reverse=True):
        load, share = loads[0]
        shares[share].append(place)
        heapq.heapreplace(loads, (load + weights[place], share))
    return [[chosen[place] for place in sorted(places)] for places in shares.values()]
