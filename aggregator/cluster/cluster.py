"""Ingest and tally on the workers of a Dask cluster, with the same bytes as on one machine.

Files go to workers, buckets to workers, entries and sums come back to the client, which holds the store's
lock and alone commits. Workers need the store's folder under the client's path, and the same version of
this software. docs/cluster.md is for operators, decision 0028 says why it is so.

Dask takes code from whoever reaches it: a cluster that was made here speaks TLS with keys of its own; one
at ``tcp://`` must be in a network that nobody else is in.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import re
import signal
import threading
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from aggregator.cluster.ingest import ClusterIngest
from aggregator.cluster.probe import check_scheduler, unreachable
from aggregator.cluster.tasks import Job, of_slice
from aggregator.storage.manifest import fingerprint
from protocol.errors import HearsayError, InputError, PolicyError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import distributed

    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.transaction import Ingest
    from aggregator.storage.manifest import Manifest
    from aggregator.tally.counting import Partition
    from protocol.documents.campaign import Campaign

Result = TypeVar("Result")

CONNECT_SECONDS = 30.0
PATIENCE_SECONDS = 60.0
"""How long a run waits while the cluster has no worker at all."""
_POLL_SECONDS = 1.0
_CHATTY = ("distributed", "tornado", "asyncio")
_MOST_LOCAL = 1024
_LAST_PORT = (1 << 16) - 1
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": 1 << 30, "MALLOC_MMAP_THRESHOLD_": 1 << 25}
"""Dask makes workers give memory back at once, and glibc does so in threads. Arrays that are made anew for every
block then fault in every page again, which takes as long as all other work."""
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
    if local is None and int(address.rpartition(":")[2]) > _LAST_PORT:
        raise InputError("cluster_invalid", f"a port is a number up to {_LAST_PORT}")
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
        try:
            if local is None:
                check_scheduler(address, CONNECT_SECONDS)
            target = address if local is None else stack.enter_context(_local_cluster(int(local[1])))
            client = stack.enter_context(distributed.Client(target, timeout=CONNECT_SECONDS, set_as_default=False))
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            raise unreachable(address, f"Dask says {type(error).__name__}") from error
        yield Cluster(client)


@contextmanager
def _local_cluster(workers: int) -> Iterator[Any]:
    """Processes on this machine that speak TLS, since other users of it could send them code otherwise."""
    import dask
    from distributed import LocalCluster
    from distributed.security import Security

    try:
        security = Security.temporary()
    except ImportError:
        raise _missing_extra() from None
    settings: dict[str, object] = {
        "distributed.scheduler.http.routes": [],  # no pages, which have no locks
        "distributed.worker.http.routes": [],
        "distributed.nanny.pre-spawn-environ": KEEP_MEMORY,
        "distributed.worker.profile.enabled": False,  # Dask watching itself takes a tenth of a processor
        "distributed.admin.tick.interval": "500ms",
    }
    with dask.config.set(settings):
        with _uninterrupted():
            made = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                security=security,
                dashboard_address="127.0.0.1:0",
                memory_limit=0,  # mapped files would count; what a task takes is bounded by itself
                silence_logs=logging.CRITICAL,
            )
        with made as cluster:
            yield cluster


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that are started meanwhile ignore the terminal's interrupt, which is for the client: it ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _missing_extra() -> InputError:
    return InputError("missing_extra", "a cluster takes Dask: pip install 'hearsay[cluster]'")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's logs off standard error, where a refusal is one line. Some of them have levels of their own."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _CHATTY]
    levels = {name: logging.getLogger(name).level for name in [*names, *_CHATTY]}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


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
        self._check_connected()
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
        self._check_connected()
        with _cluster_errors():
            return dict(self._client.nthreads())

    def _check_connected(self) -> None:
        if self._client.scheduler is None:  # it has given up to connect again
            raise _lost("its scheduler does not answer")

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
        return ClusterIngest(self, folder, campaign, manifest, now, enrolled)

    def over_slices(
        self,
        function: Callable[..., Result],
        folder: Path,
        manifest: Manifest,
        work: Iterable[Partition],
        *more: object,
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
            self._check_connected()
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
                with suppress(Exception):  # the last words to a cluster that may be gone
                    self._client.cancel(list(pending), force=True)

    def share(self, value: Result) -> Any:
        """A value that every task may take: sent once, and again to workers that come later."""
        self._check_connected()
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
                if self._threads():
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
def _cluster_errors() -> Iterator[None]:
    """Turn what Dask raises about itself into errors of ours; those of the tasks pass."""
    from distributed.client import ClosedClientError
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    try:
        yield
    except (HearsayError, MemoryError):
        raise
    except KilledWorker as error:
        raise _lost("one task ended several workers, perhaps for lack of memory") from error
    except (
        ClosedClientError,
        CommClosedError,
        NoValidWorkerError,
        TimeoutError,
        concurrent.futures.CancelledError,
        asyncio.CancelledError,
    ) as error:
        raise _lost(f"{type(error).__name__}") from error
    except (ImportError, RuntimeError) as error:
        if not isinstance(error.__cause__ or error, ImportError | AttributeError):
            raise
        problem = "its scheduler or a worker lacks this; install the same hearsay everywhere"
        raise StorageError("cluster_differs", problem) from error


def _lost(why: str) -> StorageError:
    return StorageError("cluster_lost", f"the cluster is gone or does not recover: {why}; the store is as it was")
