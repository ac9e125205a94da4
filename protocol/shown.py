"""Names and texts in messages for people, on one line. Only :func:`quoted` shows different names differently.

The texts of a document hold no characters that control a terminal (docs/formats.md, section 5). They may hold quotes,
which could end a quoted name too early, and invisible characters: two names may differ only by these. Paths and keys
of files may hold any character.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from protocol.document import is_printable

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
    r"""Whether a text is printable (:func:`protocol.document.is_printable`) and has no invisible character.

    The invisible characters are those of the table ``_UNSEEN``.

    >>> is_seen("odor 3"), is_seen("odor\u3164")
    (True, False)
    """
    return is_printable(text) and (text.isascii() or not any(map(_is_invisible, text)))


def _is_invisible(character: str) -> bool:
    return bool(bisect_right(_EDGES, ord(character)) & 1)


def shown(text: str) -> str:
    r"""A text on one line, with Python's escapes for control characters and invisible characters.

    Backslashes are not escaped, so two different texts may look equal; :func:`quoted` tells them apart.

    >>> print(shown("a\x1b[2J\u3164"))
    a\x1b[2J\u3164
    """
    if is_seen(text):
        return text
    return "".join(each if is_seen(each) else each.encode("unicode_escape").decode("ascii") for each in text)


def quoted(text: str) -> str:
    r"""A name between quotes, escaped as by :func:`shown`. Quotes and backslashes within the name are escaped, too.

    Different names have different results. The second and later spaces of a row are escaped, so that a name can not
    push text to the next line of a terminal.

    >>> print(quoted("its 'odor'"), quoted("a   b"))
    'its \'odor\'' 'a \x20\x20b'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + _AFTER_A_SPACE.sub(r"\\x20", shown(escaped)) + "'"


def sentence(text: str) -> str:
    """A longer text on one line, escaped as by :func:`shown`.

    A row of spaces becomes one space, so that it can not imitate a new line.

    >>> sentence("learn.    The policy allows it.")
    'learn. The policy allows it.'
    """
    return _AFTER_A_SPACE.sub("", shown(text))
