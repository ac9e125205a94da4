"""Forgetting deletes reports of old periods and keeps their counts: every tally has the same bytes before and after."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, moved, opened, report
from support.stores import check_whole, edit_manifest

from aggregator.operations.report_store import create_store, open_store
from aggregator.reports.decoding.columns import Columns
from aggregator.reports.storage.manifest import read_manifest
from aggregator.reports.tally import profile as period_sums
from aggregator.reports.tally.scope import Scope
from protocol.errors import InputError, StorageError

RAW = {kind: Publisher().campaign(mechanism=kind) for kind in ("direct", "oue", "she")}
CAMPAIGNS = {kind: opened(raw) for kind, raw in RAW.items()}
CAMPAIGN = CAMPAIGNS["direct"]
FIRST = CAMPAIGN.period_at(NOW)
LATER = NOW + 9 * DAY


def write(folder, name, records, campaign=CAMPAIGN, cut=0):
    path = folder / name
    data = batch(campaign, records)
    path.write_bytes(data[: len(data) - cut])
    return path


def views(store):
    """All tallies of the store, by period and by standing."""
    scopes = [
        Scope(first, last, proven_only)
        for first in range(FIRST, FIRST + 4)
        for last in range(first, FIRST + 4)
        for proven_only in (False, True)
    ]
    return [store.tally_report(scope) for scope in (Scope(), *scopes)]


record = st.builds(
    lambda device, days, value: moved(CAMPAIGN, report(CAMPAIGN, device, value, period=FIRST), days),
    st.integers(0, 2),
    st.sampled_from([0, 0, 1, 2]),
    st.integers(0, 3),
)


@pytest.mark.slow
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(
        st.tuples(st.lists(record, min_size=1, max_size=5), st.sampled_from([0, 44])), min_size=2, max_size=5
    ),
    steps=st.lists(st.integers(FIRST, FIRST + 4), min_size=1, max_size=3),
    memory=st.sampled_from([1, 1 << 30]),
)
def test_every_tally_is_the_same_before_and_after_whatever_was_sent(tmp_path_factory, files, steps, memory):
    """The inputs have ids in several periods, from dishonest or faulty devices, in complete and in damaged batches."""
    folder = tmp_path_factory.mktemp("forget")
    paths = [write(folder, f"{i}.hsr", records, cut=cut) for i, (records, cut) in enumerate(files)]
    store = create_store(folder / "s", RAW["direct"], buckets=2)
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
        old = table["period"].to_numpy() < max(steps)
        assert not table["answer"].to_numpy()[old].any(), "of a forgotten report no answer is left"


def test_a_manifest_that_adds_integers_up_in_another_way_is_damaged(tmp_path):
    campaign = CAMPAIGNS["she"]
    records = [report(campaign, device, device, period=FIRST + device % 3) for device in range(9)]
    store = create_store(tmp_path / "s", RAW["she"])
    store.ingest([write(tmp_path, "a", records, campaign)], now=LATER)
    store.forget(FIRST + 1, now=LATER)
    forgotten = json.loads((store.path / "manifest.json").read_text())["forgotten"]
    assert forgotten["way"] == 2
    edit_manifest(store.path, forgotten={**forgotten, "way": 1})
    assert reason(lambda: open_store(store.path).tally_report()) == "store_damaged"


@pytest.mark.parametrize("kind", ["direct", "oue", "she"])
def test_many_periods_are_counted_in_lots_with_the_same_counts(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(period_sums, "_AT_ONCE", 50)
    campaign = CAMPAIGNS[kind]
    periods = [FIRST + number for number in range(10)]
    records = [report(campaign, device, device, period=periods[device % 10]) for device in range(300)]
    store = create_store(tmp_path / "s", RAW[kind], buckets=2)
    files = [write(tmp_path, "a", records[:200], campaign), write(tmp_path, "b", records[200:], campaign, cut=44)]
    now = NOW + 20 * DAY
    assert store.ingest(files, now=now).accepted == 300

    def seen():
        scopes = [Scope(period, period, only) for period in periods for only in (False, True)]
        return [store.tally_report(scope) for scope in (Scope(), *scopes)]

    before = seen()
    store.forget(FIRST + 5, now=now)
    assert seen() == before
    assert store.forget(FIRST + 10, now=now).kept == 0
    assert seen() == before


@pytest.mark.parametrize("kind", ["direct", "oue"])
def test_the_work_of_forgetting_does_not_grow_with_the_number_of_periods(tmp_path, monkeypatch, kind):
    campaign = CAMPAIGNS[kind]
    handled = []
    take = Columns.take
    monkeypatch.setattr(Columns, "take", lambda self, rows: handled.append(self.size) or take(self, rows))

    def work(periods):
        records = [report(campaign, device, period=FIRST + device % periods) for device in range(600)]
        store = create_store(tmp_path / f"s{periods}", RAW[kind], buckets=2)
        store.ingest([write(tmp_path, f"{periods}", records, campaign)], now=NOW + 300 * DAY)
        handled.clear()
        assert store.forget(FIRST + 300, now=NOW + 300 * DAY).removed == 600
        return sum(handled)

    assert work(300) <= 2 * work(2)


def test_nothing_of_what_was_forgotten_is_left_on_the_disk(tmp_path):
    records = [report(CAMPAIGN, device, period=FIRST + device % 2) for device in range(100)]
    store = create_store(tmp_path / "s", RAW["direct"])
    store.ingest([write(tmp_path, "a", records)], now=LATER)
    removal = store.forget(FIRST + 1, now=LATER)
    assert removal == (FIRST + 1, 50, 50)
    content = b"".join(path.read_bytes() for path in store.path.rglob("*") if path.is_file())
    there = [record[2:10][::-1] in content for record in records]
    assert there == [device % 2 == 1 for device in range(100)]
    check_whole(store)
    assert store.forget(FIRST, now=LATER) == (FIRST + 1, 0, 50), "what is forgotten stays so"
    assert create_store(tmp_path / "t", RAW["direct"]).forget(FIRST, now=NOW) == (FIRST, 0, 0)
    with pytest.raises(InputError, match=r"^period_not_over"):
        store.forget(FIRST + 1, now=NOW)


def test_reports_of_forgotten_periods_are_refused_and_counted(tmp_path):
    present = NOW + DAY
    store = create_store(tmp_path / "s", RAW["direct"])
    mine = [report(CAMPAIGN, device, period=FIRST + device % 3) for device in range(30)]
    path = write(tmp_path, "a", mine)
    assert store.ingest([path], now=present)[3:] == (20, 0, {"report_too_early": 10})
    store.forget(FIRST + 1, now=present)
    before = store.tally_report()
    others = [report(CAMPAIGN, device, period=FIRST + device % 2) for device in range(100, 120)]
    files = [write(tmp_path, "b", mine[:10]), write(tmp_path, "c", others)]
    summary = store.ingest([path, *files], now=present)
    assert (summary.files_repeated, summary.accepted) == (1, 3 + 10)
    assert summary.rejected == {"period_forgotten": 4 + 10, "report_too_early": 3}
    found = store.tally_report()
    assert found.reports == before.reports + 10
    assert found.rejected["period_forgotten"] == 14
    assert store.tally_report(Scope(0, FIRST)).tally == store.tally_report(Scope(FIRST, FIRST)).tally
    assert store.tally_report(Scope(0, FIRST)).reports == 10
    # Reports that were too early are taken when their period begins; forgotten reports are not counted as refused.
    summary = store.ingest([path], now=LATER)
    assert (summary.accepted, summary.rejected) == (10, {})
    assert store.tally_report().reports == before.reports + 20


def test_counts_of_forgotten_periods_that_were_altered_are_noticed(tmp_path):
    store = create_store(tmp_path / "s", RAW["direct"])
    store.ingest([write(tmp_path, "a", [report(CAMPAIGN, device, period=FIRST) for device in range(9)])], now=LATER)
    store.forget(FIRST + 1, now=LATER)
    (path,) = (store.path / "forgotten").iterdir()
    table = pq.read_table(path)
    assert table["count"].to_numpy()[table["cell"].to_numpy() == -1].sum() == 9
    content = path.read_bytes()
    for changed in (content[:-1], b"", np.random.default_rng(1).bytes(100)):
        path.write_bytes(changed)
        with pytest.raises(StorageError, match=r"^store_damaged: 'forgotten/"):
            store.tally()
