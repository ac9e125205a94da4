"""Which transport an address means: the folder, the web, or a transport of another package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from protocol.errors import InputError, StorageError

if TYPE_CHECKING:
    from edge_sdk.transport.base import Transport

GROUP = "hearsay.transports"
"""Entry-point group by which another package brings a transport: scheme → what makes one, called as
``make(address, method=…, token=…, seconds=…)`` with the arguments of :func:`open_transport`."""
_MAX_SCHEME, _MAX_ADDRESS = 32, 2048


def open_transport(
    address: str, *, method: str = "PUT", token: str | None = None, seconds: float | None = None
) -> Transport:
    """The transport for an address.

    A web address begins with ``http://`` or ``https://``. An address with another scheme is opened by the installed
    package that brings a transport for that scheme (:data:`GROUP`). All else is a folder.

    Args:
        address: where the source is.
        method: how batches are sent over the web, ``PUT`` or ``POST``.
        token: what to show the server as bearer of, if it wants that.
        seconds: longest time that one fetch or one sending may take over the web, with all its retries.

    Raises:
        InputError: ``address_invalid``, ``token_invalid``.
        StorageError: ``transport_failed``, and any other reason: of another package's transport.
    """
    if address.lower().startswith(("http://", "https://")):
        from edge_sdk.transport.http import Web
        from edge_sdk.transport.retry import RetryPolicy

        retry = RetryPolicy() if seconds is None else RetryPolicy(seconds=seconds)
        return Web(address, method=method, token=token, retry=retry)
    scheme, found, rest = address.partition("://")
    if not address or "\0" in address or (found and not _is_scheme(scheme)):
        raise InputError("address_invalid", "give a folder, or an address that begins with http:// or https://")
    if found:
        _check_address(address, rest)
        return _brought(scheme.lower(), address, method=method, token=token, seconds=seconds)
    from edge_sdk.transport.folder import Folder

    return Folder(address)


def _is_scheme(scheme: str) -> bool:
    """RFC 3986, section 3.1: a letter, then letters, digits, ``+``, ``-`` and ``.``."""
    letters = scheme.translate({ord(sign): None for sign in "+-."})
    return len(scheme) <= _MAX_SCHEME and scheme[:1].isalpha() and letters.isalnum() and scheme.isascii()


def _check_address(address: str, rest: str) -> None:
    """Refuse what no transport is told: a device remembers an address, and prints it."""
    if len(address) > _MAX_ADDRESS or not address.isascii() or not address.isprintable():
        raise InputError("address_invalid", f"an address has at most {_MAX_ADDRESS} characters of printable ASCII")
    if "@" in rest.partition("/")[0]:
        raise InputError("address_invalid", "an address holds no user and no password; a secret goes into --token FILE")


def _brought(scheme: str, address: str, **options: Any) -> Transport:
    """The transport that another package brings for a scheme.

    The list of installed packages is read here and nowhere else: that takes longer than a device's whole start.

    Raises:
        InputError: ``address_invalid``: no package, or more than one, brings the scheme.
        StorageError: ``transport_failed``: the package can not be loaded, or makes no transport.
    """
    from importlib.metadata import entry_points

    from edge_sdk.transport.base import refusals

    with refusals():
        found = {entry.value: entry for entry in entry_points(group=GROUP, name=scheme)}
        if not found:
            raise InputError("address_invalid", f"no installed package brings a transport for {scheme}://")
        if len(found) > 1:
            raise InputError("address_invalid", f"{len(found)} packages bring {scheme}://; leave one installed")
        transport = next(iter(found.values())).load()(address, **options)
        if not _is_transport(transport):
            raise StorageError("transport_failed", f"what brings {scheme}:// makes no transport; report this")
        return cast("Transport", transport)


def _is_transport(found: object) -> bool:
    """Whether the parts of :class:`edge_sdk.transport.base.Transport` are there, and an address that can be kept."""
    own = getattr(found, "address", None)
    is_kept = isinstance(own, str) and 0 < len(own) <= _MAX_ADDRESS and own.isprintable()
    return is_kept and all(callable(getattr(found, part, None)) for part in ("fetch", "send"))


def read_token(raw: bytes) -> str:
    """The token in a file's bytes: one line of ASCII that prints, without spaces.

    Raises:
        InputError: ``token_invalid``. Never quotes it.
    """
    token = raw.strip()
    if not token or len(token) > 4096 or not all(0x21 <= byte <= 0x7E for byte in token):
        raise InputError("token_invalid", "the token's file holds one word of ASCII, at most 4096 characters")
    return token.decode("ascii")
