"""One bit per class about a number of one class. The answer hides the number and the class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import InputError
from protocol.mechanisms.base import BITS, ONE, rows_of_bits
from protocol.mechanisms.numeric import (
    CoinMechanism,
    bent,
    bit_estimate,
    bit_variance,
    check_vector,
)
from protocol.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

TAG = b"hearsay/1/bits"
_MAX_ENUMERATED = 16


class Bits(CoinMechanism):
    """A mechanism of one bit per class c = 0 … k − 1, each drawn as ``bit`` does for entry c of the input.

    The input is a vector of k integers of [−S, S], S = 65536, with at most one entry that is not 0.

    The whole answer costs ε, not each bit. The coin of an entry 0 is fair, so an input with another class changes the
    probabilities of two bits by factors of at most P/½ and ½/(1 − P): together P/(1 − P) ≤ e^ε with P = T/2^32, the
    largest probability of a coin's true side.
    Source: Yilmaz, Al-Rubaie, Chang 2019, section 3.2, approach 2; docs/math.md, section 3.
    """

    __slots__ = ()
    MAX_SIZE = 65536
    name = "bits"
    layout = BITS

    @property
    def most_nonzero(self) -> int:
        """The largest number of coordinates of an input that may differ from 0: 1, that of the record's class."""
        return 1

    def perturb(self, value: Sequence[int], seed: bytes) -> tuple[int, ...]:
        """Draw one bit per entry of the input ``value``, each with one coin from the stream of ``seed``."""
        check_vector(value, self.size, most_nonzero=1)
        words = Stream(seed, TAG).words(self.size)
        return tuple(int(word < bent(x, self.threshold)) for word, x in zip(words, value, strict=True))

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        return f"{self.size} yes/no bits, each flipped at random ({self.name})"

    def bit_probabilities(self, value: Sequence[int]) -> list[Fraction]:
        """Return the exact probability that each of the k bits of the answer is 1, for the input ``value``."""
        from fractions import Fraction

        check_vector(value, self.size, most_nonzero=1)
        return [Fraction(bent(x, self.threshold), ONE) for x in value]

    def distribution(self, value: Sequence[int]) -> dict[tuple[int, ...], Fraction]:
        """Return the probability of every row of at most 16 bits: answer → probability."""
        if self.size > _MAX_ENUMERATED:
            raise InputError("too_many_answers", "2^size answers are too many to list; use bit_probabilities")
        return rows_of_bits(self.bit_probabilities(value))

    def estimate(self, answer: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the estimates of all entries: +B for a bit 1 of ``answer``, −B for a bit 0; B = S/(2T/2^32 − 1)."""
        return tuple(bit_estimate(bit, self.threshold) for bit in answer)

    def variance(self, x: int) -> Fraction:
        """Return the exact variance of the estimate of one entry x."""
        return bit_variance(x, self.threshold)
