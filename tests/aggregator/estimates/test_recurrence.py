"""Devices with repeated answers: the intervals of both populations have their stated coverage."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from support.binomial import agrees
from support.estimated import outcome
from support.reports import made

from aggregator.estimates.recurrence import BOUND, KNOWN, ONCE, answers_by_stratum, at_most, known, once
from aggregator.estimates.reports import estimate
from aggregator.models.measured_accuracy import accuracy_of
from aggregator.reports.tally.tally import Tally
from aggregator.reports.tally.turnout import turnout_of
from protocol import mechanisms

REPEATS = 600
DEVICES, PERIODS = 500, 31
CAMPAIGN = made()


def always(_generator) -> np.ndarray:
    """Every device answers every day, as in the default campaign."""
    return np.ones((DEVICES, PERIODS), bool)


def a_fifth(generator) -> np.ndarray:
    """A fifth of the devices answer every day, all others once."""
    answered = np.zeros((DEVICES, PERIODS), bool)
    answered[: DEVICES // 5] = True
    rest = np.arange(DEVICES // 5, DEVICES)
    answered[rest, generator.integers(0, PERIODS, len(rest))] = True
    return answered


def apart(generator) -> np.ndarray:
    """Every device answers once, in a random period."""
    answered = np.zeros((DEVICES, PERIODS), bool)
    answered[np.arange(DEVICES), generator.integers(0, PERIODS, DEVICES)] = True
    return answered


def tally_of(n: int, counts, answers: int) -> Tally:
    """A tally with these counts of the class question; all other answers belong to the other questions."""
    rest = answers - n
    others = [(rest // 2, 8), (rest - rest // 2, 4)]
    empty = tuple((number, *(0,) * (size - 1)) for number, size in others)
    return Tally(CAMPAIGN.id, (n, *(number for number, _ in others)), (tuple(counts), *empty))


def coverage(answering, epsilon: str, share: float, seed: int = 5) -> dict[str, int]:
    """Number of REPEATS intervals that cover the first class's true share, by population and basis of the recurrence.

    Each repetition draws the devices' records, the answering devices, the devices of the class question, and the noise.
    """
    mechanism = mechanisms.from_epsilon("direct", epsilon, 2)
    question = CAMPAIGN.questions[0]._replace(mechanism=mechanism)
    campaign = CAMPAIGN._replace(questions=(question, *CAMPAIGN.questions[1:]))
    p, q = float(mechanism.p), float(mechanism.q)
    generator = np.random.default_rng(seed)
    covered = dict.fromkeys(["devices", KNOWN, BOUND, ONCE], 0)
    for _ in range(REPEATS):
        holds = generator.random(DEVICES) < share
        answered = answering(generator)
        asked = answered & (generator.random(answered.shape) < 1 / 3)
        n, held = int(asked.sum()), int(asked[holds].sum())
        first = int(generator.binomial(held, p) + generator.binomial(n - held, q))
        times, per_period = answered.sum(axis=1), answered.sum(axis=0)
        tally = tally_of(n, (first, n - first), int(times.sum()))
        turnout = turnout_of(1, np.arange(PERIODS), np.zeros(PERIODS, int), per_period)
        found = {
            KNOWN: known(campaign, tally, (int((times**2).sum()),)),
            BOUND: at_most(campaign, tally, turnout),
            ONCE: once(campaign, tally),
        }
        for basis, recurrence in found.items():
            made = estimate(campaign, tally, recurrence=recurrence).questions[0]
            low, high = made.interval
            covered[basis] += bool(low[0] <= n * share <= high[0])
        low, high = made.devices_interval
        covered["devices"] += bool(low[0] <= n * (times @ holds) / times.sum() <= high[0])
    return covered


@pytest.mark.slow
@pytest.mark.parametrize(("answering", "epsilon"), [(always, "4"), (a_fifth, "4"), (always, "1"), (apart, "4")])
def test_both_intervals_hold_the_truth_as_often_as_they_say(answering, epsilon):
    covered = coverage(answering, epsilon, 0.3)
    assert agrees(covered["devices"], REPEATS), covered
    assert agrees(covered[KNOWN], REPEATS), f"{covered} of {REPEATS}; false alarm ≤ 2e-6"
    assert covered[BOUND] >= covered[KNOWN], "the bound never makes an interval narrower"
    if answering is not apart:
        assert not agrees(covered[ONCE], REPEATS), "the test rejects intervals that take answers for people"


@pytest.mark.slow
def test_a_rare_class_that_few_devices_hold_is_covered_too():
    """One device in a hundred holds the class, and the noise is small: 31 answers of one device count as one person."""
    covered = coverage(always, "8", 0.01)
    assert agrees(covered[KNOWN], REPEATS), covered
    assert covered[ONCE] < 0.8 * REPEATS


# --- the recurrence ---


def test_the_bound_is_the_most_that_any_devices_could_give():
    """Comparison with every possible pattern of answers of three devices in three periods."""
    largest: dict[tuple[int, ...], int] = {}
    for answered in product([0, 1], repeat=9):
        matrix = np.array(answered).reshape(3, 3)
        key = tuple(matrix.sum(axis=0).tolist())
        largest[key] = max(largest.get(key, 0), int((matrix.sum(axis=1) ** 2).sum()))
    for counts, most in largest.items():
        total = sum(counts)
        if not total:
            continue
        tally = tally_of(total, (total, 0), total)
        turnout = turnout_of(1, np.arange(3), np.zeros(3, int), np.array(counts))
        found = at_most(CAMPAIGN, tally, turnout).concentration[0]
        assert found == pytest.approx(most / total**2), counts


def test_one_answer_of_each_gives_the_variance_of_as_many_people():
    tally = tally_of(300, (200, 100), 900)
    one_period = turnout_of(1, np.array([7]), np.array([0]), np.array([900]))
    for recurrence in (None, known(CAMPAIGN, tally, (900,)), at_most(CAMPAIGN, tally, one_period)):
        found = estimate(CAMPAIGN, tally, recurrence=recurrence).questions[0]
        share = np.clip(found.estimate / 300, 0, 1)
        np.testing.assert_allclose(found.sampling_variance, 300 * share * (1 - share))
        np.testing.assert_allclose(found.devices_variance, found.noise_variance + 200 * share * (1 - share))
    campaign = made(answers=3, epsilon_micro=3_000_000)
    tally = Tally(campaign.id, (90, 90, 90), ((60, 30), (90, *(0,) * 7), (90, 0, 0, 0)))
    assert answers_by_stratum(campaign, tally) == (90, 90, 90)
    for found in estimate(campaign, tally).questions:
        np.testing.assert_array_equal(found.devices_variance, found.noise_variance)


def test_what_is_said_names_both_populations_and_what_is_assumed():
    tally = tally_of(300, (200, 100), 900)
    bound = at_most(CAMPAIGN, tally, turnout_of(1, np.arange(2), np.zeros(2, int), np.array([600, 300])))
    said = json.loads(json.dumps(estimate(CAMPAIGN, tally, recurrence=bound).to_json(), allow_nan=False))
    assert said["populations"]["basis"] == BOUND
    assert said["populations"]["effective_devices"] == [pytest.approx(900**2 / (600 + 3 * 300))]
    question = said["questions"][0]
    assert question["low"][0] < question["devices_low"][0] < question["estimates"][0]
    assert question["devices_variances"][0] < question["variances"][0]


def test_accuracy_of_a_model_counts_devices_and_not_answers():
    mechanism = mechanisms.from_epsilon("direct", "4", 4)
    alone = accuracy_of(outcome(mechanism, 2, [4000, 1000, 1000, 4000]))
    again = accuracy_of(outcome(mechanism, 2, [4000, 1000, 1000, 4000], concentration=1 / 500))
    assert again.estimate == alone.estimate
    assert again.high - again.low > 3 * (alone.high - alone.low)
    assert alone.devices_high - alone.devices_low < alone.high - alone.low
    assert again[3:] == alone[3:]
