"""What every signed payload has in common: the header, and readers of single fields.

Source: docs/formats.md, section 5, "Common".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from protocol import SPEC, canonical
from protocol.errors import DocumentError

DAY_SECONDS = 86_400
MAX_TIME = 1 << 40
MAX_TEXT_BYTES = 1024
HEADER_KEYS = ("crit", "expires", "issued_at", "name", "not_before", "spec", "version")


class Header(NamedTuple):
    """The common fields. Times are whole seconds since 1970, UTC."""

    name: str
    version: int
    issued_at: int
    not_before: int
    expires: int
    spec: str = SPEC
    crit: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As a payload carries them."""
        return {**self._asdict(), "crit": list(self.crit)}


@lru_cache(maxsize=2)
def read_payload(payload: bytes) -> tuple[dict[str, Any], Header]:
    """Parse a payload whose signatures hold. Returns all its fields, to be read only, and its header.

    Raises:
        DocumentError: ``malformed``.
    """
    body = canonical.unpack(payload)
    if not isinstance(body, dict):
        raise DocumentError("malformed", "the payload is not a map")
    crit = body.get("crit")
    if not isinstance(crit, list) or not all(isinstance(key, str) for key in crit):
        raise DocumentError("malformed", "'crit' is not a list of keys")
    header = Header(
        name=read_text(body, "name"),
        version=read_integer(body, "version", 1, (1 << 32) - 1),
        issued_at=read_integer(body, "issued_at", 0, MAX_TIME),
        not_before=read_integer(body, "not_before", 0, MAX_TIME),
        expires=read_integer(body, "expires", 0, MAX_TIME),
        spec=read_text(body, "spec"),
        crit=tuple(crit),
    )
    if not header.not_before <= header.issued_at + DAY_SECONDS < header.expires:
        raise DocumentError("malformed", "its dates are not in order: not_before ≤ issued_at + 1 day < expires")
    return body, header


def check_understood(header: Header, known: frozenset[str]) -> None:
    """Refuse a newer format, or a key that a reader must understand and this one does not.

    Raises:
        DocumentError: ``unsupported_version``, ``unknown_crit``.
    """
    if header.spec != SPEC:
        raise DocumentError("unsupported_version", "the document follows another version of the formats")
    if not known.issuperset(header.crit):
        raise DocumentError("unknown_crit", "the document needs a feature that this software does not have; update it")


def read_field(body: dict[str, Any], key: str, kind: type, reason: str = "malformed") -> Any:
    """A field that must be there with just this type (a bool is no int).

    Raises:
        DocumentError: with the given reason.
    """
    value = body.get(key)
    if type(value) is not kind:
        raise DocumentError(reason, f"'{key}' is missing or not a {kind.__name__}")
    return value


def read_integer(body: dict[str, Any], key: str, least: int, most: int, reason: str = "malformed") -> int:
    """An integer field within bounds."""
    value: int = read_field(body, key, int, reason)
    if not least <= value <= most:
        raise DocumentError(reason, f"'{key}' is not between {least} and {most}")
    return value


def read_text(body: dict[str, Any], key: str, reason: str = "malformed") -> str:
    """A text field: 1 … 1024 bytes, printable, so that no document can forge lines on a terminal."""
    value: str = read_field(body, key, str, reason)
    if not value.isprintable() or not 1 <= len(value.encode()) <= MAX_TEXT_BYTES:
        raise DocumentError(reason, f"'{key}' is empty, too long, or has characters that do not print")
    return value
