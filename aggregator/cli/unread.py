"""Files that an ingest could not read: why, in words, and when that is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from aggregator.cli.output import counted, note, print_table
from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.reports.intake.sources import Unreadable


WHY_NOT = {
    "file_not_found": "there is no such file",
    "is_folder": "it is a folder in a list of files, or one that can not be listed; folders are given as arguments",
    "empty_file": "it holds nothing: it was cut on its way, or never written",
    "permission_denied": "this user may not read it",
    "too_large": "it has more than 1 TiB (of summaries 1 GiB), or more than fits into memory; it can be sent in parts",
    "expands_too_far": "it is compressed and holds more than 16 times its length: no reports do",
    "compression_damaged": "it is compressed, and nothing can be had from it",
    "file_shortened": "it became shorter while it was read; give it again when it is complete",
    "not_reached": "no server answers where its URL leads; look at the endpoint, the network and its settings",
    "unreadable": "it is no file, or the disk failed",
}
"""Reason → why a file was not read, in words."""
MOST_SHOWN = 40
"""Most unread files that are listed. The number of further ones is printed."""
MOST_CHARACTERS = 120
"""Most characters of a printed file name. A longer name is cut at its beginning."""


def print_unread(unreadable: Sequence[Unreadable]) -> None:
    """Print a table of the files that were not read, if there are any."""
    if not unreadable:
        return
    click.echo()
    shown = unreadable[:MOST_SHOWN]
    print_table(["not read", "reason", ""], [(_short(file), reason, WHY_NOT[reason]) for file, reason in shown])
    if len(unreadable) > len(shown):
        note(f"and {len(unreadable) - len(shown)} more that were not read; --json names all")


def say_unread(missed: int, files: int, *, strict: bool) -> None:
    """Print how many files were not read. With ``strict``, or if no file was read, this is an error.

    Args:
        missed: number of files that were not read.
        files: number of files given.
        strict: whether a single unread file is an error.

    Raises:
        InputError: ``unreadable``.
    """
    if not missed:
        return
    words = f"{missed} of {counted(files, 'file')} could not be read"
    if strict or missed == files:
        raise InputError("unreadable", words)
    note(f"{words}; --strict makes that an error")


def _short(name: str) -> str:
    """The end of a long file name; a short one unchanged."""
    return name if len(name) <= MOST_CHARACTERS else "…" + name[1 - MOST_CHARACTERS :]
