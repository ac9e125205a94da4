"""Comparison with other libraries for local differential privacy: multi-freq-ldpy, pure-ldp and ldp-toolbox.

The aggregators of these libraries take Python objects in memory, without reading or checking. Hearsay's aggregator
reads a file, checks every rule and counts. All are timed on one core. The libraries are installed from the package
index into a new environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import venv
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from aggregator.common.files import read_regular
from benchmarks.shared import made_batches
from benchmarks.shared.harness import Row, interleaved_seconds
from benchmarks.speed.raw_counts import count_batches
from protocol import mechanisms

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from collections.abc import Iterator

from support.publisher import NOW
from support.reports import mixed

from protocol.documents.campaign import Campaign

PACKAGES = ("multi-freq-ldpy", "pure-ldp", "ldp-toolbox", "scipy", "scikit-learn", "statsmodels")
WORKER = Path(__file__).with_name("peers_worker.py")


@contextmanager
def environment(python: str) -> Iterator[str]:
    """Yield the path of a Python that has the libraries: ``python`` itself, or a new environment for ``install``."""
    if python != "install":
        yield python
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        made = str(Path(folder) / "bin" / "python")
        subprocess.run([made, "-m", "pip", "install", "--quiet", *PACKAGES], check=True, stdout=sys.stderr)
        yield made


def peers(python: str, direct_reports: int, oue_reports: int, runs: int) -> list[Row]:
    """Figures of ``direct`` with 8 values and ``oue`` with 32 values, by the other libraries and by Hearsay."""
    with environment(python) as interpreter:
        return [
            *_compared(interpreter, "direct", 8, direct_reports, runs),
            *_compared(interpreter, "oue", 32, oue_reports, runs),
        ]


def _compared(interpreter: str, mechanism: str, size: int, reports: int, runs: int) -> list[Row]:
    campaign = mixed(mechanisms.from_epsilon(mechanism, "1", size))
    rows = made_batches.records(campaign, reports)
    with tempfile.TemporaryDirectory() as folder:
        file, values = Path(folder) / "reports.hsr", Path(folder) / "values.npy"
        file.write_bytes(made_batches.batch(campaign, rows))
        field = rows[:, -campaign.layout.answer_bytes :]
        np.save(values, field[:, 1] if mechanism == "direct" else np.unpackbits(field, axis=1, count=size))
        command = [interpreter, str(WORKER), mechanism, str(values), str(size), str(runs)]
        theirs = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        plain, verified = interleaved_seconds(_hearsay(file, campaign, reports), runs, time.process_time)
    name = f"{mechanism} of {size} values, {reports:,} reports"
    found = [Row(f"{name}: {peer}", reports / taken / 1e6, "million a second") for peer, taken in theirs.items()]
    fastest = min(theirs, key=lambda peer: float(theirs[peer]))
    for kind, taken in (("without the digest", plain), ("digest verified", verified)):
        ours = f"{name}: a file, {kind}"
        found.append(Row(ours, reports / taken / 1e6, "million a second", fastest, theirs[fastest] / taken))
    return found


def _hearsay(file: Path, campaign: Campaign, reports: int) -> list:
    """Two functions from the file to counts, without and with the digest."""

    def count(*, verify: bool) -> None:
        found = count_batches(read_regular(file), campaign, now=NOW, verify=verify)
        assert found.proven + found.unproven == reports

    count(verify=True)
    return [lambda: count(verify=False), lambda: count(verify=True)]
