"""The post-processing ``learned``: posterior means whose priors are learned from all features of the same sums.

Noise of known variance hides single tables and moments, but many features together show how much features tell.
Source: docs/math.md, section 4; decision 122; empirical Bayes: Robbins 1956.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.spread import moment_noise, moments
from aggregator.estimates.statistics import Statistics
from aggregator.models.postprocess.joint_tables import JointTable, Tables, joint_table, simplex_table
from aggregator.models.postprocess.noisy_gamma import posterior
from aggregator.models.postprocess.noisy_sums import UNIFORM_VARIANCE
from aggregator.models.postprocess.posterior import (
    Caution,
    Cells,
    Moments,
    equal_table,
    positive,
    shares_under,
)
from protocol.questions import PRESENT

SHAPES = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Shapes s of a cell's prior: 1/s is the variance of P(value, class)/(P(value) P(class)) between cells."""
WEIGHTS = (3.0, 2.0, 1.0, 0.3, 0.0)
"""Weights of :data:`SHAPES`, in any unit, for classes of equal shares, before any table was seen."""
IF_SKEWED = (0.5, 1.0, 2.0, 2.0, 0.5)
"""The same for skewed classes: there a wrong feature outvotes the largest class more often than a right one helps."""
SKEWED = 0.5
"""Classes have :data:`WEIGHTS` if (1 − p)/(1 − 1/k) is at least this; down to 0 they change to :data:`IF_SKEWED`."""
DOUBT = 2.0
"""p is the largest of the k classes' shares plus so many of its standard deviations."""
TABLES_BEFORE = 20.0
"""Number of tables that these weights count as."""
CONCENTRATIONS = (0.5, 2.0, 8.0, 32.0)
"""Concentrations B of the classes' shares, equally weighted: the variance of a share is (k − 1)/(k²(B + 1))."""
POOLED = (1 / 3, 0.1, 0.03)
"""Means of the prior of a number's variance (shape 1); equally weighted before any number was seen."""
BETWEEN = (0.03, 0.1, 0.3, 0.6)
"""Parts of a number's variance that lie between the classes; equally weighted before any number was seen."""
VARIANCE_SHAPES = (2.0, 5.0, 20.0, 80.0)
"""Shapes of the prior of the classes' variances; equally weighted before any number was seen."""
NUMBERS_BEFORE = 2.0
"""Number of numbers that these equal weights count as."""
_ROUNDS = 50
_LEAST_MEAN = 1e-9
_LEAST_WITHIN = 0.2
"""Smallest variance within the classes, in units of the pooled variance."""
_VOTES = 2.0
"""Number of sums whose classes differ independently, however many numbers there are."""
_LEAST_VARIANCE = 0.02
_LEAST_SHARE = 0.1
"""Smallest share of a class, in units of 1/k, at which the variances of votes are taken."""


def learned_tables(statistics: Statistics, features: Sequence[int]) -> Tables:
    """Return P(class), and P(value | class) of the observed features with the indices ``features``, in their order.

    Raises InputError ``not_fittable``: there is no question about the values of one of the features.
    """
    prior = learned_prior(statistics)
    joints = [joint_table(statistics, feature) for feature in features]
    before = _before(prior, float(class_shares(statistics).variance.mean()))
    caution = Caution.of(statistics, len(statistics.schema.observed))
    made = iter(_likelihoods([one for one in joints if one.n], prior, before, caution))
    return Tables(prior, tuple(next(made) if one.n else equal_table(one) for one in joints))


def learned_prior(statistics: Statistics) -> Floats:
    """Return P(class), (k,) float64: posterior means under the priors :data:`CONCENTRATIONS`, by their densities."""
    shares = class_shares(statistics)
    if not np.isfinite(shares.variance).all():
        return np.full(len(shares.share), 1 / len(shares.share))
    return shares_under(*_with_votes(statistics, shares.share, shares.variance), CONCENTRATIONS)


def _with_votes(statistics: Statistics, share: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return shares of the classes and their variances, (k,) each, with what the sums of the numbers say about them.

    The sum of a number over a class is its size times its mean. So a class's part y/a of the sum a over all classes is
    a vote for its share π, with the noise e/a² and the doubt π²d/a², d the variance of the classes' means (or of their
    mean squares). The votes of all sums are weighted by their variances; their doubts count as those of
    :data:`_VOTES` sums, since classes that differ in one number differ in others.
    """
    asked = {found.subject.feature for found in statistics.questions if found.subject.kind == PRESENT}
    rows = [place for place, feature in enumerate(statistics.schema.numeric) if feature not in asked]
    read = [part(statistics.questions, statistics.schema, power)[rows]
            for part in (moments, moment_noise) for power in (1, 2)]  # fmt: skip
    known = np.isfinite(read).all(axis=(0, 2))
    if not known.any():
        return share, variance
    first, second, first_noise, second_noise = (each[known] for each in read)
    mean, total = _over_classes(Moments(first, second, first_noise, second_noise, np.ones((1, 1))))
    spread = np.maximum(total, _LEAST_VARIANCE)
    part = np.concatenate([mean, total + mean**2])
    sums, noise = np.concatenate([first, second]), np.concatenate([first_noise, second_noise])
    doubt = np.concatenate([spread, spread**2 + 4 * mean**2 * spread])
    # A noisy number of records stretches the shares of tables, and not the parts of a sum.
    is_counted = all(found.noisy_n is None for found in statistics.questions)
    stretch = 1.0 if is_counted else max(float(share.sum()), _LEAST_SHARE)
    share, variance = share / stretch, variance / stretch**2
    found, least = share, _LEAST_SHARE / len(share)
    for _ in range(2):
        size = np.clip(found, least, 1) ** 2
        weight = part / (noise + size * doubt)
        whole = (part * weight).sum(axis=0)
        apart = max(1.0, len(part) / _VOTES)
        votes = (weight**2 * (noise + size * doubt * apart)).sum(axis=0) / whole**2
        found = (share / variance + (weight * sums).sum(axis=0) / whole / votes) / (1 / variance + 1 / votes)
    return np.asarray(found), np.asarray(1 / (1 / variance + 1 / votes))


def _before(prior: Floats, variance: float) -> Floats:
    """Return the weights of :data:`SHAPES` before any table was seen: (shapes,) float64, sum 1.

    ``prior``: P(class), (k,); ``variance``: of an estimated share.
    """
    balance = (1 - min(1.0, float(prior.max()) + DOUBT * variance**0.5)) / (1 - 1 / len(prior))
    equal = min(1.0, balance / SKEWED)
    even, skewed = (np.array(each) / sum(each) for each in (WEIGHTS, IF_SKEWED))
    return np.asarray(equal * even + (1 - equal) * skewed, np.float64)


def _likelihoods(joints: Sequence[JointTable], prior: Floats, before: Floats, caution: Caution) -> list[Floats]:
    """Return P(value | class) of every feature with answers, (values, k). ``before``: weights of :data:`SHAPES`.

    ``caution`` says where noise is so small that the table of ``simplex`` is better, as in ``posterior``.
    """
    if not joints:
        return []
    classes, cells = len(prior), Cells.of(joints)
    cells = cells.weighted(_centre(cells, prior))
    joints, centre = cells.joints, _centre(cells, prior)
    variance = cells.variance(centre)
    # A margin is made of its own row, so k cells of a row carry the information of k − 1.
    away = [one.share - np.outer(one.share.sum(axis=1), prior) for one in joints]
    stretched = centre + np.concatenate(away, axis=None) * (classes / (classes - 1)) ** 0.5
    densities = [posterior(stretched, variance, centre, shape).evidence for shape in SHAPES]
    evidence = [each.sum(axis=1) * (classes - 1) / classes for each in cells.split(np.array(densities))]
    weights = learned_weights(np.array(evidence), before, TABLES_BEFORE)
    share = np.concatenate([one.share for one in joints], axis=None)
    means = cells.split(np.array([posterior(share, variance, centre, shape).mean for shape in SHAPES]))
    return [
        simplex_table(one) if caution.is_sharp(one, weight) else positive((weight @ mean).reshape(one.estimate.shape))
        for weight, mean, one in zip(weights, means, joints, strict=True)
    ]


def _centre(cells: Cells, prior: Floats) -> Floats:
    """Return the prior means of all cells, as if no feature told the class; none is 0."""
    centre = [np.outer(margin / margin.sum(), prior) for margin in cells.margins(len(prior))]
    return np.asarray(np.maximum(np.concatenate(centre, axis=None), _LEAST_MEAN), np.float64)


def learned_weights(evidence: Floats, before: Floats, count: float) -> Floats:
    """Return the weights of S priors for each of F features, (F, S) float64, learned from all of them.

    The common weights are those of the largest posterior density under a Dirichlet prior of ``count`` imagined
    features with the weights ``before``, (S,), sum 1, by the EM algorithm; a feature's own weights follow from these
    and its ``evidence``, (F, S): the log densities of its estimates.
    """
    densities = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    common = before
    for _ in range(_ROUNDS):
        own = densities * common
        own /= own.sum(axis=1, keepdims=True)
        common = (own.sum(axis=0) + count * before) / (len(own) + count)
    return np.asarray(own, np.float64)


class Normals(NamedTuple):
    """Mean in [−1, 1] and positive variance of F numbers in k classes: shape (F, k) float64 each."""

    mean: Floats
    variance: Floats


def learned_normals(of: Moments) -> Normals:
    """Return means, and variances of a new record's number, of F numbers; ``of``: their moments, (F, k) each.

    A new record's number varies by its class's variance, and the doubt about the class's mean adds to that.
    """
    total = of.share.sum(axis=1, keepdims=True)
    centre, pooled = _over_classes(of)
    classes = of.share.shape[1]
    away, noise = of.first / of.share - centre, of.first_variance / of.share**2
    between = pooled * np.array(BETWEEN)[:, None, None]
    spread = between + noise
    # The deviations, weighted by P(c), sum to 0, so k densities carry the information of k − 1.
    evidence = -(1 - 1 / classes) / 2 * (np.log(spread) + away**2 / spread).sum(axis=2)
    weights = _equal_before(evidence)
    shifts = away * between / spread
    shift = (weights * shifts).sum(axis=0)
    doubt = (weights * (between * noise / spread + shifts**2)).sum(axis=0) - shift**2
    mean = np.clip(centre + shift, -1, 1)
    told = (of.share / total * (shift**2 + doubt)).sum(axis=1, keepdims=True)
    within = np.maximum(pooled - told, _LEAST_WITHIN * pooled)
    raw = of.second / of.share - mean**2 - doubt
    noise = of.second_variance / of.share**2 + 4 * mean**2 * doubt + 2 * doubt**2
    found = [posterior(raw, noise, within, shape) for shape in VARIANCE_SHAPES]
    weights = _equal_before(np.array([one.evidence.sum(axis=1) for one in found]))
    variance = (weights * np.array([one.mean for one in found])).sum(axis=0)
    return Normals(mean, np.asarray(variance + doubt))


def _over_classes(of: Moments) -> tuple[Floats, Floats]:
    """Return mean in [−1, 1] and positive variance of F numbers over all classes: shape (F, 1) float64 each."""
    first, second, first_noise, second_noise, total = (each.sum(axis=1, keepdims=True) for each in of)
    error = first_noise / total**2
    centre = np.clip(first / total * UNIFORM_VARIANCE / (UNIFORM_VARIANCE + error), -1, 1)
    noise = second_noise / total**2 + 4 * centre**2 * error
    found = [posterior(second / total - centre**2, noise, scale, 1.0) for scale in POOLED]
    weights = _equal_before(np.array([one.evidence.sum(axis=1) for one in found]))
    return centre, np.minimum((weights * np.array([one.mean for one in found])).sum(axis=0), 1.0)


def _equal_before(evidence: Floats) -> Floats:
    """Return learned weights (S, F, 1) of S priors that were equally likely, from log densities of shape (S, F)."""
    equal = np.full(len(evidence), 1 / len(evidence))
    return learned_weights(evidence.T, equal, NUMBERS_BEFORE).T[:, :, None]
