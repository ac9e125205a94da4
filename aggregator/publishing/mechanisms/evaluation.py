"""Accuracy of a published model, from private answers about the true and the predicted class.

A device answers one question with k² values, true·k + predicted, where k is the number of classes. Run by the
aggregator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aggregator.common.notebooks import facts, table
from aggregator.estimates.cells import as_range, as_share
from aggregator.estimates.intervals import score_interval
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.ratios import cell_variance, ratio_interval
from aggregator.estimates.statistics import Statistics
from protocol.documents.campaign import EVALUATION
from protocol.errors import InputError, PolicyError
from protocol.questions import OUTCOME

COLUMNS = ("true", "predicted", "share", "these devices", "population")
RECALL_COLUMNS = ("class", "predicted", "recall", "these devices", "population")


class Confusion(NamedTuple):
    """One cell of the confusion matrix: its share, and the ends of its 95 % intervals.

    Attributes:
        true, predicted: the classes.
        share: share of the records with these classes, unbiased; may be negative.
        low, high: interval for the population of the devices, not clipped to [0, 1].
        devices_low, devices_high: interval for the devices that answered, each weighted by its number of answers; not
            clipped to [0, 1].
    """

    true: str
    predicted: str
    share: float
    low: float
    high: float
    devices_low: float
    devices_high: float


class ClassRecall(NamedTuple):
    """Share of the records of one class that the model gives this class, with 95 % intervals.

    Attributes:
        name: the class.
        share: quotient of the unbiased estimates; None if no record of the class is seen through the noise.
        predicted: share of all records that the model gives this class, unbiased; may be negative.
        low, high: interval for the population of the devices, in [0, 1]; from 0 to 1 if it is not determined.
        devices_low, devices_high: interval for the devices that answered, in the same way.
    """

    name: str
    share: float | None
    predicted: float
    low: float
    high: float
    devices_low: float
    devices_high: float


class Evaluation(NamedTuple):
    """Accuracy and confusion matrix of a model, from the reports of an outcome campaign.

    Attributes:
        reports: number of answers.
        accuracy: share of right predictions.
        confusion: k² cells, ordered by true class, then by predicted class.
        populations: the populations of the two intervals, and the assumption of the second one.
        recall: one entry per class; without intervals narrower than [0, 1] if the mechanism states no covariances.
    """

    reports: int
    accuracy: Accuracy
    confusion: tuple[Confusion, ...]
    populations: Mapping[str, Any]
    recall: tuple[ClassRecall, ...] = ()

    def _repr_html_(self) -> str:
        about = {"answers": self.reports, "accuracy": as_share(self.accuracy.estimate)}
        about["95 % interval, these devices"] = as_range(self.accuracy.devices_low, self.accuracy.devices_high)
        about["95 % interval, population"] = as_range(self.accuracy.low, self.accuracy.high)
        about["assumed"] = self.populations["assumes"]
        return facts("Evaluation", about) + table(RECALL_COLUMNS, self.recall_rows()) + table(COLUMNS, self.rows())

    def recall_rows(self) -> list[tuple[str, ...]]:
        """The recall of every class as text, with the columns :data:`RECALL_COLUMNS`."""
        return [
            (
                one.name,
                as_share(one.predicted),
                "not determined" if one.share is None else as_share(one.share),
                _ends(one.devices_low, one.devices_high),
                _ends(one.low, one.high),
            )
            for one in self.recall
        ]

    def rows(self) -> list[tuple[str, ...]]:
        """The confusion matrix as text: one row per cell with the columns :data:`COLUMNS`, shares clipped to [0, 1]."""
        return [
            (
                cell.true,
                cell.predicted,
                as_share(cell.share),
                as_range(cell.devices_low, cell.devices_high),
                as_range(cell.low, cell.high),
            )
            for cell in self.confusion
        ]


def _ends(low: float, high: float) -> str:
    return "not determined" if (low, high) == (0, 1) else as_range(low, high)


def recall_of(found: QuestionEstimate, names: Sequence[str]) -> tuple[ClassRecall, ...]:
    """Recall of every class from ``found``, the estimate of an outcome question with at least one answer.

    The recall of a class is its cell (c, c) divided by the sum of its row, the records of that class. The intervals are
    Fieller's (:mod:`aggregator.estimates.ratios`).
    """
    size = len(names)
    cells = np.asarray(found.estimate / found.n).reshape(size, size)
    share, right, given = cells.sum(axis=1), np.diagonal(cells), cells.sum(axis=0)
    low, high = np.zeros((2, size)), np.ones((2, size))
    if found.law is not None and found.pairs is not None and found.has_interval:
        scatters = np.array([found.scatter, found.devices_scatter])[:, None]
        variance = cell_variance(share, found.n, found.law, found.pairs, size, scatters)
        ends = ratio_interval(right, share, variance)
        low, high = ends.low, ends.high
    return tuple(
        ClassRecall(
            name,
            float(right[place] / share[place]) if share[place] > 0 else None,
            float(given[place]),
            *(float(part[row, place]) for row in (0, 1) for part in (low, high)),
        )
        for place, name in enumerate(names)
    )


def evaluate(statistics: Statistics) -> Evaluation:
    """Accuracy and confusion matrix from the statistics of an outcome campaign. Run by the aggregator.

    Raises:
        InputError: ``not_an_evaluation``: the campaign evaluates no model, or compares several; ``mechanism_unknown``:
            the mechanism has no estimator for groups of values.
        PolicyError: ``batch_too_small``: fewer reports than the campaign's minimum batch size, or none.
    """
    if statistics.fit.family != EVALUATION:
        raise InputError("not_an_evaluation", "the store's campaign makes a model; it evaluates none")
    if statistics.questions[0].subject.kind != OUTCOME:
        raise InputError(
            "not_an_evaluation", "the campaign compares several models; aggregator.publishing.mechanisms.ranking.rank"
        )
    statistics.check_publishable()
    found = statistics.questions[0]
    if found.n == 0:
        raise PolicyError("batch_too_small", "there are no usable reports yet")
    names = statistics.schema.label.classes
    columns = np.array([found.estimate, *found.interval, *found.devices_interval]) / found.n
    cells = [
        Confusion(true, predicted, *columns[:, i * len(names) + j].tolist())
        for i, true in enumerate(names)
        for j, predicted in enumerate(names)
    ]
    return Evaluation(found.n, accuracy_of(found), tuple(cells), statistics.populations, recall_of(found, names))


class Accuracy(NamedTuple):
    """Share of right predictions: an unbiased estimate and two 95 % intervals.

    ``low`` and ``high`` are about the population of the devices, ``devices_low`` and ``devices_high`` about the devices
    that answered.
    """

    estimate: float
    low: float
    high: float
    devices_low: float
    devices_high: float


def accuracy_of(found: QuestionEstimate) -> Accuracy:
    """Accuracy of a model from ``found``, the estimate of an outcome question with at least one answer.

    The right predictions are one group of values. :func:`aggregator.estimates.debias.marginal` gives the group's
    share and noise, :func:`aggregator.estimates.intervals.score_interval` the intervals.

    Raises:
        InputError: ``mechanism_unknown``: the answers' mechanism has no estimator for groups of values.
    """
    if found.right is None:
        raise InputError("mechanism_unknown", "the answers' mechanism has no estimator of the right predictions' share")
    scatter = np.array([found.scatter, found.devices_scatter])
    ends = score_interval(
        np.full(2, found.right.share), found.n, found.right.law, scatter, is_binomial=found.is_binomial
    )
    (low, of_devices), (high, of_devices_high) = ends.low.tolist(), ends.high.tolist()
    return Accuracy(found.right.share, low, high, of_devices, of_devices_high)
