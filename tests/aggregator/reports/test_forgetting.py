"""Forgetting keeps all counts, and an export holds exactly the counted reports, as other programs read them."""

from __future__ import annotations

import csv
import errno
import json
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support import stores
from support.examples import examples
from support.failures import reason, refusal
from support.publisher import DAY, NOW
from support.reports import CAMPAIGN, CAMPAIGNS, PERIOD, RAW, RAWS, batch, moved, report
from support.stores import check_whole, edit_manifest

from aggregator.operations import export as exporting
from aggregator.operations.export import CSV, PARQUET, export
from aggregator.operations.report_store import create_store, open_store
from aggregator.reports.decoding.columns import Columns
from aggregator.reports.storage.manifest import read_manifest
from aggregator.reports.tally import profile as period_sums
from aggregator.reports.tally.scope import Scope
from protocol.batches.report import decode_answer, decode_report
from protocol.errors import StorageError

LATER = NOW + 9 * DAY


def write(folder, name, records, campaign=CAMPAIGN, cut=0):
    path = folder / name
    data = batch(campaign, records)
    path.write_bytes(data[: len(data) - cut])
    return path


def views(store):
    """All tallies of the store, by period and by standing."""
    ranges = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 3))
    scopes = [Scope(PERIOD + first, PERIOD + last, only) for first, last in ranges for only in (False, True)]
    return [store.tally_report(scope) for scope in (Scope(), *scopes)]


RECORD = st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 1, 2]), st.integers(0, 3))


@pytest.mark.parametrize("kind", ["direct", "oue", "she"])
@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(
        st.tuples(st.lists(RECORD, min_size=1, max_size=5), st.sampled_from([0, 44])), min_size=2, max_size=5
    ),
    steps=st.lists(st.integers(PERIOD, PERIOD + 4), min_size=1, max_size=3),
    memory=st.sampled_from([1, 1 << 30]),
    lot=st.sampled_from([3, 1 << 16]),
)
def test_every_tally_is_the_same_before_and_after_whatever_was_sent(
    tmp_path_factory, monkeypatch, kind, files, steps, memory, lot
):
    """Some ids are in several periods, some batches are damaged, and few answers are counted at once."""
    monkeypatch.setattr(period_sums, "_AT_ONCE", lot)
    folder, campaign = tmp_path_factory.mktemp("forget"), CAMPAIGNS[kind]
    paths = []
    for number, (told, cut) in enumerate(files):
        records = [
            moved(campaign, report(campaign, device, value, period=PERIOD), days) for device, days, value in told
        ]
        paths.append(write(folder, f"{number}.hsr", records, campaign, cut))
    store = create_store(folder / "s", RAWS[kind], buckets=2)
    store.memory_bytes = memory
    store.ingest(paths, now=LATER)
    before = views(store)
    for step in steps:
        removal = store.forget(step, now=LATER)
        assert removal.before == read_manifest(store.path).first_period
        assert views(store) == before
    assert views(open_store(store.path)) == before
    stored = [pq.ParquetFile(path).read() for path in store.path.glob("reports/*/*.parquet")]
    for table in stored:
        forgotten = table["answer"].filter(pa.array(table["period"].to_numpy() < max(steps))).to_pylist()
        assert not any(any(answer) if isinstance(answer, bytes) else answer for answer in forgotten)


def test_a_manifest_that_adds_integers_up_in_another_way_is_damaged(tmp_path):
    campaign = CAMPAIGNS["she"]
    records = [report(campaign, device, device, period=PERIOD + device % 3) for device in range(9)]
    store = create_store(tmp_path / "s", RAWS["she"])
    store.ingest([write(tmp_path, "a", records, campaign)], now=LATER)
    store.forget(PERIOD + 1, now=LATER)
    forgotten = json.loads((store.path / "manifest.json").read_text())["forgotten"]
    assert forgotten["way"] == 2
    edit_manifest(store.path, forgotten={**forgotten, "way": 1})
    assert reason(lambda: open_store(store.path).tally_report()) == "store_damaged"


@pytest.mark.parametrize("kind", ["direct", "oue"])
def test_the_work_of_forgetting_does_not_grow_with_the_number_of_periods(tmp_path, monkeypatch, kind):
    campaign = CAMPAIGNS[kind]
    handled = []
    take = Columns.take
    monkeypatch.setattr(Columns, "take", lambda self, rows: handled.append(self.size) or take(self, rows))

    def work(periods):
        records = [report(campaign, device, period=PERIOD + device % periods) for device in range(600)]
        store = create_store(tmp_path / f"s{periods}", RAWS[kind], buckets=2)
        store.ingest([write(tmp_path, f"{periods}", records, campaign)], now=NOW + 300 * DAY)
        handled.clear()
        assert store.forget(PERIOD + 300, now=NOW + 300 * DAY).removed == 600
        return sum(handled)

    assert work(300) <= 2 * work(2)


def test_nothing_of_what_was_forgotten_is_left_on_the_disk(tmp_path):
    records = [report(CAMPAIGN, device, period=PERIOD + device % 2) for device in range(100)]
    store = create_store(tmp_path / "s", RAW)
    store.ingest([write(tmp_path, "a", records)], now=LATER)
    removal = store.forget(PERIOD + 1, now=LATER)
    assert removal == (PERIOD + 1, 50, 50)
    content = b"".join(path.read_bytes() for path in store.path.rglob("*") if path.is_file())
    there = [record[2:10][::-1] in content for record in records]
    assert there == [device % 2 == 1 for device in range(100)]
    check_whole(store)
    assert store.forget(PERIOD, now=LATER) == (PERIOD + 1, 0, 50), "what is forgotten stays so"
    assert create_store(tmp_path / "t", RAW).forget(PERIOD, now=NOW) == (PERIOD, 0, 0)
    assert refusal(store.forget, PERIOD + 1, now=NOW) == "period_not_over"


def test_reports_of_forgotten_periods_are_refused_and_counted(tmp_path):
    present = NOW + DAY
    store = create_store(tmp_path / "s", RAW)
    mine = [report(CAMPAIGN, device, period=PERIOD + device % 3) for device in range(30)]
    path = write(tmp_path, "a", mine)
    assert store.ingest([path], now=present)[3:] == (20, 0, {"report_too_early": 10})
    store.forget(PERIOD + 1, now=present)
    before = store.tally_report()
    others = [report(CAMPAIGN, device, period=PERIOD + device % 2) for device in range(100, 120)]
    files = [write(tmp_path, "b", mine[:10]), write(tmp_path, "c", others)]
    summary = store.ingest([path, *files], now=present)
    assert (summary.files_repeated, summary.accepted) == (1, 3 + 10)
    assert summary.rejected == {"period_forgotten": 4 + 10, "report_too_early": 3}
    found = store.tally_report()
    assert found.reports == before.reports + 10
    assert found.rejected["period_forgotten"] == 14
    assert store.tally_report(Scope(0, PERIOD)).tally == store.tally_report(Scope(PERIOD, PERIOD)).tally
    assert store.tally_report(Scope(0, PERIOD)).reports == 10
    # Reports that were too early are taken when their period begins; forgotten reports are not counted as refused.
    summary = store.ingest([path], now=LATER)
    assert (summary.accepted, summary.rejected) == (10, {})
    assert store.tally_report().reports == before.reports + 20


def test_counts_of_forgotten_periods_that_were_altered_are_noticed(tmp_path):
    store = create_store(tmp_path / "s", RAW)
    store.ingest([write(tmp_path, "a", [report(CAMPAIGN, device, period=PERIOD) for device in range(9)])], now=LATER)
    store.forget(PERIOD + 1, now=LATER)
    (path,) = (store.path / "forgotten").iterdir()
    table = pq.read_table(path)
    assert table["count"].to_numpy()[table["cell"].to_numpy() == -1].sum() == 9
    content = path.read_bytes()
    for changed in (content[:-1], b"", np.random.default_rng(1).bytes(100)):
        path.write_bytes(changed)
        with pytest.raises(StorageError, match=r"^store_damaged: 'forgotten/"):
            store.tally()


LATER = NOW + 9 * DAY


def reports(devices, campaign):
    return [report(campaign, device, device, period=PERIOD + day) for device in devices for day in range(4)]


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


def test_all_records_are_those_of_the_store_repeats_and_conflicts_included(tmp_path):
    records = reports(range(5), CAMPAIGN)
    lie = bytearray(records[0])
    lie[17] ^= 1
    store = stores.stored(
        tmp_path, RAW, batch(CAMPAIGN, records), batch(CAMPAIGN, [records[1], bytes(lie)])[:-44], now=LATER
    )
    export(store, tmp_path / "all", PARQUET, scope=Scope(), everything=True)
    frame = pd.read_parquet(tmp_path / "all")
    assert len(frame) == 22
    assert frame["proven"].sum() == 20
    columns = (frame[name].tolist() for name in ("id", "period", "question", "answer"))
    found = [(i.to_bytes(8, "big"), p, q, a) for i, p, q, a in zip(*columns, strict=True)]
    assert sorted(found) == expected(CAMPAIGN, [*records, records[1], bytes(lie)])


def test_reports_that_came_twice_stand_among_the_others_by_their_ids(tmp_path):
    records = reports(range(100), CAMPAIGN)
    files = [batch(CAMPAIGN, records), batch(CAMPAIGN, records[::3])]
    store = stores.stored(tmp_path, RAW, *files, now=LATER)
    export(store, tmp_path / "o", PARQUET, scope=Scope())
    ids = [int(each) for each in pd.read_parquet(tmp_path / "o")["id"]]
    assert ids == sorted(ids, key=lambda each: (each % 16, each))  # by partition; here a bucket
    assert len(ids) == len(records)


@examples(15)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3), st.integers(0, 1)), max_size=30), st.booleans())
def test_little_memory_and_small_blocks_give_the_same_rows(tmp_path_factory, answers, everything):
    folder = tmp_path_factory.mktemp("export")
    records = [report(CAMPAIGN, d, d + lie, period=PERIOD + p) for d, p, lie in answers]
    store = stores.stored(folder, RAW, *(batch(CAMPAIGN, [record]) for record in records), now=LATER)
    found = []
    for memory, block in ((1 << 30, 1 << 17), (1, 3)):
        store.memory_bytes = memory
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exporting, "_BLOCK_RECORDS", block)
            export(store, folder / "o", CSV, scope=Scope(), everything=everything, force=True)
        found.append(sorted((folder / "o").read_text().splitlines()))
    assert found[0] == found[1]
    assert len(found[0]) - 1 == (len(records) if everything else sum(store.tally().n))


def test_an_export_of_periods_says_what_was_forgotten_and_is_refused_without_reports(tmp_path, monkeypatch):
    """The file is private, because it holds ids: another report with a device's id cancels the device's report."""
    out = tmp_path / "o"
    records = reports(range(10), CAMPAIGN)
    contents = batch(CAMPAIGN, records[:20]), batch(CAMPAIGN, records[20:])[:-44]
    store = stores.stored(tmp_path, RAW, *contents, now=LATER)
    for scope in (Scope(PERIOD + 1, PERIOD + 2), Scope(proven_only=True)):
        written = export(store, out, PARQUET, scope=scope, force=True)
        frame = pd.read_parquet(out)
        assert written.reports == len(frame) == sum(store.tally(scope).n)
        assert frame["period"].between(scope.first, scope.last).all()
    store.forget(PERIOD + 2, now=LATER)
    for kind in (CSV, PARQUET):
        out.chmod(0o666)
        assert export(store, out, kind, scope=Scope(), force=True) == (20, PERIOD + 2)
        assert out.stat().st_mode & 0o777 == 0o600
    assert set(pd.read_parquet(out)["period"]) == {PERIOD + 2, PERIOD + 3}
    out.write_text("mine")
    for scope, why in (
        (Scope(PERIOD + 9), "periods_absent"),
        (Scope(PERIOD - 9, PERIOD - 1), "reports_forgotten"),
        (Scope(PERIOD, PERIOD + 1), "reports_forgotten"),
    ):
        assert refusal(export, store, out, CSV, scope=scope, force=True) == why
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
