"""Time from files to a tally: a cluster of two workers, a cluster of one worker, and the threads of one process.

    python -m benchmarks.speed.cluster [--reports 20000000] [--runs 5] [--folder DIR] [--json] [--write]

The variants take turns, each with a new store. Wall time includes the share of other programs. Processor time, of the
client and the busiest worker, is a lower bound of the wall time on an idle machine.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from aggregator.operations.report_store import create_store
from aggregator.reports.cluster import Cluster, open_cluster
from benchmarks.shared.harness import Row, arguments, show
from benchmarks.shared.made_batches import NOW, RAW, files, opened

RESULTS = Path(__file__).parents[1] / "results" / "cluster.txt"
TITLE = "From files to a tally on a cluster"
FILE_REPORTS = 500_000
LEAST_RUNS = 5


class Seconds(NamedTuple):
    """Seconds: of wall time for ingest and tally, and of processor time of the client and the busiest worker."""

    ingest: float
    tally: float
    processor: float

    @property
    def both(self) -> float:
        """Wall time of ingest and tally together."""
        return self.ingest + self.tally


def processor_times(cluster: Cluster | None) -> dict[str, float]:
    """Return processor time in seconds of this process and of each worker, since their start."""
    workers = {} if cluster is None else cluster._client.run(time.process_time)  # noqa: SLF001
    return {"client": time.process_time(), **workers}


def measure(home: Path, inbox: list[Path], cluster: Cluster | None) -> tuple[Seconds, bytes]:
    """Measure ingest and tally with a new store. Return the times and the tally's bytes."""
    store = create_store(home / "store", RAW)
    store.cluster = cluster
    before = processor_times(cluster)
    began = time.perf_counter()
    store.ingest(inbox, now=NOW)
    ingested = time.perf_counter()
    tally = store.tally()
    ended = time.perf_counter()
    used = {name: seconds - before[name] for name, seconds in processor_times(cluster).items()}
    shutil.rmtree(store.path)
    client = used.pop("client")
    return Seconds(ingested - began, ended - ingested, client + max(used.values(), default=0.0)), tally.to_bytes()


def rows(reports: int, runs: int, folder: Path | None) -> list[Row]:
    """Measure all figures."""
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(dir=folder) as home,
        open_cluster("local:1") as one,
        open_cluster("local:2") as two,
    ):
        inbox = Path(home) / "inbox"
        inbox.mkdir()
        made = files(inbox, opened(RAW), reports, FILE_REPORTS)
        ways = {"one worker": one, "two workers": two, "one process, its threads": None}
        taken: dict[str, list[Seconds]] = {name: [] for name in ways}
        tallies = set()
        for run in range(runs + 1):
            for name, cluster in ways.items():
                seconds, tally = measure(Path(home), made, cluster)
                tallies.add(tally)
                if run:  # the first run is a warm-up
                    taken[name].append(seconds)
        assert len(tallies) == 1, "every way has the same bytes"
    found = []
    for name, times in taken.items():
        middle = Seconds(*map(statistics.median, zip(*times, strict=True)))
        both, processor = (statistics.median(getattr(one, what) for one in times) for what in ("both", "processor"))
        if not found:
            wall, busy = both, processor
        found += [
            Row(f"{name}: files to tally", reports / both / 1e6, "million/s", "one worker", wall / both),
            Row(f"{name}: ingest alone", reports / middle.ingest / 1e6, "million/s"),
            Row(f"{name}: tally alone", reports / middle.tally / 1e6, "million/s"),
        ]
        if ways[name] is not None:
            title = f"{name}: processor time, client and busiest"
            found.append(Row(title, reports / processor / 1e6, "million/s", "one worker", busy / processor))
    found.append(Row("load of the machine before and after", load, "processes", "before", os.getloadavg()[0] / load))
    return found


def main() -> None:
    """Measure and print."""
    parser = arguments(TITLE)
    parser.add_argument("--reports", type=int, default=20_000_000, help="reports in all")
    parser.add_argument("--runs", type=int, default=5, help="runs of which each figure is the median; at least 5")
    parser.add_argument("--folder", type=Path, help="where stores are made; the disk counts")
    parser.add_argument("--write", action="store_true", help=f"write the figures to {RESULTS.name}, too")
    chosen = parser.parse_args()
    if chosen.runs < LEAST_RUNS:
        parser.error("a median takes at least 5 runs")
    title = f"{TITLE}: {chosen.reports:,} reports; medians of {chosen.runs} runs"
    figures = rows(chosen.reports, chosen.runs, chosen.folder)
    show(title, figures, as_json=chosen.json, file=RESULTS if chosen.write else None)


if __name__ == "__main__":
    main()
