"""Subset selection: the answer is a set of w values, which holds the true one with a larger probability."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any

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

TAG = b"more-mechanisms/1/subset"
_MOST_LISTED = 50_000


class Subset(FrequencyMechanism):
    """Exactly w of K bits are 1. The bit of the true value is 1 with probability P/2^32.

    w = max(1, round(K/(E + 1))) and P = ⌊2^32 · wE/(wE + K − w)⌋ with E = e^ε. All sets with the true value are equally
    likely, and all sets without it. The worst ratio is P(K − w)/((1 − P)w), with P divided by 2^32.
    Source: Ye, Barg, IEEE Trans. Information Theory 64 (2018), section III.
    """

    __slots__ = ("ones", "threshold")
    name = "subset"
    layout = BITS
    estimators = "more_mechanisms.estimators"

    def __init__(self, epsilon_micro: int, size: int, ones: int, threshold: int) -> None:
        """``ones`` is w, ``threshold`` is P, 2^32 times the probability that the true value is in the set."""
        super().__init__(epsilon_micro, size)
        self.ones, self.threshold = ones, threshold

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int) -> Subset:
        check_answer_micro(epsilon_micro)
        check_size(size, 2, 4096)
        power = exp_below(epsilon_micro)
        ones = max(1, round(size / (power + 1)))
        return cls._checked(epsilon_micro, size, ones, int(ONE * ones * power // (ones * power + size - ones)))

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Subset:
        size, micro, ones, threshold = read_integers(parameters, ("w", "p"))
        check_size(size, 2, 4096)
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
        own = {"w": self.ones, "p": self.threshold}
        return {"name": self.name, "size": self.size, "epsilon_micro": self.epsilon_micro, **own}

    @property
    def answers(self) -> int:
        return self.size

    @property
    def p(self) -> Fraction:
        return Fraction(self.threshold, ONE)

    @property
    def q(self) -> Fraction:
        """The set holds w − 1 others beside the true value, or w of them; each of the K − 1 others equally often."""
        return (self.ones - self.p) / (self.size - 1)

    def perturb(self, value: int, seed: bytes) -> tuple[int, ...]:
        """Reads ``coin(P)``, then ``below(n)`` for n = K − 1, K − 2, …: the place of each other among those left."""
        self.check_value(value)
        stream = Stream(seed, TAG)
        is_in = stream.coin(self.threshold)
        others = [other for other in range(self.size) if other != value]
        bits = [0] * self.size
        bits[value] = int(is_in)
        for _ in range(self.ones - is_in):
            bits[others.pop(stream.below(len(others)))] = 1
        return tuple(bits)

    def distribution(self, value: int) -> dict[tuple[int, ...], Fraction]:
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

    def privacy_loss(self) -> PrivacyLoss:
        return PrivacyLoss(self.p * (self.size - self.ones) / ((1 - self.p) * self.ones))

    def describe(self) -> str:
        return f"a random set of {self.ones} of {self.size} values, likelier with the true one ({self.name})"

    def impossible(self, answers: Any) -> Any:
        """Rows with another number of ones than w."""
        return answers.sum(axis=1) != self.ones

    def set_bits_law(self) -> list[float]:
        """Always w ones."""
        return [float(ones == self.ones) for ones in range(self.size + 1)]
