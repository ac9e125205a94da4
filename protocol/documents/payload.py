"""The header that all signed payloads share, readers of single fields, and texts of documents shown to people.

A document's texts hold no characters that control a terminal, but perhaps quotes and invisible characters. Paths and
keys of files may hold any character. Only :func:`quoted` shows different names differently.
Source: docs/formats.md, section 5, "Common".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import Any, NamedTuple

from protocol import SPEC, canonical
from protocol.errors import DocumentError

DAY_SECONDS = 86_400
MAX_TIME = 1 << 40
MAX_TEXT_BYTES = 1024
MAX_ITEMS = 200_000
"""Largest number of values in a payload, keys and containers included. An empty map takes one byte in the payload and
about a hundred in memory."""
_UNPRINTABLE = (
    (0x00, 0x1F), (0x7F, 0xA0), (0xAD, 0xAD), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F),
    (0x890, 0x891), (0x8E2, 0x8E2), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200F), (0x2028, 0x202F),
    (0x205F, 0x2064), (0x2066, 0x206F), (0x3000, 0x3000), (0xD800, 0xF8FF), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB),
    (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A),
    (0xE0001, 0xE0001), (0xE0020, 0xE007F), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD),
)  # fmt: skip
"""First and last code points of categories Cc, Cf, Cs, Co, Zl, Zp and Zs of Unicode 16; U+0020 is left out."""
_UNPRINTABLE_EDGES = tuple(edge for first, last in _UNPRINTABLE for edge in (first, last + 1))
HEADER_KEYS = ("crit", "expires", "issued_at", "name", "not_before", "spec", "version")


class Header(NamedTuple):
    """The fields that all payloads have. Times are whole seconds since 1970, UTC.

    Attributes:
        name: name of the campaign, the model or, in a root, the workspace.
        version: 1 … 2^32 − 1; a later document of the same name has a larger one.
        issued_at: time of signing.
        not_before, expires: the document is valid from ``not_before`` on, and no longer at ``expires``.
        spec: version of the formats.
        crit: keys of the payload; a reader that does not understand all of them must refuse the document.
    """

    name: str
    version: int
    issued_at: int
    not_before: int
    expires: int
    spec: str = SPEC
    crit: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the header as the dict of fields that a payload contains."""
        return {**self._asdict(), "crit": list(self.crit)}


@lru_cache(maxsize=2)
def read_payload(payload: bytes) -> tuple[dict[str, Any], Header]:
    """Parse a payload. Return all its fields and the header. The result is cached: callers must not change the fields.

    The caller must have verified the signatures. :func:`check_understood` compares ``spec`` and ``crit``.

    Raises:
        DocumentError: ``malformed``: not canonical msgpack, more than :data:`MAX_ITEMS` values, no map, a missing or
            wrong header field, or dates other than not_before ≤ issued_at + 1 day < expires.
    """
    body = canonical.unpack(payload, MAX_ITEMS)
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
    """Refuse a document that this software may misunderstand. ``known`` holds the payload keys that the caller reads.

    Raises:
        DocumentError: ``unsupported_version``: ``header.spec`` is not :data:`protocol.SPEC`; ``unknown_crit``: a key in
            ``header.crit`` is not in ``known``.
    """
    if header.spec != SPEC:
        raise DocumentError("unsupported_version", "the document follows another version of the formats")
    if not known.issuperset(header.crit):
        raise DocumentError("unknown_crit", "the document needs a feature that this software does not have; update it")


def read_field(body: dict[str, Any], key: str, kind: type, reason: str = "malformed") -> Any:
    """Return the field ``key`` of a payload or map ``body``. Its type must be exactly ``kind`` (a bool is no int).

    A DocumentError with ``reason`` says that the field is missing or of another type. So do the other readers of
    fields.
    """
    value = body.get(key)
    if type(value) is not kind:
        raise DocumentError(reason, f"'{key}' is missing or not a {kind.__name__}")
    return value


def read_integer(body: dict[str, Any], key: str, least: int, most: int, reason: str = "malformed") -> int:
    """Return the field ``key`` of a payload or map ``body``, an integer of ``least`` … ``most``."""
    value: int = read_field(body, key, int, reason)
    if not least <= value <= most:
        raise DocumentError(reason, f"'{key}' is not between {least} and {most}")
    return value


def is_printable(text: str) -> bool:
    """Return whether a text has no control, format or private-use character, no surrogate, and no space except U+0020.

    Line and paragraph separators count as spaces. The table of refused characters is part of the formats:
    ``str.isprintable`` depends on the interpreter's version of Unicode. Unassigned code points are allowed.
    """
    if text.isascii():
        return text.isprintable()
    return not any(bisect_right(_UNPRINTABLE_EDGES, ord(character)) & 1 for character in set(text))


def is_text(value: object, least: int = 1) -> bool:
    """Return whether a value is a printable text of ``least`` … 1024 bytes of UTF-8."""
    return isinstance(value, str) and is_printable(value) and least <= len(value.encode()) <= MAX_TEXT_BYTES


def read_text(body: dict[str, Any], key: str, reason: str = "malformed") -> str:
    """Return the field ``key`` of a payload or map ``body``: a printable text of 1 … 1024 bytes of UTF-8."""
    value: str = read_field(body, key, str, reason)
    if not is_text(value):
        raise DocumentError(reason, f"'{key}' is empty, too long, or has characters that do not print")
    return value


def read_texts(entry: dict[str, Any], key: str, reason: str) -> list[str]:
    """Return the field ``key`` of the map ``entry``: a list of printable texts of 0 … 1024 bytes of UTF-8."""
    texts: list[str] = read_field(entry, key, list, reason)
    if not all(is_text(text, least=0) for text in texts):
        raise DocumentError(reason, f"'{key}' is not a list of printable texts of at most 1024 bytes")
    return texts


_UNSEEN = (
    (0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065), (0x2800, 0x2800),
    (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159),
    (0xE0000, 0xE0FFF), (0xFFFC, 0xFFFC), (0x2D7F, 0x2D7F), (0x1107F, 0x1107F), (0x13441, 0x13442),
)  # fmt: skip
"""First and last code points of invisible characters that documents may hold: the characters of Unicode 16 with the
property Default_Ignorable_Code_Point, and U+2800, U+16FE4, U+1D159, U+2D7F, U+FFFC, U+1107F, U+13441, U+13442, whose
glyphs are blank or only join others."""
_AFTER_A_SPACE = re.compile("(?<= ) ")
_EDGES = tuple(edge for first, last in sorted(_UNSEEN) for edge in (first, last + 1))


def is_seen(text: str) -> bool:
    r"""Return whether a text is printable (:func:`is_printable`) and has no invisible character (table ``_UNSEEN``).

    >>> is_seen("odor 3"), is_seen("odor\u3164")
    (True, False)
    """
    return is_printable(text) and (text.isascii() or not any(map(_is_invisible, text)))


def _is_invisible(character: str) -> bool:
    return bool(bisect_right(_EDGES, ord(character)) & 1)


def shown(text: str) -> str:
    r"""Return a text on one line, with Python's escapes for control characters and invisible characters.

    Backslashes are not escaped, so two different texts may look equal; :func:`quoted` tells them apart.

    >>> print(shown("a\x1b[2J\u3164"))
    a\x1b[2J\u3164
    """
    if is_seen(text):
        return text
    return "".join(each if is_seen(each) else each.encode("unicode_escape").decode("ascii") for each in text)


def quoted(text: str) -> str:
    r"""Return a name between quotes, escaped as by :func:`shown`. Quotes and backslashes in it are escaped, too.

    Different names have different results. The second and later spaces of a row are escaped, so that a name can not
    push text to the next line of a terminal.

    >>> print(quoted("its 'odor'"), quoted("a   b"))
    'its \'odor\'' 'a \x20\x20b'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + _AFTER_A_SPACE.sub(r"\\x20", shown(escaped)) + "'"


def sentence(text: str) -> str:
    """Return a longer text on one line, escaped as by :func:`shown`.

    Spaces in a row become one space, so that they can not imitate a new line.

    >>> sentence("learn.    The policy allows it.")
    'learn. The policy allows it.'
    """
    return _AFTER_A_SPACE.sub("", shown(text))
