"""The post-processing ``posterior``: every probability is a posterior mean under noise of known variance.

Steps: shares of the classes; each feature's margin; its cells (pairs of value and class) under several prior shapes; a
pull to independence; moments of numbers pulled to the pooled ones. Source: docs/math.md, section 4; decision 56.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.statistics import Statistics
from aggregator.models.postprocess.joint_tables import JointTable, Tables, joint_table, simplex_table
from aggregator.models.postprocess.noisy_gamma import evidence_weights, posterior
from aggregator.models.postprocess.noisy_sums import UNIFORM_VARIANCE

SHAPES = (0.3, 1.0, 3.0, 10.0, 100.0)
"""Shapes s of a cell's prior. At 100 a feature is as good as independent of the class."""
WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.4)
"""Prior weights of :data:`SHAPES`, in any unit, for classes of equal shares."""
IF_SKEWED = (0.2, 0.5, 1.0, 1.0, 1.0)
"""Factors of :data:`WEIGHTS` for two skewed classes; for k skewed classes these factors to the power log₂ k."""
SKEWED = 0.6
"""Classes count as skewed if (1 − p)/(1 − 1/k) is at most this, p the largest of k shares; up to 1 it is linear."""
CONCENTRATIONS = (2.0, 8.0, 32.0)
"""Concentrations B of the classes' shares, equally weighted: the variance of a share is (k − 1)/(k²(B + 1))."""
MANY = 11
"""Number of features at which one report per cell counts for independence of the class, if :func:`stakes` is 1.

Also the number above which a table without many zeros needs less noise for ``simplex``.
"""
SHARP = 5
"""A feature gets the table of ``simplex`` if a cell's average share exceeds this number of standard deviations."""
CALM = 10
"""If features times :func:`stakes` are above this, more than :data:`SHARP` is needed, by the ratio's square root."""
CLEAR = 3
"""Standard deviations by which all tables must tell more than the class's entropy to end the doubt about features."""
BETWEEN = (0.003, 0.03, 0.1, 0.3, 1.0)
"""Variances τ² of the classes' means, in units of the pooled variance; equally likely."""
VARIANCE_SHAPES = (1.0, 3.0, 10.0, 100.0)
"""Shapes of the prior of the classes' variances; equally likely."""
_LEAST_WITHIN = 0.05
"""Smallest variance within the classes, in units of the pooled variance."""
_NEAR = 3
"""Index in :data:`SHAPES` from which a shape means a feature near independence of the class."""
_LEAST = 1e-12


def posterior_tables(statistics: Statistics, features: Sequence[int], summed: int | None = None) -> Tables:
    """Return P(class), and P(value | class) of the given observed features, by the post-processing ``posterior``.

    ``summed``: F, the number of features of the model; None for all that ``statistics`` has. Raises InputError
    ``not_fittable``: there is no question about the values of one of the features.
    """
    prior = posterior_prior(statistics)
    weights = shape_weights(prior, class_shares(statistics).variance)
    caution = Caution.of(statistics, summed or len(statistics.schema.observed))
    joints = [joint_table(statistics, feature) for feature in features]
    made = iter(_likelihoods([one for one in joints if one.n], prior, weights / weights.sum(), caution))
    return Tables(prior, tuple(next(made) if one.n else equal_table(one) for one in joints))


def equal_table(joint: JointTable) -> Floats:
    """Return P(value | class) of a feature without answers: (values, k) float64, all values equal."""
    return np.full(joint.estimate.shape, 1 / len(joint.estimate))


def posterior_prior(statistics: Statistics) -> Floats:
    """Return P(class), (k,) float64: posterior means under the priors :data:`CONCENTRATIONS`, by their densities."""
    shares = class_shares(statistics)
    if not np.isfinite(shares.variance).all():
        return np.full(len(shares.share), 1 / len(shares.share))
    return shares_under(shares.share, shares.variance, CONCENTRATIONS)


def shares_under(share: Floats, variance: Floats, concentrations: Sequence[float]) -> Floats:
    """Return P(class), (k,) float64: posterior means of shares under priors that are equally likely.

    ``share``, ``variance``: shape (k,), finite. A prior's concentration B gives a share the variance
    (k − 1)/(k²(B + 1)).
    """
    classes = len(share)
    shapes = [(concentration + 1) / (classes - 1) for concentration in concentrations]
    found = [posterior(share, variance, 1 / classes, shape) for shape in shapes]
    # The shares sum to 1, so k densities carry the information of k − 1.
    evidence = np.array([one.evidence.sum() for one in found]) * (classes - 1) / classes
    means = np.array([one.mean / one.mean.sum() for one in found])
    return positive(evidence_weights(evidence) @ means)


def stakes(statistics: Statistics) -> float:
    """Return r, the most accuracy that misleading features can cost, over the most that good features can gain.

        r = (p − 1/k)/(1 − p)

    p: the largest posterior mean of a class's share under the flattest prior; k: number of classes. r is 0 without
    answers.
    """
    shares = class_shares(statistics)
    classes = len(shares.share)
    if not np.isfinite(shares.variance).all():
        return 0.0
    found = posterior(shares.share, shares.variance, 1 / classes, (CONCENTRATIONS[0] + 1) / (classes - 1)).mean
    largest = float(found.max() / found.sum())
    return (largest - 1 / classes) / max(1 - largest, _LEAST)


class Caution(NamedTuple):
    """Limits that say how much F features are doubted. They grow with F and with r, the stakes (:func:`stakes`).

    If features depend on each other, Naive Bayes counts what they have in common several times, which reports of one
    answer each do not show. ``reports``: m = (F/MANY)³ · r, the number of reports per cell that count for independence
    of feature and class. ``zeros``, ``other``: number of standard deviations that a cell's average share must exceed
    for the table of ``simplex``, in a feature with many zeros and in any other.
    """

    reports: float
    zeros: float
    other: float

    @classmethod
    def of(cls, statistics: Statistics, features: int) -> Caution:
        """Return the limits for so many features of these statistics."""
        odds = stakes(statistics)
        zeros = SHARP * max(1.0, features * odds / CALM) ** 0.5
        return cls((features / MANY) ** 3 * odds, zeros, max(zeros, SHARP * features / MANY))

    def is_sharp(self, joint: JointTable, weights: Floats) -> bool:
        """Return whether noise is so small that ``simplex`` is better. ``weights``: of this feature's shapes."""
        cells, limit = joint.estimate.size, self.zeros if weights[0] > 1 / 2 else self.other
        return limit**2 * float(joint.variance(1 / cells)) < 1 / cells**2


class Cells(NamedTuple):
    """The cells of all tables as one long vector, since :func:`posterior` costs far more per call than per number.

    For every table of ``joints``: ``guesses``, the variance of a cell of average share; ``sizes``, number of cells.
    """

    joints: Sequence[JointTable]
    guesses: list[float]
    sizes: list[int]

    @classmethod
    def of(cls, joints: Sequence[JointTable]) -> Cells:
        """Return the cells of these tables, which have answers."""
        sizes = [joint.estimate.size for joint in joints]
        return cls(joints, [float(joint.variance(1 / size)) for joint, size in zip(joints, sizes, strict=True)], sizes)

    def split(self, cells: Floats) -> list[Floats]:
        """Return the part of each table, out of an array whose last axis has the cells of all tables."""
        return np.split(cells, np.cumsum(self.sizes)[:-1], axis=-1)

    def margins(self, classes: int) -> list[Floats]:
        """Return the posterior means of the row sums of every table: shape (values,) float64 each."""
        values = [len(joint.estimate) for joint in self.joints]
        rows = posterior(
            np.concatenate([joint.share.sum(axis=1) for joint in self.joints]),
            classes * np.repeat(self.guesses, values),
            np.repeat(1 / np.array(values), values),
            1.0,
        )
        return np.split(rows.mean, np.cumsum(values)[:-1])

    def first(self, centre: Floats) -> list[Floats]:
        """Return a first guess of the shares of every table's cells, (values, k) each; ``centre``: prior means."""
        share = np.concatenate([joint.share for joint in self.joints], axis=None)
        found = self.split(posterior(share, np.repeat(self.guesses, self.sizes), centre, 1.0).mean)
        return [mean.reshape(joint.estimate.shape) for mean, joint in zip(found, self.joints, strict=True)]

    def weighted(self, centre: Floats) -> Cells:
        """Return the tables with the joined sources weighted cell by cell; unchanged if no table joins sources."""
        if not any(joint.parts for joint in self.joints):
            return self
        found = zip(self.joints, self.first(centre), strict=True)
        return Cells.of([joint.weighted(mean) for joint, mean in found])

    def variance(self, centre: Floats) -> Floats:
        """Return the variances of all cells' shares, at posterior means of shape 1; ``centre``: prior means."""
        first = zip(self.joints, self.first(centre), strict=True)
        return np.concatenate([joint.variance(mean) for joint, mean in first], axis=None)

    def under_each_shape(self, centre: Floats) -> list[tuple[Floats, Floats]]:
        """Return per table posterior means and log densities under each of :data:`SHAPES`; ``centre``: prior means."""
        share, variance = np.concatenate([joint.share for joint in self.joints], axis=None), self.variance(centre)
        found = [posterior(share, variance, centre, shape) for shape in SHAPES]
        means = self.split(np.array([one.mean for one in found]))
        return list(zip(means, self.split(np.array([one.evidence for one in found])), strict=True))


def _likelihoods(joints: Sequence[JointTable], prior: Floats, shape_weight: Floats, caution: Caution) -> list[Floats]:
    """Return P(value | class) of every feature with answers, (values, k). ``shape_weight``: of :data:`SHAPES`."""
    if not joints:
        return []
    cells = Cells.of(joints)
    margins = cells.margins(len(prior))
    cells = cells.weighted(_centre(margins, prior))
    joints, margins = cells.joints, cells.margins(len(prior))
    told = association(joints, margins, prior)
    if told.nats - CLEAR * told.sd >= -float(prior @ np.log(prior)):
        caution = caution._replace(reports=0.0)
    centre = _centre(margins, prior)
    found = []
    for joint, (means, evidence) in zip(joints, cells.under_each_shape(centre), strict=True):
        weights = evidence_weights(evidence.sum(axis=1) + np.log(shape_weight))
        if caution.is_sharp(joint, weights):
            found.append(simplex_table(joint))
        else:
            mean = positive((weights @ means).reshape(joint.estimate.shape))
            doubt = min(1.0, float(weights[_NEAR:].sum() / shape_weight[_NEAR:].sum()))
            found.append(_towards_independence(mean, prior, joint.n, doubt * caution.reports * joint.estimate.size))
    return found


def _centre(margins: Sequence[Floats], prior: Floats) -> Floats:
    """Return the prior means of the cells of all tables: the shares of features that are independent of the class."""
    return np.concatenate([_independent(margin, prior) for margin in margins], axis=None)


def _towards_independence(table: Floats, prior: Floats, n: int, imagined: float) -> Floats:
    """Return a table of ``n`` reports mixed with ``imagined`` reports in which feature and class are independent."""
    independent = (table @ prior)[:, None]
    return positive(independent + n / (n + imagined) * (table - independent))


class Association(NamedTuple):
    """What all tables tell about the class, in nats, if features are independent, and the noise's deviation."""

    nats: float
    sd: float


def association(joints: Sequence[JointTable], margins: Sequence[Floats], prior: Floats) -> Association:
    """Return what all tables together tell about the class. The sum may be clear where noise hides each single table.

        nats = Σ_f K_f/2 (|D_f − E_f|² − δ_f v_f)   sd = √(Σ_f K_f² δ_f v_f²/2)   δ_f = (A_f − 1)(k − 1)   K_f = A_f k

    D_f is the estimated table without the means of its rows and columns, E_f the same for a feature that is independent
    of the class, v_f the mean variance of a cell of that feature. K|D − E|²/2 is the mutual information near
    independence. ``joints``: tables with answers, (A_f, k). ``margins``: shares of the values in any unit, (A_f,) each.
    ``prior``: P(class), (k,).
    """
    nats = variance = 0.0
    for joint, margin in zip(joints, margins, strict=True):
        away = _interaction(joint.share) - _interaction(np.outer(margin / margin.sum(), prior))
        freedom = (len(margin) - 1) * (len(prior) - 1)
        noise = float(joint.variance(_independent(margin, prior)).mean())
        nats += away.size * (float((away**2).sum()) - freedom * noise) / 2
        variance += away.size**2 * freedom * noise**2 / 2
    return Association(nats, sqrt(variance))


def _interaction(table: Floats) -> Floats:
    """Return a table, shape (A, k) float64, without the means of its rows and columns."""
    return np.asarray(table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean(), np.float64)


def _independent(margin: Floats, prior: Floats) -> Floats:
    """Return joint shares, (values, k), of a feature independent of the class; its shares are near ``margin``."""
    return np.outer((margin / margin.sum() + 1 - 1 / len(margin)) / len(margin), prior)


def shape_weights(prior: Floats, variance: Floats) -> Floats:
    """Return the prior weights of :data:`SHAPES`, shape (shapes,) float64; smaller for small shapes of skewed classes.

    The largest share of :data:`SKEWED` is the largest ``prior`` P(c) plus the root of its ``variance``, at most 1: so
    classes of little known shares count as skewed, and the model falls back to the class prior.
    """
    balance = (1 - min(1.0, float((prior + np.sqrt(variance)).max()))) / (1 - 1 / len(prior))
    equal = np.clip((balance - SKEWED) / (1 - SKEWED), 0, 1)
    factors = np.array(IF_SKEWED) ** log2(len(prior))
    return np.asarray(np.array(WEIGHTS) * (equal + (1 - equal) * factors), np.float64)


def positive(shares: Floats) -> Floats:
    """Return shares divided by their sums over the first axis, none below 10⁻¹² of the sum."""
    shares = np.maximum(shares, _LEAST * shares.sum(axis=0))
    return np.asarray(shares / shares.sum(axis=0), np.float64)


class Moments(NamedTuple):
    """First and second moments of one number x in every class c: (k,) float64 each, or (F, k) of F numbers.

    ``first``, ``second``: estimated means of x·[y = c] and x²·[y = c], with y the record's class. ``first_variance``,
    ``second_variance``: their variances. ``share``: P(number present, class c), positive.
    """

    first: Floats
    second: Floats
    first_variance: Floats
    second_variance: Floats
    share: Floats


def shrunk(of: Moments) -> tuple[Floats, Floats]:
    """Return mean in [−1, 1] and positive variance of a number in every class: shape (k,) float64 each."""
    total = of.share.sum()
    error = float(of.first_variance.sum()) / total**2
    centre = float(of.first.sum()) / total * UNIFORM_VARIANCE / (UNIFORM_VARIANCE + error)
    centre = float(np.clip(centre, -1, 1))
    excess = float(of.second.sum()) / total - centre**2
    noise = float(of.second_variance.sum()) / total**2 + 4 * centre**2 * error
    pooled = min(1.0, float(posterior(np.array([excess]), noise, UNIFORM_VARIANCE, 1.0).mean[0]))
    mean = np.clip(centre + _deviations(of, centre, pooled), -1, 1)
    return mean, _variances(of, mean, centre, pooled)


def _deviations(of: Moments, centre: float, pooled: float) -> Floats:
    """Return posterior means of the classes' deviations from the pooled mean ``centre``: shape (k,) float64."""
    away = of.first / of.share - centre
    noise = of.first_variance / of.share**2
    between = pooled * np.array(BETWEEN)[:, None]
    spread = between + noise
    # The deviations, weighted by P(c), sum to 0, so k densities carry the information of k − 1.
    freedom = (len(away) - 1) / len(away)
    evidence = -freedom / 2 * (np.log(spread) + away**2 / spread).sum(axis=1)
    return np.asarray(evidence_weights(evidence) @ (away * between / spread), np.float64)


def _variances(of: Moments, mean: Floats, centre: float, pooled: float) -> Floats:
    """Return posterior means of the variances in every class: (k,) float64. ``mean``: (k,), means in every class."""
    weights = of.share / of.share.sum()
    within = max(pooled - float(weights @ (mean - centre) ** 2), _LEAST_WITHIN * pooled)
    raw = of.second / of.share - mean**2
    noise = (of.second_variance + 4 * mean**2 * of.first_variance) / of.share**2
    found = [posterior(raw, noise, within, shape) for shape in VARIANCE_SHAPES]
    evidence = np.array([one.evidence.sum() for one in found])
    return np.asarray(evidence_weights(evidence) @ np.array([one.mean for one in found]), np.float64)
