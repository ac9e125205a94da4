"""Time and memory from files to a tally through the store: ingest, exact de-duplication, counts.

Files hold a million reports each, or all reports in one batch, or one report each. Each run is a new process with a new
store, so peak memory is per run. Files are in the page cache; time includes flushing to the disk. Processor time
divided by the number of processors is a lower bound of the wall time on an idle machine.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.shared.harness import Row
from benchmarks.shared.made_batches import FILE_REPORTS, NOW, RAW, files, opened, write

_MIB = 1 << 20


def storing(
    sizes: list[int],
    in_one: list[int],
    small_files: int,
    runs: int,
    workers: int,
    memory: int,
    folder: Path | None,
) -> list[Row]:
    """Measure all figures: each size from many files, some sizes from one file, then files of one report each."""
    rows: list[Row] = []
    least = None
    with tempfile.TemporaryDirectory(dir=folder) as home:
        kinds = [("files", size, FILE_REPORTS) for size in sizes] + [("one file", size, size) for size in in_one]
        for name, size, per_file in kinds:
            middle = _medians(_runs(Path(home), size, min(size, per_file), runs, workers, memory))
            cost = (middle["ingest"] + middle["tally"]) / size
            least = cost if least is None else least
            rows += _whole(f"{name} to tally, {size:,} reports", size, middle, workers, cost / least)
        if small_files:
            rows += _small(small_files, _medians(_runs(Path(home), small_files, 1, runs, workers, memory)), workers)
    return rows


def _medians(measured: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(run[name] for run in measured) for name in measured[0]}


def _runs(home: Path, reports: int, per_file: int, runs: int, workers: int, memory: int) -> list[dict[str, float]]:
    """Measure ``reports`` reports in files of ``per_file`` reports, ``runs`` times, each with a new store."""
    inbox, store = home / "inbox", home / "store"
    inbox.mkdir()
    if per_file > FILE_REPORTS:
        write(inbox / "one.hsr", opened(RAW), reports, FILE_REPORTS)
    else:
        files(inbox, opened(RAW), reports, per_file)
    found = []
    for _ in range(runs):
        command = [sys.executable, "-m", __spec__.name, str(inbox), str(store), str(workers), str(memory)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
        assert found[-1]["reports"] == reports, "every report counts once"
        shutil.rmtree(store)
    shutil.rmtree(inbox)
    return found


def _whole(name: str, size: int, middle: dict[str, float], workers: int, cost: float) -> list[Row]:
    wall, cpu = middle["ingest"] + middle["tally"], (middle["ingest_cpu"] + middle["tally_cpu"]) / workers
    return [
        Row(f"{name}: wall time, {workers} threads", size / wall / 1e6, "million/s"),
        Row(f"{name}: processor time / {workers}", size / cpu / 1e6, "million/s"),
        Row(f"{name}: cost of a report", 1e9 * wall / size, "ns", "the smallest size's", cost),
        Row(f"{name}: counting alone", size / middle["tally"] / 1e6, "million/s"),
        Row(f"{name}: the same files again", size / middle["again"] / 1e6, "million/s"),
        Row(f"{name}: most memory", middle["rss"] / _MIB, "MiB resident"),
    ]


def _small(files: int, middle: dict[str, float], workers: int) -> list[Row]:
    name = f"{files:,} files of one report"
    return [
        Row(f"{name}: wall time, {workers} threads", files / middle["ingest"], "files/s"),
        Row(f"{name}: processor time", files / middle["ingest_cpu"], "files/s"),
        Row(f"{name}: the same files again", files / middle["again"], "files/s"),
    ]


def _most_resident() -> int:
    """Return peak memory of this process in bytes.

    ``getrusage`` would include memory of the parent process before exec.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) << 10


def _measure(inbox: Path, store: Path, workers: int, memory: int) -> dict[str, Any]:
    """Measure one run. This is the body of the worker process."""
    import pandas  # noqa: F401, ICN001 - pyarrow does so when it first meets an array: start-up, not a store's work

    from aggregator.operations.report_store import create_store

    made = sorted(str(path) for path in inbox.iterdir())
    opened_store = create_store(store, RAW)
    opened_store.workers, opened_store.memory_bytes = workers, memory
    found: dict[str, Any] = {}
    for name, action in (
        ("ingest", lambda: opened_store.ingest(made, now=NOW)),
        ("tally", lambda: found.update(reports=opened_store.tally_report().reports)),
        ("again", lambda: opened_store.ingest(made, now=NOW)),
    ):
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        found[name], found[f"{name}_cpu"] = time.perf_counter() - wall, time.process_time() - cpu
        if name == "tally":
            found["rss"] = _most_resident()
    return found


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
