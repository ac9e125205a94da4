"""Exact samplers of numbers with density ∝ 1/(1 + |z|^γ)^m: polynomial tails, by comparisons of integers.

γ = 2, m = 1 is the standard Cauchy law; γ = 2, m = 2 is Student's t with 3 degrees of freedom, divided by √3.

The density of z in (0, 1) is ∝ 1/(1 + z^γ)^m, and that of w = 1/z for z > 1 is ∝ w^(γm−2)/(1 + w^γ)^m. So a candidate
is z = s, or w = s^(1/(γm−1)), with a uniform number s. The probabilities of the two kinds are proportional to the areas
1 and 1/(γm − 1). A candidate is kept with probability 1/(1 + z^γ)^m or 1/(1 + w^γ)^m: by m comparisons with uniform
numbers. Powers stay integers, since a power of s is compared with a power of the other number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.noise.lazy import LazyReal, Uniform, decide
from protocol.noise.rational_bounds import integer_root

if TYPE_CHECKING:
    from fractions import Fraction

    from protocol.stream import Stream


def power_tail_magnitude(stream: Stream, gamma: Fraction, m: int = 1) -> LazyReal:
    """Draw a number with density ∝ 1/(1 + z^γ)^m, z > 0, for a fraction γ with γm > 1 and a positive integer m."""
    p, q = gamma.numerator, gamma.denominator
    tail = p * m - q  # w = s^(q/tail)
    while True:
        is_inner = stream.below(p * m) < tail
        s = Uniform(stream)
        root = q if is_inner else tail  # z^γ or w^γ is s^(p/root).
        if all(_keeps(Uniform(stream), s, p, root) for _ in range(m)):
            return s if is_inner else InversePower(s, q, tail)


def _keeps(u: Uniform, s: Uniform, p: int, root: int) -> bool:
    """Whether u·(1 + s^(p/root)) ≤ 1, that is u^root·s^p ≤ (1 − u)^root."""

    def certain(bits: int) -> bool | None:
        u_low, u_high = u.bounds(bits)
        s_low, s_high = s.bounds(bits)
        one = 1 << bits
        if u_high**root * s_high**p <= (one - u_high) ** root << bits * p:
            return True
        if u_low**root * s_low**p >= (one - u_low) ** root << bits * p:
            return False
        return None

    return decide(certain)


class InversePower(LazyReal):
    """s^(−power/root) for a lazy uniform number s."""

    __slots__ = ("_power", "_root", "_uniform")

    def __init__(self, uniform: Uniform, power: int, root: int) -> None:
        self._uniform = uniform
        self._power = power
        self._root = root

    def bounds(self, bits: int) -> tuple[int, int]:
        """Roots of quotients of integers, rounded outwards. The number s is read until it is known to be above 0."""
        digits = bits
        while (s := self._uniform.bounds(digits))[0] == 0:
            digits *= 2
        shift = digits * self._power + bits * self._root
        low = integer_root((1 << shift) // s[1] ** self._power, self._root)
        high = integer_root((1 << shift) // s[0] ** self._power, self._root) + 1
        return low, high
