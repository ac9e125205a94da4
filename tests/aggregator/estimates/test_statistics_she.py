"""Estimates from histograms (``she``): exactly unbiased, with the exact variance of the noise and covering intervals.

The aggregator clips components to [0, M] before it adds them, so that one dishonest report moves a count little. The
tests enumerate the effect on mean and variance over all integers from 0 to M, to 60 digits.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from support.reports import made

from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.debias import debias, lower_mean, marginal, noise_variance
from aggregator.estimates.reports import estimate
from aggregator.reports.tally.tally import Tally, TallyBuilder
from protocol import mechanisms
from protocol.mechanisms.noise import GRID

EPSILONS = ("0.1", "1", "4", "16")
MECHANISMS = [mechanisms.from_epsilon("she", epsilon, size) for epsilon in EPSILONS for size in (2, 4, 6)]


class Component(NamedTuple):
    """Exact mean and variance of one component clipped to [0, M]."""

    mean: Decimal
    variance: Decimal


@cache
def component(s: int, t: int, held: int) -> Component:
    """Sums over all integers from 0 to M; 0 and M also have the probability of the clipped tails."""
    with localcontext(prec=60):
        q = (-Decimal(s) / Decimal(t)).exp()
        centre = GRID * held
        chances = {step: q ** abs(step - centre) * (1 - q) / (1 + q) for step in range(1, GRID)}
        chances |= {0: q**centre / (1 + q), GRID: q ** (GRID - centre) / (1 + q)}
        assert abs(sum(chances.values()) - 1) < Decimal("1e-55")
        mean = sum(step * chance for step, chance in chances.items())
        return Component(mean, sum(chance * (step - mean) ** 2 for step, chance in chances.items()))


def exact_variance(mechanism) -> float:
    """Exact variance of one component, in units of the value."""
    absent, held = (component(mechanism.s, mechanism.t, value) for value in (0, 1))
    return float(absent.variance / (held.mean - absent.mean) ** 2)


def expected_sums(mechanism, held):
    """Expected sums of a fleet with ``held[i]`` devices of value i, rounded to integers."""
    n = sum(held)
    absent, present = (component(mechanism.s, mechanism.t, value).mean for value in (0, 1))
    return [round(count * present + (n - count) * absent) for count in held]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_expected_sums_give_back_the_true_counts(mechanism):
    """The estimator is linear in the sums, so equality for expected sums, up to rounding, shows no bias."""
    held = [value * value % 5 * 10**9 for value in range(mechanism.size)]
    found = debias(mechanism, sum(held), expected_sums(mechanism, held))
    absent, present = (component(mechanism.s, mechanism.t, value).mean for value in (0, 1))
    assert found.estimate.tolist() == pytest.approx(held, abs=0.51 / float(present - absent), rel=1e-14)


@pytest.mark.parametrize("epsilon", ["0.001", *EPSILONS])
def test_mean_and_variance_of_a_component_are_those_that_the_estimator_takes(epsilon):
    """The mean is the estimator's, and that of a held value is its mirror image; the noise of both varies alike."""
    mechanism = mechanisms.from_epsilon("she", epsilon, 2)
    absent, held = (component(mechanism.s, mechanism.t, value) for value in (0, 1))
    found = lower_mean(mechanism.s, mechanism.t)
    with localcontext(prec=60):
        assert abs(Decimal(found.numerator) / found.denominator - absent.mean) < Decimal("1e-40")
        assert abs(GRID - held.mean - absent.mean) < Decimal("1e-50")
    assert abs(held.variance - absent.variance) < Decimal("1e-48")


def test_sums_stay_integers_until_the_last_step():
    """Sums too large for an exact float are divided as integers."""
    mechanism = mechanisms.from_epsilon("she", 1, 2)
    odd, n = (1 << 60) + 1, 1 << 50
    mean = lower_mean(mechanism.s, mechanism.t)
    exact = [float((total - n * mean) / (GRID - 2 * mean)) for total in (odd, 7)]
    assert debias(mechanism, n, [odd, 7]).estimate.tolist() == pytest.approx(exact, rel=1e-15)


@pytest.mark.parametrize(("epsilon", "most"), [("0.1", 41), ("1", 4.7), ("4", 1.8), ("16", 1.15)])
def test_one_report_moves_a_count_by_hardly_more_than_one_of_oue_could(epsilon, most):
    """The change from the smallest to the largest possible answer, for all contents of its 32 bits."""
    campaign = made(mechanism="she")
    question = campaign.questions[0]
    mechanism = mechanisms.from_epsilon("she", epsilon, question.size)
    question = question._replace(mechanism=mechanism)
    campaign = campaign._replace(questions=(question, *campaign.questions[1:]))
    moved = []
    for number in (*mechanism.bounds, -(1 << 31), (1 << 31) - 1):
        answer = np.full((1, mechanism.size), number, ">i4").view(np.uint8)
        pad = np.zeros((1, campaign.layout.answer_bytes - answer.shape[1]), np.uint8)
        sums = TallyBuilder(campaign)
        assert sums.count(np.zeros(1, np.int64), np.concatenate([answer, pad], axis=1))
        moved.append(debias(mechanism, 1, sums.tally().counts[0]).estimate[0])
    assert moved[0] == moved[2] < 0 < moved[1] == moved[3]
    assert moved[1] - moved[0] < most
    oue = mechanisms.from_epsilon("oue", epsilon, question.size)
    assert moved[1] - moved[0] < 1.1 / float(oue.p - oue.q)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_noise_variance_is_that_of_the_exact_distribution(epsilon):
    mechanism = mechanisms.from_epsilon("she", epsilon, 4)
    exact = exact_variance(mechanism)
    assert noise_variance(mechanism) == pytest.approx(exact, rel=1e-12)
    for counts in ([0, 0, 0, 0], [GRID, 5, 70 * GRID, 3]):
        assert debias(mechanism, 70, counts).noise_variance.tolist() == pytest.approx([70 * exact] * 4, rel=1e-12)
    assert exact < 0.64 * 8 / float(epsilon) ** 2  # the variance of a sum of noises that are not clipped


def test_nothing_is_known_from_no_answers():
    found = debias(mechanisms.from_epsilon("she", 1, 3), 0, [0, 0, 0])
    assert found.estimate.tolist() == [0, 0, 0]
    assert np.isposinf(found.noise_variance).all()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_marginals_are_unbiased_and_add_the_variances_of_independent_components(mechanism):
    held = [value * value % 5 * 10**9 for value in range(mechanism.size)]
    found = marginal(mechanism, sum(held), expected_sums(mechanism, held), 2)
    assert found.estimate.tolist() == pytest.approx([sum(held[0::2]), sum(held[1::2])], abs=100)
    exact = sum(held) * mechanism.size / 2 * exact_variance(mechanism)
    assert sum(held) * found.law.at(found.estimate / sum(held)) == pytest.approx([exact, exact], rel=1e-12)


def test_class_shares_from_histograms_are_unbiased_and_better_than_the_class_question_alone():
    campaign = made(mechanism="she", answers=3, epsilon_micro=3_000_000)
    table = np.array([[3.0, 1], [2, 4], [1, 0], [1, 2]]) / 14
    classes = table.sum(axis=0)
    n, counts = 10**9, []
    for question in campaign.questions:
        truth = (
            classes if question.feature is None else table if question.feature == 0 else np.outer([0.5, 0.5], classes)
        )
        counts.append(tuple(expected_sums(question.mechanism, [round(n * x) for x in truth.reshape(-1).tolist()])))
    statistics = estimate(campaign, Tally(campaign.id, (n,) * 3, tuple(counts)))
    found = class_shares(statistics)
    assert found.share.tolist() == pytest.approx(classes.tolist(), abs=1e-8)
    assert (found.variance < statistics.questions[0].variance / n**2).all()
