"""Probabilities and tails of the binomial distribution, beside sums of exact integers."""

from __future__ import annotations

from fractions import Fraction
from math import comb, log

import numpy as np
import pytest

from aggregator.cards.binomial import log_probability, upper_tail


def exact(k, n, p):
    return comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize(("n", "p"), [(0, 0.5), (1, 0.25), (7, 0.5), (40, 0.125), (300, 0.75)])
def test_probabilities_are_those_of_integers(n, p):
    expected = [log(exact(k, n, Fraction(p))) for k in range(n + 1)]
    assert log_probability(np.arange(n + 1), n, p) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("n", "p"), [(1, 0.25), (7, 0.5), (40, 0.125), (2000, 0.25)])
def test_tails_are_below_the_exact_ones_and_near(n, p):
    chances = [exact(k, n, Fraction(p)) for k in range(n + 1)]
    rest, tails = Fraction(0), []
    for chance in reversed(chances):
        rest += chance
        tails.append(float(rest))
    expected = np.array(tails[::-1])
    found = upper_tail(np.arange(n + 1), n, p)
    above = np.arange(n + 1) > n * p
    assert (found <= expected * (1 + 1e-9) + 1e-300).all()
    assert found[above] == pytest.approx(expected[above], rel=4e-3)


def test_a_billion_trials_sum_to_one_and_ends_are_certain():
    around = np.arange(500_000_000 - 200_000, 500_000_000 + 200_001)
    assert np.exp(log_probability(around, 10**9, 0.5)).sum() == pytest.approx(1, abs=1e-8)
    assert upper_tail([0, -3, 11], 10, 0.5).tolist() == [1, 1, 0]


def test_numbers_far_below_the_mean_are_almost_sure():
    """A far deviation has one tail near 1 and one near 0; neither may be lost to an overflow."""
    found = upper_tail([1, 100, 500_000, 900_000], 10**6, 0.9)
    assert np.isfinite(found).all()
    assert (found[:3] > 0.98).all()
    assert found[3] == pytest.approx(0.5, abs=0.01)
    assert upper_tail(900_000, 10**6, 0.1) == 0
