"""Answers by stratum and period, from stores with any partition, retention or limit, and from a fleet's secrets."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support import stores
from support.failures import reason, refusal
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, digest, opened, report

from aggregator.estimates.recurrence import BOUND, KNOWN, ONCE
from aggregator.operations.status import status
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
RAW = Publisher().campaign(answers=3, epsilon_micro=3_000_000, time_precision=DAY // 4)
CAMPAIGN = opened(RAW)
FIRST = CAMPAIGN.period_at(NOW)
ROSTER = Roster("test", tuple(map(str, range(12))), b"".join(digest("secret", device) for device in range(12)))
ANSWERED = [(device, period) for device in range(12) for period in range(8) if (device * period) % 3 != 1]


def made_store(folder, answered=ANSWERED):
    """A store of reports with repeats, damage and a missing answer."""
    records = [report(CAMPAIGN, d, d, period=FIRST + p, index=i) for d, p in answered for i in range(3)][:-1]
    return stores.stored(folder, RAW, batch(CAMPAIGN, records), batch(CAMPAIGN, records[:9])[:-44], now=LATER)


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
    assert Turnout.none(CAMPAIGN).by_period().devices.size == 0


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
