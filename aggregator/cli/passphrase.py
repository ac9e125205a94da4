"""Passphrases: from a file, from the file that the environment names, or typed at the terminal.

Commands encrypt all new secrets (a workspace's keys, single keys, fleet lists) under a passphrase. Only
``--no-passphrase`` stores them unencrypted; a missing environment variable never does (decision 47).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import click

from aggregator.common.passphrases import VARIABLE, read_passphrase
from protocol.errors import InputError


def existing_passphrase(file: Path | None, what: str = "") -> Callable[[], bytes]:
    """Make a function that returns the passphrase of existing secrets.

    Its first call reads the file or asks the user. Later calls return the same passphrase.

    Args:
        file: file from the command line or the environment; None asks the user.
        what: words for the secret, which the question contains.

    Raises (when the result is called):
        InputError: ``passphrase_missing``: there is neither a file nor a terminal, or the passphrase is empty; the
            reasons of an unreadable file.
    """

    @lru_cache(maxsize=1)
    def passphrase() -> bytes:
        return _from_terminal(what, again=False) if file is None else read_passphrase(file)

    return passphrase


def new_passphrase(file: Path | None, *, refuse: bool, what: str = "") -> bytes | None:
    """Read or ask for a passphrase for new secrets. The result is None only if ``refuse`` is true.

    Args:
        file: file from the command line or the environment; None asks the user.
        refuse: whether ``--no-passphrase`` is given. It takes precedence over a file that the environment names.
        what: words for the secret, which the question contains.

    Raises:
        InputError: ``passphrase_missing``: there is neither a file nor a terminal, or the passphrase is empty; the
            reasons of an unreadable file.
    """
    if refuse:
        return None
    return _from_terminal(what, again=True) if file is None else read_passphrase(file)


def is_terminal() -> bool:
    """Whether standard input is a terminal, so that a person can answer questions."""
    return sys.stdin.isatty()


def _from_terminal(what: str, *, again: bool) -> bytes:
    """Ask for a passphrase at the terminal; with ``again`` twice, for a new passphrase.

    Raises:
        InputError: ``passphrase_missing``: there is no terminal.
    """
    if not is_terminal():
        clear = ", or --no-passphrase for none" if again else ""
        raise InputError(
            "passphrase_missing", f"give --passphrase-file, or set {VARIABLE}{clear}: there is no terminal to ask"
        )
    text: str = click.prompt(
        f"Passphrase of {what}" if what else "Passphrase", hide_input=True, confirmation_prompt=again, err=True
    )
    return text.encode()
