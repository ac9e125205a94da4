"""Report files on the command line of ``ingest`` and ``merge``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from aggregator.cli.output import counted, note

recursive_option = click.option("--recursive", is_flag=True, help="Read folders in folders too.")


def report_files(names: Sequence[str], *, recursive: bool, suffixes: tuple[str, ...] | None = None) -> list[str]:
    """Expand the file arguments of a command to names of files and URLs. A URL with a pattern stays unchanged.

    Notes on standard error tell how many files and folders are left out.

    Args:
        names: files, folders, patterns and URLs; ``-`` for a list of names on standard input.
        recursive: whether folders in folders are read.
        suffixes: ends of the names of the files that are taken from folders; None for those of report files.

    Raises:
        InputError: ``too_large``: the list on standard input is too long.
    """
    from aggregator.reports.intake.finding import SUFFIXES, gather, read_names

    suffixes = suffixes or SUFFIXES
    listed = read_names(sys.stdin.buffer) if "-" in names else []
    found = gather((name for name in names if name != "-"), recursive=recursive, suffixes=suffixes)
    if found.left:
        note(f"left out {counted(found.left, 'file')} in the folders: hidden, or no {suffixes[0]}")
    if found.folders:
        note(f"left out {counted(found.folders, 'folder')} in the folders; --recursive reads what is in them")
    return [*found.files, *listed]
