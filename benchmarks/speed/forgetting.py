"""Time of forgetting by the number of periods: equally many reports in few and in many periods.

    python -m benchmarks.speed.forgetting [--reports 1000000] [--periods 4 400 4000] [--runs 5] [--json]

Each run forgets all periods but the last, in a new store. The baseline is the smallest number of periods; its runs
take turns with the other runs.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregator.operations.report_store import create_store, open_store
from benchmarks.shared.harness import Row, arguments, interleaved_seconds, show
from benchmarks.shared.made_batches import NOW, Publisher, files, opened
from protocol.documents.campaign import Campaign

TITLE = "Forgetting all periods but the last"
_HOUR = 3_600


def spread(campaign: Campaign, periods: int) -> Callable[[NDArray[np.uint8], int], None]:
    """Return a function that draws the period of each record (N, L) uint8 from the last ``periods``, in place."""
    first, place = campaign.period_at(NOW) - periods + 1, len(campaign.layout.prefix) + 8

    def change(rows: NDArray[np.uint8], number: int) -> None:
        period = first + np.random.default_rng(number).integers(0, periods, len(rows))
        rows[:, place : place + 4] = period.astype(">u4").view(np.uint8).reshape(-1, 4)

    return change


def forgetting(reports: int, periods: list[int], runs: int, mechanism: str) -> list[Row]:
    """Measure one row for each number of periods."""
    publisher = Publisher(now=NOW - 2 * max(periods) * _HOUR)  # the campaign is older than its reports
    options = {"mechanism": mechanism, "time_precision": _HOUR, "lifetime": 4 * (max(periods) + 24) * _HOUR}
    raw = publisher.campaign(**options)
    campaign = opened(raw)
    last = campaign.period_at(NOW)
    with tempfile.TemporaryDirectory() as home:
        actions: list[Callable[[], object]] = []
        stores = []
        for number in periods:
            stores.append(Path(home) / f"store-{number}")
            store = create_store(stores[-1], raw)
            inbox = Path(home) / f"inbox-{number}"
            inbox.mkdir()
            added = store.ingest(files(inbox, campaign, reports, change=spread(campaign, number)), now=NOW)
            assert added.accepted == reports, "every report counts"
        copies = iter(Path(home) / f"copy-{number}" for number in range(runs * len(periods)))
        prepared = {store: [shutil.copytree(store, next(copies)) for _ in range(runs)] for store in stores}
        for copied in prepared.values():
            remaining = iter(copied)
            actions.append(lambda remaining=remaining: open_store(next(remaining)).forget(last, now=NOW))
        seconds = interleaved_seconds(actions, runs, time.perf_counter)
    name = f"{mechanism}, {reports:,} reports"
    return [
        Row(f"{name} over {number:,} periods", taken, "s", f"{periods[0]} periods", taken / seconds[0])
        for number, taken in zip(periods, seconds, strict=True)
    ]


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
