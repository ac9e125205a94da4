"""``hearsay report``: the page says what is in the store or the model, and nothing of it can act in a browser."""

from __future__ import annotations

import pytest
from support.commands import invoke, told
from support.pages import check
from support.publisher import NOW, Publisher
from support.reports import batch, opened, report
from support.stores import stored

from aggregator.page.report import report as page_of


@pytest.fixture
def store(tmp_path):
    raw = Publisher().campaign()
    campaign = opened(raw)
    reports = [report(campaign, device, device) for device in range(400)]
    return stored(tmp_path, raw, batch(campaign, reports), batch(campaign, reports)[:-3], now=NOW)


@pytest.fixture
def work(tmp_path, store):
    (tmp_path / "m.hsm").write_bytes(Publisher().model())
    (tmp_path / "root.hst").write_bytes(Publisher().root())
    return tmp_path


def test_a_page_of_a_store_has_its_reports_and_rules(store):
    found = check(page_of(store, now=NOW).html)
    assert "400 reports" in found.words
    assert "UNVERIFIED" in found.words


def test_a_page_of_a_model_says_unverified_unless_it_was_verified(work):
    assert "UNVERIFIED" in check(page_of(work / "m.hsm", now=NOW).html).words
    assert "UNVERIFIED" not in check(page_of(work / "m.hsm", trust=work / "root.hst", now=NOW).html).words


def test_equal_input_and_clock_give_equal_bytes(work, store):
    for given in (store, work / "m.hsm"):
        assert page_of(given, now=NOW).html == page_of(given, now=NOW).html


def test_the_command_writes_the_page_and_says_what_it_wrote(work, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)
    said = told("report", work / "store", "--trust", work / "root.hst", "-o", work / "p.html")
    assert said == {
        "page": str(work / "p.html"),
        "about": "store",
        "verified": True,
        "bytes": (work / "p.html").stat().st_size,
    }
    assert (work / "p.html").read_text() == page_of(work / "store", trust=work / "root.hst", now=NOW).html
    assert invoke("report", work / "store", "-o", work / "p.html").stderr.startswith("output_exists: ")
    refused = invoke("report", work / "store", work / "m.hsm", "-o", work / "q.html")
    assert refused.stderr.startswith("not_reportable: ")
    assert invoke("report", work / "root.hst", "-o", work / "q.html").stderr.startswith("not_reportable: ")
    assert not (work / "q.html").exists()
