"""What a cluster's worker does: the same reading and counting as on one machine, for some files or one slice.

A task is a function of the store's folder and a few names. It may be run again, here or elsewhere, after a
worker was lost: every try writes parts under names of its own, and those of a try whose result never
arrived are named by no manifest and removed like those of a crash. Nothing here needs Dask.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aggregator.intake.compressed import codec_of
from aggregator.intake.reader import Reader
from aggregator.intake.sources import Share, Source, Unreadable, read_source, shares
from aggregator.intake.urls import ahead, check_urls, ends_of, is_url
from aggregator.storage.input_index import TAIL_BYTES, Inputs, identity, tail
from aggregator.storage.manifest import fingerprint, read_manifest
from aggregator.storage.part_writer import PartWriter
from aggregator.store.store import open_store
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.reader import Read
    from aggregator.storage.manifest import Manifest, Part
    from aggregator.tally.counting import Partition
    from protocol.documents.campaign import Campaign

MOST_PIECES = 1 << 18
"""Of what one task sets aside, how many pieces are sent for the quarantine; all are counted."""

Result = TypeVar("Result")


class Job(NamedTuple):
    """The store that a task is about.

    Attributes:
        folder: its absolute path, the same on all machines.
        manifest: fingerprint of the manifest that the client works from.
        software: version of the client's.
    """

    folder: str
    manifest: bytes
    software: str = version("hearsay")


class Mark(NamedTuple):
    """What tells most files apart without reading them: length and last eight bytes."""

    size_bytes: int
    tail: bytes


class Chosen(NamedTuple):
    """A file to read: its place among those given, its absolute path or URL, and its mark when it was listed."""

    number: int
    file: str
    mark: Mark | None


class Found(NamedTuple):
    """What a task made of some files.

    Attributes:
        parts: on the disk, and named by nothing yet.
        reads: one for each file that was read.
        unreadable: places of the others, with the reason.
        changed: places of files that are no longer as they were listed; nothing was kept of them.
    """

    parts: list[Part]
    reads: list[Read]
    unreadable: list[tuple[int, str]]
    changed: list[int]


def marks(files: Sequence[str]) -> list[Mark | None]:
    """Of each file its mark; None for one that is empty or can not be read."""
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
        return None  # reading it will say why
    if codec_of(begin) is not None:  # of what is in it, since the same may be there uncompressed
        data = read_source(file)
        return None if isinstance(data, Unreadable) else Mark(len(data), tail(data))
    return Mark(size, tail(end)) if size else None


def identities(files: Sequence[str]) -> list[bytes | None]:
    """Of each file what names its content; None for one that can not be read."""
    check_urls(files)
    return [None if isinstance(data, Unreadable) else identity(data) for data in ahead(read_source, files)]


def read_files(
    job: Job, chosen: Sequence[Chosen], now: int, enrolled: Enrolled | None, *, apart: bool = False
) -> Found:
    """Judge files and put their good records into parts.

    Args:
        job: the store.
        chosen: the files.
        now: the client's present, in seconds since 1970.
        enrolled: as for an ingest.
        apart: the files may end as others of this ingest do, and differ from all of them.

    Raises:
        StorageError: ``store_not_shared``, ``cluster_differs``.
        OSError: the parts can not be written.
    """
    campaign, manifest = opened(job)
    files = [one.file for one in chosen]
    check_urls(files)
    found = Found([], [], [], [])
    folder = Path(job.folder)
    name = f"{manifest.generation + 1:08d}-{token_hex(8)}"  # no other try of this task has it
    pieces = MOST_PIECES
    with PartWriter(folder, campaign.layout, manifest.buckets, name) as writer:
        reader = Reader(campaign, _inputs(job), writer, manifest.first_period, now, enrolled)
        for share in _apart(files) if apart else shares(files):
            found.unreadable.extend((chosen[place].number, bad.reason) for place, bad in share.unreadable)
            found.changed.extend(chosen[place].number for place, _ in share.again)
            sources = []
            for source in share.sources:
                number, _, mark = chosen[source.number]
                if apart or mark == (len(source.data), tail(source.data)):
                    sources.append(source._replace(number=number))
                else:
                    found.changed.append(number)
            for read in reader.read(sources, again=apart):
                found.reads.append(read._replace(pieces=read.pieces[:pieces]))
                pieces -= len(found.reads[-1].pieces)
        found.parts.extend(reader.finish())
    return found


def _apart(files: Sequence[str]) -> Iterator[Share]:
    """Every file in a share of its own."""
    for place, data in enumerate(ahead(read_source, files)):
        if isinstance(data, Unreadable):
            yield Share([], [(place, data)], [])
        else:
            yield Share([Source(place, files[place], data)], [], [])


def of_slice(job: Job, function: Callable[..., Result], which: Partition, *more: object) -> Result:
    """``function(folder, campaign, manifest, which, *more)``, of one slice of the store.

    Raises:
        StorageError: ``store_not_shared``, ``cluster_differs``, ``store_damaged``.
    """
    campaign, manifest = opened(job)
    return function(Path(job.folder), campaign, manifest, which, *more)


def opened(job: Job) -> tuple[Campaign, Manifest]:
    """The store that the client means, as this worker sees it.

    Raises:
        StorageError: ``store_not_shared``: here it is another one, or none; ``cluster_differs``.
    """
    if version("hearsay") != job.software:
        raise StorageError("cluster_differs", "a worker has another version of hearsay; install the same everywhere")
    return _opened(job.folder, job.manifest)


@lru_cache(maxsize=1)
def _opened(folder: str, expected: bytes) -> tuple[Campaign, Manifest]:
    not_shared = StorageError("store_not_shared", f"a worker does not see the store at '{folder}' as it is here")
    try:
        store = open_store(folder)
        manifest = read_manifest(store.path)
    except StorageError as error:
        if error.reason == "not_a_store":
            raise not_shared from None
        raise
    if fingerprint(manifest) != expected:
        raise not_shared
    return store.campaign, manifest


def _inputs(job: Job) -> Inputs:
    return _read_inputs(job.folder, job.manifest)


@lru_cache(maxsize=1)
def _read_inputs(folder: str, expected: bytes) -> Inputs:
    return Inputs(Path(folder), _opened(folder, expected)[1].inputs)
