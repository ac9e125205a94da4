"""Records as JSON, read as tolerantly as their structure allows.

Whether a device reports must not depend on its record, so whatever is recognisably one JSON value is
read: bytes of another encoding, control characters, NaN, numbers of any length, nesting of any depth.
None of these is a listed value; features make of them what they make of any foreign value.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

MAX_INTEGER_DIGITS = 4300
"""More digits are beyond any listed value and any bounds."""
_ALWAYS_CONVERTED = 640
"""Digits that ``int`` takes whatever limit the interpreter was given."""

_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def read_record(raw: bytes) -> Any:
    """The value that JSON text stands for.

    Raises:
        ValueError: it is not JSON. The error's text may quote it.
    """
    text = raw.decode(json.detect_encoding(raw), "replace")
    read = json.JSONDecoder(strict=False, parse_int=_integer).decode
    try:
        return read(text)
    except RecursionError:
        pass
    return read(_flattened(text))


def _integer(digits: str) -> int | float:
    """The integer, or infinity with its sign if the text is too long. A feature treats both alike."""
    if len(digits) <= _ALWAYS_CONVERTED:
        return int(digits)
    return int(Decimal(digits)) if len(digits.lstrip("-")) <= MAX_INTEGER_DIGITS else float(digits)


def _flattened(text: str) -> str:
    """JSON text with an empty list in the place of every inner list or object: none of them is a value."""
    parts, depth, start = [], 0, 0
    for found in _TOKENS.finditer(text):
        if found[0] in "[{":
            depth += 1
            if depth == 2:
                parts.append(text[start : found.start()])
        elif found[0] in "]}":
            depth -= 1
            if depth == 1:
                parts.append("[]")
                start = found.end()
    return "".join((*parts, text[start:])) if depth == 0 else ""
