"""Subset selection: the answer is a set of w values, which holds the true value with a larger probability."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any

from protocol.epsilon import PrivacyLoss, check_answer_micro, exp_below
from protocol.errors import InputError
from protocol.mechanisms.base import (
    BITS,
    ONE,
    FrequencyMechanism,
    check_size,
    read_integers,
    unbounded,
    uninformative,
)
from protocol.stream import Stream

if TYPE_CHECKING:
    from fractions import Fraction

TAG = b"hearsay/1/subset"
_MOST_LISTED = 50_000


class Subset(FrequencyMechanism):
    """Subset selection: w of K bits are 1, the true value's bit with probability P/2^32.

    w is the smallest integer from 1 with E²w(w + 1) ≥ (K − w)(K − w − 1), and P = ⌊2^32 · wE/(wE + K − w)⌋, E = e^ε.
    This w has the smallest variance, summed over all values. All rows of w ones with the true value's bit are equally
    likely, and so are all rows without it. The worst ratio is p(K − w)/((1 − p)w) with p = P/2^32.
    Source: Ye, Barg, IEEE Trans. Information Theory 64 (2018), section III; docs/math.md, section 1.
    """

    __slots__ = ("ones", "threshold")
    name = "subset"
    layout = BITS

    def __init__(self, epsilon_micro: int, size: int, ones: int, threshold: int) -> None:
        """Make the mechanism for w = ``ones`` and P = ``threshold``, 2^32 times the true value's probability."""
        super().__init__(epsilon_micro, size)
        self.ones, self.threshold = ones, threshold

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int) -> Subset:
        """Return the mechanism of 2 … 65536 values with the w and P that follow from ε.

        The variance falls with w up to K/(E + 1), and rises after it. So w is this number rounded down or up.
        """
        check_answer_micro(epsilon_micro)
        check_size(size, 2, 65536)
        power = exp_below(epsilon_micro)
        ones = int(size // (power + 1))
        others = size - ones
        if power**2 * ones * (ones + 1) < others * (others - 1):
            ones += 1
        return cls._checked(epsilon_micro, size, ones, int(ONE * ones * power // (ones * power + size - ones)))

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Subset:
        """Read the mechanism from ``parameters``, its map in a campaign."""
        size, micro, ones, threshold = read_integers(parameters, ("w", "p"))
        check_size(size, 2, 65536)
        return cls._checked(micro, size, ones, threshold)

    @classmethod
    def _checked(cls, epsilon_micro: int, size: int, ones: int, threshold: int) -> Subset:
        if not 1 <= ones < size:
            raise InputError("parameters_invalid", "the set is empty, or holds every value")
        if threshold in (0, ONE):
            raise unbounded()
        if threshold * size <= ONE * ones:
            raise uninformative()
        return cls(epsilon_micro, size, ones, threshold)

    def to_dict(self) -> dict[str, Any]:
        """Return the map in a campaign. Its ``w`` is the number of ones, its ``p`` is P."""
        return self._stated(w=self.ones, p=self.threshold)

    @property
    def p(self) -> Fraction:
        """Probability that the true value's bit is 1."""
        from fractions import Fraction

        return Fraction(self.threshold, ONE)

    @property
    def q(self) -> Fraction:
        """Probability that the bit of a given other value is 1: w − p ones are expected among K − 1 such bits."""
        return (self.ones - self.p) / (self.size - 1)

    def perturb(self, value: int, seed: bytes) -> tuple[int, ...]:
        """Draw the row for ``value`` from the stream of ``seed``.

        If ``Stream.coin(P)`` is true, the value's bit is 1. The other ones are drawn one by one among the K − 1 other
        values, listed in rising order. ``Stream.below(n)`` is the place of the next among the first n = K − 1, K − 2, …
        of the list; the value at place n − 1 then moves to this place.
        """
        self.check_value(value)
        stream = Stream(seed, TAG)
        bits = [0] * self.size
        bits[value] = int(stream.coin(self.threshold))
        others = [*range(value), *range(value + 1, self.size)]
        for last in range(self.size - 2, self.size - 2 - self.ones + bits[value], -1):
            place = stream.below(last + 1)
            bits[others[place]] = 1
            others[place] = others[last]
        return tuple(bits)

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        chance = "over 99%" if 200 * self.p > 199 else f"{float(self.p):.0%}"  # never "100%"
        return f"a set of {self.ones} of {self.size} values, with the true one {chance} of the time, the rest at random"

    def distribution(self, value: int) -> dict[tuple[int, ...], Fraction]:
        """Return the probability of every row with w ones, if there are at most 50,000: answer → probability."""
        self.check_value(value)
        if comb(self.size, self.ones) > _MOST_LISTED:
            raise InputError("too_many_answers", "there are too many sets to list")
        having = self.p / comb(self.size - 1, self.ones - 1)
        lacking = (1 - self.p) / comb(self.size - 1, self.ones)
        found = {}
        for chosen in combinations(range(self.size), self.ones):
            bits = tuple(int(place in chosen) for place in range(self.size))
            found[bits] = having if bits[value] else lacking
        return found

    def impossible(self, answers: Any) -> Any:
        """Return which rows have another number of ones than w."""
        return answers.sum(axis=1) != self.ones

    def set_bits_law(self) -> list[float]:
        """Return the probability of 0 … K ones: always w."""
        return [float(ones == self.ones) for ones in range(self.size + 1)]

    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact privacy loss ln(p(K − w)/((1 − p)w)): a row has the larger probability for w of K inputs."""
        return PrivacyLoss(self.p * (self.size - self.ones) / ((1 - self.p) * self.ones))
