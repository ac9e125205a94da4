"""Is a published model right? Accuracy from private answers about true and predicted class.

A device answers one ``direct`` question over k² values, true·k + predicted. Run by the aggregator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.debias import Law
from aggregator.estimates.intervals import score_interval
from aggregator.estimates.showing import as_range
from aggregator.notebooks import facts, table
from protocol.documents.campaign import EVALUATION
from protocol.errors import InputError, PolicyError
from protocol.mechanisms.direct import Direct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator.estimates.recurrence import Recurrence
    from aggregator.estimates.statistics import Statistics


class Confusion(NamedTuple):
    """One cell of the confusion matrix: its share, and the ends of its 95 % intervals.

    Attributes:
        true, predicted: the classes.
        share: unbiased; may be negative.
        low, high: of the population that the devices are drawn from.
        devices_low, devices_high: of these devices, each weighted by its answers.
    """

    true: str
    predicted: str
    share: float
    low: float
    high: float
    devices_low: float
    devices_high: float


class Evaluation(NamedTuple):
    """What an outcome campaign's reports say of a model.

    Attributes:
        reports: answers counted.
        accuracy: share of right predictions.
        confusion: k² cells, by true and then by predicted class.
        recurrence: how often the same devices answered, as far as it is known.
    """

    reports: int
    accuracy: Accuracy
    confusion: tuple[Confusion, ...]
    recurrence: Recurrence

    def _repr_html_(self) -> str:
        about = {"answers": self.reports, "accuracy": f"{self.accuracy.estimate:.1%}"}
        about["95 % interval, these devices"] = as_range(self.accuracy.devices_low, self.accuracy.devices_high)
        about["95 % interval, population"] = as_range(self.accuracy.low, self.accuracy.high)
        about["assumed"] = self.recurrence.assumption
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
    columns = np.array([found.estimate, *found.interval, *found.devices_interval]) / found.n
    cells = [
        Confusion(true, predicted, *columns[:, i * len(names) + j].tolist())
        for i, true in enumerate(names)
        for j, predicted in enumerate(names)
    ]
    mechanism = found.question.mechanism
    assert isinstance(mechanism, Direct)
    accuracy = accuracy_of(mechanism, len(names), found.counts, statistics.recurrence.concentration[0])
    return Evaluation(found.n, accuracy, tuple(cells), statistics.recurrence)


class Accuracy(NamedTuple):
    """Share of right predictions: unbiased estimate and ends of its 95 % intervals, as of :class:`Confusion`."""

    estimate: float
    low: float
    high: float
    devices_low: float
    devices_high: float


def accuracy_of(mechanism: Direct, classes: int, counts: Sequence[int], concentration: float | None = None) -> Accuracy:
    """Accuracy from the counts of one outcome question with at least one answer.

    An answer lies on the diagonal with probability λ = q' + a(p' − q'), q' = kq, p' = p + (k − 1)q, so
    p' − q' = p − q: of c diagonal answers among n, a = (c/n − q')/(p − q), with the interval of a pure
    protocol (``aggregator.estimates.intervals``). Every device is asked this question, so of these devices only the
    noise is uncertain.

    Args:
        mechanism: of the question, over k² values.
        classes: k.
        counts: shape (k²,), as in a tally.
        concentration: c of ``aggregator.estimates.recurrence``; 1/n unless given, as of n different devices.
    """
    n = sum(counts)
    right = sum(counts[:: classes + 1])
    q = classes * mechanism.q
    p = mechanism.p + (classes - 1) * mechanism.q
    estimate = float((right - n * q) / (n * (p - q)))
    scatter = np.array([1.0 if concentration is None else n * concentration, 0.0])
    ends = score_interval(np.full(2, estimate), n, Law.pure(p, q), scatter)
    (low, of_devices), (high, of_devices_high) = ends.low.tolist(), ends.high.tolist()
    return Accuracy(estimate, low, high, of_devices, of_devices_high)
