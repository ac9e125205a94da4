"""Exact discrete Laplace noise from integers and a stream of bytes alone.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020,
Algorithm 2; docs/math.md, section 1, which fixes the order of reads.
"""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any

from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.mechanisms.base import INTEGERS, Mechanism, unbounded

if TYPE_CHECKING:
    from protocol.stream import Stream

GRID = 1024
"""M: one unit of the value is this many steps of the noise."""

_TAIL = 64
"""The noise reaches so many times t/s: further out with probability below e^{−64}."""
_MOST = (1 << 31) - 1


class NoisyIntegers(Mechanism):
    """A mechanism that answers with 32-bit integers: what is true, on a grid of M, plus discrete Laplace noise.

    The noise is bounded, so that one lie moves a sum by no more than an honest answer could: with
    H = ⌈64·t/s⌉ an integer that goes beyond [−H, M + H] (``laplace``: ±(M + H)) is moved to the nearer end.
    That is done to the answer, so the privacy loss stays what it is. An end that is B steps away moves the
    mean by E(n − B)⁺ = q^{B+1}/(1 − q²), q = e^{−s/t}: below 10⁻²⁰ steps wherever B ≥ H.

    Attributes:
        s, t: the rate of the noise per step is s/t.
    """

    __slots__ = ("s", "t")
    layout = INTEGERS

    def __init__(self, epsilon_micro: int, size: int, s: int, t: int) -> None:
        """``s``/``t`` is the rate of the noise per step.

        Raises:
            InputError: ``parameters_invalid``, there is no noise rate, or integers of 32 bits can not hold the
                noise; ``loss_unbounded``, there is no noise.
        """
        super().__init__(epsilon_micro, size)
        if s == 0:
            raise InputError("parameters_invalid", "the rate of the noise is not positive")
        if t == 0:
            raise unbounded()
        self.s = s
        self.t = t
        if self.bounds[1] > _MOST:
            raise InputError("parameters_invalid", "the noise is too wide for 32 bits: take a larger ε or a smaller Δ")

    @property
    def reach(self) -> int:
        """H = ⌈64·t/s⌉: how far the noise goes at most."""
        return -(-_TAIL * self.t // self.s)

    def describe(self) -> str:
        """The number of numbers."""
        return f"{self.size} numbers, each buried in random noise ({self.name})"

    @property
    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """The least and the largest integer in an answer."""

    def clamp(self, value: int) -> int:
        """The nearest integer that an answer may hold."""
        least, most = self.bounds
        return min(max(value, least), most)


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
