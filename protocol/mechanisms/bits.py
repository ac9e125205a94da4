"""One bit per class about a number that belongs to one class: the class stays hidden."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from protocol.errors import InputError
from protocol.mechanisms.base import BITS, ONE
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
    """A coin as in ``bit`` for every class c = 0 … k − 1, of a vector with at most one entry not 0.

    It costs ε in all, not per bit: where the entry is 0 the coin is fair, so another class changes two
    bits by at most P/½ and ½/(1 − P), together P/(1 − P) ≤ e^ε with P = T/2^32.
    Source: Yilmaz, Al-Rubaie, Chang 2019, section 3.2, approach 2; docs/math.md, section 3.
    """

    __slots__ = ()
    MAX_SIZE = 65536
    name = "bits"
    layout = BITS

    @property
    def answers(self) -> int:
        """One bit per class."""
        return self.size

    @property
    def most_nonzero(self) -> int:
        """The number of the record's own class."""
        return 1

    def perturb(self, value: Sequence[int], seed: bytes) -> tuple[int, ...]:
        """Reads one coin per class.

        Raises:
            InputError: ``value_out_of_domain``, ``seed_invalid``.
        """
        check_vector(value, self.size, most_nonzero=1)
        words = Stream(seed, TAG).words(self.size)
        return tuple(int(word < bent(x, self.threshold)) for word, x in zip(words, value, strict=True))

    def describe(self) -> str:
        """The number of bits."""
        return f"{self.size} yes/no bits, each flipped at random ({self.name})"

    def bit_probabilities(self, value: Sequence[int]) -> list[Fraction]:
        """Exact probability that each bit of the answer is 1."""
        from fractions import Fraction

        check_vector(value, self.size, most_nonzero=1)
        return [Fraction(bent(x, self.threshold), ONE) for x in value]

    def distribution(self, value: Sequence[int]) -> dict[tuple[int, ...], Fraction]:
        """Every row of bits with its probability.

        Raises:
            InputError: ``too_many_answers`` above 16 classes; use :meth:`bit_probabilities`.
        """
        if self.size > _MAX_ENUMERATED:
            raise InputError("too_many_answers", "2^size answers are too many to list; use bit_probabilities")
        return rows_of_bits(self.bit_probabilities(value))

    def estimate(self, answer: Sequence[int]) -> tuple[Fraction, ...]:
        """Of every class's entry, as in ``bit``."""
        return tuple(bit_estimate(bit, self.threshold) for bit in answer)

    def variance(self, x: int) -> Fraction:
        """Of one class's entry x."""
        return bit_variance(x, self.threshold)


def rows_of_bits(ones: Sequence[Fraction]) -> dict[tuple[int, ...], Fraction]:
    """The joint table of independent bits with these probabilities of 1."""
    from fractions import Fraction

    table = {}
    for bits in product((0, 1), repeat=len(ones)):
        probability = Fraction(1)
        for bit, one in zip(bits, ones, strict=True):
            probability *= one if bit else 1 - one
        table[bits] = probability
    return table
