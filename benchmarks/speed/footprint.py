"""The installed device: size, start, memory, a thousand reports.

The device's wheel is installed into a new environment, which is removed afterwards. Every figure is measured by a new
process (``probes/``).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import NamedTuple

from benchmarks.shared.harness import Row

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REPEATS = 7
HOURS_IN_TEN_YEARS = 24 * 3652


class Installed(NamedTuple):
    """An environment with the device and its dependencies only."""

    python: Path
    size: int


def install(folder: Path) -> Installed | None:
    """Make an environment without pip and install the device's wheel into it; None if the index lacks a dependency."""
    home = folder / "device"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    (packages,) = (home / "lib").glob("python*/site-packages")
    before = _size(packages)
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-warn-script-location"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", str(_own_wheel(folder))], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"the device could not be installed and is left out: {last}", file=sys.stderr)
        return None
    return Installed(python, _size(packages) - before)


def _own_wheel(folder: Path) -> Path:
    """Build the device's wheel from this source tree."""
    command = [sys.executable, str(ROOT / "distribution" / "edge.py"), str(folder / "wheel")]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = (folder / "wheel").glob("*.whl")
    return wheel


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def import_seconds(python: Path, repeats: int = 15) -> float:
    """Return the median time that the import adds to a bare interpreter."""

    def taken(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([python, "-I", "-c", code], check=True)
        return time.perf_counter() - began

    return statistics.median(taken("import edge_sdk") - taken("pass") for _ in range(repeats))


def probed(python: Path, documents: dict[str, bytes], now: int) -> dict[str, float]:
    """Return the medians of the probe's figures. Each run is a new process with a new state on the disk."""
    runs = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as name:
            for file, content in documents.items():
                (Path(name) / file).write_bytes(content)
            command = [python, "-E", "-s", str(HERE / "probes" / "hearsay_edge.py"), name, str(now)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def footprint(documents: dict[str, bytes], now: int) -> list[Row]:
    """Measure all figures with ``root.hst``, ``campaign.hsc`` and ``model.hsm`` of a campaign with hourly periods."""
    with tempfile.TemporaryDirectory() as name:
        device = install(Path(name))
        if device is None:
            return []
        start, found = import_seconds(device.python), probed(device.python, documents, now)
    per_report = max(found["written"], found["disk"]) / 1000
    return [
        Row("installed with all it needs", device.size / 1e6, "MB"),
        Row("import, over a bare interpreter", start * 1e3, "ms"),
        Row("resident after import", found["imported"] / 1e6, "MB"),
        Row("resident after use", found["used"] / 1e6, "MB"),
        Row("a thousand reports", found["seconds"] * 1e3, "ms"),
        Row("of them waiting, on disk, flushed, when report() returns", found["waiting"], "reports"),
        Row("written to disk per report", per_report / 1e3, "kB"),
        Row("in ten years of one report an hour", per_report * HOURS_IN_TEN_YEARS / 1e9, "GB"),
    ]
