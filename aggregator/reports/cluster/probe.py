"""Find out whether a Dask scheduler answers at an address, before Dask's client connects.

Dask's client waits without end for a server that sends nothing. If it can not connect, it takes a minute to end. A
scheduler sends the first message, which begins with its length: a small number of eight bytes. These bytes tell a
scheduler from a silent server, from a server that expects TLS, and from other programs.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from protocol.errors import StorageError

SILENCE_SECONDS = 10.0
"""How long a busy scheduler may take to send its first message."""
REFUSED_SECONDS = 5.0
"""How long connections may be refused: a scheduler that is starting is soon ready."""
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
    """Check that a Dask scheduler answers; otherwise raise an error that says what was found.

    Args:
        address: ``tcp://HOST:PORT`` or ``tls://HOST:PORT``.
        patience_seconds: how long to try to connect, since the scheduler may be starting; at most
            :data:`REFUSED_SECONDS` if connections are refused.
        silence_seconds: how long to wait for the server's first message.
        clock: returns seconds that never decrease.

    Raises:
        StorageError: ``cluster_unreachable``: nothing, or no Dask scheduler, answers; the text says what was found.
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
    if greeting is not None and _is_greeting(greeting):
        return
    if greeting is None and context is None and _speaks_tls(place, silence_seconds):
        raise unreachable(address, f"it speaks TLS; write tls://, not tcp://, and {_CERTIFICATES}")
    raise unreachable(address, "what answers there is no Dask scheduler" if greeting else "it says nothing")


def unreachable(address: str, why: str) -> StorageError:
    """Make the error ``cluster_unreachable`` for a cluster at ``address``. ``why`` is the cause in words."""
    return StorageError("cluster_unreachable", f"no cluster with workers answers at {address}: {why}")


def _certificates(address: str) -> ssl.SSLContext:
    """A TLS context with the client certificates that Dask's configuration names."""
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
    """The first bytes that a server sends without being asked."""
    with socket.create_connection(place, timeout_seconds) as plain:
        if context is None:
            return plain.recv(_HEAD_BYTES, socket.MSG_WAITALL)
        with context.wrap_socket(plain, server_hostname=place[0]) as encrypted:
            return encrypted.recv(_HEAD_BYTES)


def _is_greeting(found: bytes) -> bool:
    return len(found) == _HEAD_BYTES and 0 < int.from_bytes(found, "little") < _MAX_GREETING


def _speaks_tls(place: tuple[str, int], timeout_seconds: float) -> bool:
    """Whether a server that sends nothing by itself answers a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no data will be sent
    try:
        with socket.create_connection(place, timeout_seconds) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
