"""Estimate the variance s² of the devices' true numbers, which the answers to a question about moments do not show.

Out: s² of every number and of its square, in every class. Source: docs/math.md, section 2; decision 41.
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

    ``power``: 1 or 2. Shape (numbers, k) float64, a row per numeric observed feature; NaN without answers.
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
    """Return variances of means from ``variances`` of sums: shape (numbers, k) float64; NaN without answers."""
    totals, asked = _totals(variances, schema, power)
    with np.errstate(invalid="ignore"):
        return np.asarray(totals / asked**2, np.float64)


def _totals(found: Iterable[SubjectEstimate | QuestionEstimate], schema: Schema, power: int) -> tuple[Floats, Floats]:
    """Return sums of the estimates about numbers to this power, and the numbers of answers: (numbers, k) each."""
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
    """Variances between devices, (numbers, k) each: of x·[y = c] and x²·[y = c], x a number, y the record's class."""

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

        s² of x·[y = c]    m₂ − m₁²                   m₂ clipped to [m₁²/p, p], its possible range
        s² of x²·[y = c]   p·E z⁴ − m₂²,              p·E z⁴ clipped to [m₂²/p, m₂]

    m₁, m₂: estimated means of x·[y = c] and x²·[y = c] (0 and p if missing); p: share of devices of class c that have
    the number; p·E z⁴: 9/10 of the fourth moment of the beta distribution on [−1, 1] with the class's mean and
    variance, and 1/10 of its largest value m₂, since numbers are clipped.

    ``found``: estimates of all questions. ``class_share``: shape (k,), bounds p and replaces it where presence is not
    asked.
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
