"""Simulated fleets that agree with given statistics: random shares and moments from the posterior, without noise.

The contrast of a feature is the difference between the classes' joint shares (or moments) with the feature and the
joint shares if all classes were alike. Let a_i be the estimated contrast of feature i, d_i its degrees of freedom and
e_i the expectation of |a_i|² from noise alone. Q_i = d_i|a_i|²/e_i is modelled as (1 + τ_i²) times a χ² variable with
d_i degrees of freedom; τ_i is the size of the true contrast in multiples of the noise. All τ_i are drawn together from
their posterior under a Dirichlet process with concentration A; its base distribution is the smallest τ with
probability one half, else half-Cauchy. This distinguishes a single feature with a large contrast by
chance from many features with real contrasts. A feature whose noise hides the signal keeps a possible signal. No
contrast exceeds the range that the values' shares allow. Given τ_i the true contrast is normal:

    b_i a_i + √b_i z_i,   b_i = τ_i²/(1 + τ_i²),   z_i a random draw of the estimates' noise and sampling

Source: docs/math.md, section 4; docs/decisions/0042.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.spread import Estimated, moments
from aggregator.models.gaussian import NORMAL_FAMILIES, NormalParameters
from aggregator.models.joint_tables import project_to_simplex
from aggregator.models.postprocess import simplex_prior
from protocol.epsilon import MICRO
from protocol.questions import CELL, PRESENT, SQUARE
from protocol.schema import missing_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.question_estimate import QuestionEstimate
    from aggregator.estimates.statistics import Statistics

    Floats = NDArray[np.float64]

SIGNALS = np.logspace(-3, 6, 37)
"""Grid of the values of τ²."""
CONCENTRATION = 2.0
"""A, the concentration of the Dirichlet process: how much the features' τ may differ from each other."""
NOTHING = 0.5
"""Probability of the smallest τ² in the base distribution: a feature without information about the class."""
SWEEPS = 10
"""Number of sweeps of the Gibbs sampler between two draws of τ."""
_LEAST = 1e-6


class Feature(NamedTuple):
    """An observed feature of one fleet.

    Attributes:
        term: P(value | class), shape (values, k) float64; or a number's mean and variance in every class.
        there: shape (k,) float64, share of each class's records with the number; ones for a table.
        left_out: code of a missing value, which scoring leaves out; None if there is no such code.
    """

    term: Floats | NormalParameters
    there: Floats
    left_out: int | None


class Fleet(NamedTuple):
    """One simulated fleet: shares of the classes, shape (k,) float64, and features, independent within each class."""

    prior: Floats
    features: tuple[Feature, ...]


class _Contrast(NamedTuple):
    """Contrast of one feature's joint shares or moments.

    Attributes:
        alike: shape (values, k) float64, joint shares if all classes were alike: row sums times ``weights``.
        away: shape (values, k) float64, the estimated contrast.
        error: shape (values, k) float64, variances of the estimated joint shares.
        rows: shape (values,) float64, the values' shares; None for a moment, which has no fixed sum.
        weights: shape (k,) float64, the classes' shares.
        most: the largest possible square of the contrast.
    """

    alike: Floats
    away: Floats
    error: Floats
    rows: Floats | None
    weights: Floats
    most: float

    @classmethod
    def of(cls, joint: Floats, error: Floats, rows: Floats | None, weights: Floats, most: float) -> _Contrast:
        """The contrast in ``joint``, shape (values, k) float64; all other arguments are attributes."""
        totals = joint.sum(axis=1) if rows is None else rows
        return cls(np.outer(totals, weights), _centred(joint, rows, weights), error, rows, weights, most)

    @property
    def freedom(self) -> int:
        values, classes = self.away.shape
        return int((classes - 1) * (values if self.rows is None else values - 1))

    @property
    def noise(self) -> float:
        """E|a|² from noise alone: Σ over cells (v, c) of ‖(I − m1ᵀ)e_v‖² ‖(I − w1ᵀ)e_c‖² times the cell's variance.

        m is ``rows``, w is ``weights``, e_v and e_c are unit vectors.
        """
        row = 1.0 if self.rows is None else 1 - 2 * self.rows + self.rows @ self.rows
        column = 1 - 2 * self.weights + self.weights @ self.weights
        return float((self.error * np.outer(np.broadcast_to(row, len(self.error)), column)).sum())

    def likelihood(self) -> Floats:
        """Likelihood of every τ² in :data:`SIGNALS`, shape (signals,) float64; 0 for impossible contrasts."""
        noise, size = self.noise, float((self.away**2).sum())
        if not noise > 0:
            return np.ones(len(SIGNALS))
        grown = 1 + SIGNALS
        log = -self.freedom / 2 * (np.log(grown) + size / noise / grown)
        possible = noise * SIGNALS <= self.most
        possible[0] = True
        return np.asarray(np.where(possible, np.exp(log - log[possible].max()), 0.0))

    def drawn(self, signal: float, generator: np.random.Generator) -> Floats:
        """Random joint shares or moments without noise, given τ² = ``signal``: shape (values, k) float64."""
        kept = signal / (1 + signal)
        noise = _centred(generator.normal(0, np.sqrt(self.error)), self.rows, self.weights)
        return np.asarray(self.alike + kept * self.away + np.sqrt(kept) * noise)


def _centred(joint: Floats, rows: Floats | None, weights: Floats) -> Floats:
    """Joint shares minus the common part of all classes and of all values: shape (values, k) float64."""
    found = joint - np.outer(joint.sum(axis=1), weights)
    return np.asarray(found if rows is None else found - np.outer(rows, found.sum(axis=0)))


def fleets(statistics: Statistics, generator: np.random.Generator, draws: int) -> Iterator[Fleet]:
    """Random fleets from the posterior given the statistics.

    Args:
        statistics: statistics of a discrete or Gaussian campaign.
        generator: source of randomness; its state advances with every fleet.
        draws: number of fleets.

    Returns:
        An iterator over ``draws`` fleets. Their features are in the order of the schema's observed features.
    """
    shares = class_shares(statistics)
    spread = np.sqrt(np.where(np.isfinite(shares.variance), shares.variance, 1.0))
    prior = simplex_prior(statistics)
    numbers = statistics.schema.numeric if statistics.fit.family in NORMAL_FAMILIES else ()
    there = [_there(statistics, index, prior) for index in range(len(statistics.schema.observed))]
    seen = [
        _of_number(statistics, index, prior * there[index])
        if index in numbers
        else [_of_table(statistics, index, prior)]
        for index in range(len(there))
    ]
    sampler = _signals([contrast.likelihood() for contrasts in seen for contrast in contrasts], generator)
    for _ in range(draws):
        signal = iter(next(sampler))
        features = []
        for index, contrasts in enumerate(seen):
            drawn = [contrast.drawn(next(signal), generator) / contrast.weights for contrast in contrasts]
            if index in numbers:
                features.append(Feature(_normal(statistics, *drawn), there[index], None))
            else:
                rows, weights = contrasts[0].rows, contrasts[0].weights
                assert rows is not None
                table = _possible_table(drawn[0] * weights, rows)
                features.append(Feature(table, np.ones(len(prior)), missing_code(statistics.schema.observed[index])))
        yield Fleet(_possible(generator.normal(shares.share if shares.share.any() else prior, spread)), tuple(features))


def _signals(likelihood: Sequence[Floats], generator: np.random.Generator) -> Iterator[list[float]]:
    """Endless draws of τ² for every contrast, by a Gibbs sampler over the common distribution and all τ².

    ``likelihood``: one array per contrast, shape (signals,) float64.
    """
    seen = np.array(likelihood).reshape(-1, len(SIGNALS))
    root = np.sqrt(SIGNALS)
    base = CONCENTRATION * (1 - NOTHING) * root / (1 + SIGNALS) / (root / (1 + SIGNALS)).sum()
    base[0] += CONCENTRATION * NOTHING
    counts = np.zeros(len(SIGNALS))
    while True:
        for _ in range(SWEEPS):
            weights = generator.dirichlet(base + counts)
            ends = np.cumsum(seen * np.maximum(weights, 1e-300), axis=1)
            at = generator.random(len(seen)) * ends[:, -1]
            found = np.minimum((ends < at[:, None]).sum(axis=1), len(SIGNALS) - 1)
            counts = np.bincount(found, minlength=len(SIGNALS)).astype(np.float64)
        yield SIGNALS[found].tolist()


def _asked(statistics: Statistics, kind: str, feature: int) -> list[QuestionEstimate]:
    """Estimates with answers of all questions of this kind about the feature."""
    return [one for one in statistics.questions if (one.subject.kind, one.subject.feature) == (kind, feature) and one.n]


def _there(statistics: Statistics, feature: int, prior: Floats) -> Floats:
    """Share of each class's records with the number: shape (k,) float64; ones if the number is never missing."""
    asked = _asked(statistics, PRESENT, feature)
    if not asked:
        return np.ones(len(prior))
    n = sum(one.n for one in asked)
    joint = sum((one.estimate for one in asked), np.zeros(2 * len(prior)))[len(prior) :] / n
    return np.asarray(np.clip(joint / prior, 1 / n, 1))


def _of_table(statistics: Statistics, feature: int, prior: Floats) -> _Contrast:
    """Contrast of a feature's table of values; an unasked feature has uniform shares with large errors.

    ``prior``: shape (k,) float64, the classes' shares.
    """
    asked, size = _asked(statistics, CELL, feature), statistics.schema.observed[feature].size
    if not asked:
        rows = np.full(size, 1 / size)
        joint, error = np.outer(rows, prior), np.ones((size, len(prior)))
    else:
        n = sum(one.n for one in asked)
        joint = sum((one.estimate for one in asked), np.zeros(asked[0].subject.size)).reshape(size, -1) / n
        error = sum((one.variance for one in asked), np.zeros(asked[0].subject.size)).reshape(size, -1) / n**2
        rows = _possible(joint.sum(axis=1))
    most = float(rows @ rows) * float((1 - 2 * prior + prior @ prior).max())
    return _Contrast.of(joint, error, rows, prior, most)


def _of_number(statistics: Statistics, feature: int, share: Floats) -> list[_Contrast]:
    """Contrasts of a number's first and second moments, shape (1, k) each, among the records with the number.

    ``share``: shape (k,) float64, the share of records in each class that have the number.
    """
    schema, found = statistics.schema, statistics.questions
    row, total = schema.numeric.index(feature), float(share.sum())
    noise = [Estimated(one.subject, one.n, one.variance / max(one.n, 1)) for one in found]
    weights = share / total
    contrasts = []
    for power in (1, SQUARE):
        joint = np.nan_to_num(moments(found, schema, power)[row]) / total
        error = np.nan_to_num(moments(noise, schema, power)[row], nan=1.0, posinf=1.0) / total**2
        most = (4.0 if power == 1 else 1.0) * float(weights @ weights)
        contrasts.append(_Contrast.of(joint[None], error[None], None, weights, most))
    return contrasts


def _normal(statistics: Statistics, first: Floats, second: Floats) -> NormalParameters:
    """Mean and variance in every class from the two moments, shape (1, k) float64 each, clipped to possible values."""
    floor = statistics.fit.variance_floor_micro / MICRO
    mean = np.clip(first[0], -1, 1)
    return NormalParameters(mean, np.clip(second[0] - mean**2, floor, 1))


def _possible_table(joint: Floats, rows: Floats) -> Floats:
    """P(value | class) of the nearest possible joint shares with the row sums ``rows``: shape (values, k) float64."""
    possible = [project_to_simplex(row, total) for row, total in zip(joint, rows.tolist(), strict=True)]
    table = np.array(possible) + _LEAST
    return np.asarray(table / table.sum(axis=0), np.float64)


def _possible(shares: Floats) -> Floats:
    """The nearest positive shares with the sum 1: float64 of the same shape (n,)."""
    found = project_to_simplex(shares, 1.0) + _LEAST
    return np.asarray(found / found.sum(), np.float64)
