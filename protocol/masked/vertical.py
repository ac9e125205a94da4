"""What all parties of the vertical form and the aggregator know: the campaign's name, ε of a count, and public bounds.

Every party counts its own features' values by class, over the same records, and adds discrete Laplace noise of rate ε_q
to each count once. Negative noisy counts become 0, and none is above a public bound. With one table for each of F
features and noisy class counts, adding or removing a record costs (F + 1)·ε_q, and changing one twice that.

Source: docs/math.md, section 6.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from protocol.epsilon import MICRO

if TYPE_CHECKING:
    from collections.abc import Iterable

_TAIL = 64


class VerticalTerms(NamedTuple):
    """Terms that are equal for all parties and the aggregator.

    Attributes:
        campaign: 32 bytes that no other campaign has.
        period: 0 … 2^32 − 1; parties that count again use a new one, with new noise.
        epsilon_micro: ε_q of every count, in millionths.
        records: the largest number of records, by public knowledge.
    """

    campaign: bytes
    period: int
    epsilon_micro: int
    records: int

    @property
    def largest(self) -> int:
        """The largest noisy count of a table: ``records`` and ⌈64/ε_q⌉, which noise exceeds with probability e^−64."""
        return self.records + -(-_TAIL * MICRO // self.epsilon_micro)

    def bound(self, sizes: Iterable[int]) -> int:
        """The largest number that a party encrypts: Π_f A_f·(largest + 1) − 1 over its features.

        Args:
            sizes: A_f, the number of values of each feature of the party.
        """
        return prod(size * (self.largest + 1) for size in sizes) - 1
