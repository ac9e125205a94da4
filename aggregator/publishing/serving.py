"""A small web server over a published tree, to try devices against on one machine. It is not for the internet.

It serves the documents of the tree that ``publishing.tree`` makes, and takes batches into its ``reports/``,
which nobody can read through it. What a real server has to do besides (TLS, limits per client) is in docs/serving.md.

What bounds it: a file's size and the size of all files, :data:`MOST_CONNECTIONS` at once, each for
:data:`MOST_SECONDS`, and names of the forms that devices ask for. It answers 2xx once a file is whole and flushed.
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
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from aggregator.files import PRIVATE, open_output
from aggregator.publishing.tree import FOLDERS
from protocol.digest import sha256
from protocol.documents.envelope import SIZE_LIMITS
from protocol.errors import InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedIOBase

MOST_CONNECTIONS = 32
MOST_SECONDS = 60.0
"""Longest life of a connection, however slowly it speaks."""
LEAST_COST = 4096
"""Bytes that a file counts as at least: many small ones fill a disk too."""
REPORTS = "reports"
_BLOCK = 1 << 16
_BATCH = re.compile(r"[0-9a-f]{1,64}\.hsr")
_EXTENSIONS = {"roots": ("root", ".hst")} | {folder: (role, end) for role, (folder, end) in FOLDERS.items()}


class Limits(NamedTuple):
    """How much is taken.

    Attributes:
        file_bytes: of one batch file.
        all_bytes: of all that lie in ``reports/`` at one time.
    """

    file_bytes: int = 16 << 20
    all_bytes: int = 1 << 30


class TreeServer(http.server.ThreadingHTTPServer):
    """Serves one tree until :meth:`shutdown`. Use it in a ``with`` statement.

    Attributes:
        url: its address, as devices are to be given it.
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
        seconds: float = MOST_SECONDS,
    ) -> None:
        """Listen; nothing is answered before ``serve_forever``.

        Args:
            tree: a folder made by ``hearsay publish --to``.
            host, port: where to listen; port 0 chooses a free one.
            token: what whoever sends has to show; None: nothing.
            limits: how much is taken.
            log: told the method, the place, and the status of every answer, and no address. A place that is not one of
                the tree's is told as ``-``.
            seconds: longest life of a connection.

        Raises:
            InputError: ``not_a_tree``; StorageError: ``io_failed``: the address can not be listened on.
        """
        self.tree = Path(tree)
        if not (self.tree / "roots" / "1.hst").is_file():
            raise InputError("not_a_tree", f"'{tree}' holds no published tree; make it with hearsay publish --to")
        self.token = token
        self.limits = limits
        self.log = log
        self._seconds = seconds
        self._open: dict[socket.socket, float] = {}
        self._guard = threading.Lock()
        self._room = _Room(self.tree / REPORTS, limits.all_bytes)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        problem = ""
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            problem = getattr(error, "strerror", None) or "it is no address of this machine"
        if problem:
            raise StorageError("io_failed", f"{host} port {port} can not be listened on: {problem}; choose another")
        named = f"[{host}]" if ":" in host else host
        self.url = f"http://{named}:{self.server_port}/"

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Give a connection a thread of its own, or close it if there are too many."""
        assert isinstance(request, socket.socket)
        with self._guard:
            full = len(self._open) >= MOST_CONNECTIONS
            if not full:
                self._open[request] = time.monotonic()
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Close a connection."""
        with self._guard:
            self._open.pop(request, None)  # type: ignore[arg-type]
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that have lived too long. Run twice a second."""
        self._end(before=time.monotonic() - self._seconds)

    def server_close(self) -> None:
        """Stop listening and end all connections; what was not whole is not kept."""
        self._end(before=float("inf"))
        super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  # as the library calls it
        """A connection that broke is the client's matter; a fault of this program is one word in the log."""
        self.log("-", "-", int(HTTPStatus.INTERNAL_SERVER_ERROR))

    def _end(self, before: float) -> None:
        with self._guard:
            for connection, began in self._open.items():
                if began <= before:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

    def take(self, name: str, body: _Body) -> HTTPStatus:
        """Keep a batch, whole and flushed, private to this user; the status to answer.

        The same file may come again. Another file of a name that is there is refused.
        """
        path = self.tree / REPORTS / name
        if os.path.lexists(path):
            return HTTPStatus.NO_CONTENT if _same(path, body) else HTTPStatus.CONFLICT
        size = body.left
        if not self._room.reserve(size):
            return HTTPStatus.INSUFFICIENT_STORAGE
        status = HTTPStatus.INSUFFICIENT_STORAGE
        try:
            with open_output(path, mode=PRIVATE) as file:
                while block := body.read():
                    file.write(block)
            status = HTTPStatus.CREATED
        except EOFError:
            status = HTTPStatus.BAD_REQUEST
        except InputError:  # the same file, at the same time
            status = HTTPStatus.SERVICE_UNAVAILABLE
        except (StorageError, OSError):
            pass
        finally:
            self._room.settle(size, kept=status == HTTPStatus.CREATED)
        return status


class _Room:
    """How many bytes may still come into a folder. Files that are taken away make room again."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._guard = threading.Lock()
        self._used = self._measure()
        self._coming = 0

    def reserve(self, size: int) -> bool:
        size = max(size, LEAST_COST)
        with self._guard:
            if self._used + size > self._most:
                self._used = self._measure() + self._coming
            if self._used + size > self._most:
                return False
            self._used += size
            self._coming += size
            return True

    def settle(self, size: int, *, kept: bool) -> None:
        size = max(size, LEAST_COST)
        with self._guard:
            self._coming -= size
            if not kept:
                self._used -= size

    def _measure(self) -> int:
        """Bytes of the whole files; those that are coming have names with a dot."""
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            whole = (entry.stat(follow_symlinks=False) for entry in entries if not entry.name.startswith("."))
            return sum(max(found.st_size, LEAST_COST) for found in whole)
        return 0


class _Body:
    """The body of a request, read block by block to its announced end."""

    def __init__(self, stream: BufferedIOBase, length: int) -> None:
        self._stream = stream
        self.left = length

    def read(self) -> bytes:
        """The next block; empty at the end.

        Raises:
            EOFError: there is less than was announced.
        """
        if not self.left:
            return b""
        block = self._stream.read(min(_BLOCK, self.left))
        if not block:
            raise EOFError
        self.left -= len(block)
        return block

    def leave(self, most: int) -> None:
        """Read and forget what is left, so that the answer reaches who is still sending."""
        with contextlib.suppress(EOFError, OSError):
            while most > 0 and (block := self.read()):
                most -= len(block)


def _same(path: Path, body: _Body) -> bool:
    try:
        with _ordinary(path) as file:
            while block := body.read():
                if file.read(len(block)) != block:
                    return False
            return not file.read(1)
    except (OSError, EOFError):
        return False


def _ordinary(path: Path) -> IO[bytes]:
    """An ordinary file, opened without following a link or waiting for anybody.

    Raises:
        OSError: there is none.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(path)
    return file


class _Handler(http.server.BaseHTTPRequestHandler):
    """One request: a document out, or a batch in."""

    server: TreeServer
    timeout = MOST_SECONDS
    server_version = "hearsay-serve"
    sys_version = ""

    def do_GET(self) -> None:
        """A document, unless it is the one that the client has."""
        found = self._document()
        if found is None:
            self._answer(HTTPStatus.NOT_FOUND)
            return
        tag = f'"{sha256(found).digest().hex()}"'
        if self.headers.get("If-None-Match") == tag:
            self._answer(HTTPStatus.NOT_MODIFIED, tag=tag)
        else:
            self._answer(HTTPStatus.OK, found, tag)

    do_HEAD = do_GET  # noqa: N815  # as the library calls it

    def do_PUT(self) -> None:
        """A batch."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,15}", length) or "Transfer-Encoding" in self.headers:
            self._answer(HTTPStatus.LENGTH_REQUIRED)
            return
        body = _Body(self.rfile, int(length))
        self._answer(self._taken(body))
        body.leave(4 * self.server.limits.file_bytes)

    do_POST = do_PUT  # noqa: N815

    def _taken(self, body: _Body) -> HTTPStatus:
        parts = self._parts()
        if parts is None or parts[0] != REPORTS or not _BATCH.fullmatch(parts[1]):
            return HTTPStatus.NOT_FOUND
        if not self._is_known():
            return HTTPStatus.UNAUTHORIZED
        if body.left > self.server.limits.file_bytes:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return self.server.take(parts[1], body)

    def _is_known(self) -> bool:
        if self.server.token is None:
            return True
        shown = self.headers.get("Authorization", "").encode("utf-8", "replace")
        return hmac.compare_digest(shown, f"Bearer {self.server.token}".encode())

    def _parts(self) -> tuple[str, str] | None:
        """Folder and name that the path means, as they are on the disk; None if it is none of the tree's."""
        parts = self.path.split("/")
        if len(parts) != 3 or parts[0] or not self.path.isascii():
            return None
        folder, name = parts[1], unquote(parts[2], errors="strict") if "%" in parts[2] else parts[2]
        if "/" in name or "\0" in name or name.startswith("."):
            return None
        return folder, name

    def _document(self) -> bytes | None:
        try:
            parts = self._parts()
            role, extension = _EXTENSIONS.get(parts[0] if parts else "", ("", ""))
            if parts is None or not role or not parts[1].endswith(extension):
                return None
            with _ordinary(self.server.tree / parts[0] / parts[1]) as file:
                found = file.read(SIZE_LIMITS[role] + 1)
        except (OSError, ValueError):
            return None
        return found if len(found) <= SIZE_LIMITS[role] else None

    def _answer(self, status: HTTPStatus, content: bytes = b"", tag: str = "") -> None:
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
        self.server.log(self.command, self._shown(), int(status))

    def _shown(self) -> str:
        with contextlib.suppress(ValueError):
            parts = self._parts()
            if parts is not None and (parts[0] in _EXTENSIONS or parts[0] == REPORTS):
                return f"{parts[0]}/{quote(parts[1][:100], safe='%')}"
        return "-"

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A status alone for what is no request or no method of ours; nothing of the client's is said back."""
        del message, explain
        self.request_version = "HTTP/1.0"  # before a request is understood the library would leave the status out
        self.send_response_only(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self.server.log("-", "-", code)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the library would log addresses."""
