"""Use a source on the web: GET from any file server; PUT or POST to a server that takes files.

Fetched documents are verified by their signatures, so plain http is allowed; for sending, only https prevents that an
attacker answers 2xx and discards the reports. Every read, write and handshake is bounded by the time left of one
deadline, and in bytes. Source: RFC 9110, sections 8.8 (tags), 10.2.3 (Retry-After) and 15.4 (redirects).
"""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import re
import socket
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from edge_sdk.arguments import system_entropy
from edge_sdk.transport.base import Found, Transport, parts_of
from protocol.documents.payload import quoted
from protocol.errors import DocumentError, HearsayError, InputError, StorageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping


class RetryPolicy(NamedTuple):
    """Limits of time and of repetitions for one fetch or one sending.

    Attributes:
        seconds: longest time of all tries and pauses together.
        idle: longest time without a byte, in seconds.
        first: length of the first pause in seconds, before randomisation; each further pause is twice as long.
        longest: longest pause in seconds. If a server asks for a longer one, there is no further try.
    """

    seconds: float = 300.0
    idle: float = 30.0
    attempts: int = 5
    first: float = 1.0
    longest: float = 60.0

    def pause(self, number: int, chance: bytes, asked: float) -> float | None:
        """Return the next pause in seconds, after ``number`` earlier pauses; None if there is no further try.

        With m = min(first·2^number, longest), it is a random time from m/2 to m, drawn by the four random bytes
        ``chance``, and at least the ``asked`` seconds for which the server asked. Random pauses prevent that all
        devices of a fleet return at the same moment after their server failed.
        """
        if number + 1 >= self.attempts or asked > self.longest:
            return None
        full = min(self.first * 2.0**number, self.longest)
        share = int.from_bytes(chance[:4], "big") / (1 << 32)
        return max(asked, full * (0.5 + 0.5 * share))


class Deadline:
    """The end of the time for one fetch or sending, which begins when the object is made."""

    def __init__(self, retry: RetryPolicy, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._idle = retry.idle
        self._end = monotonic() + retry.seconds

    def left(self) -> float:
        """Return the seconds that are left; 0 or less after the end."""
        return self._end - self._monotonic()

    def wait(self) -> float:
        """Return the longest time to wait for the next byte: the policy's ``idle``, or the time left if less.

        Raise TimeoutError if no time is left.
        """
        left = self.left()
        if left <= 0:
            raise TimeoutError
        return min(self._idle, left)


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
        """Scheme, host and port. A token is sent only to addresses with the same three."""
        return self[:3]


class _Request(NamedTuple):
    """The method and the headers of a request, and the largest content that is accepted, in bytes."""

    method: str
    headers: Mapping[str, str]
    limit: int


class Answer(NamedTuple):
    """The answer of a server.

    Attributes:
        status, headers: the status code; lower-case name → value.
        content: the bytes; None if they exceed the limit; empty, since not read, if the status is not 200.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes | None


def parse_url(text: str) -> Url:
    """Parse ``text``, a web address of the form ``https://HOST[:PORT]/PATH`` or ``http://…``.

    Raise InputError ``address_invalid`` if it has another form, is not printable ASCII, or has a user or password. The
    error's text does not quote the address, which may hold a password.
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


def _exchange(
    request: _Request, url: Url, body: IO[bytes] | None, deadline: Deadline, context: ssl.SSLContext | None
) -> Answer:
    """Make one request on a new connection. Redirects are not followed, and no status raises an error.

    If the connection broke before the whole body was sent, an answer that came before is returned, unless it is 2xx.
    """
    with _dial(url, deadline, context) as plain:
        connection = http.client.HTTPConnection(url.host, url.port)
        # The Host header leaves out the default port, which http.client takes to be 80 for https, too.
        connection.default_port = _PORTS[url.scheme]
        bounded = _Bounded(plain, deadline)
        connection.sock = cast("Any", bounded)
        connection.response_class = _FinalResponse
        broken = None
        try:
            connection.request(request.method, url.path, body, dict(request.headers))
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
            # The server can not have received the whole body, so its answer does not confirm it.
            raise broken
        # The connection ended within the headers. http.client takes this for the end of the headers.
        if bounded.reader.ended:
            raise http.client.IncompleteRead(b"")
        if len(response.headers) > MAX_HEADERS:
            raise http.client.HTTPException("too many headers")
        bounded.reader.left = 2 * request.limit + _SLACK_BYTES
        content = _content(response, request.limit) if response.status == http.client.OK else b""
        return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, content)


def _dial(url: Url, deadline: Deadline, context: ssl.SSLContext | None) -> socket.socket:
    """Return a connection, over TLS for https. The addresses of the host are tried one after another."""
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
    """A response that skips all interim answers (status 1xx). http.client skips only those with status 100."""

    def _read_status(self) -> tuple[str, int, str]:
        """Return version, status and phrase of the first final answer (RFC 9110, 15.2); 101 counts as final."""
        for _ in range(MAX_INTERIM_ANSWERS + 1):
            version, status, phrase = super()._read_status()  # type: ignore[misc]
            if status == http.client.SWITCHING_PROTOCOLS or not 100 <= status < 200:
                return version, status, phrase
            http.client.parse_headers(self.fp)
        raise http.client.HTTPException("too many interim answers")


class _Bounded:
    """The methods of a socket that http.client uses. Each call is bounded by the time that is left."""

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
    """Reads from a socket, at most ``left`` bytes; http.client alone would read a chunk of size −1 without limit."""

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


MAX_REDIRECTS = 5
GIVEN_UP_SECONDS = 60.0
"""For this time after a server did not answer at all, requests are tried once, without pauses and repetitions."""
AGENT = "hearsay-edge"
_ABSENT = (404, 410)
_UNKNOWN_HERE = 401
_CONFLICT = 409
_AGAIN = frozenset((408, 429, *range(500, 600)))
_MOVED = frozenset((301, 302, 303, 307, 308))
_MOVED_WITH_BODY = frozenset((307, 308))
_ETAG = re.compile(r'(W/)?"[\x21\x23-\x7e]{0,200}"')
_SETTLED_SECONDS = 2.0
_BROKEN_OFF = "what answers breaks off, says too much or does not speak HTTP ({})"
_NOT_NOW = frozenset((9, 10))
"""Codes of OpenSSL for a certificate that is not valid yet, or has expired."""
_OTHER_NAME = frozenset((62, 64))
"""Codes of OpenSSL for a certificate of another host name or IP address."""


class Web(Transport):
    """A transport over HTTP. Its ``repr`` shows neither address nor token."""

    def __init__(
        self,
        address: str,
        *,
        method: str = "PUT",
        token: str | None = None,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  # the default is immutable
        context: ssl.SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        entropy: Callable[[int], bytes] = system_entropy,
    ) -> None:
        """Use the source at an address.

        Args:
            address: ``https://HOST[:PORT]/PATH``, the root of the tree.
            method: how batches are sent to their places, ``PUT`` or ``POST``.
            token: sent as ``Authorization: Bearer`` to this server only.
            retry: limits of time and of repetitions.
            context: TLS settings with the trusted authorities; default: the system's or ``SSL_CERT_FILE``.
            sleep, monotonic: wait for a number of seconds; a clock in seconds that does not jump.
            entropy: n → n random bytes, for the pauses.

        Raises InputError ``address_invalid``; ``argument_invalid``: the method is neither PUT nor POST;
        ``token_invalid``: the token would be sent without encryption to another machine.
        """
        self._base = parse_url(address)
        if "?" in self._base.path or "#" in address:
            raise InputError("address_invalid", "the address of a source has no query and no fragment")
        if method not in ("PUT", "POST"):
            raise InputError("argument_invalid", "batches are sent by PUT or by POST")
        if token is not None and self._base.scheme != "https" and not _is_loopback(self._base.host):
            raise InputError("token_invalid", "a token is sent over https only, or to this very machine")
        self._method = method
        self._token = token
        self._retry = retry
        self._context = context
        self._sleep = sleep
        self._monotonic = monotonic
        self._entropy = entropy
        self._gave_up = float("-inf")

    @property
    def address(self) -> str:
        """The address in the form ``SCHEME://HOST:PORT/PATH/``."""
        return f"{self._base.scheme}://{_netloc(self._base)}{self._base.path.rstrip('/')}/"

    def fetch(self, place: str, limit: int, tag: str = "") -> Found | None:
        """Return the document at ``place``, by GET; None after status 404 or 410 (:meth:`Transport.fetch`).

        After status 304 the document is unchanged since ``tag``, and the result's content is None. Raise
        ``refused_by_server`` after any other status but 200.
        """
        conditions = _conditions(tag)
        answer = self._ask(_Request("GET", conditions, limit), place)
        if answer.status in _ABSENT:
            return None
        if answer.status == http.client.NOT_MODIFIED and conditions:
            return Found(None, tag)
        if answer.status != http.client.OK:
            raise _refused(answer)
        if answer.content is None:
            raise DocumentError("too_large", f"what is at {place} has more than {limit} bytes")
        return Found(answer.content, _tag(answer.headers))

    def send(self, place: str, path: str) -> None:
        """Send the file at ``path`` to ``place`` (:meth:`Transport.send`). Status 2xx means that it has arrived.

        A status 2xx counts only if the system took the whole file for sending. If the connection broke before, the file
        is sent again, and after the last try ``unreachable`` is raised. Raise ``file_exists`` after status 409,
        ``refused_by_server`` after any other status.
        """
        answer = self._ask(_Request(self._method, {"Content-Type": "application/octet-stream"}, 0), place, path)
        if answer.status == _CONFLICT:
            raise StorageError("file_exists", f"the server has another file at {place} already, and keeps it")
        if not 200 <= answer.status < 300:
            raise _refused(answer)

    def _ask(self, request: _Request, place: str, path: str | None = None) -> Answer:
        """Repeat a request until its answer is no temporary failure, or no try or time is left. Return that answer."""
        url = self._base._replace(path=self._base.path.rstrip("/") + "/" + quote("/".join(parts_of(place))))
        deadline = Deadline(self._retry, self._monotonic)
        may_repeat = self._monotonic() - self._gave_up >= GIVEN_UP_SECONDS
        number = 0
        while True:
            tried = self._try(request, url, path, deadline)
            answer = tried if isinstance(tried, Answer) else None
            if answer is not None and answer.status not in _AGAIN:
                self._gave_up = float("-inf")
                return answer
            asked = 0.0 if answer is None else _asked_pause(answer.headers)
            pause = self._retry.pause(number, self._entropy(4), asked) if may_repeat else None
            if pause is None or pause >= deadline.left():
                break
            self._sleep(pause)
            number += 1
        if answer is not None:
            return answer
        self._gave_up = self._monotonic()
        raise StorageError("unreachable", f"the server can not be reached: {tried}")

    def _try(self, request: _Request, url: Url, path: str | None, deadline: Deadline) -> Answer | str:
        try:
            with _body(path) as body:
                return self._follow(request, url, body, deadline)
        except TimeoutError:
            return "it takes too long"
        except http.client.HTTPException as error:
            return _BROKEN_OFF.format(type(error).__name__)
        except HearsayError:
            raise
        except OSError as error:
            # The name is compared, not the class, so that the module ssl need not be loaded.
            if type(error).__name__ == "SSLCertVerificationError":
                problem = _why_untrusted(error, own_context=self._context is not None)
            else:
                return _words(error)
        except Exception:  # noqa: BLE001  # http.client raises other types too, for a negative length for example
            return _BROKEN_OFF.format("HTTPException")
        raise StorageError("server_untrusted", problem)

    def _follow(self, request: _Request, url: Url, body: IO[bytes] | None, deadline: Deadline) -> Answer:
        length = {} if body is None else {"Content-Length": str(os.fstat(body.fileno()).st_size)}
        for _ in range(MAX_REDIRECTS + 1):
            if body is not None:
                body.seek(0)
            headers = {"User-Agent": AGENT, "Connection": "close", **request.headers, **length, **self._rights(url)}
            answer = _exchange(request._replace(headers=headers), url, body, deadline, self._context)
            target = answer.headers.get("location")
            if target is None or answer.status not in (_MOVED if body is None else _MOVED_WITH_BODY):
                return answer
            url = _redirected(url, target)
        raise StorageError("redirect_refused", f"the server redirects more than {MAX_REDIRECTS} times")

    def _rights(self, url: Url) -> dict[str, str]:
        if self._token is None or url.origin != self._base.origin:
            return {}
        return {"Authorization": f"Bearer {self._token}"}


def _body(path: str | None) -> contextlib.AbstractContextManager[IO[bytes] | None]:
    """Open the file to send. Raise ``io_failed`` if it can not be read, since the server is not at fault."""
    if path is None:
        return contextlib.nullcontext()
    problem = ""
    try:
        return open(path, "rb")
    except OSError as error:
        problem = error.strerror or type(error).__name__
    raise StorageError("io_failed", f"the batch file can not be read: {problem}")


def _words(error: OSError) -> str:
    """Return in words why a connection failed. ``os.strerror`` is used for the system's error numbers only."""
    name = type(error).__name__
    if name == "gaierror":
        return "the host's name is not known here"
    return name if name.startswith("SSL") or error.errno is None else os.strerror(error.errno)


def _why_untrusted(error: OSError, *, own_context: bool) -> str:
    """Return in words why a certificate is refused. ``own_context``: the application chose the authorities."""
    code = getattr(error, "verify_code", None)
    if code in _NOT_NOW:
        return "the server's certificate is not valid at the time of this device's clock; look at the clock"
    if code in _OTHER_NAME:
        return "the server's certificate is of another host; look at the address"
    for variable, is_there in (("SSL_CERT_FILE", os.path.isfile), ("SSL_CERT_DIR", os.path.isdir)):
        place = os.environ.get(variable)
        if place is not None and not is_there(place) and not own_context:
            return f"{variable} names {quoted(place)}, which is not there, so no authority is trusted; correct it"
    return "no authority that this device trusts vouches for the server; name your authority's file in SSL_CERT_FILE"


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None


def _redirected(url: Url, target: str) -> Url:
    new = None
    with contextlib.suppress(HearsayError, ValueError):
        new = parse_url(urljoin(f"{url.scheme}://{_netloc(url)}{url.path}", target))
    if new is None:
        raise StorageError("redirect_refused", "the server redirects to something that is no address on the web")
    if url.scheme == "https" and new.scheme != "https":
        raise StorageError("redirect_refused", "the server redirects from https to an address without encryption")
    return new


def _netloc(url: Url) -> str:
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{host}:{url.port}"


def _refused(answer: Answer) -> StorageError:
    """Return the error for a refusal. Text of the server is not quoted, since it could contain terminal escapes."""
    hint = "; it wants to be shown a token, or another one: --token FILE" if answer.status == _UNKNOWN_HERE else ""
    return StorageError("refused_by_server", f"the server answers with status {answer.status}{hint}")


def _tag(headers: Mapping[str, str]) -> str:
    """Return an answer's tag: lines with its ``ETag`` and ``Last-Modified``, empty if unusable; "" if both are."""
    etag = headers.get("etag") or ""
    modified = headers.get("last-modified") or ""
    lines = [etag if _ETAG.fullmatch(etag) else "", modified if _is_settled(headers) else ""]
    return "\n".join(lines) if any(lines) else ""


def _is_settled(headers: Mapping[str, str]) -> bool:
    """Return whether ``Last-Modified`` identifies the content: 2 s or more before ``Date``, so no change follows."""
    modified, date = _time(headers.get("last-modified")), _time(headers.get("date"))
    return modified is not None and date is not None and date - modified >= _SETTLED_SECONDS


def _conditions(tag: str) -> dict[str, str]:
    """Return the headers that ask for a document only if it changed since ``tag``; none if the tag has another form."""
    etag, _, modified = tag.partition("\n")
    conditions = {}
    if _ETAG.fullmatch(etag):
        conditions["If-None-Match"] = etag
    if _time(modified) is not None:
        conditions["If-Modified-Since"] = modified
    return conditions


def _asked_pause(headers: Mapping[str, str]) -> float:
    """Return the seconds of ``Retry-After``, 0 if unreadable. A date is compared with the server's ``Date``."""
    text = (headers.get("retry-after") or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    until, date = _time(text), _time(headers.get("date"))
    return 0.0 if until is None or date is None else max(0.0, until - date)


def _time(text: str | None) -> float | None:
    """Return the seconds since 1970 of a date in the form of HTTP; None for other text."""
    if not text or len(text) > 64 or not text.isascii() or not text.isprintable():
        return None
    from email.utils import parsedate_to_datetime

    with contextlib.suppress(ValueError, OverflowError, TypeError, IndexError):
        return parsedate_to_datetime(text).timestamp()
    return None
