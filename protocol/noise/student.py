"""Noise with Student's t distribution with 3 degrees of freedom, for pure ε, with a finite variance.

Source: Bun and Steinke, "Average-Case Averages: Private Algorithms for Smooth Sensitivity and Mean Estimation", NeurIPS
2019; docs/smooth.md derives the constants.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING

from protocol.noise.law import Law, PureLaw, left_for_shift
from protocol.noise.lazy import LazyReal, Signed
from protocol.noise.power_tails import power_tail_magnitude
from protocol.noise.rational_bounds import root_above

if TYPE_CHECKING:
    from protocol.stream import Stream

DEGREES = 3


class StudentT(PureLaw):
    """Density ∝ 1/(1 + z²/3)². A shift by Δ costs at most 2Δ/√3, a stretch by e^λ at most 3|λ|."""

    name = "student-t"
    variance = 3.0

    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly: √3 times a number with density ∝ 1/(1 + y²)²."""
        return Signed(stream, TimesRoot(power_tail_magnitude(stream, Fraction(2), 2), DEGREES))

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """2/(√3·k) + 3β; ``delta`` is not needed."""
        del delta
        return root_above(Fraction(4, 3)) / multiplier + DEGREES * beta

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Half of ε for β, unless β is given."""
        del delta
        beta = epsilon / (2 * DEGREES) if beta is None else beta
        return self, (4 / 3) ** 0.5 / left_for_shift(epsilon, DEGREES * beta), beta


class TimesRoot(LazyReal):
    """√square · y for a lazy real y ≥ 0 and a positive integer ``square``."""

    __slots__ = ("_square", "_y")

    def __init__(self, y: LazyReal, square: int) -> None:
        self._y = y
        self._square = square

    def bounds(self, bits: int) -> tuple[int, int]:
        """Integer roots, rounded outwards."""
        low, high = self._y.bounds(bits)
        return isqrt(self._square * low * low), isqrt(self._square * high * high) + 1
