"""Time of forgetting by the number of periods: equally many reports in few and in many periods.

    python -m benchmarks.speed.forgetting [--reports 1000000] [--periods 4 400 4000] [--runs 5] [--json]

Each run forgets all periods but the last, in a new store. The baseline is the smallest number of periods; its runs
take turns with the other runs.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.shared import made_batches
from benchmarks.shared.harness import Row, arguments, interleaved_seconds, show

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from collections.abc import Callable

from support.publisher import NOW, Publisher
from support.reports import opened

from aggregator.operations.report_store import create_store, open_store
from protocol.documents.campaign import Campaign

TITLE = "Forgetting all periods but the last"
FILE_REPORTS = 1_000_000
_HOUR = 3_600


def _write(inbox: Path, campaign: Campaign, reports: int, periods: int) -> list[Path]:
    """Write files of reports whose periods are drawn at random from ``periods`` periods."""
    first = campaign.period_at(NOW) - periods + 1
    place = len(campaign.layout.prefix) + 8
    found = []
    for number in range(-(-reports // FILE_REPORTS)):
        rows = made_batches.records(campaign, min(FILE_REPORTS, reports - number * FILE_REPORTS), number)
        period = first + np.random.default_rng(number).integers(0, periods, len(rows))
        rows[:, place : place + 4] = period.astype(">u4").view(np.uint8).reshape(-1, 4)
        found.append(inbox / f"{periods}-{number}.hsr")
        found[-1].write_bytes(made_batches.batch(campaign, rows))
    return found


def forgetting(reports: int, periods: list[int], runs: int, mechanism: str) -> list[Row]:
    """Measure one row for each number of periods."""
    publisher = Publisher(now=NOW - 2 * max(periods) * _HOUR)  # the campaign is older than its reports
    options = {"mechanism": mechanism, "time_precision": _HOUR, "lifetime": 4 * (max(periods) + 24) * _HOUR}
    raw = publisher.campaign(**options)
    campaign = opened(raw)
    with tempfile.TemporaryDirectory() as home:
        actions: list[Callable[[], object]] = []
        stores = []
        for number in periods:
            stores.append(Path(home) / f"store-{number}")
            store = create_store(stores[-1], raw)
            added = store.ingest(_write(Path(home), campaign, reports, number), now=NOW)
            assert added.accepted == reports, "every report counts"
        copies = iter(Path(home) / f"copy-{number}" for number in range(runs * len(periods)))
        prepared = {store: [shutil.copytree(store, next(copies)) for _ in range(runs)] for store in stores}
        for copied in prepared.values():
            remaining = iter(copied)
            actions.append(lambda remaining=remaining: open_store(next(remaining)).forget(_last(campaign), now=NOW))
        seconds = interleaved_seconds(actions, runs, time.perf_counter)
    name = f"{mechanism}, {reports:,} reports"
    return [
        Row(f"{name} over {number:,} periods", taken, "s", f"{periods[0]} periods", taken / seconds[0])
        for number, taken in zip(periods, seconds, strict=True)
    ]


def _last(campaign: Campaign) -> int:
    return campaign.period_at(NOW)


def main() -> None:
    """Measure and print."""
    parser = arguments(TITLE)
    parser.add_argument("--reports", type=int, default=1_000_000, help="reports in a store")
    parser.add_argument("--periods", type=int, nargs="+", default=[4, 400, 4000], help="over how many periods")
    parser.add_argument("--runs", type=int, default=5, help="runs of which each figure is the median")
    chosen = parser.parse_args()
    rows = [
        row
        for mechanism in ("direct", "oue")
        for row in forgetting(chosen.reports, chosen.periods, chosen.runs, mechanism)
    ]
    show(f"{TITLE}; medians of {chosen.runs} runs", rows, as_json=chosen.json)


if __name__ == "__main__":
    main()
