"""The interval of a mean: Student's quantiles compared with printed tables, and the coverage of the interval."""

from __future__ import annotations

from math import erf, sqrt

import numpy as np
import pytest

from simulation.trust import mean_interval, two_sided_quantile, within

TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 29: 2.045, 30: 2.042, 120: 1.980}
"""Degrees of freedom → 0.975 quantile of Student's distribution, from printed tables."""


@pytest.mark.parametrize("freedom", TABLE)
def test_the_quantiles_are_those_of_the_tables(freedom):
    assert two_sided_quantile(freedom) == pytest.approx(TABLE[freedom], abs=6e-4)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 8, 50])
def test_the_law_is_a_law(freedom):
    at = [within(t, freedom) for t in (0, 0.1, 1, 3, 100, 1e9)]
    assert at[0] == 0
    assert at == sorted(at)
    assert at[-1] == pytest.approx(1)
    assert within(1.3, 100_000) == pytest.approx(erf(1.3 / sqrt(2)), abs=1e-5)


def covered(width, repeats=3, trials=4000):
    rng = np.random.default_rng(5)
    draws = rng.normal(0.8, 0.02, (trials, repeats)).tolist()
    ends = [mean_interval(values) for values in draws]
    return sum(low - (high - low) * width / 2 <= 0.8 <= high + (high - low) * width / 2 for low, high in ends)


def test_it_covers_the_mean_in_95_of_100_and_a_narrower_one_does_not():
    """Binomial(4000, 0.95) leaves 3800 ∓ 75 with probability 6e-8; an interval that is a third narrower fails."""
    assert abs(covered(0.0) - 3800) <= 75
    assert covered(-1 / 3) < 3725


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5], [0.1 + 0.2, 0.3]])
def test_values_that_do_not_vary_have_no_interval(values):
    """A difference by rounding is none."""
    assert mean_interval(values) is None
