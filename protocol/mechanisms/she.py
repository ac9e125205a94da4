"""Summation with histogram encoding: the answer is a noisy 0 or 1 for every value."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

from protocol.epsilon import PrivacyLoss, check_answer_micro, exp_below
from protocol.errors import InputError
from protocol.mechanisms.base import ValueMechanism, check_size, out_of_domain, read_integers
from protocol.mechanisms.noise import GRID, ApproximateTable, NoisyIntegers, discrete_laplace, rate
from protocol.stream import Stream

TAG = b"hearsay/1/histogram"
SENSITIVITY = 2
MAX_SIZE = 4096
_MAX_TABLE = 100_000


class SummedHistogram(NoisyIntegers, ValueMechanism):
    """Summation with histogram encoding: one noisy integer per value.

    Component j of the answer is M·[j = v] plus discrete Laplace noise of rate s/t = ε/(2M) per step, where v is the
    true value and M = 1024. Another value changes two components by M each, so the loss is exactly ε. The probabilities
    are irrational; :meth:`exponent` compares them by integers. This is no pure protocol: an answer supports no set of
    values. The aggregator clips the components to [0, M], adds them and removes the bias (decision 37).
    Source: Wang et al., USENIX Security 2017, section 4.2; docs/math.md, section 1.
    """

    __slots__ = ()
    name = "she"

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int) -> SummedHistogram:
        """Return the mechanism of 2 … 4096 values with the rate of the noise, s/t per step, that follows from ε."""
        check_answer_micro(epsilon_micro)
        check_size(size, 2, MAX_SIZE)
        return cls(epsilon_micro, size, *rate(epsilon_micro, SENSITIVITY))

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> SummedHistogram:
        """Read the mechanism from ``parameters``, its map in a campaign."""
        size, micro, s, t = read_integers(parameters, ("s", "t"))
        check_size(size, 2, MAX_SIZE)
        return cls(micro, size, s, t)

    def to_dict(self) -> dict[str, Any]:
        """Return the map in a campaign. ``s``/``t`` is the rate of the noise."""
        return self._stated(s=self.s, t=self.t)

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer in an answer: −H and 1024 + H, H = :attr:`reach`."""
        return -self.reach, GRID + self.reach

    @property
    def counted(self) -> tuple[int, int]:
        """0 and M = 1024. The aggregator clips each integer to them, so a false answer changes a sum by at most M."""
        return 0, GRID

    def perturb(self, value: int, seed: bytes) -> tuple[int, ...]:
        """Draw the answer for ``value``: one discrete Laplace noise per component from the stream of ``seed``."""
        if type(value) is not int or not 0 <= value < self.size:
            raise out_of_domain(f"an integer from 0 to {self.size - 1}")
        stream = Stream(seed, TAG)
        s, t = self.s, self.t
        return tuple(self.clamp(GRID * (j == value) + discrete_laplace(stream, s, t)) for j in range(self.size))

    def exponent(self, value: int, answer: tuple[int, ...]) -> int:
        """Return the exponent n in P(answer | value) = C·q^n with q = e^{−s/t}, where C does not depend on ``value``.

        The answer must be within :attr:`bounds`. The formula holds for clipped components, too: the value changes all
        probabilities of a tail by the same factor.
        """
        self.check_value(value)
        return sum(abs(part - GRID * (j == value)) for j, part in enumerate(answer))

    def distribution(self, value: int, radius: int = 2) -> ApproximateTable:
        """Return the probabilities, to 49 digits, of at most 100,000 answers near the noiseless answer for ``value``.

        The components of these answers all differ by at most ``radius`` steps from the noiseless ones.
        """
        self.check_value(value)
        if (2 * radius + 1) ** self.size > _MAX_TABLE:
            raise InputError("too_many_answers", "a table of this size and radius has too many answers")
        q = 1 / exp_below(self.s, self.t)
        at_zero = (1 - q) / (1 + q)
        centre = [GRID * (j == value) for j in range(self.size)]
        table = ApproximateTable()
        for offsets in product(range(-radius, radius + 1), repeat=self.size):
            steps = sum(map(abs, offsets))
            table[tuple(c + o for c, o in zip(centre, offsets, strict=True))] = at_zero**self.size * q**steps
        return table

    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact privacy loss 2·M·s/t: another value changes two integers by M = 1024 steps of the noise."""
        return PrivacyLoss(Fraction(1), Fraction(SENSITIVITY * GRID * self.s, self.t))
