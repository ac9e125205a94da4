"""An export holds exactly the counted reports, as read by pandas, DuckDB and the csv module."""

from __future__ import annotations

import csv
import errno
from collections import Counter
from datetime import UTC, datetime

import duckdb
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import stores
from support.examples import examples
from support.failures import refusal
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, opened, report

from aggregator.operations import export as exporting
from aggregator.operations.export import CSV, PARQUET, export
from aggregator.reports.tally.scope import Scope
from protocol.batches.report import decode_answer, decode_report

LATER = NOW + 5 * DAY
RAWS = {
    "direct": Publisher().campaign(),
    "oue": Publisher().campaign(mechanism="oue"),
    "she": Publisher().campaign(mechanism="she"),
}
CAMPAIGNS = {name: opened(raw) for name, raw in RAWS.items()}
FIRST = CAMPAIGNS["direct"].period_at(NOW)


def reports(devices, campaign):
    return [report(campaign, device, device, period=FIRST + day) for device in devices for day in range(4)]


def expected(campaign, records):
    """id, period, question and answer of records, by the scalar decoder."""
    rows = []
    for record in records:
        identifier, period, question, field = decode_report(campaign.layout, record)
        answer = decode_answer(campaign.questions[question].mechanism, field, campaign.layout)
        rows.append((identifier, period, question, answer))
    return sorted(rows)


@pytest.mark.parametrize("mechanism", RAWS)
def test_parquet_and_csv_say_what_the_reports_say(tmp_path, mechanism):
    campaign = CAMPAIGNS[mechanism]
    records = reports(range(40), campaign)
    store = stores.stored(tmp_path, RAWS[mechanism], batch(campaign, records), now=LATER)
    wanted = expected(campaign, records)
    assert export(store, tmp_path / "o.parquet", PARQUET, scope=Scope()) == (160, 0)
    assert export(store, tmp_path / "o.csv", CSV, scope=Scope()) == (160, 0)

    frame = pd.read_parquet(tmp_path / "o.parquet")
    assert list(frame.columns) == ["id", "period", "start", "question", "asked", "answer", "proven"]
    assert frame["proven"].all()
    answers = [answer if mechanism == "direct" else tuple(answer.tolist()) for answer in frame["answer"]]
    ids = [int(value).to_bytes(8, "big") for value in frame["id"]]
    assert sorted(zip(ids, frame["period"], frame["question"], answers, strict=True)) == wanted
    begun = frame["start"].dt.tz_convert(None).astype("datetime64[s]").astype("int64")
    assert (begun == frame["period"].astype("int64") * DAY).all()
    assert set(frame["asked"]) <= {"class", "cell odor", "cell width"}

    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "period", "start", "question", "asked", "answer", "proven"]
    parse = {"direct": int, "oue": lambda text: tuple(map(int, text)), "she": lambda t: tuple(map(int, t.split()))}
    found = [
        (bytes.fromhex(row["id"]), int(row["period"]), int(row["question"]), parse[mechanism](row["answer"]))
        for row in rows
    ]
    assert sorted(found) == wanted
    assert {row["proven"] for row in rows} == {"true"}
    begins = datetime.fromtimestamp(int(rows[0]["period"]) * DAY, UTC)
    assert rows[0]["start"] == f"{begins:%Y-%m-%dT%H:%M:%SZ}"


def test_other_engines_count_what_the_tally_counts(tmp_path):
    campaign = CAMPAIGNS["direct"]
    records = reports(range(60), campaign)
    lie = bytearray(records[5])
    lie[17] ^= 1
    damaged = batch(campaign, [*records[:20], bytes(lie)])[:-1]
    store = stores.stored(tmp_path, RAWS["direct"], batch(campaign, records[10:]), damaged, now=LATER)
    tally = store.tally()
    export(store, tmp_path / "o.parquet", PARQUET, scope=Scope())
    export(store, tmp_path / "o.csv", CSV, scope=Scope())
    for source in (f"read_parquet('{tmp_path}/o.parquet')", f"read_csv('{tmp_path}/o.csv')"):
        rows = duckdb.sql(f"select question, answer, count(*) from {source} group by all").fetchall()
        counts = Counter({(question, answer): number for question, answer, number in rows})
        for question, cells in enumerate(tally.counts):
            assert [counts[question, answer] for answer in range(len(cells))] == list(cells)
        distinct = duckdb.sql(f"select count(distinct id), count(*) from {source}").fetchall()
        assert distinct == [(sum(tally.n), sum(tally.n))]


def test_all_records_are_those_of_the_store_repeats_and_conflicts_included(tmp_path):
    campaign = CAMPAIGNS["direct"]
    records = reports(range(5), campaign)
    lie = bytearray(records[0])
    lie[17] ^= 1
    store = stores.stored(
        tmp_path, RAWS["direct"], batch(campaign, records), batch(campaign, [records[1], bytes(lie)])[:-44], now=LATER
    )
    export(store, tmp_path / "all", PARQUET, scope=Scope(), everything=True)
    frame = pd.read_parquet(tmp_path / "all")
    assert len(frame) == 22
    assert frame["proven"].sum() == 20
    columns = (frame[name].tolist() for name in ("id", "period", "question", "answer"))
    found = [(i.to_bytes(8, "big"), p, q, a) for i, p, q, a in zip(*columns, strict=True)]
    assert sorted(found) == expected(campaign, [*records, records[1], bytes(lie)])


def test_reports_that_came_twice_stand_among_the_others_by_their_ids(tmp_path):
    records = reports(range(100), CAMPAIGNS["direct"])
    files = [batch(CAMPAIGNS["direct"], records), batch(CAMPAIGNS["direct"], records[::3])]
    store = stores.stored(tmp_path, RAWS["direct"], *files, now=LATER)
    export(store, tmp_path / "o", PARQUET, scope=Scope())
    ids = [int(each) for each in pd.read_parquet(tmp_path / "o")["id"]]
    assert ids == sorted(ids, key=lambda each: (each % 16, each))  # by partition; here a bucket
    assert len(ids) == len(records)


@examples(15)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3), st.integers(0, 1)), max_size=30), st.booleans())
def test_little_memory_and_small_blocks_give_the_same_rows(tmp_path_factory, answers, everything):
    folder = tmp_path_factory.mktemp("export")
    campaign = CAMPAIGNS["direct"]
    records = [report(campaign, d, d + lie, period=FIRST + p) for d, p, lie in answers]
    store = stores.stored(folder, RAWS["direct"], *(batch(campaign, [record]) for record in records), now=LATER)
    found = []
    for memory, block in ((1 << 30, 1 << 17), (1, 3)):
        store.memory_bytes = memory
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exporting, "_BLOCK_RECORDS", block)
            export(store, folder / "o", CSV, scope=Scope(), everything=everything, force=True)
        found.append(sorted((folder / "o").read_text().splitlines()))
    assert found[0] == found[1]


def test_an_export_of_periods_says_what_was_forgotten_and_is_refused_without_reports(tmp_path, monkeypatch):
    """The file is private, because it holds ids: another report with a device's id cancels the device's report."""
    campaign, out = CAMPAIGNS["direct"], tmp_path / "o"
    records = reports(range(10), campaign)
    contents = batch(campaign, records[:20]), batch(campaign, records[20:])[:-44]
    store = stores.stored(tmp_path, RAWS["direct"], *contents, now=LATER)
    for scope in (Scope(FIRST + 1, FIRST + 2), Scope(proven_only=True)):
        written = export(store, out, PARQUET, scope=scope, force=True)
        frame = pd.read_parquet(out)
        assert written.reports == len(frame) == sum(store.tally(scope).n)
        assert frame["period"].between(scope.first, scope.last).all()
    store.forget(FIRST + 2, now=LATER)
    for kind in (CSV, PARQUET):
        out.chmod(0o666)
        assert export(store, out, kind, scope=Scope(), force=True) == (20, FIRST + 2)
        assert out.stat().st_mode & 0o777 == 0o600
    assert set(pd.read_parquet(out)["period"]) == {FIRST + 2, FIRST + 3}
    out.write_text("mine")
    for scope, reason in (
        (Scope(FIRST + 9), "periods_absent"),
        (Scope(FIRST - 9, FIRST - 1), "reports_forgotten"),
        (Scope(FIRST, FIRST + 1), "reports_forgotten"),
    ):
        assert refusal(export, store, out, CSV, scope=scope, force=True) == reason
    assert refusal(export, store, out, CSV, scope=Scope()) == "output_exists"
    before = sorted(tmp_path.iterdir())

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(exporting._Shaper, "table", full)
        assert refusal(export, store, out, CSV, scope=Scope(), force=True) == "disk_full"
    next((store.path / "reports").rglob("*.parquet")).write_bytes(b"PAR1")
    assert refusal(export, store, out, CSV, scope=Scope(), force=True) == "store_damaged"
    assert (sorted(tmp_path.iterdir()), out.read_text()) == (before, "mine")


def test_an_empty_store_gives_a_header(tmp_path):
    store = stores.stored(tmp_path, RAWS["oue"])
    export(store, tmp_path / "o.csv", CSV, scope=Scope())
    assert (tmp_path / "o.csv").read_text() == '"id","period","start","question","asked","answer","proven"\n'
    assert export(store, tmp_path / "o.parquet", PARQUET, scope=Scope()).reports == 0
    assert len(pd.read_parquet(tmp_path / "o.parquet")) == 0
