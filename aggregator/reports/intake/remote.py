"""Read an ingest's files by tasks on a remote executor. The client collects what the tasks find.

Tasks return the length and last bytes of every file. Of files that agree in both, the first is read into parts (Parquet
files); then digests find the other contents. A task whose worker was lost runs again, and writes parts of new names.
"""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple, Protocol, TypeVar

from aggregator.reports.decoding.content import FileShortenedError
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

    :class:`aggregator.reports.cluster.Cluster` implements it with Dask. For another engine, write another class with
    these members.
    """

    @property
    def threads(self) -> int:
        """Return the number of tasks that all processes together run at a time."""

    @property
    def threads_each(self) -> int:
        """Return the number of tasks that one process runs at a time. They share its memory."""

    @property
    def is_private(self) -> bool:
        """Return whether calls and shared values travel encrypted, and so may hold secrets."""

    def run(self, function: Callable[..., Result], calls: Iterable[Sequence[Any]]) -> Iterator[Result]:
        """Call a function once for each sequence of arguments, or again after a loss; yield the results as they come.

        The function is defined at the top of a module, so that its name can be sent. Results of :meth:`share` may be
        among the arguments. Raises what the function raises, and ``StorageError`` if the executor failed.
        """

    def share(self, value: object) -> Any:
        """Send a value to the processes. Give the result to :meth:`run` as an argument in place of the value."""


_LISTED = 2048
"""Largest number of files whose ends or digests one task finds."""
_TASKS_EACH = 4
"""Tasks for each thread of the executor. Fewer tasks leave threads idle at the end; more make small Parquet parts."""
_TASK_BYTES = 1 << 30
"""A task reads about this much at most, because all of it is read again when a worker is lost."""
_FILE_BYTES = 1 << 14
"""Number of bytes of a file whose reading takes as long as opening the file."""

MOST_PIECES = 1 << 18
"""Largest number of rejected pieces that one task sends for the quarantine. All are counted."""

Result = TypeVar("Result")


class Job(NamedTuple):
    """The store that a task works on: its absolute path, the digest of its manifest, the client's software version."""

    folder: str
    manifest: bytes
    software: str = VERSION


def job_of(folder: Path, manifest: Manifest) -> Job:
    """Describe a store, with the manifest that is on the disk, so that a worker can check that it sees the same one."""
    return Job(str(folder.absolute()), fingerprint(manifest))


class Ends(NamedTuple):
    """Length and last eight bytes of a file's decompressed content, which differ for most files."""

    size_bytes: int
    tail: bytes


class ListedFile(NamedTuple):
    """A file to read: its index among those given, its absolute path or URL, and its ends; None if unreadable."""

    number: int
    file: str
    ends: Ends | None


class ShareResult(NamedTuple):
    """The result of a task that read some files, which are named by their indices among the files given.

    ``parts``: on the disk, named by no manifest yet; ``reads``: what was found; ``unreadable``: files with the reason;
    ``changed``: files that changed after they were listed; none of their records was kept.
    """

    parts: list[Part]
    reads: list[Read]
    unreadable: list[tuple[int, str]]
    changed: list[int]


def read_remotely(
    transaction: IngestTransaction,
    files: Sequence[str | os.PathLike[str]],
    executor: Executor,
    *,
    now: int,
    enrolled: Enrolled | None,
    progress: Callable[[int], None],
) -> None:
    """Have an executor read files, by paths and URLs, and write their new records into parts (Parquet files).

    ``progress`` is called with a number of finished files. Raises PolicyError ``cluster_open``: a fleet's secrets would
    be sent unencrypted; and as ``Reader.read``, :func:`check_urls`, :func:`opened`; ``cluster_lost``.
    """
    if enrolled is not None and enrolled.holds_secrets and not executor.is_private:
        problem = "a fleet list holds secrets, and tcp:// is not encrypted; use tls://, or --enrolled"
        raise PolicyError("cluster_open", problem)
    _RemoteReading(transaction, files, executor, now, enrolled, progress).read_all()


class _RemoteReading:
    """The state of one call of :func:`read_remotely`, with the arguments of that call."""

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
        self._names = _absolute(self._given)
        self._ids = None if enrolled is None else executor.share(enrolled)
        self._parts: list[Part] = []

    def read_all(self) -> None:
        """Read every content once, and join the small Parquet parts that every task wrote into each bucket."""
        ends = self._each(ends_from, range(len(self._names)))
        first, similar = [], []
        seen: set[Ends] = set()
        for number, end in ends.items():
            if end is not None and end in seen:
                similar.append(number)
                continue
            first.append(ListedFile(number, self._names[number], end))
            if end is not None:
                seen.add(end)
        similar += self._read(first, apart=False)
        self._read_similar(sorted(similar), ends)
        transaction = self._transaction
        parts = (transaction.folder, transaction.campaign.layout, transaction.manifest, self._parts)
        transaction.add_parts(compact(*parts, most_small=1, name="gathered"))

    def _each(self, task: Callable[..., tuple[int, list[Result]]], numbers: Sequence[int]) -> dict[int, Result]:
        """Run a task about each of the files with the indices ``numbers``; return index → result, in order."""
        size = max(1, min(_LISTED, -(-len(numbers) // self._threads)))
        groups = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        calls = [(place, [self._names[number] for number in group]) for place, group in enumerate(groups)]
        found = dict(self._executor.run(task, calls))
        return {
            number: result
            for place, group in enumerate(groups)
            for number, result in zip(group, found[place], strict=True)
        }

    def _read(self, listed: Sequence[ListedFile], *, apart: bool) -> list[int]:
        """Have files read; return the indices of those that changed. ``apart``: see :func:`read_share`."""
        changed: list[int] = []
        bucket_bytes = self._transaction.manifest.buckets * self._transaction.campaign.layout.record_length
        calls = [
            (self._job, share, self._now, self._ids, apart) for share in _balanced(listed, self._threads, bucket_bytes)
        ]
        for result in self._executor.run(read_share, calls):
            self._note(result)
            changed += result.changed
        return changed

    def _note(self, result: ShareResult) -> None:
        """Note the results of a task, whose parts this machine must see in the store's folder."""
        for part in result.parts:
            if not (self._transaction.folder / part.path).is_file():
                problem = "a worker wrote into another folder of the same name; all must see the store's"
                raise StorageError("store_not_shared", problem)
        self._parts += result.parts
        for number, reason in result.unreadable:
            self._transaction.note_unreadable(number, Unreadable(self._given[number], reason))
        for read in result.reads:
            bad = read.unreadable and read.unreadable._replace(file=self._given[read.number])
            self._transaction.note(read._replace(unreadable=bad))
        self._report(len(result.unreadable) + len(result.reads))

    def _read_similar(self, numbers: Sequence[int], ends: Mapping[int, Ends | None]) -> None:
        """Read each content once of files that agree in length and last bytes with another file."""
        unsure = self._each(identities_from, numbers)
        while unsure:
            first: list[ListedFile] = []
            rest: dict[int, bytes | None] = {}
            seen: set[bytes] = set()
            for number, name in unsure.items():
                if name is not None and self._transaction.inputs.is_new(name):
                    self._transaction.note(Read(number, None))
                    self._report(1)
                elif name in seen:
                    rest[number] = name
                else:
                    first.append(ListedFile(number, self._names[number], ends[number]))
                    if name is not None:
                        seen.add(name)
            self._read(first, apart=True)
            unsure = rest


def _balanced(listed: Sequence[ListedFile], threads: int, bucket_bytes: int) -> list[list[ListedFile]]:
    """Divide files into shares of about the same work, large enough that parts of all buckets are not small."""
    weights = [_FILE_BYTES + (one.ends.size_bytes if one.ends is not None else 0) for one in listed]
    total = sum(weights)
    no_small = total // (2 * SMALL_RECORDS * bucket_bytes)
    number = max(min(_TASKS_EACH * threads, max(MOST_SMALL * 3 // 4, no_small)), total // _TASK_BYTES)
    shares: dict[int, list[int]] = defaultdict(list)
    loads = [(0, share) for share in range(max(1, min(number, len(listed))))]
    for place in sorted(range(len(listed)), key=weights.__getitem__, reverse=True):
        load, share = loads[0]
        shares[share].append(place)
        heapq.heapreplace(loads, (load + weights[place], share))
    return [[listed[place] for place in sorted(places)] for places in shares.values()]


def _absolute(names: Sequence[str]) -> list[str]:
    """Return absolute paths, since another process may have another working folder. URLs stay unchanged."""
    return [name if is_url(name) else os.path.abspath(name) for name in names]  # noqa: PTH100 - a Path takes longer


def all_unreadable(files: Sequence[str | os.PathLike[str]], cluster: Executor | None = None) -> tuple[Unreadable, ...]:
    """Return every file with the reason why it can not be read, or nothing as soon as one can be read.

    The workers of ``cluster`` or this process try, before a store is made. Raises on a cluster ``protocol_unknown``,
    ``missing_extra``, ``cluster_lost``, ``cluster_differs``.
    """
    given = [os.fspath(file) for file in files]
    if cluster is None:
        return tuple(map(Unreadable, given, _unreadable_reasons(given)))
    names = _absolute(given)
    reasons: dict[int, str] = {}
    for start, found in cluster.run(
        unreadable_from, [(start, names[start : start + _LISTED]) for start in range(0, len(names), _LISTED)]
    ):
        if not found:
            return ()
        reasons |= dict(enumerate(found, start))
    return tuple(Unreadable(name, reasons[number]) for number, name in enumerate(given))


def unreadable_from(start: int, files: Sequence[str]) -> tuple[int, list[str]]:
    """Task: return ``start``, and why each of some files can not be read; no reasons if some file can be read."""
    check_urls(files)
    return start, _unreadable_reasons(files)


def _unreadable_reasons(files: Sequence[str]) -> list[str]:
    reasons = []
    for file in files:
        read = read_source(file)
        if not isinstance(read, Unreadable):
            return []
        reasons.append(read.reason)
    return reasons


def ends_from(start: int, files: Sequence[str]) -> tuple[int, list[Ends | None]]:
    """Task: return ``start``, and the length and last bytes of each file, or None if it is empty or can not be read."""
    check_urls(files)
    return start, list(ahead(_ends, files))


def _ends(file: str | os.PathLike[str]) -> Ends | None:
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
    if codec_of(begin) is not None:  # The ends are those of the decompressed content, as of an uncompressed copy.
        loaded = read_source(file)
        return None if isinstance(loaded, Unreadable) else Ends(len(loaded.data), tail(loaded.data))
    return Ends(size, tail(end)) if size else None


def identities_from(start: int, files: Sequence[str]) -> tuple[int, list[bytes | None]]:
    """Task: return ``start``, and the digest that names each file's content, or None if it can not be read."""
    check_urls(files)
    return start, [_identity(found) for found in ahead(read_source, files)]


def _identity(found: Source | Unreadable) -> bytes | None:
    try:
        return None if isinstance(found, Unreadable) else identity(found.data)
    except FileShortenedError:
        return None


def read_share(
    job: Job,
    listed: Sequence[ListedFile],
    now: int,
    enrolled: Enrolled | None,
    apart: bool,  # noqa: FBT001 - an executor passes arguments by position only
) -> ShareResult:
    """Task: check the records of files, and write the good ones into parts (Parquet files).

    ``apart`` is true if two files may agree in length and last bytes, and the client has made sure that their content
    differs. The errors are those of :func:`opened`, :func:`check_urls` and ``Reader.read``.
    """
    campaign, manifest = opened(job)
    files = [one.file for one in listed]
    check_urls(files)
    result = ShareResult([], [], [], [])
    folder = Path(job.folder)
    name = f"{manifest.generation + 1:08d}-{token_hex(8)}"  # random: two attempts never share a name
    pieces = MOST_PIECES
    with PartWriter(folder, campaign.layout, manifest.buckets, name) as writer:
        reader = Reader(campaign, _inputs(job.folder, job.manifest), writer, manifest.first_period, now, enrolled)
        for share in _apart(files) if apart else shares(files):
            result.unreadable.extend((listed[place].number, bad.reason) for place, bad in share.unreadable)
            result.changed.extend(listed[place].number for place, _ in share.similar)
            sources = []
            for source in share.sources:
                number, _, ends = listed[source.number]
                if apart or ends == (len(source.data), tail(source.data)):
                    sources.append(source._replace(number=number))
                else:
                    result.changed.append(number)
            for read in reader.read(sources, may_repeat=apart):
                result.reads.append(read._replace(pieces=read.pieces[:pieces]))
                pieces -= len(result.reads[-1].pieces)
        result.parts.extend(reader.finish())
    return result


def _apart(files: Sequence[str]) -> Iterator[Share]:
    """Yield every file in a share of its own."""
    for place, loaded in enumerate(ahead(read_source, files)):
        if isinstance(loaded, Unreadable):
            yield Share([], [(place, loaded)], [])
        else:
            yield Share([loaded._replace(number=place)], [], [])


def on_store(job: Job, function: Callable[..., Result], *arguments: object) -> Result:
    """Task: open a store (:func:`opened`), and return ``function(folder, campaign, manifest, *arguments)``."""
    campaign, manifest = opened(job)
    return function(Path(job.folder), campaign, manifest, *arguments)


def opened(job: Job) -> tuple[Campaign, Manifest]:
    """Open the store of ``job`` on this worker, and return its campaign and manifest. No file stays open.

    Raises StorageError ``store_not_shared``: the worker sees another store at the path, or none; ``cluster_differs``:
    it has another version of this software; and as :func:`read_documents`.
    """
    check_software(job.software)
    return _opened(job.folder, job.manifest)


def check_software(expected: str) -> None:
    """Raise ``cluster_differs`` unless this worker has the client's version of this software."""
    if expected != VERSION:
        raise StorageError("cluster_differs", "a worker has another version of hearsay; install the same everywhere")


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


@lru_cache(maxsize=1)
def _inputs(folder: str, expected: bytes) -> Inputs:
    return Inputs(Path(folder), _opened(folder, expected)[1].inputs)
