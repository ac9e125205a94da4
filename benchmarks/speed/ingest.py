"""Time from reports to counts: decoding, and the way through a store.

    python -m benchmarks.speed.ingest [--reports 10000000] [--runs 7] [--json] [--write]

Every figure is the median of at least five runs; those of figure and baseline take turns. One-core figures are
processor time. ``--write`` writes the figures to benchmarks/results/ingest.txt.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.shared.harness import Row, arguments, show
from benchmarks.speed.decoding import decoding
from benchmarks.speed.storing import storing

RESULTS = Path(__file__).parents[1] / "results" / "ingest.txt"
TITLE = "From files of reports to counts"
LEAST_RUNS = 5


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = arguments(TITLE)
    made.add_argument("--reports", type=int, default=10_000_000, help="reports of layout 1 to decode")
    made.add_argument("--runs", type=int, default=7, help="runs of which each figure is the median; at least 5")
    made.add_argument("--store-reports", type=int, nargs="*", default=[], help="sizes to take from files to a tally")
    made.add_argument("--one-file", type=int, nargs="*", default=[], help="sizes to take from one batch to a tally")
    made.add_argument("--small-files", type=int, default=0, help="files of one report to ingest")
    made.add_argument("--workers", type=int, default=2, help="threads that ingest and count")
    made.add_argument("--memory", type=int, default=1 << 30, help="bytes that counting may take")
    made.add_argument("--folder", type=Path, help="where stores are made; the disk counts")
    made.add_argument("--write", action="store_true", help=f"write the figures to {RESULTS.name}, too")
    return made


def main() -> None:
    """Measure and print."""
    chosen = parser().parse_args()
    if chosen.runs < LEAST_RUNS:
        parser().error("a median takes at least 5 runs")
    rows: list[Row] = decoding(chosen.reports, chosen.runs)
    sizes = (chosen.store_reports, chosen.one_file, chosen.small_files)
    rows += storing(*sizes, chosen.runs, chosen.workers, chosen.memory, chosen.folder)
    title = f"{TITLE}; medians of {chosen.runs} runs"
    show(title, rows, as_json=chosen.json, file=RESULTS if chosen.write else None)


if __name__ == "__main__":
    main()
