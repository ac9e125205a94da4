"""Hadamard response: the answer is one column of a Hadamard matrix, and supports the values whose row has +1 there."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from protocol.epsilon import PrivacyLoss, check_answer_micro, exp_below
from protocol.mechanisms.base import (
    ONE,
    SINGLE,
    FrequencyMechanism,
    check_size,
    read_integers,
    unbounded,
    uninformative,
)
from protocol.stream import Stream

TAG = b"more-mechanisms/1/hadamard"


class Hadamard(FrequencyMechanism):
    """Value v has row v + 1 of the matrix with n = 2^b columns, n > K. Column y has +1 if (v + 1) & y has even parity.

    The answer is a uniform column with +1 with probability P/2^32, P = ⌊2^32 · E/(1 + E)⌋, else one with −1.
    Source: Acharya, Sun, Zhang, AISTATS 2019, section 3.
    """

    __slots__ = ("threshold",)
    name = "hadamard"
    layout = SINGLE
    estimators = "more_mechanisms.estimators"

    def __init__(self, epsilon_micro: int, size: int, threshold: int) -> None:
        """``threshold`` is P, 2^32 times the probability of a column that supports the true value."""
        super().__init__(epsilon_micro, size)
        self.threshold = threshold

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int) -> Hadamard:
        check_answer_micro(epsilon_micro)
        check_size(size, 2, 1023)
        power = exp_below(epsilon_micro)
        return cls._checked(epsilon_micro, size, int(ONE * power // (1 + power)))

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Hadamard:
        size, micro, threshold = read_integers(parameters, ("p",))
        check_size(size, 2, 1023)
        return cls._checked(micro, size, threshold)

    @classmethod
    def _checked(cls, epsilon_micro: int, size: int, threshold: int) -> Hadamard:
        if threshold in (0, ONE):
            raise unbounded()
        if 2 * threshold <= ONE:
            raise uninformative()
        return cls(epsilon_micro, size, threshold)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "epsilon_micro": self.epsilon_micro, "p": self.threshold}

    @property
    def answers(self) -> int:
        """n, the smallest power of two above K."""
        return 1 << self.size.bit_length()

    @property
    def p(self) -> Fraction:
        return Fraction(self.threshold, ONE)

    @property
    def q(self) -> Fraction:
        """Two rows agree in half of the columns."""
        return Fraction(1, 2)

    def supports(self, answer: int, value: int) -> bool:
        return ((value + 1) & answer).bit_count() % 2 == 0

    def perturb(self, value: int, seed: bytes) -> int:
        """Reads ``coin(P)`` and ``below(n)``; if that column has the wrong sign, the lowest bit of v + 1 is flipped."""
        self.check_value(value)
        stream = Stream(seed, TAG)
        wanted = bool(stream.coin(self.threshold))
        column = stream.below(self.answers)
        row = value + 1
        return column if self.supports(column, value) == wanted else column ^ (row & -row)

    def distribution(self, value: int) -> dict[int, Fraction]:
        self.check_value(value)
        half = self.answers // 2
        chances = {True: self.p / half, False: (1 - self.p) / half}
        return {column: chances[self.supports(column, value)] for column in range(self.answers)}

    def privacy_loss(self) -> PrivacyLoss:
        return PrivacyLoss(self.p / (1 - self.p))

    def describe(self) -> str:
        return (
            f"one of {self.answers} codes that fit half of {self.size} values each, mostly the true one ({self.name})"
        )

    def impossible(self, answers: Any) -> None:
        """None: every column is a possible answer."""
