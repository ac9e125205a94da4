"""Periods on the command line: estimates of some of them, and forgetting the old ones."""

from __future__ import annotations

import json

import pytest
from support.commands import run, told
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, opened, report

from aggregator.common.periods import begins
from aggregator.reports.storage.manifest import read_manifest

RAW = Publisher().campaign(min_batch_size=20)
CAMPAIGN = opened(RAW)
FIRST = CAMPAIGN.period_at(NOW)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """150 reports of three periods in whole files, and 30 of the last in a cut one."""
    monkeypatch.setattr("time.time", lambda: NOW + 2 * DAY)
    (tmp_path / "c.hsc").write_bytes(RAW)
    whole = [report(CAMPAIGN, device, device, period=FIRST + device % 3) for device in range(150)]
    cut = [report(CAMPAIGN, device, device, period=FIRST + 2) for device in range(200, 230)]
    (tmp_path / "a.hsr").write_bytes(batch(CAMPAIGN, whole))
    (tmp_path / "b.hsr").write_bytes(batch(CAMPAIGN, cut)[:-44])
    files = [tmp_path / "c.hsc", tmp_path / "a.hsr", tmp_path / "b.hsr"]
    run("ingest", *files, "--store", tmp_path / "s", "--buckets", "4")
    assert read_manifest(tmp_path / "s").buckets == 4
    return tmp_path / "s"


def estimated(store, *options):
    found = json.loads(run("estimate", "--store", store, "--json", *options).output)
    return found["reports"], found["unproven"], found["statistics_id"]


CASES = [
    ([], 180, 30),
    (["--proven-only"], 150, 0),
    (["--periods", f"{FIRST}..{FIRST + 1}"], 100, 0),
    (["--periods", f"{FIRST + 2}"], 80, 30),
    (["--periods", f"{FIRST + 2}..", "--proven-only", "--memory", "64MiB"], 50, 0),
]


def test_estimates_of_periods_are_the_same_before_and_after_forgetting(store):
    before = [estimated(store, *options) for options, _, _ in CASES]
    assert [found[:2] for found in before] == [(reports, unproven) for _, reports, unproven in CASES]
    removal = told("forget", "--store", store, "--before", FIRST + 1)
    assert removal == {"before": FIRST + 1, "removed": 50, "kept": 130}
    assert [estimated(store, *options) for options, _, _ in CASES] == before
    assert run("forget", "--store", store, "--before", FIRST + 2).output.splitlines() == [
        f"periods forgotten before  {FIRST + 2} ({begins(FIRST + 2, DAY)})",
        "reports removed           50",
        "reports kept              80",
    ]
    assert [estimated(store, *options) for options, _, _ in CASES] == before
    late = store.parent / "late.hsr"
    late.write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, 999, period=FIRST)]))
    found = told("ingest", store.parent / "c.hsc", late, "--store", store)
    assert found["rejected"] == {"period_forgotten": 1}


def test_dates_are_the_periods_that_begin_on_them(store):
    days = [begins(FIRST + more, DAY) for more in range(4)]
    for by_date, by_number in (
        (f"{days[0]}..{days[1]}", f"{FIRST}..{FIRST + 1}"),
        (days[2], f"{FIRST + 2}"),
        (f"..{days[0]}", f"..{FIRST}"),
        ("..", "0.."),
    ):
        assert estimated(store, "--periods", by_date) == estimated(store, "--periods", by_number)
    removal = told("forget", "--store", store, "--before", days[1])
    assert removal == {"before": FIRST + 1, "removed": 50, "kept": 130}
    assert run("forget", "--store", store, "--before", "2026-11-31", status=2).stderr.startswith("usage: ")


def test_too_few_reports_in_the_periods_are_too_few(store, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW + 3 * DAY)
    sparse = store.parent / "sparse.hsr"
    sparse.write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, device, period=FIRST + 3) for device in range(19)]))
    run("ingest", store.parent / "c.hsc", sparse, "--store", store)
    assert estimated(store)[0] == 199
    refused = run("estimate", "--store", store, "--periods", FIRST + 3, status=1)
    assert refused.stderr.startswith("batch_too_small: usable reports so far: 19; ")


@pytest.mark.parametrize(
    ("line", "start"),
    [
        (f"forget --store s --before {FIRST + 3}", "period_not_over: "),
        ("ingest c.hsc a.hsr --store new --buckets 3", "buckets_invalid: "),
        *((f"estimate --store s {wrong}", "usage: ")
          for wrong in ("--periods 9..1", "--periods x", "--memory 1", "--memory lots")),
    ],
)  # fmt: skip
def test_refusals(store, monkeypatch, line, start):
    monkeypatch.chdir(store.parent)
    assert run(*line.split(), status=2 if start == "usage: " else 1).stderr.startswith(start)
