"""One bit about one number: a coin bent by the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.epsilon import PrivacyLoss, check_answer_micro
from protocol.mechanisms.base import ONE, SINGLE, check_size, read_integers
from protocol.mechanisms.numeric import (
    NumericMechanism,
    bent,
    bit_estimate,
    bit_variance,
    check_number,
    check_threshold,
    coin_threshold,
)
from protocol.stream import Stream

if TYPE_CHECKING:
    from fractions import Fraction

TAG = b"hearsay/1/bit"


class Bit(NumericMechanism):
    """P(answer = 1) = (2^31 + ⌊x(T − 2^31)/S⌋)/2^32 with T = ⌊2^32·E/(1 + E)⌋.

    The floor biases the estimate by at most S/(T − 2^31) units of 1/S.
    Source: Duchi, Jordan, Wainwright 2013 in one dimension; Nguyên et al. 2016; docs/math.md, section 2.
    """

    __slots__ = ("threshold",)
    name = "bit"
    layout = SINGLE

    def __init__(self, epsilon_micro: int, threshold: int) -> None:
        """``threshold`` is T, out of 2^32."""
        super().__init__(epsilon_micro, 1)
        self.threshold = threshold

    @classmethod
    def from_micro(cls, epsilon_micro: int, size: int = 1) -> Bit:
        """Derive T from ε; the size is 1."""
        check_answer_micro(epsilon_micro)
        check_size(size, 1, 1)
        threshold = coin_threshold(epsilon_micro)
        check_threshold(threshold)
        return cls(epsilon_micro, threshold)

    @classmethod
    def from_dict(cls, parameters: dict[str, Any]) -> Bit:
        """Read T as a document states it."""
        size, micro, threshold = read_integers(parameters, ("threshold",))
        check_size(size, 1, 1)
        check_threshold(threshold)
        return cls(micro, threshold)

    def to_dict(self) -> dict[str, Any]:
        """``threshold`` is T."""
        return {"name": self.name, "size": 1, "epsilon_micro": self.epsilon_micro, "threshold": self.threshold}

    @property
    def answers(self) -> int:
        """Zero or one."""
        return 2

    def perturb(self, value: int, seed: bytes) -> int:
        """Reads one coin.

        Raises:
            InputError: ``value_out_of_domain``, ``seed_invalid``.
        """
        check_number(value)
        return int(Stream(seed, TAG).coin(bent(value, self.threshold)))

    def distribution(self, value: int) -> dict[int, Fraction]:
        """Zero and one with their probabilities."""
        from fractions import Fraction

        check_number(value)
        one = Fraction(bent(value, self.threshold), ONE)
        return {0: 1 - one, 1: one}

    def privacy_loss(self) -> PrivacyLoss:
        """Ln of T/(2^32 − T): the inputs S and −S."""
        from fractions import Fraction

        return PrivacyLoss(Fraction(self.threshold, ONE - self.threshold))

    def estimate(self, answer: int) -> Fraction:
        """S(2u − 1)/(2T/2^32 − 1)."""
        return bit_estimate(answer, self.threshold)

    def variance(self, x: int) -> Fraction:
        """Largest in the middle, where the coin is fair."""
        return bit_variance(x, self.threshold)
