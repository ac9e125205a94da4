"""A small web server for a published folder, to try devices on one machine: documents out, batches of reports in.

In: the folder that ``publishing.tree`` writes. Out: answers to devices, and batch files in ``reports/``, which is never
served. It is not for the internet (docs/how-to/serving.md). An upload is answered with 2xx only after a flush to disk.
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from io import BufferedIOBase
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote, unquote

from aggregator.common.files import PRIVATE, failure_of, open_output
from aggregator.publishing.tree import FOLDERS
from protocol.documents.envelope import SIZE_LIMITS
from protocol.documents.payload import DAY_SECONDS
from protocol.errors import InputError, StorageError
from protocol.stream import sha256

LEAST_COST = 4096
"""Number of bytes that a smaller file counts as, because many small files fill a disk too."""
ABANDONED_SECONDS = 600.0
"""An incomplete file that did not change for so long is left from a server that was killed: no upload lasts so long."""
_INCOMPLETE = re.compile(r"\.[0-9a-f]{1,64}[.a-z]*\.[0-9a-f]{16}\.tmp")


class Limits(NamedTuple):
    """Limits of uploads: most bytes of one batch file, and of all files in ``reports/`` at one time."""

    file_bytes: int = 16 << 20
    all_bytes: int = 1 << 30


class Uploads:
    """The folder of uploaded batches. ``problem`` is told in a sentence if this machine can not store one."""

    def __init__(self, folder: Path, limits: Limits, problem: Callable[[str], None] = lambda _: None) -> None:
        self._folder = folder
        self._problem = problem
        self.limits = limits
        self._quota = _DiskQuota(folder, limits.all_bytes)

    def store(self, name: str, body: RequestBody) -> HTTPStatus:
        """Store a batch file that only this user may read, and flush it to the disk.

        The caller must have checked the ``name``. The body is read to its end for status 201 and 204. The result is the
        status to answer: 201 stored; 204 an existing file has this content; 409 an existing file has another content,
        or can not be compared; 400 the body is shorter than announced; 507 there is no room: the limit of the folder,
        or a full disk; 503 another fault of the server, so the client may try again.
        """
        path = self._folder / name
        if os.path.lexists(path):
            return HTTPStatus.NO_CONTENT if _has_content(path, body) else HTTPStatus.CONFLICT
        size = body.left
        if not self._quota.reserve(size):
            return HTTPStatus.INSUFFICIENT_STORAGE
        status = HTTPStatus.SERVICE_UNAVAILABLE
        try:
            self._folder.mkdir(exist_ok=True)
            with open_output(path, mode=PRIVATE) as file:
                while block := body.read():
                    file.write(block)
            status = HTTPStatus.CREATED
        except EOFError:
            status = HTTPStatus.BAD_REQUEST
        except StorageError as error:
            self._problem(f"an upload could not be stored: {error}")
            if error.reason == "disk_full":
                status = HTTPStatus.INSUFFICIENT_STORAGE
        except InputError:
            pass  # Another request has just written this file.
        except OSError as error:
            self._problem(f"'{self._folder}' can not be written: {failure_of(error)[1]}")
        finally:
            self._quota.release(size, kept=status == HTTPStatus.CREATED)
        return status


class RequestBody:
    """The body of a request, read block by block to its announced end. ``left`` bytes were not read yet."""

    def __init__(self, stream: BufferedIOBase, length: int) -> None:
        self._stream = stream
        self.left = length

    def read(self) -> bytes:
        """Return the next block of the body; empty at the end. Raise EOFError if the body is shorter than announced."""
        if not self.left:
            return b""
        block = self._stream.read(min(_BLOCK, self.left))
        if not block:
            raise EOFError
        self.left -= len(block)
        return block

    def discard(self, most: int) -> None:
        """Discard the rest of the body, at most about ``most`` bytes: a client reads the answer only after sending."""
        with contextlib.suppress(EOFError, OSError):
            while most > 0 and (block := self.read()):
                most -= len(block)


def _has_content(path: Path, body: RequestBody) -> bool:
    """Return whether a file has the content of a request body; False if one of them can not be read to the end."""
    try:
        with open_regular(path) as file:
            while block := body.read():
                if file.read(len(block)) != block:
                    return False
            return not file.read(1)
    except (OSError, EOFError):
        return False


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading, else raise OSError. Links are not followed, and a pipe does not block."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(path)
    return file


class _DiskQuota:
    """A limit on the bytes of all files in a folder, measured at the start and again when a file would not fit."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._guard = threading.Lock()
        self._used = self._measure()
        self._reserved = 0

    def reserve(self, size: int) -> bool:
        """Reserve room for a file of ``size`` bytes that is being received. Return False if there is not enough."""
        size = max(size, LEAST_COST)
        with self._guard:
            if self._used + size > self._most:
                self._used = self._measure() + self._reserved
            if self._used + size > self._most:
                return False
            self._used += size
            self._reserved += size
            return True

    def release(self, size: int, *, kept: bool) -> None:
        """End the reservation of ``size`` bytes. If the file was not kept, the bytes no longer count."""
        size = max(size, LEAST_COST)
        with self._guard:
            self._reserved -= size
            if not kept:
                self._used -= size

    def _measure(self) -> int:
        """Remove incomplete files of killed servers. Return the bytes of the others, each at least :data:`LEAST_COST`.

        Names of incomplete files begin with a dot; room for uploads under way is reserved already. If the folder can
        not be read, the result is the limit, so that nothing more fits.
        """
        used = 0
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if not entry.name.startswith("."):
                            used += max(found.st_size, LEAST_COST)
                        elif _INCOMPLETE.fullmatch(entry.name) and found.st_mtime < time.time() - ABANDONED_SECONDS:
                            (self._folder / entry.name).unlink()
        except FileNotFoundError:
            return 0
        except OSError:
            return self._most
        return used


MOST_SECONDS = 60.0
"""Longest life of a connection, in seconds, even if data still arrives."""
REPORTS = "reports"
_BATCH = re.compile(r"[0-9a-f]{1,64}\.hs[rne]")
_EXTENSIONS = {"roots": ("root", ".hst")} | {folder: (role, end) for role, (folder, end) in FOLDERS.items()}
"""Folder → role and file name ending of its documents."""


class Site(NamedTuple):
    """What a server serves: the folder ``tree`` made by ``hearsay publish --to``, and the folder of uploaded batches.

    ``token``: bearer token that an upload must carry; None if uploads need none. ``log``: called with method, path and
    status of every answer.
    """

    tree: Path
    uploads: Uploads
    token: str | None
    log: Callable[[str, str, int], None]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request: sends a document, or stores a batch."""

    timeout = MOST_SECONDS
    server_version = "hearsay-serve"
    sys_version = ""

    def __init__(self, site: Site, *connection: Any) -> None:
        """Answer the request of a connection. ``connection`` is the socket, the client's address and the server."""
        self._site = site
        super().__init__(*connection)

    def do_GET(self) -> None:
        """Send a document with its digest as ETag, status 304 if ``If-None-Match`` has that ETag, or 404."""
        found = self._document()
        if found is None:
            self._respond(HTTPStatus.NOT_FOUND)
            return
        tag = f'"{sha256(found).digest().hex()}"'
        if self.headers.get("If-None-Match") == tag:
            self._respond(HTTPStatus.NOT_MODIFIED, tag=tag)
        else:
            self._respond(HTTPStatus.OK, found, tag)

    do_HEAD = do_GET  # noqa: N815  # as the library calls it

    def do_PUT(self) -> None:
        """Store a batch, and answer with a status of :meth:`_store`; 411 if the request announces no length."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,15}", length) or "Transfer-Encoding" in self.headers:
            self._respond(HTTPStatus.LENGTH_REQUIRED)
            return
        body = RequestBody(self.rfile, int(length))
        self._respond(self._store(body))
        body.discard(4 * self._site.uploads.limits.file_bytes)

    do_POST = do_PUT  # noqa: N815

    def _store(self, body: RequestBody) -> HTTPStatus:
        """Return the status of :meth:`Uploads.store`, or 404: no path of a batch; 401: wrong token; 413: too large."""
        parts = self._parts()
        if parts is None or parts[0] != REPORTS or not _BATCH.fullmatch(parts[1]):
            return HTTPStatus.NOT_FOUND
        if not self._is_authorized():
            return HTTPStatus.UNAUTHORIZED
        if body.left > self._site.uploads.limits.file_bytes:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return self._site.uploads.store(parts[1], body)

    def _is_authorized(self) -> bool:
        if self._site.token is None:
            return True
        shown = self.headers.get("Authorization", "").encode("utf-8", "replace")
        return hmac.compare_digest(shown, f"Bearer {self._site.token}".encode())

    def _parts(self) -> tuple[str, str] | None:
        """Return the folder and the file name in the request's path, decoded; None for a path of another form."""
        parts = self.path.split("/")
        if len(parts) != 3 or parts[0] or not self.path.isascii():
            return None
        try:
            name = unquote(parts[2], errors="strict")
        except UnicodeDecodeError:
            return None
        return None if "/" in name or "\0" in name else (parts[1], name)

    def _document(self) -> bytes | None:
        """Return the bytes of the document that is asked for; None if there is none of a size that its role allows."""
        try:
            parts = self._parts()
            role, extension = _EXTENSIONS.get(parts[0] if parts else "", ("", ""))
            if parts is None or not role or not parts[1].endswith(extension):
                return None
            with open_regular(self._site.tree / parts[0] / parts[1]) as file:
                found = file.read(SIZE_LIMITS[role] + 1)
        except OSError:
            return None
        return found if len(found) <= SIZE_LIMITS[role] else None

    def _respond(self, status: HTTPStatus, content: bytes = b"", tag: str = "") -> None:
        self.send_response_only(status)
        self.send_header("Connection", "close")
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(content)))
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self._site.log(self.command, self._logged_path(), int(status))

    def _logged_path(self) -> str:
        """Return the path for the log, or ``-`` if it is no path of the published folder."""
        parts = self._parts()
        if parts is None or parts[0] not in (*_EXTENSIONS, REPORTS):
            return "-"
        return f"{parts[0]}/{quote(parts[1][:100], safe='%')}"

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request with a status alone. Nothing that the client sent is repeated."""
        del message, explain
        self.request_version = "HTTP/1.0"  # The library sends no status line for a request without a version.
        self.send_response_only(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self._site.log("-", "-", code)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: the library would log addresses."""


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
    """Serves one published folder until :meth:`shutdown`, in a ``with`` statement. ``url`` is its address."""

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

        Raises InputError ``not_a_tree``: the folder is no published folder. Raises StorageError ``io_failed``: the
        server can not listen on the address.

        Args:
            tree, limits, token: as in :class:`Site` and :class:`Uploads`.
            host, port: address to listen on; port 0 chooses a free port.
            log: called with method, path and status of every answer, without the client's address. Method and path are
                ``-`` for a malformed request, a refused connection, and an exception without an answer (500).
            problem: called with a sentence for the operator if this machine keeps an upload from being stored.
            seconds: longest life of a connection, to about half a second.
            daily: called when the server begins, and every 24 hours from then on.
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
        """Start a thread for a new connection, or refuse it if :data:`MOST_CONNECTIONS` are open."""
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
        """Log status 500 for an exception in a handler, without details of the client. The library calls this."""
        self.log("-", "-", int(HTTPStatus.INTERNAL_SERVER_ERROR))

    def _refuse(self, request: socket.socket) -> None:
        """Answer 503 at once and close later. Of :data:`MOST_CONNECTIONS` refused connections the oldest is closed."""
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
