"""Choose the transport (the way to fetch and send files) for an address: a folder, the web, or another package's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from protocol.errors import InputError, StorageError

if TYPE_CHECKING:
    from edge_sdk.transport.base import Transport

GROUP = "hearsay.transports"
"""Entry-point group by which another package adds a transport: scheme → function that makes the transport, called as
``make(address, method=…, token=…, seconds=…)`` with the arguments of :func:`open_transport`."""
_MAX_SCHEME, _MAX_ADDRESS = 32, 2048


def open_transport(
    address: str, *, method: str = "PUT", token: str | None = None, seconds: float | None = None
) -> Transport:
    """Make the transport for an address.

    A web address begins with ``http://`` or ``https://``. An address with another scheme is opened by the installed
    package that has a transport for that scheme (:data:`GROUP`). Every other address is a folder.

    Args:
        method: how batches are sent over the web, ``PUT`` or ``POST``.
        token: bearer token for the server; None sends no token.
        seconds: longest time of one fetch or one sending over the web, including all retries; None for 300.

    Raises:
        InputError: ``address_invalid``: the address has a wrong form, or no transport for its scheme is installed;
            ``argument_invalid``: the method is neither PUT nor POST; ``token_invalid``: the token would be sent without
            encryption.
        StorageError: ``transport_failed``: another package's transport can not be made. That package's function may
            also raise a :class:`protocol.errors.HearsayError` of its own.
    """
    if address.lower().startswith(("http://", "https://")):
        from edge_sdk.transport.http import RetryPolicy, Web

        retry = RetryPolicy() if seconds is None else RetryPolicy(seconds=seconds)
        return Web(address, method=method, token=token, retry=retry)
    scheme, found, rest = address.partition("://")
    if not address or "\0" in address or (found and not _is_scheme(scheme)):
        raise InputError("address_invalid", "give a folder, or an address that begins with http:// or https://")
    if found:
        _check_address(address, rest)
        return _open_foreign(scheme.lower(), address, method=method, token=token, seconds=seconds)
    from edge_sdk.transport.folder import Folder

    return Folder(address)


def _is_scheme(scheme: str) -> bool:
    """Return whether a text is a scheme (RFC 3986, 3.1): a letter, then letters, digits, ``+``, ``-`` and ``.``."""
    letters = scheme.translate({ord(sign): None for sign in "+-."})
    return len(scheme) <= _MAX_SCHEME and scheme[:1].isalpha() and letters.isalnum() and scheme.isascii()


def _check_address(address: str, rest: str) -> None:
    """Raise InputError if an address, which is stored and shown, is too long, not printable, or holds a password."""
    if len(address) > _MAX_ADDRESS or not address.isascii() or not address.isprintable():
        raise InputError("address_invalid", f"an address has at most {_MAX_ADDRESS} characters of printable ASCII")
    if "@" in rest.partition("/")[0]:
        raise InputError("address_invalid", "an address holds no user and no password; a secret goes into --token FILE")


def _open_foreign(scheme: str, address: str, **options: Any) -> Transport:
    """Make another package's transport. Only this reads the slow list of installed packages."""
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
    own = getattr(found, "address", None)
    is_kept = isinstance(own, str) and 0 < len(own) <= _MAX_ADDRESS and own.isprintable()
    return is_kept and all(callable(getattr(found, part, None)) for part in ("fetch", "send"))


def read_token(raw: bytes) -> str:
    """Return the token that ``raw``, a file's bytes, holds: one word of printable ASCII, perhaps with blanks around it.

    Raises InputError ``token_invalid``: the file holds no such word, or a word of more than 4096 characters. The
    error's text does not quote the token.
    """
    token = raw.strip()
    if not token or len(token) > 4096 or not all(0x21 <= byte <= 0x7E for byte in token):
        raise InputError("token_invalid", "the token's file holds one word of ASCII, at most 4096 characters")
    return token.decode("ascii")
