"""Ingest and tally on the workers of a Dask cluster, with the same bytes as on one machine.

Files go to workers, buckets to workers, entries and sums come back to the client, which holds the store's
lock and alone commits. Workers need the store's folder under the client's path, and the same version of
this software. docs/cluster.md is for operators, decision 0028 says why it is so.

Dask takes code from whoever reaches it: a cluster that was made here speaks TLS with keys of its own; one
at ``tcp://`` must be in a network that nobody else is in.
"""

from __future__ import annotations

import heapq
import logging
import os
import re
import time
import warnings
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aggregator.intake.cluster_tasks import Chosen, Job, identities, marks, of_slice, read_files
from aggregator.intake.compaction import MOST_SMALL, SMALL_RECORDS
from aggregator.intake.ingest import Ingest, Progress
from aggregator.intake.manifest import fingerprint, read_manifest
from aggregator.intake.remote import is_url
from aggregator.intake.sources import Unreadable
from protocol.errors import HearsayError, InputError, PolicyError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import distributed

    from aggregator.intake.cluster_tasks import Found, Mark
    from aggregator.intake.counting import Slice
    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.manifest import Manifest
    from protocol.campaign import Campaign

Result = TypeVar("Result")

CONNECT_SECONDS = 30.0
PATIENCE_SECONDS = 60.0
"""How long a run waits while the cluster has no worker at all."""
_POLL_SECONDS = 1.0
_MOST_LOCAL = 1024
_LISTED = 2048
_TASKS_EACH = 4
"""Tasks for each thread of the cluster: fewer would leave some idle at the end, more make small parts."""
_TASK_BYTES = 1 << 30
"""A lost worker costs about so much reading."""
_FILE_BYTES = 1 << 14
"""Opening a file takes as long as reading so much more of one."""
_LOCAL = re.compile(r"local:([0-9]{1,4})")
_REMOTE = re.compile(r"(tcp|tls)://\S+:[0-9]{1,5}")


def check_address(address: str) -> None:
    """Whether this names a cluster: ``local:N`` or ``tcp://HOST:PORT`` or ``tls://HOST:PORT``.

    Raises:
        InputError: ``cluster_invalid``.
    """
    local = _LOCAL.fullmatch(address)
    if local is None and not _REMOTE.fullmatch(address):
        raise InputError("cluster_invalid", "a cluster is local:N, tcp://HOST:PORT or tls://HOST:PORT")
    if local is not None and not 1 <= int(local[1]) <= _MOST_LOCAL:
        raise InputError("cluster_invalid", f"local:N makes 1 to {_MOST_LOCAL} workers")


@contextmanager
def open_cluster(address: str) -> Iterator[Cluster]:
    """Connect to a cluster; ``local:N`` makes one of N processes on this machine, and ends it afterwards.

    Raises:
        InputError: ``cluster_invalid``; ``missing_extra``, Dask is not installed.
        StorageError: ``cluster_unreachable``: nobody answers there, or not as Dask does, or without workers.
    """
    check_address(address)
    try:
        import distributed
    except ImportError:
        raise _missing_extra() from None
    local = _LOCAL.fullmatch(address)
    with _quiet(), ExitStack() as stack:
        target = address if local is None else stack.enter_context(_local_cluster(int(local[1])))
        try:
            client = stack.enter_context(distributed.Client(target, timeout=CONNECT_SECONDS, set_as_default=False))
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            hint = "; tls:// takes certificates in Dask's settings" if address.startswith("tls:") else ""
            problem = f"no cluster with workers answers at {address} ({type(error).__name__}){hint}"
            raise StorageError("cluster_unreachable", problem) from error
        yield Cluster(client)


def _local_cluster(workers: int) -> Any:
    """Processes on this machine that speak TLS, since other users of it could send them code otherwise."""
    from distributed import LocalCluster
    from distributed.security import Security

    try:
        security = Security.temporary()
    except ImportError:
        raise _missing_extra() from None
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        security=security,
        dashboard_address=None,
        memory_limit=0,  # mapped files would count; what a task takes is bounded by itself
        silence_logs=logging.CRITICAL,
    )


def _missing_extra() -> InputError:
    return InputError("missing_extra", "a cluster takes Dask: pip install 'hearsay[cluster]'")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log off standard error, where a refusal is one line."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


class Cluster:
    """The workers of a cluster, all of which see the store's folder. Made by :func:`open_cluster`.

    Args:
        client: connected.
        patience_seconds: how long to wait while there is no worker.
        clock: rising seconds.
    """

    def __init__(
        self,
        client: distributed.Client,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._patience = patience_seconds
        self._clock = clock

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what is sent."""
        return str(self._client.scheduler.address).startswith(("tls://", "inproc://"))

    @property
    def threads(self) -> int:
        """Tasks that run at a time on the whole cluster."""
        return max(1, sum(self._threads().values()))

    @property
    def threads_each(self) -> int:
        """Tasks that run at a time on one worker."""
        return max(1, *self._threads().values(), 1)

    def _threads(self) -> dict[str, int]:
        with _cluster_errors():
            return dict(self._client.nthreads())

    def ingest(
        self, folder: Path, campaign: Campaign, manifest: Manifest, now: int, enrolled: Enrolled | None
    ) -> Ingest:
        """An ingest whose files are read by the workers. Arguments as of ``Ingest``.

        Raises:
            PolicyError: ``cluster_open``: the secrets of a fleet would be sent in the clear.
        """
        if enrolled is not None and enrolled.holds_secrets and not self.is_private:
            problem = "a fleet list holds secrets, and tcp:// is not encrypted; use tls://, or --enrolled"
            raise PolicyError("cluster_open", problem)
        return _ClusterIngest(self, folder, campaign, manifest, now, enrolled)

    def over_slices(
        self, function: Callable[..., Result], folder: Path, manifest: Manifest, work: Iterable[Slice], *more: object
    ) -> Iterator[Result]:
        """``function(folder, campaign, manifest, slice, *more)`` of every slice, as they become ready.

        Raises:
            StorageError: ``store_damaged``, ``store_not_shared``, ``cluster_lost``, ``cluster_differs``.
        """
        job = Job(str(folder.absolute()), fingerprint(manifest))
        return self.run(of_slice, [(job, function, which, *more) for which in work])

    def run(self, function: Callable[..., Result], calls: Iterable[Sequence[Any]]) -> Iterator[Result]:
        """The results of many calls, as they become ready. A worker that is lost is replaced by the others.

        Raises:
            HearsayError: what the function raised.
            StorageError: ``cluster_lost``: no workers for too long, no scheduler, or one task ended several
                workers; ``cluster_differs``: a worker can not run the function.
        """
        pending: set[Any] = set()
        try:
            with _cluster_errors():
                # No task is a function of its arguments alone: it reads files.
                pending = {self._client.submit(function, *call, pure=False) for call in calls}
            while pending:
                with _cluster_errors():
                    done, pending = self._wait(pending)
                    results = [future.result() for future in done]
                del done
                yield from results
        finally:
            if pending:
                with _ignored():
                    self._client.cancel(list(pending), force=True)

    def share(self, value: Result) -> Any:
        """A value that every task may take: sent once, and again to workers that come later."""
        with _cluster_errors(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it is large is known
            return self._client.submit(_itself, value, pure=False)

    def _wait(self, pending: set[Any]) -> tuple[set[Any], set[Any]]:
        """Some that are done, and the others."""
        from distributed import wait

        alone_since = None
        while True:
            try:
                with self._client.as_current():
                    found = wait(pending, timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")
            except TimeoutError:
                if self._client.nthreads():
                    alone_since = None
                elif alone_since is None:
                    alone_since = self._clock()
                elif self._clock() - alone_since > self._patience:
                    raise _lost("it has no workers") from None
            else:
                return set(found.done), set(found.not_done)


def _itself(value: Result) -> Result:
    return value


@contextmanager
def _ignored() -> Iterator[None]:
    """For the last words to a cluster that may be gone."""
    try:
        yield
    except Exception:  # noqa: BLE001
        logging.getLogger(__name__).debug("the cluster did not answer")


@contextmanager
def _cluster_errors() -> Iterator[None]:
    """Turn what Dask raises about itself into errors of ours; those of the tasks pass."""
    from asyncio import CancelledError

    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    try:
        yield
    except (HearsayError, MemoryError):
        raise
    except KilledWorker as error:
        raise _lost("one task ended several workers, perhaps for lack of memory") from error
    except (CommClosedError, NoValidWorkerError, CancelledError, TimeoutError) as error:
        raise _lost(f"{type(error).__name__}") from error
    except (ImportError, AttributeError, EOFError) as error:
        problem = f"a worker can not run this ({type(error).__name__}); install the same hearsay everywhere"
        raise StorageError("cluster_differs", problem) from error


def _lost(why: str) -> StorageError:
    return StorageError("cluster_lost", f"the cluster is gone or does not recover: {why}; the store is as it was")


class _Waiting(NamedTuple):
    """A file that ends as another one: its place, and what names its content, if it can be read."""

    number: int
    identity: bytes | None


class _ClusterIngest(Ingest):
    """An ingest whose files are listed and read by a cluster's workers."""

    def __init__(
        self,
        cluster: Cluster,
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
