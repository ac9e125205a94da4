"""Passphrases: from a file, from the file that the environment names, or typed at the terminal.

All new secrets that a command keeps (a workspace's keys, single keys, fleet lists) are encrypted under such a
passphrase. Only ``--no-passphrase`` keeps them in the clear; a variable that is not set never does (decision 47).
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING

import click

from aggregator.passphrases import VARIABLE, read_passphrase
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def asked(file: Path | None, what: str = "") -> Callable[[], bytes]:
    """A function that returns the passphrase of existing keys. It reads or asks when first called, and once only.

    Raises (when called):
        InputError: ``passphrase_missing``: there is neither file nor terminal, or it is empty; those of reading.
    """

    @lru_cache(maxsize=1)
    def passphrase() -> bytes:
        return _from_terminal(what, again=False) if file is None else read_passphrase(file)

    return passphrase


def chosen(file: Path | None, *, refuse: bool, what: str = "") -> bytes | None:
    """A passphrase for new secrets; None, for secrets in the clear, only if ``--no-passphrase`` is given.

    Args:
        file: from the command line or the environment.
        refuse: the user wants none, whatever the environment says.
        what: of what, for the question.

    Raises:
        InputError: ``passphrase_missing``; those of reading.
    """
    if refuse:
        return None
    return _from_terminal(what, again=True) if file is None else read_passphrase(file)


def is_terminal() -> bool:
    """Whether standard input is a terminal, so that somebody can be asked."""
    return sys.stdin.isatty()


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
