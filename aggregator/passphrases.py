"""Passphrases that programs give: as a value, by a function, or in the file that an environment variable names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aggregator.files import read_file
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VARIABLE = "HEARSAY_PASSPHRASE_FILE"
MAX_PASSPHRASE_BYTES = 1024


def passphrase_from(given: Callable[[], bytes] | bytes | str | None) -> Callable[[], bytes]:
    """A function that returns a passphrase.

    Args:
        given: the passphrase, where text becomes UTF-8; or a function that returns it, which is the result; or None,
            to read the file that the environment variable :data:`VARIABLE` names.

    Raises (when the result is called, and ``given`` is None):
        InputError: ``passphrase_missing``: the variable is not set; as :func:`read_passphrase`.
    """
    if callable(given):
        return given
    if given is None:
        return _from_environment
    known = given.encode() if isinstance(given, str) else bytes(given)
    return lambda: known


def _from_environment() -> bytes:
    file = os.environ.get(VARIABLE)
    if not file:
        problem = "the key is encrypted, and no passphrase was given: open_workspace(…, passphrase=…), or "
        raise InputError("passphrase_missing", f"{problem}{VARIABLE}, which names a file that begins with it")
    return read_passphrase(file)


def read_passphrase(file: str | Path) -> bytes:
    """The first line of a file, without its line break.

    Raises:
        InputError: ``passphrase_missing``: the line is empty; as :func:`aggregator.files.read_file`, with a limit of
            :data:`MAX_PASSPHRASE_BYTES` for the file.
    """
    lines = read_file(file, MAX_PASSPHRASE_BYTES).splitlines()
    if lines and lines[0]:
        return lines[0]
    raise InputError("passphrase_missing", f"'{file}' does not begin with a passphrase")
