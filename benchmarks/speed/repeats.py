"""Time of counting by allowed memory, if every report arrived twice.

    python -m benchmarks.speed.repeats [--reports 20000000] [--memory 64] [--runs 5] [--buckets 16] [--folder DIR]
                                       [--json]

Each report arrives in two files with different batches, so half of the records are repeats. The baseline is counting
without a memory limit; its runs take turns with the other runs. The speed of the folder's and TMPDIR's disks matters.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

from aggregator.operations.report_store import create_store, open_store
from benchmarks.shared.harness import Row, arguments, interleaved_seconds, show
from benchmarks.shared.made_batches import FILE_REPORTS, NOW, RAW, files, opened

TITLE = "Counting reports that came twice"
_UNLIMITED = 1 << 40
_MIB = 1 << 20


def make(folder: Path, reports: int, buckets: int) -> Path:
    """Make a store in which each report arrived twice: in a file of a million reports, and in one of half as many."""
    store = create_store(folder / "store", RAW, buckets=buckets)
    for per_file in (FILE_REPORTS, min(reports, FILE_REPORTS) // 2):
        inbox = folder / "inbox"
        inbox.mkdir()
        store.ingest(files(inbox, opened(RAW), reports, per_file), now=NOW)
        shutil.rmtree(inbox)
    return store.path


def tally(path: Path, memory: int, reports: int) -> None:
    """Count the reports and check that every report counts once."""
    store = open_store(path)
    store.memory_bytes = memory
    found = store.tally_report()
    assert (found.reports, found.rejected) == (reports, {"report_replayed": reports}), "every report counts once"


def counting(reports: int, memories: list[int], runs: int, buckets: int, folder: Path | None) -> list[Row]:
    """Measure one row per memory limit, first counting without limit."""
    with tempfile.TemporaryDirectory(dir=folder) as home:
        path = make(Path(home), reports, buckets)
        limits = [_UNLIMITED, *(memory * _MIB for memory in memories)]
        tally(path, _UNLIMITED, reports)  # brings the parts into the page cache
        seconds = interleaved_seconds([partial(tally, path, limit, reports) for limit in limits], runs)
    names = ["no limit", *(f"--memory {memory}MiB" for memory in memories)]
    return [
        Row(f"{reports:,} reports twice, {name}", taken, "s", "no limit", taken / seconds[0])
        for name, taken in zip(names, seconds, strict=True)
    ]


def main() -> None:
    """Measure and print."""
    parser = arguments(TITLE)
    parser.add_argument("--reports", type=int, default=20_000_000, help="different reports")
    parser.add_argument("--memory", type=int, nargs="+", default=[64], help="MiB that counting may take")
    parser.add_argument("--runs", type=int, default=5, help="runs of which each figure is the median")
    parser.add_argument("--buckets", type=int, default=16, help="of the store; fewer reports in fewer are as many each")
    parser.add_argument("--folder", type=Path, help="where the store is made; the disk counts")
    chosen = parser.parse_args()
    rows = counting(chosen.reports, chosen.memory, chosen.runs, chosen.buckets, chosen.folder)
    show(f"{TITLE}; medians of {chosen.runs} runs", rows, as_json=chosen.json)


if __name__ == "__main__":
    main()
