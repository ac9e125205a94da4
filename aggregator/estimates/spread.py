"""Estimate the variance s² of the devices' true numbers, which the answers to a question about moments do not show.

The answers to a question about a number show its noise and the scatter of the numbers together, or (``laplace``) the
noise alone. The estimates of the campaign's other questions separate the two. Let x be the number in [−1, 1], y the
class of the record, p the share of devices with y = c that have the number, and m₁ and m₂ the estimated means of
x·[y = c] and x²·[y = c]. Then

    s² of x·[y = c]    m₂ − m₁²                   m₂ clipped to [m₁²/p, p], its possible range
    s² of x²·[y = c]   p·E z⁴ − m₂²,              p·E z⁴ clipped to [m₂²/p, m₂]

where p·E z⁴ is the mean of the beta distribution's fourth moment, with weight 9/10, and of its largest possible value
m₂, with weight 1/10. The beta distribution is the one on [−1, 1] with the class's mean m₁/p and variance
m₂/p − (m₁/p)². Only the fourth moment is assumed and not estimated. The largest value has a weight because numbers are
clipped to [−1, 1]: numbers at the ends raise the fourth moment above that of a smooth distribution.

Source: docs/math.md, section 2; decision 41.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.question_estimate import QuestionEstimate
from protocol.questions import MOMENT, MOMENTS, PRESENT, SQUARE, Subject
from protocol.schema import Schema

_LEAST = 1e-9
_AT_ENDS = 0.1
"""Weight of the largest possible fourth moment; that of the beta distribution has the rest."""


class SubjectEstimate(NamedTuple):
    """One question's unbiased estimate from n answers: shape (K,) float64, each entry n times a share or mean."""

    subject: Subject
    n: int
    estimate: Floats


def moments(found: Iterable[SubjectEstimate | QuestionEstimate], schema: Schema, power: int) -> Floats:
    """Return the estimated means of x^power·[y = c] for every number x in [−1, 1] and class c; y: the record's class.

    Only estimates about moments of this ``power`` (1 or 2) are used. The result has the shape (numbers, k) float64: a
    row per numeric observed feature, a column per class; NaN without answers.
    """
    totals, asked = _totals(found, schema, power)
    with np.errstate(invalid="ignore"):
        return np.asarray(totals / asked, np.float64)


def moment_variances(found: Iterable[QuestionEstimate], schema: Schema, power: int) -> Floats:
    """Return the variances of the means of :func:`moments`, of noise and sampling, for the population."""
    return _mean_variances((SubjectEstimate(one.subject, one.n, one.variance) for one in found), schema, power)


def moment_noise(found: Iterable[QuestionEstimate], schema: Schema, power: int) -> Floats:
    """Return the variances of the means of :func:`moments`, of the noise alone, for the asked devices or records."""
    return _mean_variances((SubjectEstimate(one.subject, one.n, one.noise_variance) for one in found), schema, power)


def _mean_variances(variances: Iterable[SubjectEstimate], schema: Schema, power: int) -> Floats:
    """Return variances of means from variances of sums: shape (numbers, k) float64; NaN without answers."""
    totals, asked = _totals(variances, schema, power)
    with np.errstate(invalid="ignore"):
        return np.asarray(totals / asked**2, np.float64)


def _totals(found: Iterable[SubjectEstimate | QuestionEstimate], schema: Schema, power: int) -> tuple[Floats, Floats]:
    """Return the sums of the estimates about moments of this power, and the numbers of answers: shape (numbers, k)."""
    classes = len(schema.label.classes)
    totals = np.zeros((len(schema.numeric), classes))
    asked = np.zeros((len(schema.numeric), classes))
    for one in found:
        n, estimate = one.n, one.estimate
        kind, feature, _, of_power, of_class = one.subject[:5]
        if of_power != power or n == 0:
            continue
        if kind == MOMENTS:
            totals += estimate.reshape(-1, classes)
            asked += n
        elif kind == MOMENT and feature is not None:
            place = schema.numeric.index(feature)
            columns = slice(None) if of_class is None else of_class
            totals[place, columns] += estimate if of_class is None else estimate[0]
            asked[place, columns] += n
    return totals, asked


class Spreads(NamedTuple):
    """Variances between devices, for every number x and each of k classes c: shape (numbers, k) float64 each.

    ``of_number`` is about x·[y = c], ``of_square`` about x²·[y = c], with y the class of the device's record.
    """

    of_number: Floats
    of_square: Floats

    def of_subject(self, subject: Subject, schema: Schema) -> Floats:
        """Return the variances between devices of the K numbers that a question about moments asks for: shape (K,)."""
        table: Floats = self.of_square if subject.power == SQUARE else self.of_number
        if subject.kind == MOMENTS:
            return table.ravel()
        assert subject.feature is not None
        of_class = subject.of_class
        row = table[schema.numeric.index(subject.feature)]
        return np.asarray(row if of_class is None else row[of_class : of_class + 1])


def spreads(found: Iterable[SubjectEstimate], schema: Schema, class_share: Floats) -> Spreads:
    """Return the variance s² between devices of all moments of a campaign, computed from all its estimates.

    Args:
        found: estimates of all questions, also of the questions about the presence of a number.
        schema: the campaign's schema.
        class_share: shape (k,) float64, the classes' estimated shares. They bound p, the share of devices of a class
            that have the number, and replace it for a number whose presence is not asked.

    Returns:
        s² of every number and class. A missing mean m₁ counts as 0, a missing mean square m₂ as p, its largest value.
    """
    found = tuple(found)
    there = np.tile(np.clip(class_share, _LEAST, 1), (len(schema.numeric), 1))
    for subject, n, estimate in found:
        if subject.kind == PRESENT and subject.feature is not None and n:
            row = schema.numeric.index(subject.feature)
            there[row] = np.clip(estimate[len(class_share) :] / n, _LEAST, there[row])
    first, second = (moments(found, schema, power) for power in (1, SQUARE))
    first = np.clip(np.nan_to_num(first), -there, there)
    second = np.clip(np.where(np.isnan(second), there, second), first**2 / there, there)
    smooth = there * _fourth_moment(first / there, second / there)
    fourth = np.clip(smooth + _AT_ENDS * (second - smooth), second**2 / there, second)
    return Spreads(second - first**2, fourth - second**2)


def _fourth_moment(mean: Floats, square: Floats) -> Floats:
    """Return E z⁴ of the beta distribution of z on [−1, 1] with E z = ``mean`` and E z² = ``square``.

    With u = (1 + z)/2 in [0, 1]: E u^j = Π_{i<j} (a c + i)/(c + i), a = E u, c = a(1 − a)/Var u − 1.
    """
    a = np.clip((1 + mean) / 2, _LEAST, 1 - _LEAST)
    variance = np.maximum((square - mean**2) / 4, _LEAST)
    c = np.maximum(a * (1 - a) / variance - 1, _LEAST)
    one, two, three, four = np.cumprod([(a * c + i) / (c + i) for i in range(4)], axis=0)
    return np.asarray(16 * four - 32 * three + 24 * two - 8 * one + 1)
