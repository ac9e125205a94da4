"""Checks of arguments that callers often confuse: a file's bytes, and a file's path."""

from __future__ import annotations

import os

from protocol.errors import InputError


def check_bytes(value: object, what: str) -> None:
    """Refuse a path or text where a file's bytes are expected.

    Raises:
        InputError: ``argument_invalid``.
    """
    if not isinstance(value, bytes):
        raise InputError("argument_invalid", f"{what} is given as bytes, not as {type(value).__name__}")


def path_of(value: object, what: str) -> str:
    """Turn a path into text.

    Raises:
        InputError: ``argument_invalid``.
    """
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise InputError("argument_invalid", f"{what} is the path of a file or folder")
    return path


def is_called(text: str, name: str, identifier: bytes) -> bool:
    """Whether a text is the campaign's name, or the first hexadecimal digits of the campaign's id."""
    return text == name or (bool(text) and identifier.hex().startswith(text.lower()))
