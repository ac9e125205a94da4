"""Which carrier an address means: the folder or the web."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import InputError

if TYPE_CHECKING:
    from edge_sdk.transport.base import Transport


def open_transport(
    address: str, *, method: str = "PUT", token: str | None = None, seconds: float | None = None
) -> Transport:
    """The transport for an address: a web address begins with ``http://`` or ``https://``, all else is a folder.

    Args:
        address: where the source is.
        method: how batches are sent over the web, ``PUT`` or ``POST``.
        token: what to show the server as bearer of, if it wants that.
        seconds: longest time that one fetch or one sending may take over the web, with all its retries.

    Raises:
        InputError: ``address_invalid``, ``token_invalid``.
    """
    if address.lower().startswith(("http://", "https://")):
        from edge_sdk.transport.http import Web
        from edge_sdk.transport.retry import Patience

        patience = Patience() if seconds is None else Patience(seconds=seconds)
        return Web(address, method=method, token=token, patience=patience)
    if "://" in address or not address or "\0" in address:
        raise InputError("address_invalid", "give a folder, or an address that begins with http:// or https://")
    from edge_sdk.transport.folder import Folder

    return Folder(address)


def read_token(raw: bytes) -> str:
    """The token in a file's bytes: one line of ASCII that prints, without spaces.

    Raises:
        InputError: ``token_invalid``. Never quotes it.
    """
    token = raw.strip()
    if not token or len(token) > 4096 or not all(0x21 <= byte <= 0x7E for byte in token):
        raise InputError("token_invalid", "the token's file holds one word of ASCII, at most 4096 characters")
    return token.decode("ascii")
