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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple, Protocol, TypeVar

from aggregator.reports.decoding.content import Content, FileShortenedError
from aggregator.reports.intake.enrolment import Enrolled
from aggregator.reports.intake.reader import Read, Reader
from aggregator.reports.intake.sources import (
    Share,
    Source,
    Unreadable,
    ahead,
    check_urls,
    codec_of,
    ends_of,
    is_url,
    read_source,
    shares,
)
from aggregator.reports.intake.transaction import IngestTransaction
from aggregator.reports.storage.input_index import TAIL_BYTES, Inputs, identity, tail
from aggregator.reports.storage.manifest import Manifest, Part, fingerprint, read_documents, read_manifest
from aggregator.reports.storage.parts import MOST_SMALL, SMALL_RECORDS, PartWriter, compact
from protocol import VERSION
from protocol.documents.campaign import Campaign
from protocol.errors import PolicyError, StorageError


class Executor(Protocol):
    """Processes, also on other machines, that see a store's folder under the client's path and have the same software.

    :class:`aggregator.reports.cluster.Cluster` implements it with Dask. Another engine is one more class with these
    members: what is read and counted remotely needs no others.
    """

    @property
    def threads(self) -> int:
        """Number of tasks that all processes together run at a time."""

    @property
    def threads_each(self) -> int:
        """Number of tasks that one process runs at a time. They share its memory."""

    @property
    def is_private(self) -> bool:
        """Whether calls and shared values travel encrypted, and so may hold secrets."""

    def run(self, function: Callable[..., Result], calls: Iterable[Sequence[Any]]) -> Iterator[Result]:
        """Call a function once for each sequence of arguments, and yield the results as they become ready.

        Args:
            function: defined at the top of a module, so that its name can be sent. A lost call is repeated, so the
                function may run twice with the same arguments.
            calls: the arguments of each call; results of :meth:`share` may be among them.

        Raises:
            HearsayError: the function raised it.
            StorageError: the executor failed.
        """

    def share(self, value: object) -> Any:
        """Send a value to the processes. Give the result to :meth:`run` as an argument in place of the value."""


MOST_PIECES = 1 << 18
"""Rejected pieces that one task sends for the quarantine, at most. All are counted."""

Result = TypeVar("Result")


class Job(NamedTuple):
    """The store that a task works on.

    Attributes:
        folder: its absolute path, the same on all machines.
        manifest: fingerprint of the manifest on the disk, as the client sees it.
        software: version of the client's software.
    """

    folder: str
    manifest: bytes
    software: str = VERSION


def job_of(folder: Path, manifest: Manifest) -> Job:
    """Describe a store, with the manifest that is on the disk, so that a worker can check that it sees the same one."""
    return Job(str(folder.absolute()), fingerprint(manifest))


class Mark(NamedTuple):
    """Length and last eight bytes of a file's decompressed content, which differ for most files."""

    size_bytes: int
    tail: bytes


class Chosen(NamedTuple):
    """A file to read.

    Attributes:
        number: index of the file among the files given, from 0.
        file: absolute path or URL.
        mark: length and end of the file when it was listed; None if it was empty or could not be read.
    """

    number: int
    file: str
    mark: Mark | None


class Found(NamedTuple):
    """The result of a task that read some files.

    Attributes:
        parts: written to the disk; no manifest names them yet.
        reads: one for each file that was read.
        unreadable: indices, among the files given, of the files that could not be read, each with the reason.
        changed: indices of the files that changed after they were listed; none of their records was kept.
    """

    parts: list[Part]
    reads: list[Read]
    unreadable: list[tuple[int, str]]
    changed: list[int]


def marks(files: Sequence[str]) -> list[Mark | None]:
    """For each of ``files`` the length and last eight bytes of its content; None if it is empty or can not be read."""
    check_urls(files)
    return list(ahead(_mark, files))


def _mark(file: str | os.PathLike[str]) -> Mark | None:
    try:
        if is_url(file):
            size, begin, end = ends_of(os.fspath(file), TAIL_BYTES)
        else:
            descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                size = os.fstat(descriptor).st_size
                begin = os.pread(descriptor, TAIL_BYTES, 0)
                end = os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES))
            finally:
                os.close(descriptor)
    except (OSError, ValueError):
        return None  # Reading the file will fail as well, and give the reason.
    if codec_of(begin) is not None:  # The mark describes the decompressed content: an uncompressed copy has the same.
        loaded = read_source(file)
        return None if isinstance(loaded, Unreadable) else Mark(len(loaded.data), tail(loaded.data))
    return Mark(size, tail(end)) if size else None


def identities(files: Sequence[str]) -> list[bytes | None]:
    """For each of ``files`` a digest of 32 bytes that names its content; None if it can not be read."""
    check_urls(files)
    return [None if isinstance(found, Unreadable) else _identity(found.data) for found in ahead(read_source, files)]


def _identity(data: Content) -> bytes | None:
    try:
        return identity(data)
    except FileShortenedError:
        return None


def read_files(
    job: Job, chosen: Sequence[Chosen], now: int, enrolled: Enrolled | None, *, apart: bool = False
) -> Found:
    """Task: judge files and write their good records into parts.

    Args:
        job: the store.
        chosen: the files.
        now, enrolled: as for :class:`~aggregator.reports.intake.reader.Reader`.
        apart: False if no two of the files agree in length and end. True if they may, but the client has made sure that
            no other file of this ingest has the same content.

    Raises:
        StorageError, InputError: as :func:`opened`, :func:`check_urls` and ``Reader.read``.
    """
    campaign, manifest = opened(job)
    files = [one.file for one in chosen]
    check_urls(files)
    found = Found([], [], [], [])
    folder = Path(job.folder)
    name = f"{manifest.generation + 1:08d}-{token_hex(8)}"  # random: two attempts never share a name
    pieces = MOST_PIECES
    with PartWriter(folder, campaign.layout, manifest.buckets, name) as writer:
        reader = Reader(campaign, _inputs(job), writer, manifest.first_period, now, enrolled)
        for share in _apart(files) if apart else shares(files):
            found.unreadable.extend((chosen[place].number, bad.reason) for place, bad in share.unreadable)
            found.changed.extend(chosen[place].number for place, _ in share.similar)
            sources = []
            for source in share.sources:
                number, _, mark = chosen[source.number]
                if apart or mark == (len(source.data), tail(source.data)):
                    sources.append(source._replace(number=number))
                else:
                    found.changed.append(number)
            for read in reader.read(sources, may_repeat=apart):
                found.reads.append(read._replace(pieces=read.pieces[:pieces]))
                pieces -= len(found.reads[-1].pieces)
        found.parts.extend(reader.finish())
    return found


def _apart(files: Sequence[str]) -> Iterator[Share]:
    """Every file in a share of its own."""
    for place, loaded in enumerate(ahead(read_source, files)):
        if isinstance(loaded, Unreadable):
            yield Share([], [(place, loaded)], [])
        else:
            yield Share([Source(place, files[place], *loaded)], [], [])


def on_store(job: Job, function: Callable[..., Result], *arguments: object) -> Result:
    """Task: open the store of ``job`` and return ``function(folder, campaign, manifest, *arguments)``.

    Raises:
        StorageError: the worker can not open the store (:func:`opened`).
        Exception: the function raised it.
    """
    campaign, manifest = opened(job)
    return function(Path(job.folder), campaign, manifest, *arguments)


def opened(job: Job) -> tuple[Campaign, Manifest]:
    """Open the store of ``job`` on this worker, and return its campaign and manifest. No file stays open.

    Raises:
        StorageError: ``store_not_shared``: at its path the worker sees another store, or none; ``cluster_differs``:
            the worker has another version of this software; as :func:`read_documents`.
    """
    if job.software != VERSION:
        raise StorageError("cluster_differs", "a worker has another version of hearsay; install the same everywhere")
    return _opened(job.folder, job.manifest)


@lru_cache(maxsize=1)
def _opened(folder: str, expected: bytes) -> tuple[Campaign, Manifest]:
    not_shared = StorageError("store_not_shared", f"a worker does not see the store at '{folder}' as it is here")
    try:
        manifest, campaign, _ = read_documents(Path(folder))
    except StorageError as error:
        if error.reason == "not_a_store":
            raise not_shared from None
        raise
    if fingerprint(manifest) != expected:
        raise not_shared
    return campaign, manifest


def _inputs(job: Job) -> Inputs:
    return _read_inputs(job.folder, job.manifest)


@lru_cache(maxsize=1)
def _read_inputs(folder: str, expected: bytes) -> Inputs:
    return Inputs(Path(folder), _opened(folder, expected)[1].inputs)


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
        now, enrolled: as for :class:`~aggregator.reports.intake.reader.Reader`.
        progress: called with a number of files that are finished.

    Raises:
        PolicyError: ``cluster_open``: the secrets of a fleet would be sent unencrypted.
        InputError: ``protocol_unknown``, ``missing_extra``: a process can not read such a URL; ``file_not_found``,
            ``ids_invalid``: the file of the enrolled ids changed after it was opened.
        StorageError: ``store_not_shared``, ``cluster_lost``, ``cluster_differs``, ``store_damaged``;
            ``input_shortened``: a file became shorter while it was read.
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
    """Task: the length and end of each file in ``files``. The result begins with ``start``, unchanged."""
    return start, marks(files)


def identities_of(files: Sequence[tuple[int, str]]) -> list[tuple[int, bytes | None]]:
    """Task: each file's index, and the SHA-256 that identifies its content; None if it can not be read."""
    names = identities([name for _, name in files])
    return [(number, name) for (number, _), name in zip(files, names, strict=True)]


def read_share(job: Job, chosen: Sequence[Chosen], now: int, enrolled: Enrolled | None, apart: bool) -> Found:  # noqa: FBT001
    """Task: :func:`read_files`, for an executor, which passes arguments by position only."""
    return read_files(job, chosen, now, enrolled, apart=apart)


def _balanced(chosen: Sequence[Chosen], threads: int, bucket_bytes: int) -> list[list[Chosen]]:
    """Divide files into shares of about the same work, each in order.

    If there is much to read, a share has enough records that its parts are not small; one record in every bucket has
    ``bucket_bytes``.
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


def all_unreadable(files: Sequence[str | os.PathLike[str]], cluster: Executor | None = None) -> tuple[Unreadable, ...]:
    """Find out, by a cluster's workers or this process, whether not a single file can be read, before a store is made.

    Returns:
        Every file with the reason why it can not be read; empty as soon as one file can be read.

    Raises:
        InputError: on a cluster: ``protocol_unknown``, ``missing_extra``: a worker can not read such a URL.
        StorageError: on a cluster: ``cluster_lost``, ``cluster_differs``.
    """
    if cluster is None:
        return _all_unreadable(files)
    given = [os.fspath(file) for file in files]
    names = [name if is_url(name) else os.path.abspath(name) for name in given]  # noqa: PTH100 - making a Path takes longer
    starts = range(0, len(names), _LISTED)
    reasons: dict[int, str] = {}
    for start, found in cluster.run(_unreadable_from, [(start, names[start : start + _LISTED]) for start in starts]):
        if not found:
            return ()
        reasons |= {start + place: one.reason for place, one in enumerate(found)}
    return tuple(Unreadable(name, reasons[number]) for number, name in enumerate(given))


def _unreadable_from(start: int, files: Sequence[str]) -> tuple[int, tuple[Unreadable, ...]]:
    """Task for a worker: run :func:`all_unreadable` on some files. The result begins with ``start``, unchanged."""
    check_urls(files)
    return start, _all_unreadable(files)


def _all_unreadable(files: Sequence[str | os.PathLike[str]]) -> tuple[Unreadable, ...]:
    found: list[Unreadable] = []
    for file in files:
        read = read_source(file)
        if not isinstance(read, Unreadable):
            return ()
        found.append(read)
    return tuple(found)
