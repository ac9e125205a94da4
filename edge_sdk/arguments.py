"""Checks of arguments that callers often confuse: a file's bytes, and a file's path."""

from __future__ import annotations

import os
from contextlib import suppress

from protocol.errors import InputError


def check_bytes(value: object, what: str) -> None:
    """Refuse a path, a text, or any other value where ``bytes`` are expected.

    Args:
        value: the argument.
        what: the expected content in words, for the text of the error.

    Raises:
        InputError: ``argument_invalid``: ``value`` is not ``bytes``.
    """
    if not isinstance(value, bytes):
        raise InputError("argument_invalid", f"{what} is given as bytes, not as {type(value).__name__}")


def path_of(value: object, what: str) -> str:
    """Turn a path, a ``str`` or an ``os.PathLike``, into an absolute one, so that ``os.chdir`` does not change it.

    Args:
        value: the argument.
        what: the expected file or folder in words, for the text of the error.

    Raises:
        InputError: ``argument_invalid``: it is no path, a path of bytes, or has a zero byte; or it is relative, and the
            working folder is gone.
    """
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise InputError("argument_invalid", f"{what} is the path of a file or folder")
    with suppress(FileNotFoundError):
        return os.path.abspath(path)
    raise InputError("argument_invalid", f"{what} is relative, and the working folder was removed; give a whole path")


def is_called(text: str, name: str, identifier: bytes) -> bool:
    """Whether ``text`` is a campaign's ``name``, or the first hexadecimal digits of its id ``identifier``.

    The digits may be in upper or lower case. The empty text only matches an empty name.
    """
    return text == name or (bool(text) and identifier.hex().startswith(text.lower()))
