"""Processor time of ``hearsay status`` over that of a tally, which status contains. Both take turns in one run.

    python -m benchmarks.speed.status [--reports 1000000] [--runs 5] [--json]

Status also counts by period and by set bits, estimates, and tests for alarms. The tests' time depends on the numbers
of questions, answers and periods, and not on the number of reports. Reports are in one period, in 20 periods one after
the other (as files arrive day by day), or in 20 periods at random.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.guarantees.alarms import MUSHROOM, Setting, payload_of
from benchmarks.shared.harness import Row, arguments, interleaved_seconds, show
from benchmarks.shared.made_batches import NOW, batch, records

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.publisher import CAMPAIGN_KEY

from aggregator.operations.report_store import Store, create_store
from aggregator.operations.status import status
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import PAYLOAD_TYPES, seal

PERIODS = 20
ORDERS = ("one period", "in order", "at random")
SETTINGS = (Setting("direct", "1", MUSHROOM), Setting("oue", "1", MUSHROOM), Setting("she", "1", (4, 4, 4)))


def store_of(folder: Path, setting: Setting, order: str, reports: int) -> Store:
    """A store with random reports, whose periods have the given order."""
    payload = payload_of(setting)
    campaign = parse_campaign(payload)
    rows, head = records(campaign, reports), len(campaign.layout.prefix)
    if order != "one period":
        ago = np.random.default_rng(1).integers(0, PERIODS, reports)
        period = campaign.period_at(NOW) - (np.sort(ago)[::-1] if order == "in order" else ago)
        rows[:, head + 8 : head + 12] = period.astype(">u4").view(np.uint8).reshape(-1, 4)
    (folder / "reports.hsr").write_bytes(batch(campaign, rows))
    found = create_store(folder / "store", seal(PAYLOAD_TYPES["campaign"], payload, [CAMPAIGN_KEY]))
    found.ingest([folder / "reports.hsr"], now=NOW)
    found.workers = 1
    return found


def main() -> None:
    """Measure, print."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--reports", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for setting in SETTINGS:
        for order in ORDERS:
            with tempfile.TemporaryDirectory() as folder:
                store = store_of(Path(folder), setting, order, options.reports)
                actions = (store.tally_report, lambda store=store: status(store))
                tally, whole = interleaved_seconds(actions, options.runs, time.process_time)
            rows.append(Row(f"{setting.words}, {order}", whole, "s of processor", "tally", whole / tally))
    show(f"status of {options.reports:,} reports", rows, as_json=options.json)


if __name__ == "__main__":
    main()
