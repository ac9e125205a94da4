"""Where a command finds a passphrase: a file, the environment's name of one, or a person at a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from aggregator.files import read_file
from protocol.errors import InputError

VARIABLE = "HEARSAY_PASSPHRASE_FILE"
MAX_BYTES = 4096

passphrase_option = click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path),
    help=f"File whose first line is the passphrase; else {VARIABLE} names one, else a terminal is asked.",
)


def read_passphrase(path: Path | None, *, what: str, confirm: bool = False) -> bytes:
    """The passphrase as bytes of UTF-8, without the line's end.

    Args:
        path: the file that ``--passphrase-file`` names, if it was given.
        what: of what, for the question.
        confirm: ask twice: it is a new one.

    Raises:
        InputError: ``passphrase_missing``: none was given, and there is no terminal to ask; or the reasons
            of a file that can not be read.
    """
    named = os.environ.get(VARIABLE)
    if path is None and named:
        path = Path(named)
    if path is not None:
        found = read_file(path, MAX_BYTES).splitlines()
        if found and found[0]:
            return found[0]
        raise InputError("passphrase_missing", f"'{path}' does not begin with a passphrase")
    if not sys.stdin.isatty():
        raise InputError("passphrase_missing", f"give --passphrase-file, or set {VARIABLE}, to open {what}")
    text: str = click.prompt(f"Passphrase of {what}", hide_input=True, confirmation_prompt=confirm, err=True)
    return text.encode()
