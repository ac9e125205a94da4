"""Report files as a command line names them: ``ingest`` and ``merge`` take the same."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from aggregator.cli.output import counted, note

if TYPE_CHECKING:
    from collections.abc import Sequence

recursive_option = click.option("--recursive", is_flag=True, help="Of a folder, its folders too.")


def report_files(names: Sequence[str], *, recursive: bool) -> list[str]:
    """The files that arguments name, ``-`` standing for a list on standard input; notes say what is left.

    Raises:
        InputError: ``too_large``, of the list.
    """
    from aggregator.intake.finding import gather, read_names

    listed = read_names(sys.stdin.buffer) if "-" in names else []
    found = gather((name for name in names if name != "-"), recursive=recursive)
    if found.left:
        verb = "is" if found.left == 1 else "are"
        note(f"{counted(found.left, 'file')} in the folders {verb} no .hsr, or hidden, and left")
    if found.folders:
        note(f"{counted(found.folders, 'folder')} in the folders left; --recursive reads what is in them")
    return [*found.files, *listed]
