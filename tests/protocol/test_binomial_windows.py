"""The exact acceptance windows of the statistical tests, compared with sums of Fractions."""

from fractions import Fraction
from math import comb

import pytest
from support.binomial import seeds, window


@pytest.mark.parametrize(
    ("n", "p"), [(1, Fraction(1, 2)), (30, Fraction(1, 3)), (200, Fraction(1, 50)), (64, Fraction(9, 10))]
)
@pytest.mark.parametrize("alpha", [Fraction(1, 10), Fraction(1, 10**6)])
def test_the_window_is_the_narrowest_with_its_rate(n, p, alpha):
    mass = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    low, high = window(n, p, alpha)
    assert sum(mass[:low]) <= alpha / 2 < sum(mass[: low + 1])
    assert sum(mass[high + 1 :]) <= alpha / 2 < sum(mass[high:])


def test_certain_and_impossible_events():
    assert window(10, Fraction(1), Fraction(1, 100)) == (10, 10)
    assert window(10, Fraction(0), Fraction(1, 100)) == (0, 0)


def test_seeds_are_fixed_and_distinct():
    first = list(seeds("a", 3))
    assert first == list(seeds("a", 3))
    assert len({*first, *seeds("b", 3)}) == 6
    assert all(len(seed) == 32 for seed in first)
