"""What a store says of its reports: status by day and question, answers by stratum and period, and profiles."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from support import stores
from support.commands import run
from support.failures import reason, refusal
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, opened, report
from support.stores import roster

import aggregator
from aggregator.estimates.recurrence import BOUND, KNOWN, ONCE
from aggregator.operations.status import date_of, half_width_of, status
from aggregator.reports.answering_devices import squares_of_answers
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.fleet import Roster
from aggregator.reports.storage.manifest import read_manifest
from aggregator.reports.tally import profile as period_sums
from aggregator.reports.tally.profile import PeriodSums, ProfileCounter
from aggregator.reports.tally.scope import Scope
from aggregator.reports.tally.tally import count, settle
from aggregator.reports.tally.turnout import Turnout, turnout_of
from benchmarks.guarantees import alarms as bench
from benchmarks.shared import made_batches

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


def test_dates():
    assert date_of(20_778) == "2026-11-21"
    assert (date_of(2_932_896), date_of(2_932_897)) == ("9999-12-31", "2932897")
    assert half_width_of(1.0) == pytest.approx(1.96, abs=1e-4)


def test_periods_without_reports_and_targets_without_a_number_of_devices_are_refused(tmp_path):
    """A half width of 1e-200 would need more devices than a float can count."""
    store = stored(tmp_path, batch(CAMPAIGN, reports(range(60), [0])))
    for periods, why in (
        (range(FIRST + 3, FIRST + 9), "periods_absent"),
        (f"..{FIRST - 1}", "periods_absent"),
        (range(0), "periods_absent"),
        (range(FIRST, FIRST + 9, 2), "argument_invalid"),
        (5, "argument_invalid"),
    ):
        assert refusal(aggregator.count, store, periods) == why
    assert aggregator.count(store, range(FIRST, FIRST + 9)).reports == 60
    run("estimate", "--store", store.path, "--periods", f"{FIRST}")
    failed = run("estimate", "--store", store.path, "--periods", f"{FIRST + 3}..", status=1)
    assert ("periods_absent" in failed.stderr, failed.stdout) == (True, "")
    for target in (0, 1e-200, 0.99e-6, float("nan"), float("inf"), -1.0):
        assert refusal(status, store, target=target) == "argument_invalid"
    assert status(store, target=1e-6).devices_needed > 10**10


RAW_OF_THREE = Publisher().campaign(answers=3, epsilon_micro=3_000_000, time_precision=DAY // 4)
OF_THREE = opened(RAW_OF_THREE)
ROSTER = roster(range(12))
ANSWERED = [(device, period) for device in range(12) for period in range(8) if (device * period) % 3 != 1]


def made_store(folder, answered=ANSWERED):
    """A store of reports with repeats, damage and a missing answer."""
    records = [report(OF_THREE, d, d, period=FIRST + p, index=i) for d, p in answered for i in range(3)][:-1]
    return stores.stored(folder, RAW_OF_THREE, batch(OF_THREE, records), batch(OF_THREE, records[:9])[:-44], now=LATER)


def expected(chosen=lambda _: True):
    by_place = Counter((FIRST + p) * 3 + i for d, p in ANSWERED for i in range(3) if chosen(p))
    last = ANSWERED[-1][1]
    if chosen(last):
        by_place[(FIRST + last) * 3 + 2] -= 1
    return by_place


def as_counter(turnout):
    return Counter(dict(zip(turnout.place.tolist(), turnout.answers.tolist(), strict=True)))


def test_a_store_counts_its_answers_by_stratum_and_period_whatever_its_memory(tmp_path):
    store = made_store(tmp_path)
    for memory in (1 << 30, 1):
        store.memory_bytes = memory
        assert as_counter(store.tally_report().turnout) == expected()
    scope = Scope(first=FIRST + 2, last=FIRST + 5)
    assert as_counter(store.tally_report(scope).turnout) == expected(lambda p: 2 <= p <= 5)
    store.forget(FIRST + 4, now=LATER)
    assert as_counter(store.tally_report().turnout) == expected()
    assert as_counter(store.tally_report(scope).turnout) == expected(lambda p: 2 <= p <= 5)


def test_one_period_knows_its_devices_and_several_know_a_bound(tmp_path):
    store = made_store(tmp_path)
    assert store.statistics().source.recurrence.basis == BOUND
    assert store.statistics(Scope(first=FIRST, last=FIRST)).source.recurrence.basis == ONCE
    found = status(store)
    devices = [sum((d * p) % 3 != 1 for d in range(12)) for p in range(8)]
    assert found.periods.devices.tolist() == devices
    assert (found.devices_at_least, found.devices_at_most) == (max(devices), sum(devices))
    assert [row["devices"] for row in found.to_json()["periods"]] == devices


@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_a_fleet_list_tells_how_often_each_device_answered(tmp_path, memory):
    store = made_store(tmp_path)
    store.memory_bytes = memory
    times = np.array([[sum(d == own for d, _ in ANSWERED) for own in range(12)]] * 3)
    times[2, ANSWERED[-1][0]] -= 1
    squares = squares_of_answers(
        store.path, store.campaign, read_manifest(store.path), store.memory_bytes, Scope(), [ROSTER]
    )
    assert squares == tuple((times**2).sum(axis=1).tolist())
    recurrence = store.statistics(rosters=[ROSTER]).source.recurrence
    assert recurrence.basis == KNOWN
    np.testing.assert_allclose(recurrence.concentration, np.array(squares) / times.sum(axis=1) ** 2)
    bound = store.statistics().source.recurrence
    assert all(mine <= most for mine, most in zip(recurrence.concentration, bound.concentration, strict=True))


def test_a_list_that_is_not_the_whole_fleet_or_reports_that_are_gone_are_refused(tmp_path):
    store = made_store(tmp_path)
    part = Roster("part", ROSTER.devices[:5], ROSTER.secrets[: 5 * 32])
    assert reason(lambda: store.statistics(rosters=[part])) == "fleet_incomplete"
    rest = Roster("rest", ROSTER.devices[5:], ROSTER.secrets[5 * 32 :])
    assert store.statistics(rosters=[part, rest, part]).source.recurrence.basis == KNOWN
    store.forget(FIRST + 4, now=LATER)
    assert reason(lambda: store.statistics(rosters=[ROSTER])) == "reports_forgotten"
    assert store.statistics(Scope(first=FIRST + 4), rosters=[ROSTER]).source.recurrence.basis == KNOWN


def test_turnouts_add_up_and_far_periods_take_no_room():
    one = turnout_of(2, np.array([5, 5, 1 << 31]), np.array([1, 1, 0]), np.array([3, 4, 1]))
    assert as_counter(one) == {11: 7, 1 << 32: 1}
    other = turnout_of(2, np.array([5]), np.array([0]), np.array([2]))
    assert one.merge(other) == other.merge(one)
    assert one.merge(other).less(one) == other
    assert one.merge(other) != other
    by_period = one.merge(other).by_period()
    assert [column.tolist() for column in by_period] == [[5, 1 << 31], [9, 1], [7, 1]]
    assert Turnout.none(OF_THREE).by_period().devices.size == 0


N = 400


def made(mechanism, ago):
    """A campaign, and its records whose periods are so many periods ago."""
    campaign = bench.campaign_of(bench.Setting(mechanism, "1", (3, 9)))
    rows, head = made_batches.records(campaign, len(ago)), len(campaign.layout.prefix)
    period = campaign.period_at(made_batches.NOW) - ago
    rows[:, head + 8 : head + 12] = period.astype(">u4").view(np.uint8).reshape(-1, 4)
    return campaign, settle(
        decode_batches(made_batches.batch(campaign, rows), campaign, now=made_batches.NOW).records
    ).records


RANDOM = np.random.default_rng(2).integers(0, 20, N)
ORDERS = {"one": np.full(N, 3), "runs": np.sort(RANDOM)[::-1], "random": RANDOM, "some again": RANDOM // 10 * 5}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mechanism", ["direct", "oue", "she"])
@pytest.mark.parametrize(("long_run", "together"), [(1 << 12, 1 << 14), (30, 60), (4, 1)])
def test_counts_by_period_add_up_to_the_tally(mechanism, order, long_run, together, monkeypatch):
    monkeypatch.setattr(period_sums, "_LONG_RUN", long_run)
    monkeypatch.setattr(period_sums, "_TOGETHER", together)
    campaign, found = made(mechanism, ORDERS[order])
    profiled, sums = ProfileCounter(campaign), PeriodSums(campaign)
    for part in (slice(0, 150), slice(150, 150), slice(150, N)):
        profiled.add(found.take(part))
        sums.add(found.take(part))
    assert profiled.tally() == count(campaign, found)
    width = sum(question.mechanism.answers + 1 for question in campaign.questions)
    key, number = sums.counts()
    for period in np.unique(found.period).tolist():
        own = count(campaign, found.take(found.period == period))
        expected = np.concatenate([[n, *cells] for n, cells in zip(own.n, own.counts, strict=True)])
        chosen = key // width == 2 * period + 1
        table = np.zeros(width, np.int64)
        table[key[chosen] % width] = number[chosen]
        assert table.tolist() == expected.tolist()


@pytest.mark.parametrize("order", ["one", "random"])
def test_a_question_that_is_none_is_refused(order):
    campaign, found = made("oue", ORDERS[order])
    found.question[17] = 99
    assert refusal(ProfileCounter(campaign).add, found) == "store_damaged"
