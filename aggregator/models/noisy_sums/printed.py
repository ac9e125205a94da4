"""The post-processings ``printed`` and ``halves``: fractions of noisy sums, as Marchioro et al. print them.

    P(c) = n_c / Σ n_c      P(v | c) = m_vc / n_c      mean = S_c / n_c      variance = Q_c / n_c − mean²

n_c is the noisy number of records of class c, m_vc that of records with value v. S_c and Q_c are the noisy sums of x
and x². All fractions have one denominator, n_c. So the fractions P(v | c) of a feature need not sum to 1, and one of
them may be above 1. The paper has no rule for numbers that noise made negative. Here n_c is at least one record; the
fit's floor applies to the variance. The two post-processings differ in the smallest m_vc: :data:`LEAST_CELL` records in
``printed``, half a record in ``halves``.

Source: Marchioro, Giaretta, Markatos, Girdzijauskas 2022; docs/math.md, section 5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.spread import moments
from aggregator.estimates.statistics import Statistics
from aggregator.models.joint_tables import HALF, JointTable, Tables, estimate_of, joint_table, normalised
from protocol.questions import CLASS, PRESENT

LEAST_CLASS = 1.0
"""Smallest number of records of a class."""
LEAST_CELL = 1e-6
"""Smallest number of records of a class with one value, in ``printed``."""
_UNIFORM_VARIANCE = 1 / 3
"""Variance of the uniform distribution on [−1, 1], for a number without answers."""


def printed_tables(statistics: Statistics, features: Sequence[int]) -> Tables:
    """``printed``: P(class), and the fractions m_vc / n_c of the given observed features, which need not sum to 1.

    In statistics of devices' answers the questions have different numbers of answers. Counts are therefore divided by
    the number of answers to their question; in sums over all records of a node that number is the same everywhere.

    Args:
        statistics: statistics of any family with a question about the class alone.
        features: indices of observed features.

    Raises:
        InputError: ``not_fittable``: the question about the class alone, or about a feature's values, is missing.
    """
    return _tables(statistics, features, LEAST_CELL)


def halves_tables(statistics: Statistics, features: Sequence[int]) -> Tables:
    """``halves``: the fractions of :func:`printed_tables`, with every cell at least half a record.

    Args:
        statistics: statistics of any family with a question about the class alone.
        features: indices of observed features.

    Raises:
        InputError: ``not_fittable``: the question about the class alone, or about a feature's values, is missing.
    """
    return _tables(statistics, features, HALF)


def printed_normal(statistics: Statistics, feature: int) -> tuple[Floats, Floats]:
    """Mean and variance of one number in every class: shape (k,) float64 each. The variance may be negative.

    Both post-processings use this function.

    Args:
        statistics: statistics of a Gaussian family.
        feature: index of the observed feature, which is a number. If its presence was asked, the number of records of a
            class that have the number takes the place of n_c.

    Raises:
        InputError: ``not_fittable``: the question about the class alone is missing.
    """
    share, place = _class_shares(statistics), statistics.schema.numeric.index(feature)
    for found in statistics.questions:
        if (found.subject.kind, found.subject.feature) == (PRESENT, feature) and found.n:
            share = np.maximum(found.estimate[len(share) :], LEAST_CLASS) / found.n
    first, second = (moments(statistics.questions, statistics.schema, power)[place] for power in (1, 2))
    mean = first / share
    variance = second / share - mean**2
    return np.nan_to_num(mean), np.where(np.isnan(first) | np.isnan(second), _UNIFORM_VARIANCE, variance)


def _tables(statistics: Statistics, features: Sequence[int], least: float) -> Tables:
    """P(class) and the fractions m_vc / n_c, where m_vc is at least ``least`` records."""
    share = _class_shares(statistics)
    return Tables(
        normalised(share), tuple(_fractions(joint_table(statistics, each), share, least) for each in features)
    )


def _fractions(joint: JointTable, share: Floats, least: float) -> Floats:
    """m_vc / n_c, shape (values, k) float64; equal fractions without answers.

    Args:
        joint: the estimated table of one feature.
        share: of :func:`_class_shares`.
        least: smallest m_vc.
    """
    if not joint.n:
        return np.full(joint.estimate.shape, 1 / len(joint.estimate))
    return np.asarray(np.maximum(joint.estimate, least) / joint.n / share, np.float64)


def _class_shares(statistics: Statistics) -> Floats:
    """n_c over the number of answers, shape (k,) float64, each at least :data:`LEAST_CLASS` records; not normalised."""
    counts = estimate_of(statistics, CLASS, None)
    answers = sum(found.n for found in statistics.questions if found.subject.kind == CLASS)
    return np.asarray(np.maximum(counts, LEAST_CLASS) / max(answers, 1), np.float64)
