"""Cluster tasks that kill their worker process at the first run, as a power failure does."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from aggregator.reports.intake.remote import read_share
from aggregator.reports.tally.counting import count_partition

if TYPE_CHECKING:
    from pathlib import Path


class Replacing:
    """An executor that runs one function in place of another."""

    def __init__(self, executor, function, other):
        self._executor, self._function, self._other = executor, function, other

    def run(self, function, calls):
        return self._executor.run(self._chosen(function), [list(map(self._chosen, call)) for call in calls])

    def _chosen(self, value):
        return self._other if value is self._function else value

    def __getattr__(self, name):
        return getattr(self._executor, name)


def read_share_and_die(marker: Path, *arguments):
    """Its parts are on the disk when the first try ends, and their names are not yet told."""
    found = read_share(*arguments)
    die_once(marker)
    return found


def count_partition_and_die(*arguments, marker: Path):
    die_once(marker)
    return count_partition(*arguments)


def die_once(marker: Path) -> None:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
