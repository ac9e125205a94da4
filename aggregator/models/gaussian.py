"""The Gaussian fit: a normal distribution per number and class, from first and second moments.

    m1 = E[x·[y = c]],  m2 = E[x²·[y = c]],  mean = m1/P(c),  variance = m2/P(c) − mean²

where x = u/S is the number in [−1, 1], y the class of the record and c one class. If devices answered whether the
number is present, P(number present, c) replaces P(c).
Moments are clipped to their possible range for numbers in [−1, 1]. The variance is
at least the campaign's floor.
Source: Yilmaz, Al-Rubaie, Chang 2019, section 3.2; docs/math.md, section 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.spread import moment_variances, moments
from aggregator.estimates.statistics import Statistics
from aggregator.models.postprocess.methods import check_postprocess
from aggregator.models.postprocess.noisy_sums import floored_normal, printed_normal
from aggregator.models.postprocess.posterior import Moments, shrunk
from protocol.documents.campaign import GAUSSIAN
from protocol.documents.model import TRUNCATED_GAUSSIAN
from protocol.epsilon import MICRO
from protocol.questions import PRESENT

NORMAL_FAMILIES = (GAUSSIAN, TRUNCATED_GAUSSIAN)
"""Families with a normal distribution per number and class. The truncated one has the same parameters."""
SHRINKS = "posterior"
"""Post-processing that shrinks means and variances by their noise."""
OF_SUMS = {"printed": printed_normal, "halves": printed_normal, "floored": floored_normal}
"""Post-processings with means and variances of their own. The rest use the clipped moments alone."""
_UNIFORM_VARIANCE = 1 / 3
"""Variance of the uniform distribution on [−1, 1], for a number without answers."""


class NormalParameters(NamedTuple):
    """Mean and variance of x in every class: shape (k,) float64 each."""

    mean: Floats
    variance: Floats


class GaussianParameters(NamedTuple):
    """Parameters of a Gaussian Naive Bayes model.

    Attributes:
        log_prior: shape (k,) float64, log P(class).
        terms: per observed feature, a :class:`NormalParameters` for a number, or log P(value | class) of shape
            (values, k) float64 for categories.
    """

    log_prior: Floats
    terms: tuple[NormalParameters | Floats, ...]


def fit(statistics: Statistics, postprocess: str) -> GaussianParameters:
    """Gaussian Naive Bayes from statistics. Run by the aggregator; a pure function.

    Args:
        statistics: statistics of a Gaussian campaign.
        postprocess: name of the post-processing for the classes and categories.

    Returns:
        The parameters. A number without answers has mean 0 and the variance 1/3, or the floor if that is larger.

    Raises:
        InputError: ``postprocess_unknown``; ``not_fittable``: the campaign lacks the question about a category's
            values or, with ``paper``, the question about the class alone.
    """
    schema = statistics.schema
    categories = [index for index in range(len(schema.observed)) if index not in schema.numeric]
    prior, likelihood = check_postprocess(postprocess)(statistics, categories)
    tables = iter(likelihood)
    floor = statistics.fit.variance_floor_micro / MICRO
    to_normal = _posterior_normal if postprocess == SHRINKS else _normal
    first, second = (moments(statistics.questions, schema, power) for power in (1, 2))
    errors = [moment_variances(statistics.questions, schema, power) for power in (1, 2)]
    terms: list[NormalParameters | Floats] = []
    for index in range(len(schema.observed)):
        if index in schema.numeric and postprocess in OF_SUMS:
            mean, variance = OF_SUMS[postprocess](statistics, index)
            terms.append(NormalParameters(mean, np.maximum(variance, floor)))
        elif index in schema.numeric:
            place = schema.numeric.index(index)
            share = _share(statistics, index, prior)
            found = Moments(first[place], second[place], errors[0][place], errors[1][place], share)
            terms.append(to_normal(found, floor))
        else:
            terms.append(np.log(next(tables)))
    return GaussianParameters(np.log(prior), tuple(terms))


def _share(statistics: Statistics, feature: int, prior: Floats) -> Floats:
    """Shape (k,) float64: P(number present, class); P(class) without answers about the number's presence.

    Both are in units of the number n of records, as the moments are. If n is noisy, the shares of the classes by all
    tables need not sum to 1, and no share is cut at 1.
    """
    for found in statistics.questions:
        if found.subject.kind == PRESENT and found.subject.feature == feature and found.n:
            there = found.estimate[len(prior) :] / found.n
            return np.clip(there, 1 / found.n, 1.0 if found.noisy_n is None else None)
    if all(one.noisy_n is None for one in statistics.questions):
        return prior
    return prior * max(float(class_shares(statistics).share.sum()), 1 / statistics.reports)


def _normal(of: Moments, floor: float) -> NormalParameters:
    """Mean and variance from first and second moments, clipped to their range for numbers in [−1, 1].

    NaN moments become mean 0 and the uniform variance. The variance is at least ``floor``.
    """
    mean = np.clip(of.first / of.share, -1, 1)
    square = np.clip(of.second / of.share, 0, 1)
    mean, known = np.nan_to_num(mean), ~(np.isnan(of.first) | np.isnan(of.second))
    variance = np.where(known, square - mean**2, _UNIFORM_VARIANCE)
    return NormalParameters(mean, np.maximum(np.nan_to_num(variance), floor))


def _posterior_normal(of: Moments, floor: float) -> NormalParameters:
    """Mean and variance of :func:`aggregator.models.postprocess.posterior.shrunk`, the variance from ``floor`` to 1.

    Classes without answers about a moment get the mean 0 and the uniform variance, as all classes of that number. Noise
    of infinite variance (a curator's Cauchy noise) says nothing of how much to shrink: the moments are then used alone.
    """
    if np.isnan(of.first).any() or np.isnan(of.second).any():
        return _normal(of._replace(first=of.first * np.nan, second=of.second * np.nan), floor)
    if np.isinf(of.first_variance).any() or np.isinf(of.second_variance).any():
        return _normal(of, floor)
    mean, variance = shrunk(of)
    return NormalParameters(mean, np.clip(variance, floor, 1.0))
