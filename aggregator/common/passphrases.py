"""Passphrases that programs give: as a value, by a function, or in the file that an environment variable names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from aggregator.common.files import read_file
from protocol.errors import InputError

VARIABLE = "HEARSAY_PASSPHRASE_FILE"
MAX_PASSPHRASE_BYTES = 1024


def passphrase_from(given: Callable[[], bytes] | bytes | str | None) -> Callable[[], bytes]:
    """Turn each way to give a passphrase into a function that returns the passphrase as bytes.

    ``given``: a text or bytes; a function, which is returned; or None for the file that the variable :data:`VARIABLE`
    names when the result is called, which raises ``passphrase_missing`` without it.
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
    """Read a passphrase, the first line of a file. Raises ``passphrase_missing`` if it is empty; as ``read_file``."""
    lines = read_file(file, MAX_PASSPHRASE_BYTES).splitlines()
    if lines and lines[0]:
        return lines[0]
    raise InputError("passphrase_missing", f"'{file}' does not begin with a passphrase")
