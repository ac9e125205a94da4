"""One request: send a document of a published tree, or store a batch.

Only paths that devices use are answered. Nothing that a client sends is repeated in an answer or in the log.
"""

from __future__ import annotations

import hmac
import http.server
import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from aggregator.publishing.tree import FOLDERS
from aggregator.serving.uploads import RequestBody, Uploads, open_regular
from protocol.digest import sha256
from protocol.documents.envelope import SIZE_LIMITS

MOST_SECONDS = 60.0
"""Longest life of a connection, in seconds, even if data still arrives."""
REPORTS = "reports"
_BATCH = re.compile(r"[0-9a-f]{1,64}\.hs[rne]")
_EXTENSIONS = {"roots": ("root", ".hst")} | {folder: (role, end) for role, (folder, end) in FOLDERS.items()}
"""Folder → role and ending of its files."""


class Site(NamedTuple):
    """What a server serves.

    Attributes:
        tree: a folder made by ``hearsay publish --to``.
        uploads: the folder of uploaded batches.
        token: bearer token that an upload must carry; None asks for none.
        log: called with method, path and status of every answer.
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
        """Answer the request of a connection. The library gives the connection, the client's address and the server."""
        self._site = site
        super().__init__(*connection)

    def do_GET(self) -> None:
        """Send a document with its digest as ETag: 200; 304 if ``If-None-Match`` has that ETag; 404 if there is none.

        HEAD gets the same status and headers without the document.
        """
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
        """Check an upload and store it.

        Returns:
            The status to answer: 404 no path of a batch; 401 the token is missing or wrong; 413 larger than the limit;
            otherwise a status of :meth:`Uploads.store`.
        """
        parts = self._parts()
        if parts is None or parts[0] != REPORTS or not _BATCH.fullmatch(parts[1]):
            return HTTPStatus.NOT_FOUND
        if not self._is_authorized():
            return HTTPStatus.UNAUTHORIZED
        if body.left > self._site.uploads.limits.file_bytes:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        return self._site.uploads.store(parts[1], body)

    def _is_authorized(self) -> bool:
        """Whether the request carries the token, if one is needed."""
        if self._site.token is None:
            return True
        shown = self.headers.get("Authorization", "").encode("utf-8", "replace")
        return hmac.compare_digest(shown, f"Bearer {self._site.token}".encode())

    def _parts(self) -> tuple[str, str] | None:
        """Folder and file name in the request's path, decoded; None if the path is not UTF-8 or not of that form."""
        parts = self.path.split("/")
        if len(parts) != 3 or parts[0] or not self.path.isascii():
            return None
        try:
            name = unquote(parts[2], errors="strict")
        except UnicodeDecodeError:
            return None
        return None if "/" in name or "\0" in name else (parts[1], name)

    def _document(self) -> bytes | None:
        """The bytes of the document that is asked for; None if there is none, or it is larger than its role allows."""
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
        """The path for the log; ``-`` if it is no path of the published folder."""
        parts = self._parts()
        if parts is None or parts[0] not in (*_EXTENSIONS, REPORTS):
            return "-"
        return f"{parts[0]}/{quote(parts[1][:100], safe='%')}"

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request or another method with a status alone. No text of the client is repeated."""
        del message, explain
        self.request_version = "HTTP/1.0"  # The library sends no status line for a request without a version.
        self.send_response_only(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self._site.log("-", "-", code)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: the library would log addresses."""
