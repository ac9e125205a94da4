"""Discrete Laplace noise: probabilities are irrational, so exact privacy is shown by integer exponents.

P(answer | value) = c · q^N with q = e^{−s/t} and a constant c that is the same for all values, so a ratio
of two probabilities is e^{(N' − N)·s/t} and its largest exponent is an integer times s/t.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product

import pytest
from support.binomial import violations

from protocol.epsilon import exp_below
from protocol.mechanisms import from_epsilon
from protocol.mechanisms.noise import GRID, discrete_laplace, rate
from protocol.stream import Stream

ALPHA = Fraction(1, 10**9)


@pytest.mark.parametrize("epsilon", ["0.001", "0.123457", "1", "16"])
@pytest.mark.parametrize("size", [2, 3])
def test_no_histogram_tells_two_values_apart_by_more_than_epsilon(epsilon, size):
    mechanism = from_epsilon("she", epsilon, size)
    places = (-GRID, -1, 0, 1, GRID // 2, GRID - 1, GRID, GRID + 1, 3 * GRID)
    worst = max(
        abs(mechanism.exponent(one, answer) - mechanism.exponent(other, answer))
        for answer in product(places, repeat=size)
        for one, other in permutations(range(size), 2)
    )
    assert worst == 2 * GRID
    loss = mechanism.privacy_loss()
    assert (loss.ratio, loss.exponent) == (1, Fraction(worst * mechanism.s, mechanism.t))
    assert loss.exponent == Fraction(epsilon)
    assert not loss.exceeds(mechanism.epsilon_micro)
    assert loss.exceeds(mechanism.epsilon_micro - 1)


def test_the_table_is_the_exponent_and_says_that_it_is_cut():
    mechanism = from_epsilon("she", 2, 2)
    table = mechanism.distribution(1)
    assert table.approximate
    assert table.mass < 1
    centre = table[0, GRID]
    for answer, probability in table.items():
        steps = mechanism.exponent(1, answer)
        assert float(probability / centre) == pytest.approx(2.718281828459045 ** (-steps * mechanism.s / mechanism.t))


@pytest.mark.parametrize(("s", "t"), [(1, 1), (3, 2), (1, 3), (2, 7)])
def test_the_noise_follows_its_distribution(s, t):
    """Counts of −8 … 8 within exact windows; a right sampler fails with probability at most ALPHA."""
    q = 1 / exp_below(s, t)
    at_zero = (1 - q) / (1 + q)
    expected = {n: at_zero * q ** abs(n) for n in range(-8, 9)}
    expected["beyond"] = 1 - sum(expected.values())
    found = violations(
        lambda seed: discrete_laplace(Stream(seed, b"hearsay/1/histogram"), s, t),
        expected,
        lambda n: [n if abs(n) <= 8 else "beyond"],
        purpose=f"laplace/{s}/{t}",
        n=20_000,
        alpha=ALPHA,
    )
    assert found == []


def test_the_comparison_rejects_noise_with_too_many_zeros():
    """As if one in two of the ones had become a zero."""

    def too_many_zeros(seed):
        noise = discrete_laplace(Stream(seed, b"hearsay/1/histogram"), 1, 1)
        return 0 if noise == 1 and seed[0] < 128 else noise

    q = 1 / exp_below(1, 1)
    expected = {n: (1 - q) / (1 + q) * q ** abs(n) for n in range(-8, 9)}
    expected["beyond"] = 1 - sum(expected.values())
    assert violations(
        too_many_zeros,
        expected,
        lambda n: [n if abs(n) <= 8 else "beyond"],
        purpose="too many zeros",
        n=20_000,
        alpha=ALPHA,
    )


def test_the_rate_is_in_lowest_terms():
    assert rate(1_000_000, 2) == (1, 2048)
    assert rate(123_457, 2) == (123_457, 2_048_000_000)
