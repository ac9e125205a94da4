"""Unary encoding: one bit per value, each flipped independently. The base of OUE, SUE and THE.

Source: Wang et al., USENIX Security 2017, sections 4.2 and 4.3; docs/math.md, section 1.
"""

from __future__ import annotations

from math import exp, lgamma, log, log1p
from typing import TYPE_CHECKING, Any, Self

from protocol.epsilon import PrivacyLoss
from protocol.errors import InputError
from protocol.mechanisms.base import (
    BITS,
    ONE,
    FrequencyMechanism,
    check_size,
    out_of_domain,
    read_integers,
    rows_of_bits,
    unbounded,
    uninformative,
)
from protocol.stream import Stream

if TYPE_CHECKING:
    from fractions import Fraction

TAG = b"hearsay/1/unary"
_MAX_ENUMERATED = 16


class UnaryMechanism(FrequencyMechanism):
    """A mechanism that answers with one bit per value, each drawn independently.

    Bit j is 1 with probability P/2^32 if j is the true value, else with probability Q/2^32. The answer is a tuple of K
    zeros and ones for K values. Another value changes the probabilities of two bits, so the worst ratio is
    p(1 − q) / (q(1 − p)) with p = P/2^32 and q = Q/2^32.
    """

    __slots__ = ("one_if_other", "one_if_true")
    layout = BITS

    def __init__(self, epsilon_micro: int, size: int, one_if_true: int, one_if_other: int) -> None:
        """Make the mechanism for P = ``one_if_true`` and Q = ``one_if_other``."""
        super().__init__(epsilon_micro, size)
        self.one_if_true = one_if_true
        self.one_if_other = one_if_other

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Self:
        """Read the mechanism from ``parameters``, its map in a campaign."""
        size, micro, one_if_true, one_if_other = read_integers(parameters, ("p", "q"))
        return cls._checked(micro, size, one_if_true, one_if_other)

    @classmethod
    def _checked(cls, epsilon_micro: int, size: int, one_if_true: int, one_if_other: int) -> Self:
        check_size(size, 2, 65536)
        if one_if_true != one_if_other and not {0, ONE}.isdisjoint((one_if_true, one_if_other)):
            raise unbounded()
        if one_if_true <= one_if_other:
            raise uninformative()
        return cls(epsilon_micro, size, one_if_true, one_if_other)

    def to_dict(self) -> dict[str, Any]:
        """Return the map in a campaign. ``p`` and ``q`` are 2^32 times the probabilities :attr:`p` and :attr:`q`."""
        return self._stated(p=self.one_if_true, q=self.one_if_other)

    @property
    def p(self) -> Fraction:
        """Probability that the true value's bit is 1."""
        from fractions import Fraction

        return Fraction(self.one_if_true, ONE)

    @property
    def q(self) -> Fraction:
        """Probability that the bit of a value that is not the true one is 1."""
        from fractions import Fraction

        return Fraction(self.one_if_other, ONE)

    def perturb(self, value: int, seed: bytes) -> tuple[int, ...]:
        """Draw one bit per value for ``value``, one of the K values 0 … K − 1, from the stream of ``seed``.

        The bits 0 … K − 1 are drawn in order: that of ``value`` by ``Stream.coin(P)``, any other by ``Stream.coin(Q)``.
        """
        if type(value) is not int or not 0 <= value < self.size:
            raise out_of_domain(f"an integer from 0 to {self.size - 1}")
        words = Stream(seed, TAG).words(self.size)
        threshold = self.one_if_other
        bits = [1 if word < threshold else 0 for word in words]
        bits[value] = 1 if words[value] < self.one_if_true else 0
        return tuple(bits)

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        return f"{self.size} yes/no bits, each flipped at random ({self.name})"

    def bit_probabilities(self, value: int) -> list[Fraction]:
        """Return, for each value, the exact probability that its bit in the answer for the true ``value`` is 1."""
        self.check_value(value)
        return [self.p if index == value else self.q for index in range(self.size)]

    def distribution(self, value: int) -> dict[tuple[int, ...], Fraction]:
        """Return the probability of every row of at most 16 bits for the true ``value``: answer → probability."""
        if self.size > _MAX_ENUMERATED:
            raise InputError("too_many_answers", "2^size answers are too many to list; use bit_probabilities")
        return rows_of_bits(self.bit_probabilities(value))

    def impossible(self, answers: Any) -> None:
        """Return None: every row of bits is a possible answer."""
        del answers

    def set_bits_law(self) -> list[float]:
        """Return the probability of b ones, b = 0 … K, among the bits of K values (:func:`ones_law`)."""
        return ones_law(self.size - 1, self.one_if_true / ONE, self.one_if_other / ONE)

    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact privacy loss ln(p(1 − q)/(q(1 − p))) with the probabilities :attr:`p` and :attr:`q`."""
        p, q = self.p, self.q
        return PrivacyLoss(p * (1 - q) / (q * (1 - p)))


def ones_law(others: int, p: float, q: float) -> list[float]:
    """Return the probability of b ones, b = 0 … K, among K = ``others`` + 1 bits. It is the same for every true value.

    It is (1 − p)·Bin(K − 1, q)(b) + p·Bin(K − 1, q)(b − 1), where Bin(n, q)(b) is the binomial probability, p the
    probability that the true value's bit is 1, and q that of any other bit.
    """
    of_all, odds, rest = lgamma(others + 1), log(q), log1p(-q)
    law = [
        exp(of_all - lgamma(ones + 1) - lgamma(others - ones + 1) + ones * odds + (others - ones) * rest)
        for ones in range(others + 1)
    ]
    return [(1 - p) * same + p * one_less for same, one_less in zip([*law, 0.0], [0.0, *law], strict=True)]
