"""A store's status: reports by day, period and question, the precision reached, and the number of devices needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import stores
from support.commands import run
from support.examples import examples
from support.failures import refusal
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, opened, report

import aggregator
from aggregator.operations.status import date_of, half_width_of, status

LATER = NOW + 9 * DAY
RAW = Publisher().campaign(min_batch_size=50, time_precision=DAY // 4)
CAMPAIGN = opened(RAW)
FIRST = CAMPAIGN.period_at(NOW)


def stored(folder, *contents, raw=RAW):
    return stores.stored(folder, raw, *contents, now=LATER)


def reports(devices, periods):
    return [report(CAMPAIGN, device, device, period=FIRST + period) for device in devices for period in periods]


def test_days_periods_and_questions_each_add_up_to_the_reports(tmp_path):
    records = reports(range(30), range(6)) + reports(range(10), [20])
    store = stored(tmp_path, batch(CAMPAIGN, records), batch(CAMPAIGN, records[:7]), b"foreign")
    found = status(store)
    assert (found.reports, found.enough, found.rejected) == (190, True, {"invalid_message": 1, "report_replayed": 7})
    assert found.periods.period.tolist() == [*range(FIRST, FIRST + 6), FIRST + 20]
    assert found.periods.reports.tolist() == [30] * 6 + [10]
    assert sum(day.reports for day in found.days) == 190
    days = {period * (DAY // 4) // DAY for period in found.periods.period.tolist()}
    assert [day.day for day in found.days] == sorted(days)
    assert [reach.n for reach in found.questions] == list(store.tally().n)
    assert [reach.question for reach in found.questions] == ["class", "cell odor", "cell width"]
    assert found.target is None
    assert {reach.devices_needed for reach in found.questions} == {None}


def test_forgotten_periods_are_still_counted(tmp_path):
    store = stored(tmp_path, batch(CAMPAIGN, reports(range(30), range(6))), batch(CAMPAIGN, reports([1], [2]))[:-44])
    before = status(store, target=0.01)
    store.forget(FIRST + 4, now=LATER)
    after = status(store, target=0.01)
    assert after.forgotten_before == FIRST + 4
    assert after.to_json() == {**before.to_json(), "forgotten_before": FIRST + 4}


def test_what_follows_from_answers_is_told_only_when_the_smallest_batch_is_reached(tmp_path):
    few = status(stored(tmp_path, batch(CAMPAIGN, reports(range(49), [0]))), target=0.1)
    assert (few.reports, few.enough, few.devices_needed) == (49, False, None)
    assert {(reach.half_width, reach.devices_needed) for reach in few.questions} == {(None, None)}
    (tmp_path / "more").mkdir()
    more = status(stored(tmp_path / "more", batch(CAMPAIGN, reports(range(50), [0]))), target=0.1)
    assert more.enough
    assert all(reach.half_width > 0 for reach in more.questions)


def test_the_half_width_is_that_of_the_widest_interval(tmp_path):
    store = stored(tmp_path, batch(CAMPAIGN, reports(range(400), [0])))
    found = status(store)
    for reach, estimate in zip(found.questions, store.statistics().questions, strict=True):
        sides = np.concatenate([estimate.high - estimate.estimate, estimate.estimate - estimate.low])
        assert reach.half_width == pytest.approx(sides.max() / estimate.n)
        assert reach.half_width > 0.9 * 1.96 * estimate.sd.max() / estimate.n


def test_as_many_more_devices_as_were_said_do_reach_the_target(tmp_path):
    """The variance falls as 1/n, so the prediction is right up to the random variation of n and of the shares."""
    store = stored(tmp_path, batch(CAMPAIGN, reports(range(300), [0])))
    target = min(reach.half_width for reach in status(store).questions) * 0.6
    found = status(store, target=target)
    assert found.devices_needed == max(reach.devices_needed for reach in found.questions)
    for reach in found.questions:
        share = 1 / 3  # for questions with equal weights
        expected = (reach.n * (reach.half_width / target) ** 2 - reach.n) / share
        assert reach.devices_needed == pytest.approx(expected, abs=4)
    more = batch(CAMPAIGN, reports(range(1000, 1000 + found.devices_needed), [0]))
    store.ingest(stores.files_of(tmp_path, more), now=LATER)
    after = status(store, target=target)
    assert max(reach.half_width for reach in after.questions) < 1.1 * target
    assert after.devices_needed < 0.25 * found.devices_needed
    reached = status(store, target=0.99)
    assert (reached.devices_needed, [reach.devices_needed for reach in reached.questions]) == (0, [0, 0, 0])


def test_an_empty_store_and_one_of_another_layout(tmp_path):
    empty = status(stored(tmp_path), target=0.1)
    assert (empty.reports, empty.days, empty.devices_needed, empty.to_json()["periods"]) == (0, (), None, [])
    raw = Publisher().campaign(mechanism="she")
    campaign = opened(raw)
    (tmp_path / "she").mkdir()
    records = [report(campaign, device, device) for device in range(60)]
    found = status(stored(tmp_path / "she", batch(campaign, records), raw=raw), target=0.1)
    assert all(math.isfinite(reach.half_width) and reach.devices_needed > 0 for reach in found.questions)


@examples(15)
@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=8), max_size=4), st.data())
def test_status_does_not_depend_on_order_division_or_repetition(tmp_path_factory, files, data):
    folders = [tmp_path_factory.mktemp("status") for _ in range(2)]
    contents = [batch(CAMPAIGN, [report(CAMPAIGN, d, period=FIRST + p) for d, p in answers]) for answers in files]
    one = status(stored(folders[0], *contents))
    other = stored(folders[1], *data.draw(st.permutations(contents)), b"".join(contents) or b"\0")
    other.memory_bytes = 1
    found = status(other)
    assert found.periods.period.tolist() == one.periods.period.tolist()
    assert found.periods.reports.tolist() == one.periods.reports.tolist()
    assert (found.days, found.questions, found.reports) == (one.days, one.questions, one.reports)


def test_dates():
    assert date_of(20_778) == "2026-11-21"
    assert (date_of(2_932_896), date_of(2_932_897)) == ("9999-12-31", "2932897")
    assert half_width_of(1.0) == pytest.approx(1.96, abs=1e-4)


def test_periods_without_reports_and_targets_without_a_number_of_devices_are_refused(tmp_path):
    """A half width of 1e-200 would need more devices than a float can count."""
    store = stored(tmp_path, batch(CAMPAIGN, reports(range(60), [0])))
    for periods, reason in (
        (range(FIRST + 3, FIRST + 9), "periods_absent"),
        (f"..{FIRST - 1}", "periods_absent"),
        (range(0), "periods_absent"),
        (range(FIRST, FIRST + 9, 2), "argument_invalid"),
        (5, "argument_invalid"),
    ):
        assert refusal(aggregator.count, store, periods) == reason
    assert aggregator.count(store, range(FIRST, FIRST + 9)).reports == 60
    run("estimate", "--store", store.path, "--periods", f"{FIRST}")
    failed = run("estimate", "--store", store.path, "--periods", f"{FIRST + 3}..", status=1)
    assert ("periods_absent" in failed.stderr, failed.stdout) == (True, "")
    for target in (0, 1e-200, 0.99e-6, float("nan"), float("inf"), -1.0):
        assert refusal(status, store, target=target) == "argument_invalid"
    assert status(store, target=1e-6).devices_needed > 10**10
