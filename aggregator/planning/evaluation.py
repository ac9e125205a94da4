"""Is a published model right? Accuracy from private answers about true and predicted class.

A device answers one ``direct`` question over k² values, true·k + predicted. Run by the aggregator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aggregator.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.mechanisms.direct import Direct


class Accuracy(NamedTuple):
    """Share of right predictions in the fleet: unbiased estimate and ends of its 95 % interval."""

    estimate: float
    low: float
    high: float


def accuracy_of(mechanism: Direct, classes: int, counts: Sequence[int]) -> Accuracy:
    """Accuracy from the counts of one outcome question with at least one answer.

    An answer lies on the diagonal with probability λ = q' + a(p' − q'), q' = kq, p' = p + (k − 1)q, so
    p' − q' = p − q: of c diagonal answers among n, a = (c/n − q')/(p − q), and Wilson's interval for λ
    is mapped likewise.

    Args:
        mechanism: of the question, over k² values.
        classes: k.
        counts: shape (k²,), as in a tally.
    """
    n = sum(counts)
    right = sum(counts[:: classes + 1])
    q = classes * mechanism.q
    p = mechanism.p + (classes - 1) * mechanism.q
    ends = wilson(float(p), float(q), n, [right])
    return Accuracy(float((right - n * q) / (n * (p - q))), ends.low.item() / n, ends.high.item() / n)
