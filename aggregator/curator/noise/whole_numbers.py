"""Exact draws of integers: uniform below any bound, coins of probability e^−x, and discrete Gaussian noise.

:class:`protocol.stream.Stream` draws below 2^64. A curator's noise needs larger bounds: variances of sums of squares.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020, Algorithms 1 and 3.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from aggregator.curator.noise.exponentials import exp_coin
from protocol.mechanisms.noise import discrete_laplace
from protocol.stream import Stream


def below(stream: Stream, bound: int) -> int:
    """Draw an integer uniformly from {0 … ``bound`` − 1}, exactly, for any positive bound.

    Reads as many whole bytes as the bound has, keeps as many bits, and repeats until the integer is below the bound.
    """
    bits = (bound - 1).bit_length()
    count = -(-bits // 8)
    while (drawn := int.from_bytes(stream.read(count), "big") >> (8 * count - bits)) >= bound:
        pass
    return drawn


def coin_of_exponential(stream: Stream, exponent: Fraction) -> bool:
    """Draw True with probability e^−``exponent``, for a rational exponent of at least 0."""
    whole = exponent.numerator // exponent.denominator
    if any(not exp_coin(lambda k: below(stream, k) == 0) for _ in range(whole)):
        return False
    a, b = (exponent - whole).as_integer_ratio()
    return exp_coin(lambda k: below(stream, b * k) < a)


def discrete_gaussian(stream: Stream, variance: int) -> int:
    """Draw one integer n with P(n) ∝ e^{−n²/(2σ²)}, σ² = ``variance``, a positive integer.

    A discrete Laplace number y of rate 1/t, t = ⌊σ⌋ + 1, is kept with probability e^{−(|y| − σ²/t)²/(2σ²)}.
    """
    t = isqrt(variance) + 1
    while True:
        y = discrete_laplace(stream, 1, t)
        if coin_of_exponential(stream, Fraction((abs(y) * t - variance) ** 2, 2 * variance * t * t)):
            return y
