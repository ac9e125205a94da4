"""Tasks of a cluster that end their worker the first time they are run, as a machine that loses power does."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from aggregator.cluster import ingest as cluster_ingest
from aggregator.tally import counting

if TYPE_CHECKING:
    from pathlib import Path

READ_FILES, COUNT_SLICE = cluster_ingest._read_files, counting.count_slice


def read_files_and_die(marker: Path, *arguments):
    """Its parts are on the disk when the first try ends, and their names are not yet told."""
    found = READ_FILES(*arguments)
    die_once(marker)
    return found


def count_slice_and_die(*arguments, marker: Path):
    die_once(marker)
    return COUNT_SLICE(*arguments)


def die_once(marker: Path) -> None:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
