"""Opening the budget file that a command names."""

from __future__ import annotations

from pathlib import Path

from aggregator.cli.output import warn
from aggregator.curator.budget import BudgetFile

_OTHERS = 0o077


def open_budget(path: Path) -> BudgetFile:
    """Open a budget file, and warn if others than its owner have rights to it. The caller closes it.

    Raises:
        InputError, StorageError: the file can not be opened (:meth:`aggregator.curator.budget.BudgetFile.open`).
    """
    from aggregator.curator.budget import BudgetFile

    opened = BudgetFile.open(path)
    if path.stat().st_mode & _OTHERS:
        warn(f"others than its owner can use '{path}', which holds the key of the records' digests: chmod 600")
    return opened
