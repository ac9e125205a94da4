"""Costs of a node: processor time per record, and memory, which does not grow with the number of records.

    python benchmarks/federated/node.py [--json] [--records 1000000]

Records with 8 categories of 10 values and 6 numbers come from an iterator, a CSV file, the same file compressed by
gzip, and a SQLite table. Each run is a process of its own. The baseline of time is reading the same source without
adding it up; the baseline of memory is the same run with 10,000 records.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from collections.abc import Iterator

from support.publisher import NOW, Publisher

from benchmarks.shared.harness import Row, show
from edge_sdk import Node, Policy
from edge_sdk.node.records import csv_records, sqlite_records
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

FEW = 10_000
VALUES = [f"value {number}" for number in range(10)]
CATEGORIES = [f"category {number}" for number in range(8)]
NUMBERS = [f"number {number}" for number in range(6)]
NAMES = ["label", *CATEGORIES, *NUMBERS]
SCHEMA = build_schema(
    Label("label", ["no", "yes"]),
    [
        *(Categorical(name, VALUES) for name in CATEGORIES),
        *(Numeric(name, "0", "100", [0], "missing", None) for name in NUMBERS),
    ],
)
SOURCES = ("iterator", "csv", "csv.gz", "sqlite")


def made(count: int) -> Iterator[list[Any]]:
    """``count`` records, as rows in the order of ``NAMES``. Two of the numbers have a million different values."""
    draw = Random(1)
    for _ in range(count):
        categories = draw.choices(VALUES, k=len(CATEGORIES))
        whole = [draw.randrange(100) for _ in NUMBERS[2:]]
        yield [draw.choice(("no", "yes")), *categories, *whole, round(100 * draw.random(), 6), 100 * draw.random()]


def write(folder: Path, count: int) -> None:
    """Write ``count`` records as CSV, as compressed CSV and as a SQLite table."""
    with (
        (folder / f"{count}.csv").open("w", newline="") as file,
        gzip.open(folder / f"{count}.csv.gz", "wt", newline="", compresslevel=1) as packed,
    ):
        for out in (file, packed):
            writer = csv.writer(out)
            writer.writerow(NAMES)
            writer.writerows(made(count))
    with sqlite3.connect(folder / f"{count}.sqlite") as database:
        columns = ", ".join(f'"{name}"' for name in NAMES)
        database.execute(f"CREATE TABLE records ({columns})")
        database.executemany(f"INSERT INTO records VALUES ({', '.join('?' * len(NAMES))})", made(count))


def records(folder: Path, source: str, count: int) -> Iterator[dict[str, Any]]:
    """The records of one source."""
    if source == "iterator":
        return (dict(zip(NAMES, row, strict=True)) for row in made(count))
    if source == "sqlite":
        return sqlite_records(folder / f"{count}.sqlite", table="records")
    return csv_records(folder / f"{count}.{source}")


def measure(folder: Path, source: str, count: int) -> dict[str, float]:
    """Processor seconds of reading alone and of a summary, and the peak memory of this process in bytes."""
    begun = time.process_time()
    for _ in records(folder, source, count):
        pass
    read = time.process_time() - begun
    publisher = Publisher(schema=SCHEMA)
    with Node.open(None, trust=publisher.root(), policy=Policy.of(), clock=lambda: NOW) as node:
        campaign = node.enrol(publisher.node_campaign(family="gaussian"))
        begun = time.process_time()
        found = node.summarise(campaign.id, records(folder, source, count))
        taken = time.process_time() - begun
    assert found.unread is not None
    assert found.unread.records == count
    return {"read": read, "summarise": taken, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def rows(folder: Path, many: int) -> Iterator[Row]:
    """The figures of every source."""
    for count in (FEW, many):
        write(folder, count)
    for source in SOURCES:
        found = {}
        for count in (FEW, many):
            command = [sys.executable, __file__, "--child", str(folder), source, str(count)]
            found[count] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        least, most = found[FEW], found[many]
        yield Row(
            f"{many:,} records, {source}", most["summarise"], "s", "reading alone", most["summarise"] / most["read"]
        )
        yield Row(f"peak memory, {source}", most["peak"] / 1e6, "MB", f"{FEW:,} records", most["peak"] / least["peak"])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        folder, source, count = given.child
        print(json.dumps(measure(Path(folder), source, int(count))))
        return
    with tempfile.TemporaryDirectory() as folder:
        show("A node with many records", list(rows(Path(folder), given.records)), as_json=given.json)


if __name__ == "__main__":
    main()
