"""A small web server for a published folder, to try devices on one machine. It is not for the internet.

It serves the documents that ``publishing.tree`` writes, and stores batches in ``reports/``, which it never serves. A
server for the internet needs more (TLS, limits per client): docs/how-to/serving.md.

Limits: the size of one file and of all files, :data:`MOST_CONNECTIONS` at once, :data:`MOST_SECONDS` per connection,
and file names of the forms that devices use. An upload is answered with 2xx only after its complete file was flushed
to disk.
"""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path

from aggregator.serving.handler import MOST_SECONDS, REPORTS, Handler, Site
from aggregator.serving.uploads import Limits, Uploads
from protocol.document import DAY_SECONDS
from protocol.errors import InputError, StorageError

MOST_CONNECTIONS = 32
RETRY_SECONDS = 10
"""``Retry-After`` of a refused connection, in seconds."""
_REFUSED_SECONDS = 1.0
"""How long a refused connection stays open. A client whose request meets a closed connection may lose the answer."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    % RETRY_SECONDS
)
_BLOCK = 1 << 16


class TreeServer(http.server.ThreadingHTTPServer):
    """Serves one published folder until :meth:`shutdown`. Use it in a ``with`` statement.

    Attributes:
        url: address of the server, for devices.
    """

    block_on_close = True
    daemon_threads = False
    request_queue_size = MOST_CONNECTIONS

    def __init__(
        self,
        tree: str | Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        limits: Limits = Limits(),  # noqa: B008  # immutable
        log: Callable[[str, str, int], None] = lambda *_: None,
        problem: Callable[[str], None] = lambda _: None,
        seconds: float = MOST_SECONDS,
        daily: Callable[[], None] = lambda: None,
    ) -> None:
        """Listen. Requests are answered from ``serve_forever`` on.

        Args:
            tree: a folder made by ``hearsay publish --to``.
            host, port: address to listen on; port 0 chooses a free port.
            token: bearer token that an upload must carry; None asks for none.
            limits: limits of uploads.
            log: called with method, path and status of every answer, without the client's address. A path outside of
                the folder is ``-``. Method and path are ``-`` for a malformed request, for a refused connection,
                and for status 500, which stands for an exception that ended a connection without an answer.
            problem: called with a sentence for the operator if this machine keeps an upload from being stored.
            seconds: longest life of a connection, to about half a second.
            daily: called when the server begins, and every 24 hours from then on.

        Raises:
            InputError: ``not_a_tree``: the folder is no published folder.
            StorageError: ``io_failed``: the server can not listen on the address.
        """
        self.tree = Path(tree)
        if not (self.tree / "roots" / "1.hst").is_file():
            raise InputError("not_a_tree", f"'{tree}' holds no published tree; make it with hearsay publish --to")
        self.log = log
        self._seconds = seconds
        self._daily = daily
        self._next_day = time.monotonic()
        self._open: dict[socket.socket, float] = {}
        self._refused: dict[socket.socket, float] = {}
        self._guard = threading.Lock()
        site = Site(self.tree, Uploads(self.tree / REPORTS, limits, problem), token, log)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        failure = ""
        try:
            super().__init__((host, port), partial(Handler, site))
        except (OSError, OverflowError) as error:
            failure = getattr(error, "strerror", None) or "it is no address of this machine"
        if failure:
            raise StorageError("io_failed", f"{host} port {port} can not be listened on: {failure}; choose another")
        named = f"[{host}]" if ":" in host else host
        self.url = f"http://{named}:{self.server_port}/"

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Start a thread for a new connection; the library calls this method.

        If :data:`MOST_CONNECTIONS` are open, the answer is 503 with ``Retry-After``, and no request is read.
        """
        assert isinstance(request, socket.socket)
        with self._guard:
            full = len(self._open) >= MOST_CONNECTIONS
            if not full:
                self._open[request] = time.monotonic()
        if full:
            self._refuse(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Close a connection, which then no longer counts as open. The library calls this method."""
        with self._guard:
            self._open.pop(request, None)  # type: ignore[arg-type]
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that have lasted too long. The library calls this at least twice a second."""
        now = time.monotonic()
        self._end(before=now - self._seconds)
        if now >= self._next_day:
            self._next_day = now + DAY_SECONDS
            self._daily()
        for request, began in list(self._refused.items()):
            if began <= now - _REFUSED_SECONDS:
                self._close_refused(request)

    def server_close(self) -> None:
        """Stop listening, end all connections and wait for their threads. Incomplete uploads are discarded."""
        self._end(before=float("inf"))
        for request in list(self._refused):
            self._close_refused(request)
        super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  # as the library calls it
        """Log status 500 for an exception in a handler, without details of the client. No answer is sent.

        The library calls this method.
        """
        self.log("-", "-", int(HTTPStatus.INTERNAL_SERVER_ERROR))

    def _refuse(self, request: socket.socket) -> None:
        """Answer 503 without waiting for the client, and close the connection later.

        If :data:`MOST_CONNECTIONS` refused connections are open, the oldest one is closed at once.
        """
        if len(self._refused) >= MOST_CONNECTIONS:
            self._close_refused(next(iter(self._refused)))
        self._refused[request] = time.monotonic()
        self.log("-", "-", int(HTTPStatus.SERVICE_UNAVAILABLE))
        request.setblocking(False)
        with contextlib.suppress(OSError):
            request.send(_BUSY)
            request.shutdown(socket.SHUT_WR)

    def _close_refused(self, request: socket.socket) -> None:
        """Close a refused connection. What the client has sent is read first, since the system resets it otherwise."""
        del self._refused[request]
        with contextlib.suppress(OSError):
            request.recv(_BLOCK)
        self.shutdown_request(request)

    def _end(self, before: float) -> None:
        """Shut down the connections that began at or before a time."""
        with self._guard:
            for connection, began in self._open.items():
                if began <= before:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
