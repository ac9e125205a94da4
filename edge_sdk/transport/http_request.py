"""One HTTP request and its answer, bounded in bytes and in time.

The timeout of a socket begins again with every byte. Here every read, write and handshake gets the time that is left of
one deadline, so a server that sends single bytes can not occupy a device for ever. (Host names are looked up by the
system's resolver, which has its own limits.)
"""

from __future__ import annotations

import http.client
import io
import socket
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

from protocol.errors import InputError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from edge_sdk.transport.retry import Deadline

_CONNECT_SECONDS = 10.0
_BLOCK = 1 << 16
_PORTS = {"http": 80, "https": 443}
MAX_HEAD_BYTES = 1 << 15
"""Most bytes of status lines and headers of one answer, including its interim answers."""
MAX_HEADERS = 100
MAX_INTERIM_ANSWERS = 10
"""Answers with a status 1xx that may come before the final one."""
_SLACK_BYTES = 1 << 16
"""Bytes that may be read besides twice the content's limit: sizes of chunks, and bytes that are read ahead."""


class Url(NamedTuple):
    """A web address in ASCII, without user and password. ``path`` includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port. A token may be sent only to addresses of the same origin."""
        return self[:3]


class Answer(NamedTuple):
    """The answer of a server.

    Attributes:
        status: the status code.
        headers: lower-case name → value.
        content: the bytes; None if they exceed the limit; empty, since not read, if the status is not 200.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes | None


def parse_url(text: str) -> Url:
    """Parse ``text``, a web address of the form ``https://HOST[:PORT]/PATH``, or with ``http``.

    Raises:
        InputError: ``address_invalid``: another form, not printable ASCII, or with a user or password. The error's text
            does not quote the address, which may hold a password.
    """
    split: SplitResult | None = None
    port = None
    if text.isascii() and text.isprintable() and " " not in text:
        try:
            split = urlsplit(text)
            port = split.port
        except ValueError:
            split = None
    if split is None or split.scheme not in _PORTS or not split.hostname or port == 0:
        raise InputError("address_invalid", "this is no address of the form https://HOST[:PORT]/PATH in ASCII")
    if "@" in split.netloc:
        raise InputError("address_invalid", "an address holds no user or password; use a token's file")
    path = (split.path or "/") + (f"?{split.query}" if split.query else "")
    return Url(split.scheme, split.hostname, port or _PORTS[split.scheme], path)


def exchange(
    method: str,
    url: Url,
    headers: Mapping[str, str],
    deadline: Deadline,
    *,
    body: IO[bytes] | None = None,
    limit: int = 0,
    context: ssl.SSLContext | None = None,
) -> Answer:
    """Make one request on a new connection. Redirects are not followed, and no status raises an error.

    Args:
        method: the HTTP method.
        url: the address.
        headers: all headers of the request but ``Host`` and ``Accept-Encoding``.
        deadline: the end of the time for connecting, sending and receiving.
        body: a file to send, with its length in ``headers``; None for a request without content.
        limit: most bytes of content that are accepted. The default 0 is for requests whose content is not used.
        context: TLS settings for an https address; by default the system's authorities are trusted.

    Returns:
        Status, headers and content. The content is read only if the status is 200, and is empty otherwise. It is None
        if it is longer than ``limit``.

    Raises:
        OSError: there is no connection; or it broke. If it broke before the whole body was sent, an answer that
            came before is returned all the same, unless its status is 2xx. TimeoutError: it took too long.
            ``ssl.SSLCertVerificationError``: the server's certificate is not trusted.
        http.client.HTTPException: the answer is not HTTP or is incomplete; the headers are too long; or the content,
            sent in chunks, takes more than twice the limit and 64 KiB.
    """
    foreign = ""
    try:
        return _exchange(method, url, headers, deadline, body, limit, context)
    except (OSError, http.client.HTTPException):
        raise
    except Exception as error:  # noqa: BLE001  # http.client raises other types too, for a negative length for example
        foreign = type(error).__name__
    raise http.client.HTTPException(foreign)


def _exchange(
    method: str,
    url: Url,
    headers: Mapping[str, str],
    deadline: Deadline,
    body: IO[bytes] | None,
    limit: int,
    context: ssl.SSLContext | None,
) -> Answer:
    with _dial(url, deadline, context) as plain:
        connection = http.client.HTTPConnection(url.host, url.port)
        # The Host header leaves out the default port, which http.client takes to be 80 for https, too.
        connection.default_port = _PORTS[url.scheme]
        bounded = _Bounded(plain, deadline)
        connection.sock = cast("Any", bounded)
        connection.response_class = _FinalResponse
        broken = None
        try:
            connection.request(method, url.path, body, dict(headers))
        except (BrokenPipeError, ConnectionResetError) as error:
            # A server that refuses a long body may have answered before it closed the connection. Read its answer.
            broken = error
        try:
            response = connection.getresponse()
        except (OSError, http.client.HTTPException):
            if broken is not None:
                raise broken from None
            raise
        if broken is not None and 200 <= response.status < 300:
            # The server can not have received the whole body, so its answer is no receipt.
            raise broken
        # The connection ended within the headers. http.client takes this for the end of the headers.
        if bounded.reader.ended:
            raise http.client.IncompleteRead(b"")
        if len(response.headers) > MAX_HEADERS:
            raise http.client.HTTPException("too many headers")
        bounded.reader.left = 2 * limit + _SLACK_BYTES
        content = _content(response, limit) if response.status == http.client.OK else b""
        return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, content)


def _dial(url: Url, deadline: Deadline, context: ssl.SSLContext | None) -> socket.socket:
    """Connect, over TLS for an https address. The addresses of the host are tried one after another."""
    problem: OSError = OSError("the host has no address")
    try:
        places = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    except UnicodeError:
        places = []
    for family, kind, protocol, _, place in places:
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(min(_CONNECT_SECONDS, deadline.wait()))
            plain.connect(place)
            return plain if url.scheme == "http" else _secured(plain, url.host, deadline, context)
        except (OSError, ValueError) as error:  # a host name that TLS can not use raises ValueError
            plain.close()
            problem = error if isinstance(error, OSError) else OSError("the host's name is none")
    raise problem


def _secured(plain: socket.socket, host: str, deadline: Deadline, context: ssl.SSLContext | None) -> socket.socket:
    if context is None:
        import ssl

        context = ssl.create_default_context()
    plain.settimeout(deadline.wait())
    return context.wrap_socket(plain, server_hostname=host)


def _content(response: http.client.HTTPResponse, limit: int) -> bytes | None:
    """Read the content; None if it exceeds the limit.

    Raises:
        http.client.IncompleteRead: the content is shorter than announced.
    """
    if response.length is not None and response.length > limit:
        return None
    parts = []
    size = 0
    while size <= limit and (part := response.read(min(_BLOCK, limit + 1 - size))):
        parts.append(part)
        size += len(part)
    if size > limit:
        return None
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


class _FinalResponse(http.client.HTTPResponse):
    """A response that skips interim answers. http.client skips those with status 100 only."""

    def _read_status(self) -> tuple[str, int, str]:
        """Read the first status line that is not of an interim answer.

        RFC 9110, section 15.2: a client reads any number of answers 1xx before the final one. Status 101 is final: the
        server has changed to a protocol that was not asked for.

        Raises:
            http.client.HTTPException: there are more than ``MAX_INTERIM_ANSWERS``.
        """
        for _ in range(MAX_INTERIM_ANSWERS + 1):
            version, status, phrase = super()._read_status()  # type: ignore[misc]
            if status == http.client.SWITCHING_PROTOCOLS or not 100 <= status < 200:
                return version, status, phrase
            http.client.parse_headers(self.fp)
        raise http.client.HTTPException("too many interim answers")


class _Bounded:
    """The part of a socket that http.client uses. Each use is bounded by the time that is left."""

    def __init__(self, plain: socket.socket, deadline: Deadline) -> None:
        self._plain = plain
        self._deadline = deadline
        self.reader = _Reader(plain, deadline)

    def sendall(self, data: bytes) -> None:
        self._plain.settimeout(self._deadline.wait())
        self._plain.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self.reader)

    def close(self) -> None:
        """Do nothing: the caller closes the socket after it has read the answer."""


class _Reader(io.RawIOBase):
    """Reads from a socket up to a number of bytes. http.client alone would read a chunk of size −1 without limit.

    Attributes:
        left: bytes that may still be read.
        ended: the server has closed the connection.
    """

    def __init__(self, plain: socket.socket, deadline: Deadline) -> None:
        self._plain = plain
        self._deadline = deadline
        self.left = MAX_HEAD_BYTES
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.left <= 0:
            raise http.client.HTTPException("too much is said")
        self._plain.settimeout(self._deadline.wait())
        count = self._plain.recv_into(buffer, min(len(buffer), self.left))
        self.left -= count
        self.ended = count == 0
        return count
