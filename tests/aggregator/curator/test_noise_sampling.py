"""Samplers draw from the law that they name, and rounding is that of the exact number."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from math import exp, floor, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.binomial import seeds, window
from support.examples import examples
from support.noise import distribution

from aggregator.curator import sampling as exponentials
from aggregator.curator.noise import LaplaceLogNormal, TimesExponential, law
from aggregator.curator.sampling import normal_magnitude
from protocol.noise.law import (
    InversePower,
    LazyReal,
    Shifted,
    Signed,
    TimesRoot,
    Uniform,
    power_tail_magnitude,
    rounded,
)
from protocol.stream import Stream

NAMES = [
    "cauchy",
    "gamma4",
    "gamma3/2",
    "gamma5/2",
    "gamma64",
    "student-t",
    "laplace",
    "gaussian",
    "laplace-log-normal",
]
FALSE_ALARM = 1e-6
"""Probability that a right sampler fails one test. The seeds are fixed: what passes once always does."""
DRAWS = 3500
SLOW_LAW, FEWER = "laplace-log-normal", 1200
"""A draw of this law takes four times as long. Its parts, Laplace and normal numbers, are tested with all draws."""
FINE = 1 << 40


def samples(draw, purpose, count):
    """``count`` draws, rounded to multiples of 2^−40: ``(count,) float64``, sorted."""
    found = [rounded(Fraction(0), Fraction(FINE), draw(Stream(seed, b"test"))) / FINE for seed in seeds(purpose, count)]
    return np.sort(np.array(found))


def distance(drawn, cdf):
    """Kolmogorov's distance of an empirical distribution from the true one: of Z, or of |Z| if that is larger.

    A symmetric error is twice as large in the distribution of |Z|, P(|Z| ≤ z) = 2·P(Z ≤ z) − 1.
    """
    n = len(drawn)
    steps = np.arange(n + 1) / n
    found = [cdf(drawn), 2 * cdf(np.sort(np.abs(drawn))) - 1]
    return max(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()) for expected in found)


def limit(count):
    """The distance that a right sampler exceeds with probability at most FALSE_ALARM, for any count.

    Massart's inequality, P(distance > d) ≤ 2·e^(−2nd²), for both distances together.
    """
    return sqrt(log(4 / FALSE_ALARM) / (2 * count))


def cdf_of(name):
    return distribution(name, getattr(law(name), "sigma", None))


@pytest.mark.parametrize("name", NAMES)
def test_draws_follow_the_law(name):
    count = FEWER if name == SLOW_LAW else DRAWS
    drawn = samples(law(name).draw, name, count)
    assert distance(drawn, cdf_of(name)) <= limit(count)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_draws_follow_the_law(name):
    drawn = samples(law(name).draw, f"many {name}", 10_000)
    assert distance(drawn, cdf_of(name)) <= limit(10_000)


def even_runs(stream):
    """The exponential sampler with runs of even length in place of odd ones."""
    whole = 0
    while True:
        first = last = Uniform(stream)
        length = 1
        while exponentials.is_below(following := Uniform(stream), last):
            last, length = following, length + 1
        if length % 2 == 0:
            return Shifted(whole, first)
        whole += 1


def one_coin_too_many(stream):
    """The normal sampler with k coins in place of k(k − 1) to make e^(−k²/2) of e^(−k/2)."""
    while True:
        whole = 0
        while exponentials._coin_of_half(stream):
            whole += 1
        x = Uniform(stream)
        coins = [exponentials._coin_of_half(stream) for _ in range(whole)]
        coins += [exponentials._coin_of(stream, x) for _ in range(whole)]
        if all(coins) and exponentials._coin_of_half_square(stream, x):
            return Shifted(whole, x)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("cauchy", lambda stream: Signed(stream, power_tail_magnitude(stream, Fraction(3, 2)))),
        ("gamma4", lambda stream: Signed(stream, power_tail_magnitude(stream, Fraction(3)))),
        ("gamma4", lambda stream: power_tail_magnitude(stream, Fraction(4))),
        ("student-t", lambda stream: Signed(stream, TimesRoot(power_tail_magnitude(stream, Fraction(2)), 3))),
        ("student-t", lambda stream: Signed(stream, power_tail_magnitude(stream, Fraction(2), 2))),
        ("laplace", lambda stream: Signed(stream, even_runs(stream))),
        ("gaussian", lambda stream: Signed(stream, one_coin_too_many(stream))),
        ("laplace-log-normal", LaplaceLogNormal(Fraction(3, 2)).draw),
    ],
)
def test_a_broken_sampler_is_found(name, draw):
    """Another power, no sign, one acceptance too few, a missing root, a wrong parity, other coins, another σ."""
    count = FEWER if name == SLOW_LAW else DRAWS
    assert distance(samples(draw, f"broken {name}", count), cdf_of(name)) > limit(count)


class Known(LazyReal):
    """A number that is known exactly, in place of a uniform one."""

    def __init__(self, value):
        self.value = value

    def bounds(self, bits):
        low = floor(self.value * (1 << bits))
        return low, low + 1


@pytest.mark.parametrize(
    ("coin", "exponent"),
    [
        (exponentials._coin_of_half, 1 / 2),
        (lambda stream: exponentials._coin_of(stream, Known(Fraction(3, 4))), 3 / 4),
        (lambda stream: exponentials._coin_of(stream, Known(Fraction(1, 10))), 1 / 10),
        (lambda stream: exponentials._coin_of_half_square(stream, Known(Fraction(9, 10))), 81 / 200),
        (lambda stream: exponentials._coin_of_half_square(stream, Known(Fraction(1, 2))), 1 / 8),
    ],
)
def test_a_coin_has_the_probability_that_it_says(coin, exponent):
    """The heads of 3,000 coins are in an exact binomial window with false alarm 10⁻⁶; twice the exponent is outside."""
    heads = sum(coin(Stream(seed, b"coin")) for seed in seeds(f"coin {exponent}", 3000))
    low, high = window(3000, Fraction(exp(-exponent)), Fraction(1, 10**6))
    assert low <= heads <= high
    low, high = window(3000, Fraction(exp(-2 * exponent)), Fraction(1, 10**6))
    assert not low <= heads <= high


_PRECISE = Context(prec=700)
DIGITS = 2048


def as_decimal(fraction):
    return _PRECISE.divide(Decimal(fraction.numerator), Decimal(fraction.denominator))


def exact(noise):
    """The number that a lazy real is, to more than 500 digits, by decimal powers, roots and exponentials."""
    if isinstance(noise, Uniform):
        return as_decimal(Fraction(noise.bounds(DIGITS)[0], 1 << DIGITS))
    if isinstance(noise, Signed):
        value = exact(noise._magnitude)
        return value.copy_negate() if noise._negative else value
    if isinstance(noise, Shifted):
        return _PRECISE.add(Decimal(noise._integer), exact(noise._real))
    if isinstance(noise, InversePower):
        exponent = as_decimal(Fraction(-noise._power, noise._root))
        return _PRECISE.power(exact(noise._uniform), exponent)
    if isinstance(noise, TimesRoot):
        return _PRECISE.multiply(exact(noise._y), _PRECISE.sqrt(Decimal(noise._square)))
    assert isinstance(noise, TimesExponential)
    exponent = _PRECISE.multiply(as_decimal(noise._sigma), exact(noise._y))
    return _PRECISE.multiply(exact(noise._x), _PRECISE.exp(exponent))


def rounded_decimal(center, scale, value):
    return floor(center + scale * Fraction(value) + Fraction(1, 2))


@pytest.mark.parametrize("name", NAMES)
def test_rounding_is_that_of_the_exact_number(name):
    """Also where the sum is within 2^−k of the boundary between two integers, k = 20, 100, 300, on either side."""
    for number, seed in enumerate(seeds(f"rounding {name}", 12)):
        scale = Fraction(10 ** (number % 4), 7)
        noise = law(name).draw(Stream(seed, b"test"))
        value = exact(noise)
        for bits in (20, 100, 300):
            for side in (-1, 1):
                near = Fraction(number) + Fraction(1, 2) - scale * Fraction(value) + Fraction(side, 1 << bits)
                found = rounded(near, scale, noise)
                assert found == rounded_decimal(near, scale, value) == number + (side > 0)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_hold_the_exact_number_and_shrink(name):
    for seed in seeds(f"bounds {name}", 5):
        noise = law(name).draw(Stream(seed, b"test"))
        found = [[Fraction(end, 1 << bits) for end in noise.bounds(bits)] for bits in (64, 128, 512, 1024)]
        value = Fraction(exact(noise))
        assert all(low <= value <= high for low, high in found)
        assert found[-1][1] - found[-1][0] < Fraction(1, 1 << 900)


def test_rounding_without_the_last_bits_is_seen():
    """A rounding that decides by 64 bits alone differs from that of the exact number."""
    seed = next(iter(seeds("coarse", 1)))
    value = Fraction(exact(law("gaussian").draw(Stream(seed, b"test"))))
    near = Fraction(1, 2) - value - Fraction(1, 1 << 100)
    low, _ = law("gaussian").draw(Stream(seed, b"test")).bounds(30)
    assert rounded(near, Fraction(1), law("gaussian").draw(Stream(seed, b"test"))) == 0
    high = law("gaussian").draw(Stream(seed, b"test")).bounds(30)[1]
    assert {floor(near + Fraction(end, 1 << 30) + Fraction(1, 2)) for end in (low, high)} == {0, 1}


@given(st.fractions(-100, 100), st.fractions(Fraction(1, 1000), 1000), st.binary(min_size=32, max_size=32))
@examples(100)
def test_noise_is_symmetric_and_moves_with_the_centre(center, scale, seed):
    """An integer added to the centre is added to the result."""
    one, two = (rounded(center + shift, scale, law("cauchy").draw(Stream(seed, b"t"))) for shift in (0, 41))
    assert two == one + 41


def test_the_normal_magnitude_is_positive_and_no_draw_repeats():
    drawn = {normal_magnitude(Stream(seed, b"n")).bounds(64) for seed in seeds("positive", 50)}
    assert len(drawn) == 50
    assert all(low >= 0 for low, _ in drawn)
