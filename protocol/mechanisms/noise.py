"""Exact discrete Laplace noise from integers and a stream of bytes alone.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020,
Algorithm 2; docs/math.md, section 1, which fixes the order of reads.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any

from protocol.epsilon import MICRO

if TYPE_CHECKING:
    from protocol.stream import Stream

GRID = 1024
"""M: one unit of the value is this many steps of the noise."""

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


def rate(epsilon_micro: int, sensitivity: int) -> tuple[int, int]:
    """s/t = ε/(Δ·M) in lowest terms: P(noise = n) ∝ e^{−|n|·s/t}."""
    numerator, denominator = epsilon_micro, MICRO * sensitivity * GRID
    common = gcd(numerator, denominator)
    return numerator // common, denominator // common


def discrete_laplace(stream: Stream, s: int, t: int) -> int:
    """One integer with P(n) ∝ e^{−|n|·s/t}. The numbers are the steps of docs/math.md."""
    while True:
        u = stream.below(t)  # 1
        if not _bernoulli_exp(stream, u, t):  # 2
            continue
        v = 0
        while _bernoulli_exp(stream, 1, 1):  # 3
            v += 1
        y = (u + t * v) // s  # 4
        negative = stream.below(2)  # 5
        if negative and y == 0:  # 6
            continue
        return -y if negative else y


def _bernoulli_exp(stream: Stream, a: int, b: int) -> bool:
    """True with probability e^{−a/b}, 0 ≤ a ≤ b."""
    k = 1
    while stream.below(b * k) < a:
        k += 1
    return k % 2 == 1


def clamp(value: int) -> int:
    """The nearest 32-bit signed integer."""
    return min(max(value, _LEAST), _MOST)


class ApproximateTable(dict[Any, Fraction]):
    """A truncated table of rounded probabilities: of irrational ones, around the likeliest answer.

    Attributes:
        mass: the sum of the table; the rest of the answers lies outside it.
    """

    approximate = True

    @property
    def mass(self) -> Fraction:
        """How much of the distribution the table holds."""
        return sum(self.values(), Fraction(0))
