"""Tasks of a remote executor: read some files, or run a function on one partition of the store.

A task depends on the store's folder and its arguments. A task whose worker was lost runs again on another one. Every
attempt writes parts under names of its own. No manifest names the parts of an attempt whose result never arrived, so
they are removed as the parts of a crash are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, TypeVar

from aggregator.reports.decoding.large_file import FileShortenedError
from aggregator.reports.decoding.mapped import Source as Content
from aggregator.reports.intake.compressed import codec_of
from aggregator.reports.intake.enrolment import Enrolled
from aggregator.reports.intake.reader import Reader
from aggregator.reports.intake.results import Read
from aggregator.reports.intake.sources import Share, Source, Unreadable, read_source, shares
from aggregator.reports.intake.urls import ahead, check_urls, ends_of, is_url
from aggregator.reports.storage.input_index import TAIL_BYTES, Inputs, identity, tail
from aggregator.reports.storage.manifest import Manifest, Part, fingerprint
from aggregator.reports.storage.opening import read_documents
from aggregator.reports.storage.part_writer import PartWriter
from protocol import VERSION
from protocol.documents.campaign import Campaign
from protocol.errors import StorageError

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
    """Describe a store to tasks, so that a worker can check that it sees the same store.

    Args:
        folder: of the store.
        manifest: the manifest that is on the disk.
    """
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
        now: the client's present, in seconds since 1970.
        enrolled: ids of a closed fleet; reports with other ids are refused. None for all ids.
        apart: False if no two of the files agree in length and end. True if they may, but the client has made sure that
            no other file of this ingest has the same content.

    Raises:
        StorageError: ``store_not_shared``, ``cluster_differs``, ``store_damaged``, ``io_failed``;
            ``input_shortened``: a file became shorter while it was read.
        InputError: ``protocol_unknown``, ``missing_extra``: this process can not read such a URL; ``file_not_found``,
            ``ids_invalid``: the file of the enrolled ids changed after it was opened.
        OSError: the parts can not be written.
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
        StorageError: the worker can not open the store; :func:`opened` lists the reasons.
        Exception: the function raised it.
    """
    campaign, manifest = opened(job)
    return function(Path(job.folder), campaign, manifest, *arguments)


def opened(job: Job) -> tuple[Campaign, Manifest]:
    """Open the store of ``job`` on this worker, and return its campaign and manifest. No file stays open.

    Raises:
        StorageError: ``store_not_shared``: at its path the worker sees another store, or none; ``cluster_differs``:
            the worker has another version of this software; ``store_newer``, ``store_older``, ``store_damaged``,
            ``io_failed``: the worker can not read the store there.
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
