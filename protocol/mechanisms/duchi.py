"""Duchi's mechanism for a vector: one bit per dimension, drawn jointly."""

from __future__ import annotations

from itertools import product
from math import comb
from typing import TYPE_CHECKING

from protocol import SCALE
from protocol.errors import InputError
from protocol.mechanisms.base import BITS, ONE
from protocol.mechanisms.numeric import HALF, CoinMechanism, check_vector
from protocol.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

TAG = b"hearsay/1/duchi"
_MAX_ENUMERATED = 9


class Duchi(CoinMechanism):
    """Duchi's mechanism for a vector: the answer is a corner of a cube, likely one on the input's side.

    First the input x of d dimensions is rounded at random to a corner v of {−1, 1}^D. Then the answer t is drawn
    uniformly from the corners with ⟨t, v⟩ > 0 (probability T/2^32) or from those with ⟨t, v⟩ < 0. D = d if d is odd,
    else d + 1 with x_D = 0. So D is odd and ⟨t, v⟩ is never 0: ties would break the guarantee. A corner and its
    opposite have the worst ratio, for odd and even d.
    Source: Duchi, Jordan, Wainwright 2018, section 4.2.3; docs/math.md, sections 2 and 8.4.
    """

    __slots__ = ()
    MAX_SIZE = 4096
    asks_for_all = True
    name = "duchi"
    layout = BITS

    @property
    def dimensions(self) -> int:
        """D, the odd number of dimensions in which an answer is drawn: ``size`` if it is odd, else ``size`` + 1."""
        return self.size | 1

    def perturb(self, value: Sequence[int], seed: bytes) -> tuple[int, ...]:
        """Draw the answer for the vector ``value`` from the stream of ``seed``.

        The stream is read by ``Stream.below(131072)`` per dimension for the corner v near the input; by
        ``Stream.coin(T)``, T = ``threshold``, for the sign of ⟨t, v⟩; then for one fair coin per dimension, which make
        a corner t, again and again until ⟨t, v⟩ has this sign. The answer is t, as bits.
        """
        check_vector(value, self.size)
        stream = Stream(seed, TAG)
        padded = (*value, 0) if self.dimensions > self.size else value
        corner = [stream.below(2 * SCALE) < x + SCALE for x in padded]
        side = stream.coin(self.threshold)
        while True:
            answer = [word < HALF for word in stream.words(self.dimensions)]
            agreeing = sum(a == v for a, v in zip(answer, corner, strict=True))
            if (2 * agreeing > self.dimensions) == side:
                return tuple(map(int, answer[: self.size]))

    def describe(self) -> str:
        """Return how the answer hides the input, in words for a device's owner."""
        return f"{self.size} yes/no bits, each flipped at random ({self.name})"

    def distribution(self, value: Sequence[int]) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of every row of d ≤ 9 bits for the vector ``value``: answer → probability.

        P(t) = [p·h + (1 − p)(1 − h)]/2^{D−1} for the corner t that the bits stand for, with p = T/2^32, D
        (:attr:`dimensions`) and h = P(⟨t, v⟩ > 0) over the random corner v to which the input is rounded. For
        even d this is summed over the two values of the last coordinate.
        """
        from fractions import Fraction

        check_vector(value, self.size)
        if self.size > _MAX_ENUMERATED:
            raise InputError("too_many_answers", f"2^{self.size} answers are too many to list")
        p, corners = Fraction(self.threshold, ONE), 2 ** (self.dimensions - 1)
        padding = [SCALE] * (self.dimensions - self.size)
        table = {}
        for bits in product((0, 1), repeat=self.size):
            agrees = [SCALE + x if bit else SCALE - x for bit, x in zip(bits, value, strict=True)]
            positive = _majority([*agrees, *padding])
            table[bits] = (1 + len(padding)) * (p * positive + (1 - p) * (1 - positive)) / corners
        return table

    @property
    def gain(self) -> Fraction:
        """B/S, where the estimate of a coordinate is ±B and S = 65536: 2^{D−1}/C(D − 1, (D − 1)/2)/(2p − 1).

        D is :attr:`dimensions`, C(n, k) the binomial coefficient, and p = T/2^32 the probability that the answer agrees
        with the input's corner in most dimensions.
        """
        from fractions import Fraction

        d = self.dimensions
        return Fraction(2 ** (d - 1), comb(d - 1, (d - 1) // 2)) * Fraction(HALF, self.threshold - HALF)

    def estimate(self, answer: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the estimates of all coordinates: B for a bit 1 of ``answer``, −B for a bit 0; B/S = :attr:`gain`."""
        size = self.gain * SCALE
        return tuple(size if bit else -size for bit in answer)

    def variance(self, x: int) -> Fraction:
        """Return the exact variance B² − x² of the estimate ±B of one coordinate ``x``."""
        return (self.gain * SCALE) ** 2 - x**2


def _majority(chances: Sequence[int]) -> Fraction:
    """Return the probability that most of some independent events happen; event i has chances[i]/2S, S = 65536."""
    from fractions import Fraction

    counts = [1]
    for chance in chances:
        shifted = [0, *(chance * count for count in counts)]
        counts = [a + (2 * SCALE - chance) * b for a, b in zip(shifted, [*counts, 0], strict=True)]
    return Fraction(sum(counts[len(chances) // 2 + 1 :]), (2 * SCALE) ** len(chances))
