"""Estimates of campaigns with memory: reports of one kept answer share its noise, and intervals cover as stated."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, made

from aggregator.cards.alarms import alarms
from aggregator.estimates.recurrence import BOUND, KNOWN, ONCE, at_most, known, once
from aggregator.estimates.reports import estimate
from aggregator.publishing.mechanisms.draws import draw, draw_again
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.fleet import IdMaker, kept_bounds
from aggregator.reports.tally.tally import Tally
from aggregator.reports.tally.turnout import Turnout
from edge_sdk import Device
from protocol.documents.memory_terms import Memory, remembered
from protocol.mechanisms import from_micro

REPEATS, DEVICES, PERIODS, SHARE = 400, 1500, 24, 0.3


def covered(name: str, presence: float, seed: int) -> tuple[dict[str, int], int]:
    """How many of REPEATS intervals cover the first class's share, by basis, and how many fleets raise an alarm."""
    campaign = made(mechanism=name, memory=Memory(2, 8, 500_000))
    mechanism, first = campaign.questions[0].mechanism, campaign.memory.first
    generator, hits, raised = np.random.default_rng(seed), dict.fromkeys(["devices", KNOWN, BOUND, ONCE], 0), 0
    for _ in range(REPEATS):
        holds = generator.random(DEVICES) >= SHARE
        question = generator.integers(0, 3, DEVICES)
        answered = generator.random((DEVICES, PERIODS)) < presence
        asked = question == 0
        counts = np.zeros(2, np.int64)
        for period in range(PERIODS):
            if campaign.memory.number(first + period) != campaign.memory.number(first + period - 1) or not period:
                kept = draw(mechanism.permanent, holds[asked].astype(np.int64), generator)
            told = draw_again(mechanism, kept[answered[asked, period]], generator)
            counts += np.bincount(told, minlength=2) if name == "direct" else told.sum(axis=0)
        n = [int(answered[question == number].sum()) for number in range(3)]
        rest = [(n[number], *(0,) * (campaign.questions[number].size - 1)) for number in (1, 2)]
        tally = Tally(campaign.id, tuple(n), (tuple(counts.tolist()), *rest))
        turnout = Turnout(1, first + np.arange(PERIODS), answered.sum(axis=0))
        squares = (int((answered.sum(axis=1) ** 2).sum()),)
        weights = answered.sum(axis=1)
        share = float(weights[~holds].sum() / weights.sum())
        for basis, recurrence in (
            (KNOWN, known(campaign, tally, squares, turnout)),
            (BOUND, at_most(campaign, tally, turnout)),
            (ONCE, once(campaign, tally)),
        ):
            found = estimate(campaign, tally, recurrence=recurrence).questions[0]
            low, high = found.low[0] / found.n, found.high[0] / found.n
            hits[basis] += bool(low <= SHARE <= high)
            if basis == KNOWN:
                ends = found.devices_interval
                hits["devices"] += bool(ends.low[0] / found.n <= share <= ends.high[0] / found.n)
        statistics = estimate(campaign, tally, recurrence=at_most(campaign, tally, turnout))
        raised += any(test.kind == "questions" for test in alarms(campaign, tally, statistics, None).raised)
    return hits, raised


@pytest.mark.slow
@pytest.mark.parametrize(("name", "presence"), [("direct", 0.4), ("oue", 1.0)])
def test_intervals_over_many_periods_cover_as_stated(name, presence):
    """Each of the two-sided checks of 400 intervals with coverage 0.95 fails by chance with probability 1e-5."""
    hits, raised = covered(name, presence, 7)
    for basis in ("devices", KNOWN) if presence < 1 else ("devices", KNOWN, BOUND):
        assert 0.902 < hits[basis] / REPEATS < 0.992, hits
    assert hits[BOUND] / REPEATS > 0.902
    assert hits[ONCE] / REPEATS < 0.87  # reports taken as those of different devices
    assert raised <= 10  # at most 0.6 % of honest campaigns, by the level: 11 of 400 with probability 1e-5


def test_a_period_is_a_pure_protocol_and_a_longer_time_averages_fresh_noise_alone():
    campaign = made(memory=Memory(1, 10, 500_000))
    first, mechanism = campaign.memory.first, campaign.questions[0].mechanism
    counts = tuple((600, *(0,) * (question.size - 1)) for question in campaign.questions)
    tally = Tally(campaign.id, (600,) * 3, counts)
    one = estimate(campaign, tally).questions[0]
    p, q = float(mechanism.p), float(mechanism.q)
    assert one.n == 600
    assert one.noise_variance[0] == pytest.approx(600 * p * (1 - p) / (p - q) ** 2)
    turnout = Turnout(1, first + np.arange(20), np.full(20, 90))
    whole = estimate(campaign, tally, recurrence=at_most(campaign, tally, turnout))
    year = whole.questions[0]
    assert (whole.source.reports, whole.source.batch) == (1800, 90)
    p1, q1 = float(mechanism.permanent.p), float(mechanism.permanent.q)
    kept, fresh = p1 * (1 - p1) / (p1 - q1) ** 2, p * (1 - p) / (p - q) ** 2 - p1 * (1 - p1) / (p1 - q1) ** 2
    assert year.n == 30  # of 90 devices
    assert year.noise_variance[0] / year.n**2 == pytest.approx((kept / 2 + fresh / 20) / 30)


def test_what_a_device_sends_is_counted_under_its_question_and_the_ids_of_its_fleet():
    raw, time, secret = Publisher().campaign(mechanism="oue", memory=Memory(1, 2, 500_000)), [NOW], bytes(range(32))
    entropy, sent = Random(1).randbytes, []
    given = iter([secret])
    with Device.open(
        None, Publisher().root(), clock=lambda: time[0], entropy=lambda n: next(given, None) or entropy(n)
    ) as device:
        campaign = device.enrol(raw)
        for day in range(4):
            time[0] = NOW + day * DAY
            sent.append(device.report(campaign.id, {"odor": "n"}, label="e"))
    found = decode_batches(batch(campaign, sent), campaign, now=NOW + 4 * DAY)
    assert (found.rejected, len(found.records.id)) == ({}, 4)
    assert len(set(found.records.question.tolist())) == 1
    maker = IdMaker([secret], campaign.id, kept_bounds(campaign))
    assert [maker.ids(period, 0)[0] for period in found.records.period.tolist()] == found.records.id.tolist()


def log_likelihoods(mechanism, first, other):
    """ln of P(both reports | one kept answer)/P(both apart), for rows of reports: the best guesser's score."""
    p, q = map(float, mechanism.fresh)
    if mechanism.layout == 1:
        return (first == other).astype(float)
    kept, rate = float(mechanism.permanent.q), float(mechanism.q)
    same = {2: kept * p * p + (1 - kept) * q * q, 0: kept * q * q + (1 - kept) * p * p, 1: p * q}
    apart = {2: rate**2, 0: (1 - rate) ** 2, 1: rate * (1 - rate)}
    table = np.log([same[ones] / apart[ones] for ones in range(3)])
    return table[first.astype(int) + other].sum(axis=1)


@pytest.mark.parametrize(("name", "size"), [("direct", 4), ("oue", 12), ("oue", 40)])
def test_the_chance_of_linking_is_that_of_the_best_guess(name, size):
    """20,000 trials: the share of right guesses is off by 0.0177, five standard deviations, with probability 6e-7."""
    mechanism = remembered(from_micro(name, 1_000_000, size), 500_000)
    generator, trials = np.random.default_rng(2), 20_000
    if name == "direct":
        kept = generator.integers(0, size, (2, trials))
    else:
        kept = generator.random((2, trials, size)) < float(mechanism.permanent.q)
    sent, again, other = (draw_again(mechanism, kept[device], generator) for device in (0, 0, 1))
    ahead = log_likelihoods(mechanism, sent, again) - log_likelihoods(mechanism, sent, other)
    right = (ahead > 1e-9).mean() + (np.abs(ahead) <= 1e-9).mean() / 2
    assert abs(right - mechanism.pairing) < 0.0177, (right, mechanism.pairing)
