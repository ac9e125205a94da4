"""An ingest whose files are listed and read by a cluster's workers, and committed by the client.

First the workers tell length and end of every file, so that those which may be the same are known without
reading them; then each reads shares of the others into parts of its own; then the content of the doubtful
ones is named by digest, and what is new among them is read. So every content is taken once, whichever
workers its copies come to.
"""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from aggregator.cluster.tasks import Chosen, Job, identities, marks, read_files
from aggregator.intake.sources import Unreadable
from aggregator.intake.transaction import Ingest, Progress
from aggregator.intake.urls import is_url
from aggregator.storage.compaction import MOST_SMALL, SMALL_RECORDS, compact
from aggregator.storage.manifest import fingerprint, read_manifest
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aggregator.cluster.tasks import Found, Mark
    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.executor import Workers
    from aggregator.storage.manifest import Manifest
    from protocol.documents.campaign import Campaign

_LISTED = 2048
_TASKS_EACH = 4
"""Tasks for each thread of the cluster: fewer would leave some idle at the end, more make small parts."""
_TASK_BYTES = 1 << 30
"""A lost worker costs about so much reading."""
_FILE_BYTES = 1 << 14
"""Opening a file takes as long as reading so much more of one."""


class _Waiting(NamedTuple):
    """A file that ends as another one: its place, and what names its content, if it can be read."""

    number: int
    identity: bytes | None


class ClusterIngest(Ingest):
    """Made by ``Cluster.ingest``. Arguments as of ``Ingest``."""

    def __init__(
        self,
        cluster: Workers,
        folder: Path,
        campaign: Campaign,
        manifest: Manifest,
        now: int,
        enrolled: Enrolled | None,
    ) -> None:
        super().__init__(folder, campaign, manifest, now, cluster.threads, enrolled)
        self._cluster = cluster

    def add(self, files: Sequence[str | os.PathLike[str]], progress: Callable[[int, int], None] | None) -> None:
        """Read files and write what is new in them into parts."""
        on_disk = read_manifest(self._folder)  # ours may say already that the store is closed
        self._job = Job(str(self._folder.absolute()), fingerprint(on_disk))
        self._given = [os.fspath(file) for file in files]
        self._names = [name if is_url(name) else os.path.abspath(name) for name in self._given]  # noqa: PTH100
        self._report = Progress(progress, len(files))
        self._ids = None if self._enrolled is None else self._cluster.share(self._enrolled)
        listed = self._list()
        first, again = [], []
        seen: set[Mark] = set()
        for number, mark in enumerate(listed):
            if mark is not None and mark in seen:
                again.append(number)
                continue
            first.append(Chosen(number, self._names[number], mark))
            if mark is not None:
                seen.add(mark)
        again += self._read(first, apart=False)
        self._read_again(sorted(again), listed)

    def commit(self) -> Manifest | None:
        """As ``Ingest.commit``; small parts, of which every task wrote one into each bucket, are joined before."""
        parts = (self._folder, self._campaign.layout, self._manifest, self._parts)
        self._parts = compact(*parts, most_small=1, name="gathered")
        return super().commit()

    def _list(self) -> list[Mark | None]:
        """The marks of all files."""
        size = max(1, min(_LISTED, -(-len(self._names) // self._workers)))
        calls = [(start, self._names[start : start + size]) for start in range(0, len(self._names), size)]
        found = dict(self._cluster.run(_marks_from, calls))
        return [mark for start, _ in calls for mark in found[start]]

    def _read(self, chosen: Sequence[Chosen], *, apart: bool) -> list[int]:
        """Have files read; the places of those that are no longer as they were listed."""
        changed: list[int] = []
        shares = _balanced(chosen, self._workers, self._manifest.buckets * self._campaign.layout.record_length)
        calls = [(self._job, share, self._now, self._ids, apart) for share in shares]
        for found in self._cluster.run(_read_files, calls):
            self._take(found)
            changed += found.changed
        return changed

    def _take(self, found: Found) -> None:
        for part in found.parts:
            if not (self._folder / part.path).is_file():
                problem = "a worker wrote into another folder of the same name; all must see the store's"
                raise StorageError("store_not_shared", problem)
        self._parts += found.parts
        for number, reason in found.unreadable:
            self._unreadable.append((number, Unreadable(self._given[number], reason)))
        for read in found.reads:
            self._note(read._replace(too_large=self._given[read.number]) if read.too_large else read)
        self._report(len(found.unreadable) + len(found.reads))

    def _read_again(self, numbers: Sequence[int], listed: Sequence[Mark | None]) -> None:
        """Files that end as others do: those of the same content are read once."""
        size = max(1, min(_LISTED, -(-len(numbers) // self._workers)))
        groups = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        calls = [([(number, self._names[number]) for number in group],) for group in groups]
        waiting = [_Waiting(*one) for group in self._cluster.run(_identities_of, calls) for one in group]
        waiting.sort()
        while waiting:
            first, rest = [], []
            seen: set[bytes] = set()
            for one in waiting:
                if one.identity is not None and self._inputs.is_new(one.identity):
                    self.repeated += 1
                    self._report(1)
                elif one.identity in seen:
                    rest.append(one)
                else:
                    first.append(Chosen(one.number, self._names[one.number], listed[one.number]))
                    if one.identity is not None:
                        seen.add(one.identity)
            self._read(first, apart=True)
            waiting = rest


def _marks_from(start: int, files: Sequence[str]) -> tuple[int, list[Mark | None]]:
    return start, marks(files)


def _identities_of(files: Sequence[tuple[int, str]]) -> list[tuple[int, bytes | None]]:
    names = identities([name for _, name in files])
    return [(number, name) for (number, _), name in zip(files, names, strict=True)]


def _read_files(job: Job, chosen: Sequence[Chosen], now: int, enrolled: Enrolled | None, apart: bool) -> Found:  # noqa: FBT001
    return read_files(job, chosen, now, enrolled, apart=apart)


def _balanced(chosen: Sequence[Chosen], threads: int, bucket_bytes: int) -> list[list[Chosen]]:
    """Files in shares of about the same work, each in order; a share's parts are not small if there are many.

    Args:
        chosen: the files.
        threads: of the cluster.
        bucket_bytes: what one record in every bucket takes.
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
