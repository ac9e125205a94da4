"""Where a passphrase comes from: a file, a file that the environment names, or whoever sits at the terminal."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggregator.cli.output import note
from aggregator.files import read_file
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "HEARSAY_PASSPHRASE_FILE"
MAX_PASSPHRASE_BYTES = 1024

passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path),
    envvar=VARIABLE,
    help=f"File whose first line is the passphrase; also by {VARIABLE}; else the terminal is asked.",
)
no_passphrase_option = click.option("--no-passphrase", is_flag=True, help="Keep the new keys in the clear.")


def asked(file: Path | None) -> Callable[[], bytes]:
    """A passphrase for existing keys: read, or asked for, when it is needed and once only.

    Raises (when called):
        InputError: ``passphrase_missing``: there is neither file nor terminal, or it is empty; those of reading.
    """

    @lru_cache(maxsize=1)
    def passphrase() -> bytes:
        if file is not None:
            return _from_file(file)
        return _from_terminal(again=False)

    return passphrase


def chosen(file: Path | None, *, encrypt: bool, refuse: bool) -> bytes | None:
    """A passphrase for new keys; None keeps them in the clear.

    Args:
        file: from the command line or the environment.
        encrypt: ask the terminal, twice, where no file is given.
        refuse: the user wants none, whatever the environment says.

    Raises:
        InputError: ``passphrase_missing``; those of reading.
    """
    if refuse:
        if encrypt:
            raise click.UsageError("give --encrypt or --no-passphrase, not both", click.get_current_context())
        return None
    if file is not None:
        return _from_file(file)
    return _from_terminal(again=True) if encrypt else None


def tell_clear() -> None:
    """Say that keys are kept in the clear, to whoever did not ask for that."""
    note("the keys are not encrypted: whoever reads them can sign; --encrypt asks for a passphrase")


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def _from_file(file: Path) -> bytes:
    lines = read_file(file, MAX_PASSPHRASE_BYTES).splitlines()
    if lines and lines[0]:
        return lines[0]
    raise InputError("passphrase_missing", f"'{file}' does not begin with a passphrase")


def _from_terminal(what: str = "", *, again: bool) -> bytes:
    if not is_terminal():
        raise InputError(
            "passphrase_missing", f"give --passphrase-file, or set {VARIABLE}: there is no terminal to ask"
        )
    text: str = click.prompt(
        f"Passphrase of {what}" if what else "Passphrase", hide_input=True, confirmation_prompt=again, err=True
    )
    return text.encode()


def read_passphrase(path: Path | None, *, what: str, confirm: bool = False) -> bytes:
    """A passphrase that is needed at once.

    Args:
        path: the file that ``--passphrase-file`` or the environment names.
        what: of what, for the question.
        confirm: ask twice: it is a new one.

    Raises:
        InputError: ``passphrase_missing``; those of reading.
    """
    return _from_terminal(what, again=confirm) if path is None else _from_file(path)
