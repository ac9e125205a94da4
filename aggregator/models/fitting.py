"""Fit a model: a table of probabilities per category, and a normal distribution per number and class.

Source: Yilmaz, Al-Rubaie, Chang 2019, section 3.2; docs/math.md, section 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.spread import moment_variances, moments
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import OF_SUMS
from aggregator.models.postprocess.learned import learned_normals
from aggregator.models.postprocess.methods import DEFAULT, check_postprocess
from aggregator.models.postprocess.noisy_sums import UNIFORM_VARIANCE, floored_normal, printed_normal
from aggregator.models.postprocess.posterior import Moments, shrunk
from protocol.documents.campaign import GAUSSIAN
from protocol.documents.model import TRUNCATED_GAUSSIAN
from protocol.epsilon import MICRO
from protocol.questions import PRESENT

NORMAL_FAMILIES = (GAUSSIAN, TRUNCATED_GAUSSIAN)
"""Families with a normal distribution per number and class. The truncated family has the same parameters."""
_SHRINKS = "posterior"
"""Post-processing that shrinks means and variances by their noise."""
_FLOORS = {"printed": printed_normal, "halves": printed_normal, "floored": floored_normal}
"""Post-processing → its own function for means and variances. Except for :data:`_SHRINKS`, others clip the moments."""


class NormalParameters(NamedTuple):
    """Mean and variance of one number in [−1, 1] in every class: shape (k,) float64 each."""

    mean: Floats
    variance: Floats


class Parameters(NamedTuple):
    """Parameters of a Naive Bayes model. A class's score is log P(class) plus one logarithm per feature of the record.

    ``log_prior``: shape (k,) float64, log P(class). ``terms``: per observed feature, log P(value | class) of shape
    (values, k) float64, or a :class:`NormalParameters` for a number of a Gaussian family.
    """

    log_prior: Floats
    terms: tuple[NormalParameters | Floats, ...]


def fit(statistics: Statistics, postprocess: str = DEFAULT) -> Parameters:
    """Return the Naive Bayes model of the statistics, in the family that their ``fit`` names. Run by the aggregator.

    ``postprocess``, a key of :data:`aggregator.models.postprocess.methods.POSTPROCESSES`, gives P(class) and the
    tables. Every number x in [−1, 1] of a normal family has in class c (y: the record's class)

        m1 = E[x·[y = c]],  m2 = E[x²·[y = c]],  mean = m1/P(c),  variance = m2/P(c) − mean²

    with P(number present, c) for P(c) if that was asked. Moments are clipped to their range, and the variance has the
    campaign's floor. A number without answers has mean 0 and variance 1/3, or that floor if it is larger. Raises
    InputError: ``postprocess_unknown``; ``not_fittable``, the campaign lacks the question about a feature's values or,
    with ``paper``, the question about the class alone.
    """
    observed = range(len(statistics.schema.observed))
    numeric = statistics.schema.numeric if statistics.fit.family in NORMAL_FAMILIES else ()
    prior, likelihood = check_postprocess(postprocess)(
        statistics, [index for index in observed if index not in numeric]
    )
    tables = iter(likelihood)
    normals = dict(zip(numeric, _normals(statistics, postprocess, prior), strict=True)) if numeric else {}
    terms = (normals[index] if index in normals else np.log(next(tables)) for index in observed)
    return Parameters(np.log(prior), tuple(terms))


def _normals(statistics: Statistics, postprocess: str, prior: Floats) -> list[NormalParameters]:
    """Return mean and variance of every number, in the order of ``schema.numeric``."""
    schema, floor = statistics.schema, statistics.fit.variance_floor_micro / MICRO
    if postprocess in _FLOORS:
        pairs = [_FLOORS[postprocess](statistics, index) for index in schema.numeric]
        return [NormalParameters(mean, np.maximum(variance, floor)) for mean, variance in pairs]
    to_normal = _posterior_normal if postprocess == _SHRINKS else _normal
    first, second = (moments(statistics.questions, schema, power) for power in (1, 2))
    errors = [moment_variances(statistics.questions, schema, power) for power in (1, 2)]
    shares = [_share(statistics, index, prior) for index in schema.numeric]
    if postprocess == OF_SUMS:
        return _learned(Moments(first, second, errors[0], errors[1], np.array(shares)), floor)
    return [to_normal(Moments(*each), floor) for each in zip(first, second, *errors, shares, strict=True)]


def _learned(of: Moments, floor: float) -> list[NormalParameters]:
    """Return mean and variance of every number, learned from all numbers of finite noise; ``of``: shape (F, k) each."""
    known = np.asarray(np.isfinite(np.array(of)).all(axis=(0, 2)))
    found = learned_normals(Moments(*(each[known] for each in of)))
    made = zip(found.mean, np.clip(found.variance, floor, 1.0), strict=True)
    return [
        NormalParameters(*next(made)) if is_known else _normal(Moments(*(each[row] for each in of)), floor)
        for row, is_known in enumerate(known.tolist())
    ]


def _share(statistics: Statistics, feature: int, prior: Floats) -> Floats:
    """Return the share of records that have the class and, if asked, the number: (k,) float64; it may exceed 1."""
    for found in statistics.questions:
        if found.subject.kind == PRESENT and found.subject.feature == feature and found.n:
            there = found.estimate[len(prior) :] / found.n
            return np.clip(there, 1 / found.n, 1.0 if found.noisy_n is None else None)
    if all(one.noisy_n is None for one in statistics.questions):
        return prior
    return prior * max(float(class_shares(statistics).share.sum()), 1 / statistics.reports)


def _normal(of: Moments, floor: float) -> NormalParameters:
    """Return mean and variance by clipped moments, the variance at least ``floor``; 0 and 1/3 for NaN moments."""
    mean = np.clip(of.first / of.share, -1, 1)
    square = np.clip(of.second / of.share, 0, 1)
    mean, known = np.nan_to_num(mean), ~(np.isnan(of.first) | np.isnan(of.second))
    variance = np.where(known, square - mean**2, UNIFORM_VARIANCE)
    return NormalParameters(mean, np.maximum(np.nan_to_num(variance), floor))


def _posterior_normal(of: Moments, floor: float) -> NormalParameters:
    """Return shrunk mean and variance, the variance at least ``floor``; those of :func:`_normal` for infinite noise."""
    if np.isnan(of.first).any() or np.isnan(of.second).any():
        return _normal(of._replace(first=of.first * np.nan, second=of.second * np.nan), floor)
    if np.isinf(of.first_variance).any() or np.isinf(of.second_variance).any():
        return _normal(of, floor)
    mean, variance = shrunk(of)
    return NormalParameters(mean, np.clip(variance, floor, 1.0))
