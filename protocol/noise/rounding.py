"""A noisy number, rounded to an integer: exactly the rounded value of a real number with lazy bits.

No floating-point number takes part.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

from protocol.noise.lazy import WORD

if TYPE_CHECKING:
    from protocol.noise.lazy import LazyReal


def rounded(center: Fraction, scale: Fraction, noise: LazyReal) -> int:
    """The integer nearest to ``center`` + ``scale``·noise; ``scale`` > 0. Reads noise until the integer is certain."""
    bits = WORD
    while True:
        low, high = (floor(center + scale * Fraction(end, 1 << bits) + Fraction(1, 2)) for end in noise.bounds(bits))
        if low == high:
            return low
        bits *= 2
