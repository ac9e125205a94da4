"""Where a passphrase comes from: a file, a file that the environment names, or whoever sits at the terminal.

One rule for all new secrets that a command keeps (a workspace's keys, single keys, fleet lists): they are
encrypted, under a passphrase that comes from one of these, unless ``--no-passphrase`` says that they are to be
in the clear. Nothing is in the clear because a variable was not set. (docs/decisions/0047)
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING

import click

from aggregator.files import read_file
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VARIABLE = "HEARSAY_PASSPHRASE_FILE"
MAX_PASSPHRASE_BYTES = 1024


def asked(file: Path | None, what: str = "") -> Callable[[], bytes]:
    """A passphrase for existing keys: read, or asked for, when it is needed and once only.

    Raises (when called):
        InputError: ``passphrase_missing``: there is neither file nor terminal, or it is empty; those of reading.
    """

    @lru_cache(maxsize=1)
    def passphrase() -> bytes:
        return read_passphrase(file, what=what)

    return passphrase


def chosen(file: Path | None, *, refuse: bool, what: str = "") -> bytes | None:
    """A passphrase for new secrets; None keeps them in the clear, which only ``--no-passphrase`` asks for.

    Args:
        file: from the command line or the environment.
        refuse: the user wants none, whatever the environment says.
        what: of what, for the question.

    Raises:
        InputError: ``passphrase_missing``; those of reading.
    """
    if refuse:
        return None
    return _from_terminal(what, again=True) if file is None else _from_file(file)


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def _from_file(file: Path) -> bytes:
    lines = read_file(file, MAX_PASSPHRASE_BYTES).splitlines()
    if lines and lines[0]:
        return lines[0]
    raise InputError("passphrase_missing", f"'{file}' does not begin with a passphrase")


def _from_terminal(what: str, *, again: bool) -> bytes:
    if not is_terminal():
        clear = ", or --no-passphrase for none" if again else ""
        raise InputError(
            "passphrase_missing", f"give --passphrase-file, or set {VARIABLE}{clear}: there is no terminal to ask"
        )
    text: str = click.prompt(
        f"Passphrase of {what}" if what else "Passphrase", hide_input=True, confirmation_prompt=again, err=True
    )
    return text.encode()


def read_passphrase(path: Path | None, *, what: str) -> bytes:
    """A passphrase of what exists, which is needed at once.

    Args:
        path: the file that ``--passphrase-file`` or the environment names.
        what: of what, for the question.

    Raises:
        InputError: ``passphrase_missing``; those of reading.
    """
    return _from_terminal(what, again=False) if path is None else _from_file(path)
