"""Estimates from histograms (``she``): unbiased exactly, with the variance of the exact noise, honest intervals."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from support.binomial import window
from support.reports import made

from aggregator.debias import debias, marginal, noise_variance
from aggregator.intake.tally import Tally
from aggregator.statistics import class_shares, estimate
from protocol import mechanisms
from protocol.mechanisms.noise import GRID

EPSILONS = ("0.1", "1", "4", "16")
MECHANISMS = [mechanisms.from_epsilon("she", epsilon, size) for epsilon in EPSILONS for size in (2, 4, 6)]


@cache
def exact_variance(s: int, t: int) -> Decimal:
    """Σ n²·P(n) / M² term by term, P(n) = (1 − q)/(1 + q)·q^|n|, q = e^{−s/t}; until nothing is left to add."""
    with localcontext(prec=40):
        q = (-Decimal(s) / Decimal(t)).exp()
        chance = 2 * (1 - q) / (1 + q)  # of +n and −n together, before the power of q
        total, n, term = Decimal(0), 0, Decimal(1)
        while term > total * Decimal("1e-20"):
            n += 1
            chance *= q
            term = n * n * chance
            total += term
        return total / GRID**2


# --- unbiasedness ---


@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if m.size < 6], ids=repr)
def test_a_component_s_mean_is_m_times_whether_it_is_the_value(mechanism):
    """In every table cut symmetrically about the noiseless answer, and so in the limit: without a tolerance."""
    for value in range(mechanism.size):
        table = mechanism.distribution(value, radius=2)
        for j in range(mechanism.size):
            mean = sum((answer[j] * chance for answer, chance in table.items()), Fraction(0)) / table.mass
            assert mean == GRID * (j == value)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_expected_sums_give_back_the_true_counts_exactly(mechanism):
    """The estimator is linear in the sums, so this is its unbiasedness."""
    held = [value * value % 5 * 10**6 for value in range(mechanism.size)]
    found = debias(mechanism, sum(held), [GRID * n for n in held])
    assert found.estimate.tolist() == held


def test_sums_stay_integers_until_the_last_step():
    """A sum beyond what a float holds exactly is divided as it is."""
    mechanism = mechanisms.from_epsilon("she", 1, 2)
    odd = (1 << 60) + 1
    assert debias(mechanism, 1, [odd, -odd]).estimate.tolist() == [odd / GRID, -odd / GRID]


# --- variance ---


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_noise_variance_is_that_of_the_exact_distribution(epsilon):
    mechanism = mechanisms.from_epsilon("she", epsilon, 4)
    exact = float(exact_variance(mechanism.s, mechanism.t))
    assert noise_variance(mechanism) == pytest.approx(exact, rel=1e-12)
    for counts in ([0, 0, 0, 0], [GRID, -5, 10**9, 3]):
        assert debias(mechanism, 70, counts).noise_variance.tolist() == pytest.approx([70 * exact] * 4, rel=1e-12)
    assert exact == pytest.approx(8 / float(epsilon) ** 2, rel=1e-3)  # the documents' shorthand


def test_nothing_is_known_from_no_answers():
    found = debias(mechanisms.from_epsilon("she", 1, 3), 0, [0, 0, 0])
    assert found.estimate.tolist() == [0, 0, 0]
    assert np.isposinf(found.noise_variance).all()


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_marginals_are_unbiased_and_add_the_variances_of_independent_components(mechanism):
    held = [value * value % 5 * 1000 for value in range(mechanism.size)]
    found = marginal(mechanism, sum(held), [GRID * n for n in held], 2)
    assert found.estimate.tolist() == [sum(held[0::2]), sum(held[1::2])]
    exact = sum(held) * mechanism.size / 2 * float(exact_variance(mechanism.s, mechanism.t))
    assert found.noise_variance.tolist() == pytest.approx([exact, exact], rel=1e-12)
    assert found.planned_variance == pytest.approx(exact, rel=1e-12)


# --- against the device ---


def test_many_answers_of_the_device_average_to_the_truth_within_the_stated_variance():
    """N real answers; a right pair of mechanism and estimator fails with probability below 2·10⁻⁹ per value."""
    mechanism = mechanisms.from_epsilon("she", 2, 3)
    n, sums = 6000, [0, 0, 0]
    for number in range(n):
        answer = mechanism.perturb(number % 2, number.to_bytes(32, "big"))
        sums = [total + part for total, part in zip(sums, answer, strict=True)]
    found = debias(mechanism, n, sums)
    six = 6 * np.sqrt(found.noise_variance)
    assert (np.abs(found.estimate - [n / 2, n / 2, 0]) < six).all()
    assert (six < n / 8).all()  # so a value taken for another would be seen


# --- intervals and class shares ---

ALPHA = Fraction(1, 10**6)
"""The chance that one value's test rejects intervals whose true coverage is 94 to 96 %, over fresh seeds."""
REPEATS = 4000


def coverage(mechanism, width: float = 1.0, *, sampling: bool = True) -> list[int]:
    """How many of REPEATS intervals hold the fleet's number, per value. Whom is asked is drawn, too."""
    campaign = made()
    question = campaign.questions[0]
    question = question._replace(mechanism=mechanism, subject=question.subject._replace(size=mechanism.size))
    campaign = campaign._replace(questions=(question,))
    shares = np.arange(1, mechanism.size + 1) / np.arange(1, mechanism.size + 1).sum()
    generator = np.random.default_rng(20240502)
    leave = -np.expm1(-mechanism.s / mechanism.t)
    n, covered = 3000, np.zeros(mechanism.size, int)
    for _ in range(REPEATS):
        noise = generator.negative_binomial(n, leave, (2, mechanism.size))
        sums = GRID * generator.multinomial(n, shares) + noise[0] - noise[1]
        found = estimate(campaign, Tally(campaign.id, (n,), (tuple(sums.tolist()),))).questions[0]
        low, high = found.low, found.high
        if width != 1.0 or not sampling:
            half = width * 1.959963984540054 * np.sqrt(found.variance if sampling else found.noise_variance)
            low, high = found.estimate - half, found.estimate + half
        covered += (low <= n * shares) & (n * shares <= high)
    return covered.tolist()


def acceptable(covered: int) -> bool:
    """Whether so many of REPEATS intervals may hold the truth."""
    return window(REPEATS, Fraction(94, 100), ALPHA)[0] <= covered <= window(REPEATS, Fraction(96, 100), ALPHA)[1]


@pytest.mark.parametrize("epsilon", ["0.5", "8"])
def test_intervals_hold_the_truth_as_often_as_they_say(epsilon):
    covered = coverage(mechanisms.from_epsilon("she", epsilon, 4))
    assert all(map(acceptable, covered)), f"{covered} of {REPEATS}; false alarm ≤ {float(4 * ALPHA):.0e}"


@pytest.mark.parametrize("broken", [{"width": 0.85}, {"width": 1.25}, {"sampling": False}])
def test_the_coverage_test_rejects_wrong_intervals(broken):
    covered = coverage(mechanisms.from_epsilon("she", "8", 4), **broken)
    assert not any(map(acceptable, covered))


def test_class_shares_from_histograms_are_unbiased_and_better_than_the_class_question_alone():
    campaign = made(mechanism="she", answers=3, epsilon_micro=3_000_000)
    table = np.array([[3.0, 1], [2, 4], [1, 0], [1, 2]]) / 14
    classes = table.sum(axis=0)
    n, counts = 10**9, []
    for question in campaign.questions:
        truth = (
            classes if question.feature is None else table if question.feature == 0 else np.outer([0.5, 0.5], classes)
        )
        counts.append(tuple(round(GRID * n * share) for share in truth.reshape(-1).tolist()))
    statistics = estimate(campaign, Tally(campaign.id, (n,) * 3, tuple(counts)))
    found = class_shares(statistics)
    assert found.share.tolist() == pytest.approx(classes.tolist(), abs=1e-9)
    assert (found.variance < statistics.questions[0].variance / n**2).all()
