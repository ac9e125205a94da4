"""Canonical msgpack: a writer that gives each value one byte string, and a reader that accepts only this string.

Source: docs/formats.md, section 5: string keys in sorted order, shortest integers, no floats outside typed arrays, no
duplicate keys, nesting depth 16. The reader sets every size limit of msgpack.
"""

from __future__ import annotations

from typing import Any

import msgpack

from protocol.errors import DocumentError, InputError

MAX_DEPTH = 16
_FIXED_WIDTH = {
    0xC0: 0, 0xC2: 0, 0xC3: 0,
    0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
}  # fmt: skip
_LENGTH_WIDTH = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_COUNT_WIDTH = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def pack(value: Any) -> bytes:
    """Encode a value of dicts, lists, tuples, str, bytes, int, bool and None as canonical bytes.

    Raises InputError ``not_canonical``: a type without a canonical form, for example float; a key that is not a str;
    containers nested deeper than 16; an integer outside 64 bits; a str with surrogates.
    """
    try:
        packed = msgpack.packb(_sorted(value, 0), use_bin_type=True, strict_types=True)
    except (OverflowError, UnicodeEncodeError):
        packed = None
    if packed is None:
        raise InputError("not_canonical", "an integer or a string has no msgpack form")
    return bytes(packed)


def _sorted(value: Any, depth: int) -> Any:
    if value is None or type(value) in (str, bytes, int, bool):
        return value
    if depth == MAX_DEPTH:
        raise InputError("not_canonical", f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        if not all(type(key) is str for key in value):
            raise InputError("not_canonical", "a map has a key that is not a string")
        return {key: _sorted(value[key], depth + 1) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item, depth + 1) for item in value]
    raise InputError("not_canonical", f"a {type(value).__name__} has no canonical form")


def unpack(data: bytes, max_items: int | None = None) -> Any:
    """Decode canonical bytes. The memory used is proportional to the length of ``data``.

    ``max_items`` is the largest number of values, containers and keys included; None: the length of ``data``. Data with
    more values are refused before any object is made. An empty map takes one byte in ``data`` and about a hundred in
    memory, so callers set this limit for unverified bytes.

    Raises DocumentError ``malformed``: not msgpack, trailing bytes, not canonical, nested too deep, or too many values.
    """
    _check_structure(data, len(data) if max_items is None else max_items)
    size = len(data)
    problem = "it is not msgpack, or not UTF-8"
    value: Any = None
    packed: bytes | None = None
    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            use_list=True,
            strict_map_key=True,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=size,
            max_map_len=size,
            max_ext_len=0,
        )
        packed = pack(value)
        problem = "its keys, integers or lengths are not in canonical form"
    except (ValueError, msgpack.UnpackException):
        pass
    if packed != data:
        raise DocumentError("malformed", problem)
    return value


def _check_structure(data: bytes, max_items: int) -> None:
    """Raise an error for values too many or nested too deep, or containers that declare more items than bytes."""
    position, end = 0, len(data)
    open_items = [1]  # number of items that each open container still lacks, outermost first
    missing = 1  # the sum of open_items
    seen = 0
    while open_items:
        if open_items[-1] == 0:
            open_items.pop()
            continue
        open_items[-1] -= 1
        missing -= 1
        if position >= end:
            raise DocumentError("malformed", "it ends in the middle of a value")
        skip, items = _token(data, position)
        position += skip
        seen += 1
        if seen > max_items:
            raise DocumentError("malformed", f"it holds more than {max_items} values")
        if items is not None:
            missing += items
            if missing > end - position:
                raise DocumentError("malformed", "a container declares more items than there are bytes")
            if len(open_items) > MAX_DEPTH:
                raise DocumentError("malformed", f"it is nested deeper than {MAX_DEPTH}")
            open_items.append(items)
    if position != end:
        raise DocumentError("malformed", "there are bytes after its end, or too few")


def _token(data: bytes, position: int) -> tuple[int, int | None]:
    """Return the length in bytes of the token at ``position``, and its number of items (None if it is no container)."""
    first = data[position]
    if first <= 0x7F or first >= 0xE0:
        return 1, None
    if first <= 0x8F:
        return 1, 2 * (first & 0x0F)
    if first <= 0x9F:
        return 1, first & 0x0F
    if first <= 0xBF:
        return 1 + (first & 0x1F), None
    if first in _FIXED_WIDTH:
        return 1 + _FIXED_WIDTH[first], None
    if first in _LENGTH_WIDTH:
        width = _LENGTH_WIDTH[first]
        return 1 + width + int.from_bytes(data[position + 1 : position + 1 + width], "big"), None
    if first in _COUNT_WIDTH:
        width, per_item = _COUNT_WIDTH[first]
        return 1 + width, per_item * int.from_bytes(data[position + 1 : position + 1 + width], "big")
    raise DocumentError("malformed", "it holds a float, an extension or an unused msgpack type")
