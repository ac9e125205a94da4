"""Probabilities and tails of the binomial distribution, beside sums of exact integers."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from math import comb, log

import numpy as np
import pytest

from aggregator.cards.binomial import least_likely, log_probability, most_likely, upper_tail


def exact(k, n, p):
    return comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize(("n", "p"), [(0, 0.5), (1, 0.25), (7, 0.5), (40, 0.125), (300, 0.75)])
def test_probabilities_are_those_of_integers(n, p):
    expected = [log(exact(k, n, Fraction(p))) for k in range(n + 1)]
    assert log_probability(np.arange(n + 1), n, p) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("n", "p"), [(1, 0.25), (7, 0.5), (40, 0.125), (2000, 0.25)])
def test_tails_are_below_the_exact_ones_and_near(n, p):
    chances = [exact(k, n, Fraction(p)) for k in range(n + 1)]
    expected = np.array([float(tail) for tail in accumulate(reversed(chances))][::-1])
    found = upper_tail(np.arange(n + 1), n, p)
    above = np.arange(n + 1) > n * p
    assert (found <= expected * (1 + 1e-9) + 1e-300).all()
    assert found[above] == pytest.approx(expected[above], rel=4e-3)


def test_a_billion_trials_sum_to_one_and_ends_are_certain():
    around = np.arange(500_000_000 - 200_000, 500_000_000 + 200_001)
    assert np.exp(log_probability(around, 10**9, 0.5)).sum() == pytest.approx(1, abs=1e-8)
    assert upper_tail([0, -3, 11], 10, 0.5).tolist() == [1, 1, 0]
    found = upper_tail([1, 100, 500_000, 900_000], 10**6, 0.9)  # neither of both tails is lost to an overflow
    assert np.isfinite(found).all()
    assert (found[:3] > 0.98).all()
    assert found[3] == pytest.approx(0.5, abs=0.01)
    assert upper_tail(900_000, 10**6, 0.1) == 0


def test_numbers_by_chance_are_bounded():
    for n, p in ((50, 0.1), (1000, 0.3), (7, 1.0), (0, 0.5)):
        chances = np.exp(log_probability(np.arange(n + 1), n, p)) if 0 < p < 1 else np.eye(n + 1)[n if p else 0]
        most, least = most_likely(n, p, 1e-6), least_likely(n, p, 1e-6)
        assert chances[most + 1 :].sum() <= 1e-6
        assert chances[:least].sum() <= 1e-6
        assert least <= n * p <= most
    assert most_likely(1000, 0.3, 1e-6) < 400
