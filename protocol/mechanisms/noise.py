"""Exact discrete Laplace noise from a stream of bytes, with integer arithmetic only.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020,
Algorithm 2; docs/math.md, section 1, which fixes the order of reads from the stream.
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
"""M: a value of 1 is M steps of the integer grid on which the noise is added."""

_TAIL = 64
"""Noise of rate s/t is at most this multiple of t/s. Unbounded noise exceeds it with probability below e^{−64}."""
_MOST = (1 << 31) - 1


class NoisyIntegers(Mechanism):
    """A mechanism that answers with 32-bit integers: the true values in steps of 1/M, plus discrete Laplace noise.

    M = 1024. Answers are clipped to :attr:`bounds`, [−H, M + H] (``she``) or ±(M + H) (``laplace``) with H = ⌈64·t/s⌉.
    So a false answer can not change a sum more than an honest answer can. Clipping uses only the answer, so it does not
    change the privacy loss. A bound at a distance of B steps changes the mean by E(n − B)⁺ = q^{B+1}/(1 − q²), q =
    e^{−s/t}: below 10⁻²⁰ steps for B ≥ H.

    Attributes:
        s, t: the rate of the noise per step is s/t: a noise n has a probability proportional to e^{−|n|·s/t}.
    """

    __slots__ = ("s", "t")
    layout = INTEGERS

    def __init__(self, epsilon_micro: int, size: int, s: int, t: int) -> None:
        """Make the mechanism with noise of the rate ``s``/``t`` per step, which must be finite and fit into 32 bits."""
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
        """The largest noise in steps: ⌈64·t/s⌉ for the rate s/t."""
        return -(-_TAIL * self.t // self.s)

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        return f"{self.size} numbers, each with random noise, the less the larger ε is ({self.name})"

    @property
    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer in an answer."""

    def impossible(self, answers: Any) -> None:
        """Return None: every row of integers within :attr:`bounds` is a possible answer."""
        del answers

    def clamp(self, value: int) -> int:
        """Return ``value``, clipped to :attr:`bounds`."""
        least, most = self.bounds
        return min(max(value, least), most)


def rate(epsilon_micro: int, sensitivity: int) -> tuple[int, int]:
    """Return the rate s/t = ε/(Δ·M) of noise with P(n) ∝ e^{−|n|·s/t}, as the pair (s, t) in lowest terms.

    ``sensitivity`` is Δ, the largest difference of two inputs, summed over coordinates, in units of M = 1024 steps.
    """
    numerator, denominator = epsilon_micro, MICRO * sensitivity * GRID
    common = gcd(numerator, denominator)
    return numerator // common, denominator // common


def discrete_laplace(stream: Stream, s: int, t: int) -> int:
    """Draw one integer n with P(n) ∝ e^{−|n|·s/t} from ``stream``, for positive integers s and t.

    Steps 1 to 6 in the comments are those of the algorithm in docs/math.md, section 1.
    """
    while True:
        u = stream.below(t)  # step 1
        if not _bernoulli_exp(stream, u, t):  # step 2
            continue
        v = 0
        while _bernoulli_exp(stream, 1, 1):  # step 3
            v += 1
        y = (u + t * v) // s  # step 4
        negative = stream.below(2)  # step 5
        if negative and y == 0:  # step 6
            continue
        return -y if negative else y


def _bernoulli_exp(stream: Stream, a: int, b: int) -> bool:
    """Draw True with probability e^{−a/b}, for 0 ≤ a ≤ b."""
    k = 1
    while stream.below(b * k) < a:
        k += 1
    return k % 2 == 1


class ApproximateTable(dict[Any, Fraction]):
    """A distribution with irrational probabilities: rounded probabilities of the likeliest answers only.

    Attributes:
        approximate: always True; plain tables of exact probabilities have no such attribute.
    """

    approximate = True

    @property
    def mass(self) -> Fraction:
        """The sum of the probabilities in the table; 1 minus the probability of all other answers."""
        return sum(self.values(), Fraction(0))
