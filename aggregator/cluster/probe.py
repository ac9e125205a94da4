"""Whether a Dask scheduler answers at an address, found out before Dask is asked to connect.

Dask's client waits without end for a server that never speaks, and for a minute after it could not be made.
A scheduler speaks first: a message that begins with its length, a small number of eight bytes. So one look tells
it from a silent server, from one that wants TLS, and from other programs.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

SILENCE_SECONDS = 10.0
"""A scheduler that is busy may need so long to greet."""
REFUSED_SECONDS = 5.0
"""So long a machine that answers may say that nobody listens there: a scheduler that starts is soon ready."""
_HEAD_BYTES = 8
_MAX_GREETING = 1 << 20
_RETRY_SECONDS = 0.2
_CERTIFICATES = "docs/cluster.md shows how to make certificates"


def check_scheduler(address: str, patience_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
    """Return if a scheduler greets at ``tcp://HOST:PORT`` or ``tls://HOST:PORT``.

    Args:
        address: where.
        patience_seconds: how long it may not be reached, since it may be about to start;
            :data:`REFUSED_SECONDS` where connections are refused.
        clock: rising seconds.

    Raises:
        StorageError: ``cluster_unreachable``.
    """
    parsed = urlsplit(address)
    place = (parsed.hostname or "", parsed.port or 0)
    context = _certificates(address) if parsed.scheme == "tls" else None
    begun = clock()
    while True:
        try:
            greeting = _greeting(place, context)
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
    if greeting is None and context is None and _speaks_tls(place):
        raise unreachable(address, f"it speaks TLS; write tls://, not tcp://, and {_CERTIFICATES}")
    raise unreachable(address, "what answers there is no Dask scheduler" if greeting else "it says nothing")


def unreachable(address: str, why: str) -> StorageError:
    """The error for a cluster that does not answer, with a reason in words."""
    return StorageError("cluster_unreachable", f"no cluster with workers answers at {address}: {why}")


def _certificates(address: str) -> ssl.SSLContext:
    """The certificates of Dask's configuration, for a client."""
    from distributed.security import Security

    problem = f"Dask's configuration (distributed.comm.tls) names no certificates for a client; {_CERTIFICATES}"
    try:
        found = Security().get_connection_args("client").get("ssl_context")
    except OSError as error:  # no such file, or no certificate in it
        found = None
        problem = f"the certificates of Dask's configuration can not be read ({error.strerror or error})"
    if not isinstance(found, ssl.SSLContext):
        raise unreachable(address, problem)
    return found


def _greeting(place: tuple[str, int], context: ssl.SSLContext | None) -> bytes:
    """The first bytes that a server sends by itself."""
    with socket.create_connection(place, SILENCE_SECONDS) as plain:
        if context is None:
            return plain.recv(_HEAD_BYTES, socket.MSG_WAITALL)
        with context.wrap_socket(plain, server_hostname=place[0]) as encrypted:
            return encrypted.recv(_HEAD_BYTES)


def _is_greeting(found: bytes) -> bool:
    return len(found) == _HEAD_BYTES and 0 < int.from_bytes(found, "little") < _MAX_GREETING


def _speaks_tls(place: tuple[str, int]) -> bool:
    """Whether a silent server answers the first words of TLS with words of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent, only asked
    try:
        with socket.create_connection(place, SILENCE_SECONDS) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
