"""A store's reports as other engines read them, without Hearsay; docs/reference/store.md has the same queries."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from support.publisher import NOW
from support.reports import CAMPAIGN, CAMPAIGNS, RAW, RAWS, batch
from support.stores import files_of, reports, stored

from aggregator.operations.report_store import create_store
from aggregator.reports.storage import parts as compaction
from aggregator.reports.storage.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "store.md").read_text()
PARTS_SQL, TALLY_SQL = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
NAMES, PANDAS, POLARS, TALLY_PANDAS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def filled(folder, kind):
    """A store with a complete batch, a repeat of a part of it, and a damaged batch."""
    campaign = CAMPAIGNS[kind]
    contents = [
        batch(campaign, reports(devices, campaign)) for devices in (range(100), range(90, 110), range(110, 130))
    ]
    return stored(folder, RAWS[kind], *contents[:2], contents[2][:-44])


@pytest.mark.parametrize("kind", ["direct", "oue", "she"])
def test_pandas_and_duckdb_read_every_record_with_its_bucket(tmp_path, kind):
    store = filled(tmp_path, kind)
    frame = pd.read_parquet(store.path / "reports")
    assert (len(frame), frame.proven.sum(), frame.id.nunique()) == (140, 120, 130)
    assert frame.claim.isna().all(), "a batch without a trailer claims nothing"
    assert ((frame.id % 16).astype(int) == frame.bucket.astype(int)).all()
    assert set(frame.period) == {CAMPAIGNS[kind].period_at(NOW)}
    found = duckdb.sql(
        f"select count(*), count(distinct id), count(*) filter (proven), max(id % 16 <> bucket::int)::int "
        f"from read_parquet('{store.path}/reports/*/*.parquet', hive_partitioning = true)"
    ).fetchall()
    assert found == [(140, 130, 120, 0)]
    answer = {"direct": "uint16", "oue": "fixed_size_binary[1]", "she": "fixed_size_binary[32]"}[kind]
    schema = pq.read_schema(next(store.path.glob("reports/bucket=*/*.parquet")))
    assert schema.names == ["id", "period", "question", "answer", "proven", "claim"]
    assert [str(field.type) for field in schema] == ["uint64", "uint32", "uint16", answer, "bool", "uint64"]


def by_python(code: str) -> int:
    found: dict[str, Any] = {}
    exec(NAMES + code, found)
    return len(found["reports"])


def by_duckdb() -> int:
    with duckdb.connect() as connection:
        ((found,),) = connection.sql(PARTS_SQL).fetchall()
    return found


ENGINES: dict[str, Callable[[], int]] = {
    "duckdb": by_duckdb,
    "pandas": lambda: by_python(PANDAS),
    "polars": lambda: by_python(POLARS),
}


def read_until_whole(engine: str, folder: Path) -> int:
    """The documented way of reading: read again if a file has been deleted. All other errors are raised."""
    while True:
        before = read_manifest(folder).generation
        try:
            return ENGINES[engine]()
        except (OSError, duckdb.IOException):
            assert read_manifest(folder).generation > before, "a file that the manifest names is not there"


def test_the_queries_of_the_documentation_count_what_the_tally_counts(tmp_path, monkeypatch):
    store = filled(tmp_path, "direct")
    tally = store.tally()
    expected = {
        (question, answer): count
        for question, counts in enumerate(tally.counts)
        for answer, count in enumerate(counts)
        if count
    }
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        assert connection.sql(PARTS_SQL).fetchall() == [(140,)]
        rows = connection.sql(TALLY_SQL).fetchall()
    assert {(question, answer): count for question, answer, count in rows} == expected
    names: dict[str, Any] = {}
    exec(NAMES + PANDAS + TALLY_PANDAS, names)
    assert names["counts"].to_dict() == expected
    assert {engine: read() for engine, read in ENGINES.items()} == dict.fromkeys(ENGINES, 140)


def inbox(folder, number):
    """Files of five reports each, all different."""
    campaign = CAMPAIGN
    return files_of(folder, *(batch(campaign, reports(range(5 * n, 5 * n + 5), campaign)) for n in range(number)))


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_that_read_while_ingests_run_see_only_what_was_committed(tmp_path, monkeypatch, engine):
    monkeypatch.setattr(compaction, "MOST_SMALL", 2)
    monkeypatch.chdir(tmp_path)
    store = create_store(tmp_path / "store", RAW, buckets=2)
    first, *files = inbox(tmp_path, 5)
    store.ingest([first], now=NOW)

    def fill():
        for path in files:
            store.ingest([path], now=NOW)

    seen = []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(fill)
        while not writing.done():
            seen.append(read_until_whole(engine, store.path))
        writing.result()
    assert set(seen) <= set(range(5, 5 * 5 + 1, 5)), "what no commit had"
    assert seen == sorted(seen)
    assert read_until_whole(engine, store.path) == 5 * 5
