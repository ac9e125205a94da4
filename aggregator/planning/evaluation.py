"""Is a published model right? Accuracy from private answers about true and predicted class.

A device answers one ``direct`` question over k² values, true·k + predicted. Run by the aggregator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aggregator.intervals import wilson
from aggregator.notebooks import facts, table
from protocol.campaign import EVALUATION
from protocol.errors import InputError, PolicyError
from protocol.mechanisms.direct import Direct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator.statistics import Statistics


class Confusion(NamedTuple):
    """One cell of the confusion matrix: its share of the fleet, and the ends of its 95 % interval."""

    true: str
    predicted: str
    share: float
    low: float
    high: float


class Evaluation(NamedTuple):
    """What an outcome campaign's reports say of a model.

    Attributes:
        reports: answers counted.
        accuracy: share of right predictions.
        confusion: k² cells, by true and then by predicted class.
    """

    reports: int
    accuracy: Accuracy
    confusion: tuple[Confusion, ...]

    def _repr_html_(self) -> str:
        about = {"answers": self.reports, "accuracy": f"{self.accuracy.estimate:.1%}"}
        about["95 % interval"] = f"{self.accuracy.low:.1%} to {self.accuracy.high:.1%}"
        return facts("Evaluation", about) + table(Confusion._fields, self.confusion)


def evaluate(statistics: Statistics) -> Evaluation:
    """Accuracy and confusion matrix from the statistics of an outcome campaign. Run by the aggregator.

    Raises:
        InputError: ``not_an_evaluation``, the campaign does not evaluate a model;
        PolicyError: ``batch_too_small``, there are fewer reports than promised, or none.
    """
    campaign = statistics.campaign
    if campaign.fit.family != EVALUATION:
        raise InputError("not_an_evaluation", "the store's campaign makes a model; it evaluates none")
    statistics.check_publishable()
    found = statistics.questions[0]
    if found.n == 0:
        raise PolicyError("batch_too_small", "there are no usable reports yet")
    names = campaign.schema.label.classes
    low, high = found.low / found.n, found.high / found.n
    cells = [
        Confusion(true, predicted, *(float(part[i * len(names) + j]) for part in (found.estimate / found.n, low, high)))
        for i, true in enumerate(names)
        for j, predicted in enumerate(names)
    ]
    mechanism = found.question.mechanism
    assert isinstance(mechanism, Direct)
    return Evaluation(found.n, accuracy_of(mechanism, len(names), found.counts), tuple(cells))


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
