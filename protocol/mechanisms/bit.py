"""One bit about one number: the number changes the probability of a coin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.mechanisms.base import ONE
from protocol.mechanisms.numeric import (
    CoinMechanism,
    SingleNumberMechanism,
    bent,
    bit_estimate,
    bit_variance,
    check_number,
)
from protocol.stream import Stream

if TYPE_CHECKING:
    from fractions import Fraction

TAG = b"hearsay/1/bit"


class Bit(CoinMechanism, SingleNumberMechanism):
    """A mechanism whose answer is one bit: P(answer = 1) = (2^31 + ⌊x(T − 2^31)/S⌋)/2^32 for the input x.

    x is in [−S, S], S = 65536; T = ⌊2^32·E/(1 + E)⌋ with E = e^ε. The inputs S and −S have the worst ratio. The floor
    biases the estimate by at most S/(T − 2^31) units of 1/S.
    Source: Duchi, Jordan, Wainwright 2013 in one dimension; Nguyên et al. 2016; docs/math.md, section 2.
    """

    __slots__ = ()
    MAX_SIZE = 1
    name = "bit"

    @property
    def answers(self) -> int:
        """2, the number of possible answers: 0 and 1."""
        return 2

    def perturb(self, value: int, seed: bytes) -> int:
        """Draw the bit for the number ``value`` by a coin of the stream of ``seed``."""
        check_number(value)
        return int(Stream(seed, TAG).coin(bent(value, self.threshold)))

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        return "one bit from a coin that the number bends, the more the larger ε is (bit)"

    def distribution(self, value: int) -> dict[int, Fraction]:
        """Return the probabilities of the answers 0 and 1 for the number ``value``: answer → probability."""
        from fractions import Fraction

        check_number(value)
        one = Fraction(bent(value, self.threshold), ONE)
        return {0: 1 - one, 1: one}

    def estimate(self, answer: int) -> Fraction:
        """Return the estimate of the input: +B for the answer 1, −B for the answer 0, with B = S/(2T/2^32 − 1)."""
        return bit_estimate(answer, self.threshold)

    def variance(self, x: int) -> Fraction:
        """Return the exact variance of the estimate for the input ``x``. The variance is largest at x = 0."""
        return bit_variance(x, self.threshold)
