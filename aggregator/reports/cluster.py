"""Read and count a store's reports with the workers of a Dask cluster (docs/how-to/cluster.md; decision 28).

Workers read report files and count partitions of the store. Only the client holds the store's lock and commits. Dask
runs code from every machine that can connect to it, so a local cluster uses TLS.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import re
import signal
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from aggregator.common.extras import missing_extra
from protocol.errors import HearsayError, InputError, StorageError

if TYPE_CHECKING:
    import distributed

SILENCE_SECONDS = 10.0
"""How long to wait for the first message of a scheduler, which may be busy."""
REFUSED_SECONDS = 5.0
"""How long to try again while connections are refused. A scheduler that is starting is soon ready."""
_HEAD_BYTES = 8
_MAX_GREETING = 1 << 20
_RETRY_SECONDS = 0.2
_CERTIFICATES = "docs/how-to/cluster.md shows how to make certificates"


def check_scheduler(
    address: str,
    patience_seconds: float,
    *,
    silence_seconds: float = SILENCE_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Raise ``cluster_unreachable``, which says what was found, unless a Dask scheduler answers at ``address``.

    Dask's client would wait without end for a server that sends nothing. A scheduler sends the first message, which
    begins with its length, a small number of eight bytes. These bytes tell it from servers that are silent or expect
    TLS.

    A scheduler that is starting gets ``patience_seconds``, at most :data:`REFUSED_SECONDS` if connections are refused,
    and ``silence_seconds`` for its first message. ``clock`` returns seconds that never decrease.
    """
    parsed = urlsplit(address)
    place = (parsed.hostname or "", parsed.port or 0)
    context = _certificates(address) if parsed.scheme == "tls" else None
    begun = clock()
    while True:
        try:
            greeting = _greeting(place, context, silence_seconds)
            break
        except ssl.SSLError as error:
            hint = f"TLS was refused ({error.reason or 'no reason given'}); its certificate and this one must be"
            raise unreachable(address, f"{hint} signed by the same authority; {_CERTIFICATES}") from None
        except TimeoutError:
            greeting = None
            break
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            if clock() - begun >= (min(patience_seconds, REFUSED_SECONDS) if refused else patience_seconds):
                raise unreachable(address, error.strerror or type(error).__name__) from None
            time.sleep(_RETRY_SECONDS)
    if greeting and len(greeting) == _HEAD_BYTES and 0 < int.from_bytes(greeting, "little") < _MAX_GREETING:
        return
    if greeting is None and context is None and _speaks_tls(place, silence_seconds):
        raise unreachable(address, f"it speaks TLS; write tls://, not tcp://, and {_CERTIFICATES}")
    raise unreachable(address, "what answers there is no Dask scheduler" if greeting else "it says nothing")


def unreachable(address: str, why: str) -> StorageError:
    """Make the error ``cluster_unreachable`` for a cluster at ``address``. ``why`` is the cause in words."""
    return StorageError("cluster_unreachable", f"no cluster with workers answers at {address}: {why}")


def _certificates(address: str) -> ssl.SSLContext:
    """Return a TLS context with the client certificate that Dask's configuration names."""
    from distributed.security import Security

    problem = f"Dask's configuration (distributed.comm.tls) names no certificates for a client; {_CERTIFICATES}"
    try:
        found = Security().get_connection_args("client").get("ssl_context")
    except OSError as error:  # The file does not exist, or holds no certificate.
        found = None
        problem = f"the certificates of Dask's configuration can not be read ({error.strerror or error})"
    if not isinstance(found, ssl.SSLContext):
        raise unreachable(address, problem)
    return found


def _greeting(place: tuple[str, int], context: ssl.SSLContext | None, timeout_seconds: float) -> bytes:
    with socket.create_connection(place, timeout_seconds) as plain:
        if context is None:
            return plain.recv(_HEAD_BYTES, socket.MSG_WAITALL)
        with context.wrap_socket(plain, server_hostname=place[0]) as encrypted:
            return encrypted.recv(_HEAD_BYTES)


def _speaks_tls(place: tuple[str, int], timeout_seconds: float) -> bool:
    """Return whether a server that sent nothing answers a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no data will be sent
    try:
        with socket.create_connection(place, timeout_seconds) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


Result = TypeVar("Result")

CONNECT_SECONDS = 30.0
"""How long a client tries to connect, unless it is told otherwise."""
PATIENCE_SECONDS = 60.0
"""How long a run waits while the cluster has no worker."""
_POLL_SECONDS = 1.0
_LOGGERS = ("distributed", "tornado", "asyncio")
_MOST_LOCAL = 1024
_LAST_PORT = (1 << 16) - 1
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": 1 << 30, "MALLOC_MMAP_THRESHOLD_": 1 << 25}
"""Settings of glibc's allocator that keep freed memory in the worker. Dask's own settings return freed memory at once;
then the arrays of every block fault in all their pages again, which takes as long as all other work.
"""
_LOCAL = re.compile(r"local:([0-9]{1,4})")
_REMOTE = re.compile(r"(tcp|tls)://\S+:[0-9]{1,5}")


def check_address(address: str) -> None:
    """Raise ``cluster_invalid`` unless ``address`` is ``local:N``, ``tcp://HOST:PORT`` or ``tls://HOST:PORT``."""
    local = _LOCAL.fullmatch(address)
    if local is None and not _REMOTE.fullmatch(address):
        raise InputError("cluster_invalid", "a cluster is local:N, tcp://HOST:PORT or tls://HOST:PORT")
    if local is None and int(address.rpartition(":")[2]) > _LAST_PORT:
        raise InputError("cluster_invalid", f"a port is a number up to {_LAST_PORT}")
    if local is not None and not 1 <= int(local[1]) <= _MOST_LOCAL:
        raise InputError("cluster_invalid", f"local:N makes 1 to {_MOST_LOCAL} workers")


@contextmanager
def open_cluster(
    address: str, *, connect_seconds: float = CONNECT_SECONDS, silence_seconds: float = SILENCE_SECONDS
) -> Iterator[Cluster]:
    """Context manager that connects to a Dask cluster. The cluster can be used until the block of ``with`` ends.

    ``address`` is ``tcp://HOST:PORT`` or ``tls://HOST:PORT``; ``local:N`` starts N processes on this machine for the
    block. ``connect_seconds`` bounds connecting, ``silence_seconds`` the wait for the server's first message. Raises
    InputError: ``cluster_invalid``; ``missing_extra``: Dask, or what it needs for ``local:N``, is not installed. Raises
    StorageError ``cluster_unreachable``: no Dask scheduler answers at the address, or it has no workers.
    """
    check_address(address)
    try:
        import distributed
    except ImportError:
        raise missing_extra("a cluster takes Dask", "cluster") from None
    local = _LOCAL.fullmatch(address)
    with _quiet(), ExitStack() as stack:
        try:
            if local is None:
                check_scheduler(address, connect_seconds, silence_seconds=silence_seconds)
            target = address if local is None else stack.enter_context(_local_cluster(int(local[1])))
            client = stack.enter_context(distributed.Client(target, timeout=connect_seconds, set_as_default=False))
            client.wait_for_workers(1, timeout=connect_seconds)
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            raise unreachable(address, f"Dask says {type(error).__name__}") from error
        yield Cluster(client)


@contextmanager
def _local_cluster(workers: int) -> Iterator[Any]:
    """Start worker processes on this machine. They use TLS, since other users could otherwise send them code."""
    import dask
    from distributed import LocalCluster
    from distributed.security import Security

    try:
        security = Security.temporary()
    except ImportError:
        raise missing_extra("a cluster takes Dask", "cluster") from None
    settings: dict[str, object] = {
        "distributed.scheduler.http.routes": [],  # no web pages, since they would be open to everyone on the machine
        "distributed.worker.http.routes": [],
        "distributed.nanny.pre-spawn-environ": KEEP_MEMORY,
        "distributed.worker.profile.enabled": False,  # Dask's profiler takes a tenth of a processor
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
                memory_limit=0,  # Dask would count mapped files as memory; tasks bound their memory themselves
                silence_logs=logging.CRITICAL,
            )
        with made as cluster:
            yield cluster


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Context manager in which started processes ignore the terminal's interrupt. The client ends them instead."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet() -> Iterator[None]:
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _LOGGERS]
    levels = {name: logging.getLogger(name).level for name in [*names, *_LOGGERS]}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


class Cluster:
    """The workers of a Dask cluster, as an :class:`aggregator.reports.intake.remote.Executor`.

    Made by :func:`open_cluster`. It waits ``patience_seconds`` while there is no worker. All properties and methods
    raise a ``StorageError`` with the reason ``cluster_lost`` if the scheduler no longer answers.
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
        """Return whether messages to the workers are encrypted, or stay in this process."""
        self._check_connected()
        return str(self._client.scheduler.address).startswith(("tls://", "inproc://"))

    @property
    def threads(self) -> int:
        """Return the number of tasks that all workers together run at a time."""
        return max(1, sum(self._threads().values()))

    @property
    def threads_each(self) -> int:
        """Return the number of tasks that the worker with the most threads runs at a time."""
        return max(1, *self._threads().values(), 1)

    def _threads(self) -> dict[str, int]:
        self._check_connected()
        with _cluster_errors():
            return dict(self._client.nthreads())

    def _check_connected(self) -> None:
        if self._client.scheduler is None:  # The client has given up connecting to the scheduler.
            raise _lost("its scheduler does not answer")

    def run(self, function: Callable[..., Result], calls: Iterable[Sequence[Any]]) -> Iterator[Result]:
        """Call a function once for each sequence of arguments, and yield the results as they become ready.

        Calls of a lost worker run again. Raises the function's HearsayError, and StorageError: ``cluster_lost``: no
        workers for too long, or no scheduler; ``cluster_differs``: a worker can not run the function.
        """
        pending: set[Any] = set()
        try:
            self._check_connected()
            with _cluster_errors(), _large():
                # pure=False: Dask must not reuse a result for equal arguments, since the files may have changed.
                pending = {self._client.submit(function, *call, pure=False) for call in calls}
            while pending:
                with _cluster_errors():
                    done, pending = self._wait(pending)
                    results = [future.result() for future in done]
                del done
                yield from results
        finally:
            if pending:
                with suppress(Exception):  # The cluster may have ended; nothing is left to cancel then.
                    self._client.cancel(list(pending), force=True)

    def share(self, value: object) -> Any:
        """Send a value to the workers once. Give the result to :meth:`run` as an argument in place of the value."""
        self._check_connected()
        with _cluster_errors(), _large():
            return self._client.submit(_identity, value, pure=False)

    def _wait(self, pending: set[Any]) -> tuple[set[Any], set[Any]]:
        """Wait until some of the tasks ``pending`` are finished. Returns the finished and the pending tasks."""
        from distributed import wait

        idle_since = None
        while True:
            try:
                with self._client.as_current():
                    found = wait(pending, timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")
            except TimeoutError:
                if self._threads():
                    idle_since = None
                elif idle_since is None:
                    idle_since = self._clock()
                elif self._clock() - idle_since > self._patience:
                    raise _lost("it has no workers") from None
            else:
                return set(found.done), set(found.not_done)


def _identity(value: Result) -> Result:
    return value


@contextmanager
def _large() -> Iterator[None]:
    """Context manager that silences Dask's warning of a large value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@contextmanager
def _cluster_errors() -> Iterator[None]:
    """Context manager that turns Dask's own errors into errors of this project. Errors of tasks pass unchanged."""
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
