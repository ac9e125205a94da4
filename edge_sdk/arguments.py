"""Arguments of the facade that people get wrong: bytes where a path is wanted, and the other way round."""

from __future__ import annotations

import os

from protocol.errors import InputError


def check_bytes(value: object, what: str) -> None:
    """Refuse a path or text where a file's bytes are wanted: the natural mistake.

    Raises:
        InputError: ``argument_invalid``.
    """
    if not isinstance(value, bytes):
        raise InputError("argument_invalid", f"{what} is given as bytes, not as {type(value).__name__}")


def path_of(value: object, what: str) -> str:
    """A path as text.

    Raises:
        InputError: ``argument_invalid``.
    """
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise InputError("argument_invalid", f"{what} is the path of a file or folder")
    return path


def is_called(text: str, name: str, identifier: bytes) -> bool:
    """Whether a text is a campaign's name, or the first hexadecimal digits of its id."""
    return text == name or (bool(text) and identifier.hex().startswith(text.lower()))
