"""Exact draws: exponential and normal numbers, integers below any bound, discrete Gaussian noise, the noisy maximum.

Sources: von Neumann 1951 (the exponential number); Karney, "Sampling Exactly from the Normal Distribution", 2016,
Algorithm N; Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", 2020, Algorithms 1 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import isqrt

from protocol.mechanisms.noise import discrete_laplace
from protocol.noise.law import LazyReal, Shifted, Uniform, decide, is_below
from protocol.stream import Stream


def exponential(stream: Stream) -> LazyReal:
    """Draw a number with density e^−x, x > 0.

    A run u₁ > u₂ > … of uniform numbers has odd length with probability e^−u₁, given u₁. The result is u₁ of the first
    run of odd length, plus the number of runs of even length before it.
    """
    whole = 0
    while True:
        first = Uniform(stream)
        last, odd = first, True
        while is_below(following := Uniform(stream), last):
            last, odd = following, not odd
        if odd:
            return Shifted(whole, first)
        whole += 1


def normal_magnitude(stream: Stream) -> LazyReal:
    """Draw the absolute value of a standard normal number: density ∝ e^(−x²/2), x > 0.

    The whole part k has probability ∝ e^(−k/2)·e^(−k(k−1)/2) = e^(−k²/2); the fraction x is kept with probability
    e^(−kx − x²/2).
    """
    while True:
        whole = 0
        while _coin_of_half(stream):
            whole += 1
        if not all(_coin_of_half(stream) for _ in range(whole * (whole - 1))):
            continue
        x = Uniform(stream)
        if all(_coin_of(stream, x) for _ in range(whole)) and _coin_of_half_square(stream, x):
            return Shifted(whole, x)


def exp_coin(share: Callable[[int], bool]) -> bool:
    """Draw True with probability e^−x, 0 ≤ x ≤ 1; ``share(k)`` draws True with probability x/k, independently."""
    k = 1
    while share(k):
        k += 1
    return k % 2 == 1


def _coin_of_half(stream: Stream) -> bool:
    return exp_coin(lambda k: stream.below(2 * k) == 0)


def _coin_of(stream: Stream, x: Uniform) -> bool:
    """Draw True with probability e^−x."""
    return exp_coin(lambda k: stream.below(k) == 0 and is_below(Uniform(stream), x))


def _coin_of_half_square(stream: Stream, x: Uniform) -> bool:
    """Draw True with probability e^(−x²/2)."""
    return exp_coin(lambda k: stream.below(2 * k) == 0 and _square_exceeds(x, Uniform(stream)))


def _square_exceeds(x: Uniform, other: Uniform) -> bool:

    def certain(bits: int) -> bool | None:
        low, high = x.bounds(bits)
        least, most = other.bounds(bits)
        return True if low * low >= most << bits else False if high * high <= least << bits else None

    return decide(certain)


def below(stream: Stream, bound: int) -> int:
    """Draw an integer uniformly from {0 … ``bound`` − 1}, exactly, for any positive bound, by rejection."""
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


def noisy_max(counts: Sequence[int], rate: Fraction, stream: Stream) -> int:
    """Draw the index of a count that is probably the largest. Run by the curator, after the cost was recorded.

    Every count gets exponential noise of rate r, and only the index of the largest sum is released. One record more,
    which adds 0 or 1 to each count, changes P(index) by at most the factor e^r, however many counts there are; a
    replaced record by e^2r. The index is drawn by permute-and-flip, which has the same distribution: in random order,
    an index with q records less than the best count is taken with probability e^−rq. ``rate``: r > 0.

    Source: Dwork, Roth (2014), section 3.3; McKenna, Sheldon (NeurIPS 2020); Ding, Kifer, Saghaian N. E., Steinke,
    Wang, Xiao, Zhang (2021) for the equality of the distributions; docs/math.md, section 7.
    """
    best = max(counts)
    left = list(range(len(counts)))
    while True:
        index = left.pop(below(stream, len(left)))
        if coin_of_exponential(stream, rate * (best - counts[index])):
            return index
