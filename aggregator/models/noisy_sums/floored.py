"""The post-processing ``floored``: noisy sums with floors that follow from their noise.

1. The share p_c of class c comes from all questions about the classes, weighted by inverse variance
   (:func:`aggregator.estimates.class_shares.class_shares`), and is at least :data:`CLASSES` standard deviations.
2. Every cell of a feature's table is at least :data:`CELLS` standard deviations of its noise, and at least half a
   record. Then the feature is normalised by its own sums: P(v | c) = m_vc / Σ_v m_vc.
3. A number's mean is S_c/(n p_c) and its mean square Q_c/(n p_c), both clipped to their possible range. The variance is
   at least :data:`VARIANCES` standard deviations of the noise of Q_c/(n p_c) − mean².

A floor keeps a negative cell from ruling out a class, and a small variance that is mostly noise from deciding alone.

Source: docs/math.md, section 5; docs/decisions/0075, which has the measurements behind the three constants.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.spread import moment_noise, moments
from aggregator.estimates.statistics import Statistics
from aggregator.models.joint_tables import HALF, Tables, joint_table, normalised
from protocol.questions import PRESENT

CELLS, CLASSES, VARIANCES = 0.2, 0.5, 0.5
"""Floors of cells, shares of the classes and variances, in standard deviations of their noise."""
_UNIFORM_VARIANCE = 1 / 3
"""Variance of the uniform distribution on [−1, 1], for a number without answers."""
_LARGEST_VARIANCE = 1.0
"""Largest variance of a number in [−1, 1]."""


def floored_tables(statistics: Statistics, features: Sequence[int]) -> Tables:
    """P(class), and P(value | class) of the given observed features. Without answers all probabilities are equal.

    Args:
        statistics: statistics of any family.
        features: indices of observed features.

    Raises:
        InputError: ``not_fittable``: there is no question about the values of one of the features.
    """
    tables = []
    for feature in features:
        joint = joint_table(statistics, feature)
        tables.append(normalised(np.maximum(joint.estimate, max(CELLS * joint.at_zero**0.5, HALF))))
    return Tables(normalised(_class_shares(statistics)), tuple(tables))


def floored_normal(statistics: Statistics, feature: int) -> tuple[Floats, Floats]:
    """Mean in [−1, 1] and variance in [0, 1] of one number in every class: shape (k,) float64 each.

    Noise of infinite variance (a curator's Cauchy noise) gives no floor. A number without answers has mean 0 and
    variance 1/3.

    Args:
        statistics: statistics of a Gaussian family.
        feature: index of the observed feature, which is a number. If its presence was asked, the share of records with
            class c and the number takes the place of p_c.
    """
    schema, share = statistics.schema, _class_shares(statistics)
    for found in statistics.questions:
        if (found.subject.kind, found.subject.feature) == (PRESENT, feature) and found.n:
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
    return mean, np.where(known, np.minimum(variance, _LARGEST_VARIANCE), _UNIFORM_VARIANCE)


def _class_shares(statistics: Statistics) -> Floats:
    """Shape (k,) float64: the shares of the classes, not normalised, each at least its floor and half a record.

    Without answers the shares are equal.
    """
    found = class_shares(statistics)
    if not np.isfinite(found.variance).all():
        return np.full(len(found.share), 1 / len(found.share))
    least = np.maximum(CLASSES * np.sqrt(found.variance), HALF / max(statistics.reports, 1))
    return np.asarray(np.maximum(found.share, least), np.float64)
