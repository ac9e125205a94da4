"""A store's reports as other engines see them, without our help; docs/store.md has the same queries."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from support.publisher import NOW, Publisher
from support.reports import batch, opened, report

from aggregator.intake.store import create_store

RAW = {kind: Publisher().campaign(mechanism=kind) for kind in ("direct", "oue", "she")}
CAMPAIGNS = {kind: opened(raw) for kind, raw in RAW.items()}
TEXT = (Path(__file__).parents[3] / "docs" / "store.md").read_text()


def filled(folder, kind):
    """A store with a whole batch, a repeat of it in part, and a damaged one."""
    campaign = CAMPAIGNS[kind]
    store = create_store(folder / "store", RAW[kind])
    for number, (devices, cut) in enumerate([(range(100), 0), (range(90, 110), 0), (range(110, 130), 44)]):
        data = batch(campaign, [report(campaign, device, device) for device in devices])
        path = folder / f"{number}.hsr"
        path.write_bytes(data[: len(data) - cut])
        store.ingest([path], now=NOW)
    return store


@pytest.mark.parametrize("kind", ["direct", "oue", "she"])
def test_pandas_reads_every_record_with_its_bucket(tmp_path, kind):
    store = filled(tmp_path, kind)
    frame = pd.read_parquet(store.path / "reports")
    assert len(frame) == 100 + 20 + 20
    assert frame.proven.sum() == 120
    assert frame.claim.isna().all(), "a batch without a trailer claims nothing"
    assert ((frame.id % 16).astype(int) == frame.bucket.astype(int)).all()
    assert frame.id.nunique() == 130
    assert set(frame.period) == {CAMPAIGNS[kind].period_at(NOW)}


@pytest.mark.parametrize("kind", ["direct", "oue", "she"])
def test_duckdb_reads_the_same(tmp_path, kind):
    store = filled(tmp_path, kind)
    found = duckdb.sql(
        f"select count(*), count(distinct id), count(*) filter (proven), max(id % 16 <> bucket::int)::int "
        f"from read_parquet('{store.path}/reports/*/*.parquet', hive_partitioning = true)"
    ).fetchall()
    assert found == [(140, 130, 120, 0)]


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
    (query,) = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
    assert {(question, answer): count for question, answer, count in duckdb.sql(query).fetchall()} == expected
    (code,) = re.findall(r"```python\n(import pandas.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["counts"].to_dict() == expected
