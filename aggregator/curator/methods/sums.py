"""The method ``sums``: discrete Laplace noise on counts, sums and sums of squares.

Every vector gets noise for its own sensitivity (:data:`protocol.questions.SENSITIVITIES`), so all adjacencies are
covered. The privacy is exact: no float touches an exact number. Source: docs/math.md, section 7.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggregator.curator.accounting import Cost, cost_of, divide
from aggregator.curator.methods.base import Method, statistics_of
from aggregator.curator.records import Records
from aggregator.curator.terms import FitTerms
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import NoisySum
from aggregator.models.encoding import NO_NUMBER
from protocol import SCALE
from protocol.noise.sums import Noisy, Vector, summed_subjects, with_noise
from protocol.questions import ADD_REMOVE, ADJACENCIES, CELL, CLASS, MOMENT, PRESENT, SENSITIVITIES, Subject
from protocol.schema import Schema
from protocol.stream import Stream


class Sums(Method):
    """Counts, sums and sums of squares with discrete Laplace noise."""

    name = "sums"
    adjacencies = ADJACENCIES

    def cost(self, schema: Schema, terms: FitTerms) -> Cost:
        """Return the summed ε of the vectors; at most the total ε of ``terms``, since each is rounded down."""
        self.check(schema, terms)
        return cost_of(vector_epsilons(schema, terms))

    def release(self, records: Records, terms: FitTerms, stream: Stream) -> Statistics:
        """Return statistics of noisy vectors; for ``add-remove`` their number of records is the sum of noisy counts."""
        cost = self.cost(records.schema, terms)
        noisy = [with_noise(vector, stream) for vector in vectors(records, terms)]
        count = sum(noisy[0].values) if terms.adjacency == ADD_REMOVE else records.rows
        return statistics_of([sum_of(one) for one in noisy], count, records.schema, terms, cost)


def vector_epsilons(schema: Schema, terms: FitTerms) -> list[int]:
    """Return ε of every vector in millionths, in the order of :func:`protocol.noise.sums.summed_subjects`."""
    subjects = summed_subjects(schema, terms.family)
    return divide(terms.epsilon_micro, subjects, len(schema.label.classes), terms.adjacency, terms.division)


def vectors(records: Records, terms: FitTerms) -> list[Vector]:
    """Return the exact vectors, which must not leave the curator, with sensitivity and ε; class counts first."""
    subjects = summed_subjects(records.schema, terms.family)
    sums = exact_sums(records, subjects)
    parts = zip(subjects, sums, vector_epsilons(records.schema, terms), strict=True)
    return [
        Vector(subject, values, SENSITIVITIES[subject.kind, subject.power][terms.adjacency], share)
        for subject, values, share in parts
    ]


def exact_sums(records: Records, subjects: Sequence[Subject]) -> list[tuple[int, ...]]:
    """Return the exact counts and sums of every vector; of squares of u, ⌊u²/65536⌋ is added, of missing ones 0."""
    return [_exact(records, subject) for subject in subjects]


def _exact(records: Records, subject: Subject) -> tuple[int, ...]:
    classes = len(records.schema.label.classes)
    labels = records.labels
    if subject.kind == CLASS:
        return tuple(np.bincount(labels, minlength=classes).tolist())
    assert subject.feature is not None
    if subject.kind == CELL:
        cells = records.codes[:, subject.feature] * classes + labels
        return tuple(np.bincount(cells, minlength=subject.size).tolist())
    numbers = records.numbers[:, subject.feature]
    present = numbers != NO_NUMBER
    if subject.kind == PRESENT:
        return tuple(np.bincount(present * classes + labels, minlength=2 * classes).tolist())
    assert subject.kind == MOMENT
    values = np.where(present, numbers, 0)
    values = values if subject.power == 1 else values * values // SCALE
    return tuple(int(values[labels == of_class].sum()) for of_class in range(classes))


def sum_of(noisy: Noisy) -> NoisySum:
    """Return a noisy vector in records: sums of numbers in units of S."""
    unit = SCALE if noisy.subject.kind == MOMENT else 1
    estimate = np.array(noisy.values, np.float64) / unit
    variance = np.full(len(estimate), noisy.variance / unit**2)
    return NoisySum(noisy.subject, estimate, variance, noisy.values)
