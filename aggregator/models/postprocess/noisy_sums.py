"""Post-processings for sums over records with added noise: ``printed``, ``halves`` and ``floored``.

n_c is the noisy number of records of class c, m_vc of those with value v, S_c and Q_c the noisy sums of a number x and
of x². Source: Marchioro, Giaretta, Markatos, Girdzijauskas 2022; docs/math.md, section 5; decision 75.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.spread import moment_noise, moments
from aggregator.estimates.statistics import Statistics
from aggregator.models.postprocess.joint_tables import HALF, JointTable, Tables, estimate_of, joint_table, normalised
from protocol.questions import CLASS, PRESENT

LEAST_CLASS = 1.0
"""Smallest number of records of a class, in ``printed`` and ``halves``."""
LEAST_CELL = 1e-6
"""Smallest number of records of a class with one value, in ``printed``."""
CELLS, CLASSES, VARIANCES = 0.2, 0.5, 0.5
"""Floors in ``floored`` of table entries, class shares and variances, in standard deviations of their noise."""
UNIFORM_VARIANCE = 1 / 3
"""Variance of the uniform distribution on [−1, 1], for a number without answers."""
_LARGEST_VARIANCE = 1.0
"""Largest variance of a number in [−1, 1]."""


def printed_tables(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return the probabilities of ``printed``: P(class) = n_c/Σn_c, and P(v | c) = m_vc/n_c of the given features.

    As in the paper, they need not sum to 1. n_c is at least one record, m_vc at least :data:`LEAST_CELL`. Each count is
    first divided by its question's answers. Raises InputError ``not_fittable`` if a question is missing.
    """
    return _fractions(statistics, features, LEAST_CELL)


def halves_tables(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return the probabilities of ``halves``: those of :func:`printed_tables` with m_vc at least half a record."""
    return _fractions(statistics, features, HALF)


def floored_tables(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return the probabilities of ``floored``: P(class), and P(v | c) = m_vc/Σ_v m_vc of the given features.

    P(c) is at least :data:`CLASSES` of its standard deviations, m_vc at least :data:`CELLS` of them and half a record.
    Values that were not asked have equal probabilities. Raises InputError ``not_fittable`` if a question is missing.
    """
    joints = [joint_table(statistics, feature) for feature in features]
    tables = [normalised(np.maximum(one.estimate, max(CELLS * one.at_zero**0.5, HALF))) for one in joints]
    return Tables(normalised(_floored_shares(statistics)), tuple(tables))


def printed_normal(statistics: Statistics, feature: int) -> tuple[Floats, Floats]:
    """Return mean S_c/n_c and variance Q_c/n_c − mean² of one number by ``printed`` or ``halves``: (k,) float64 each.

    The variance may be negative. n_c counts the records that have the number, if that was asked. Raises InputError
    ``not_fittable``: the question about the class alone is missing.
    """
    share, place = _counted_shares(statistics), statistics.schema.numeric.index(feature)
    for found in _presence(statistics, feature):
        share = np.maximum(found.estimate[len(share) :], LEAST_CLASS) / found.n
    first, second = (moments(statistics.questions, statistics.schema, power)[place] for power in (1, 2))
    mean = first / share
    variance = second / share - mean**2
    return np.nan_to_num(mean), np.where(np.isnan(first) | np.isnan(second), UNIFORM_VARIANCE, variance)


def floored_normal(statistics: Statistics, feature: int) -> tuple[Floats, Floats]:
    """Return mean in [−1, 1] and variance in [0, 1] of one number in every class by ``floored``: (k,) float64 each.

    With p_c the floored share of class c (with the number, if that was asked) of n records: mean S_c/(n p_c), mean
    square Q_c/(n p_c), variance at least :data:`VARIANCES` standard deviations of its noise. Without answers 0 and 1/3.
    """
    schema, share = statistics.schema, _floored_shares(statistics)
    for found in _presence(statistics, feature):
        there = slice(len(share), None)
        least = np.maximum(CLASSES * np.sqrt(found.noise_variance[there]), HALF)
        share = np.maximum(found.estimate[there], least) / found.n
    place = schema.numeric.index(feature)
    first, second = (moments(statistics.questions, schema, power)[place] for power in (1, 2))
    noise, noise_of_square = (moment_noise(statistics.questions, schema, power)[place] for power in (1, 2))
    known = ~(np.isnan(first) | np.isnan(second))
    mean = np.nan_to_num(np.clip(first / share, -1, 1))
    square = np.clip(second / share, 0, 1)
    floor = VARIANCES * np.sqrt(noise_of_square + 4 * mean**2 * noise) / share
    variance = np.maximum(square - mean**2, np.where(np.isfinite(floor), floor, 0))
    return mean, np.where(known, np.minimum(variance, _LARGEST_VARIANCE), UNIFORM_VARIANCE)


def _presence(statistics: Statistics, feature: int) -> list[QuestionEstimate]:
    """Return the estimates of the questions whether the number is present, if they have answers."""
    asked = (PRESENT, feature)
    return [one for one in statistics.questions if (one.subject.kind, one.subject.feature) == asked and one.n]


def _fractions(statistics: Statistics, features: Sequence[int], least: float) -> Tables:
    """Return P(class), and P(value | class) as quotients of counts, those of a value at least ``least`` records."""
    share = _counted_shares(statistics)

    def fractions(joint: JointTable) -> Floats:
        if not joint.n:
            return np.full(joint.estimate.shape, 1 / len(joint.estimate))
        return np.asarray(np.maximum(joint.estimate, least) / joint.n / share, np.float64)

    return Tables(normalised(share), tuple(fractions(joint_table(statistics, each)) for each in features))


def _counted_shares(statistics: Statistics) -> Floats:
    """Return the classes' counts, each at least :data:`LEAST_CLASS`, over the number of answers: (k,) float64."""
    counts = estimate_of(statistics, CLASS, None)
    answers = sum(found.n for found in statistics.questions if found.subject.kind == CLASS)
    return np.asarray(np.maximum(counts, LEAST_CLASS) / max(answers, 1), np.float64)


def _floored_shares(statistics: Statistics) -> Floats:
    """Return class shares, each at least half a record and its floor; equal ones without answers or variances: (k,)."""
    found = class_shares(statistics)
    if not np.isfinite(found.variance).all():
        return np.full(len(found.share), 1 / len(found.share))
    least = np.maximum(CLASSES * np.sqrt(found.variance), HALF / max(statistics.reports, 1))
    return np.asarray(np.maximum(found.share, least), np.float64)
