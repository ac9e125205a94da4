"""Time from reports to counts: decoding, and the way through a store.

    python -m benchmarks.speed.ingest [--reports 10000000] [--runs 7] [--json] [--write]

Decoding takes the bytes of one batch in memory to counts by question and value, with all checks. The baseline of layout
1 has no checks: SHA-256 of the same bytes, an array over them, and a histogram of decoded codes. Every figure is the
median of at least five runs; those of figure and baseline take turns. One-core figures are processor time, so other
programs do not count. ``--write`` writes the figures to benchmarks/results/ingest.txt.
"""

from __future__ import annotations

import argparse
import time
from hashlib import sha256
from pathlib import Path

import numpy as np

from benchmarks.shared.harness import Row, arguments, interleaved_seconds, show
from benchmarks.shared.made_batches import NOW, batch, made, mixed, records
from benchmarks.speed.raw_counts import count_batches
from benchmarks.speed.storing import storing
from protocol import mechanisms
from protocol.documents.campaign import Campaign

RESULTS = Path(__file__).parents[1] / "results" / "ingest.txt"
TITLE = "From files of reports to counts"
LEAST_RUNS = 5
BASELINE = "SHA-256, np.frombuffer, np.bincount"


def decoding(reports: int, runs: int) -> list[Row]:
    """Measure all rows: layout 1; layout 2 with 32 bits and a quarter of the reports; with 128 bits and a sixteenth."""
    return [*_values(reports, runs), *_bits(32, reports // 4, runs), *_bits(128, reports // 16, runs)]


def _values(reports: int, runs: int) -> list[Row]:
    campaign = made()
    rows = records(campaign, reports)
    data = batch(campaign, rows)
    code = np.ascontiguousarray(rows[:, -4:]).view(">u2").astype(np.int64) @ (8, 1)
    del rows

    def baseline() -> None:
        sha256(data).digest()
        np.frombuffer(data, np.uint8)
        np.bincount(code)

    least, plain, verified = interleaved_seconds(
        [baseline, *_counting(data, campaign, reports)], runs, time.process_time
    )
    name = f"layout 1, {reports:,} reports"
    return [
        _row(f"{name}: {BASELINE}", reports, least),
        _row(f"{name}, digest verified", reports, verified, BASELINE, least),
        _row(f"{name}, without the digest", reports, plain, BASELINE, least),
    ]


def _bits(size: int, reports: int, runs: int) -> list[Row]:
    campaign = mixed(mechanisms.from_epsilon("oue", "1", size))
    data = batch(campaign, records(campaign, reports))
    actions = [lambda: sha256(data).digest(), *_counting(data, campaign, reports)]
    digest, plain, verified = interleaved_seconds(actions, runs, time.process_time)
    name = f"layout 2, {size} bits, {reports:,} reports"
    return [
        _row(f"{name}, digest verified", reports, verified, "SHA-256 alone", digest),
        _row(f"{name}, without the digest", reports, plain, "SHA-256 alone", digest),
    ]


def _counting(data: bytes, campaign: Campaign, reports: int) -> list:
    """Return two functions that count, without and with a check of the digest, after one trial call of each."""

    def count(*, verify: bool) -> None:
        found = count_batches(data, campaign, now=NOW, verify=verify)
        assert (found.proven if verify else found.unproven) == reports

    count(verify=True)
    return [lambda: count(verify=False), lambda: count(verify=True)]


def _row(name: str, reports: int, seconds: float, baseline: str = "", compared: float | None = None) -> Row:
    return Row(name, reports / seconds / 1e6, "million a second", baseline, compared and compared / seconds)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    options = arguments(TITLE)
    options.add_argument("--reports", type=int, default=10_000_000, help="reports of layout 1 to decode")
    options.add_argument("--runs", type=int, default=7, help="runs of which each figure is the median; at least 5")
    options.add_argument("--store-reports", type=int, nargs="*", default=[], help="sizes to take from files to a tally")
    options.add_argument("--one-file", type=int, nargs="*", default=[], help="sizes to take from one batch to a tally")
    options.add_argument("--small-files", type=int, default=0, help="files of one report to ingest")
    options.add_argument("--workers", type=int, default=2, help="threads that ingest and count")
    options.add_argument("--memory", type=int, default=1 << 30, help="bytes that counting may take")
    options.add_argument("--folder", type=Path, help="where stores are made; the disk counts")
    options.add_argument("--write", action="store_true", help=f"write the figures to {RESULTS.name}, too")
    return options


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
