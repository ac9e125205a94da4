"""Fleets that statistics could be of: what is left of the features' differences between classes without noise.

A contrast is how far the classes' joint shares (or moments) with a feature are from those of classes that are all
alike. With a_i the estimated contrast of feature i, d_i degrees of freedom and e_i its expected square if there were
nothing but noise, Q_i = d_i|a_i|²/e_i is taken for (1 + τ_i²) times a χ² variable of d_i degrees of freedom: τ_i is
how many times the noise the true contrast is. The τ_i of all features are drawn together, from their posterior under
a Dirichlet process of concentration A around a law that is half at nothing and half the half-Cauchy law of τ. So single
features that stand out by chance are told from many that all do, a feature in which noise hides the signal keeps what
there may be, and none has more than its values' shares allow. Given τ_i the true contrast is normal:

    b_i a_i + √b_i z_i,   b_i = τ_i²/(1 + τ_i²),   z_i of the estimates' noise and sampling

Source: docs/math.md, section 4; docs/decisions/0042.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.spread import Estimated, moments
from aggregator.models.gaussian import NormalParameters
from aggregator.models.postprocess import POSTPROCESSES, project_to_simplex
from protocol.documents.campaign import GAUSSIAN
from protocol.epsilon import MICRO
from protocol.features import Categorical
from protocol.questions import CELL, PRESENT, SQUARE
from protocol.schema import may_be_missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.question_estimate import QuestionEstimate
    from aggregator.estimates.statistics import Statistics

    Floats = NDArray[np.float64]

SIGNALS = np.logspace(-3, 6, 37)
"""The τ² that are considered."""
CONCENTRATION = 2.0
"""A: how much the features' τ may differ from each other."""
NOTHING = 0.5
"""The share of that law that is at the least τ²: a feature that tells nothing."""
SWEEPS = 10
"""Of the Gibbs sampler, between two draws of τ."""
_LEAST = 1e-6


class Feature(NamedTuple):
    """An observed feature of one fleet.

    Attributes:
        term: shape (values, k), P(value | class); or a number's mean and variance in every class.
        there: shape (k,), the share of records that have the number; ones for a table.
        left_out: the code of a missing value, which scoring leaves out; None if no code is.
    """

    term: Floats | NormalParameters
    there: Floats
    left_out: int | None


class Fleet(NamedTuple):
    """Shares of the classes, shape (k,), and the features within them, independent of each other."""

    prior: Floats
    features: tuple[Feature, ...]


class _Contrast(NamedTuple):
    """Of joint shares or moments, shape (values, k).

    Attributes:
        alike: what they were if all classes had the same feature: row sums times ``weights``.
        away: the estimated contrast.
        error: variances of the estimates that it is made of.
        rows: shape (values,), the values' shares; None of a moment, which needs not add up.
        weights: shape (k,), the classes' shares.
        most: the largest square that there can be.
    """

    alike: Floats
    away: Floats
    error: Floats
    rows: Floats | None
    weights: Floats
    most: float

    @classmethod
    def of(cls, joint: Floats, error: Floats, rows: Floats | None, weights: Floats, most: float) -> _Contrast:
        totals = joint.sum(axis=1) if rows is None else rows
        return cls(np.outer(totals, weights), _centred(joint, rows, weights), error, rows, weights, most)

    @property
    def freedom(self) -> int:
        values, classes = self.away.shape
        return int((classes - 1) * (values if self.rows is None else values - 1))

    @property
    def noise(self) -> float:
        """E|a|² of noise alone: ‖(I − m1ᵀ)e_v‖² ‖(I − w1ᵀ)e_c‖² times the variance, over all cells (v, c)."""
        row = 1.0 if self.rows is None else 1 - 2 * self.rows + self.rows @ self.rows
        column = 1 - 2 * self.weights + self.weights @ self.weights
        return float((self.error * np.outer(np.broadcast_to(row, len(self.error)), column)).sum())

    def likelihood(self) -> Floats:
        """Shape (signals,): of :data:`SIGNALS`; 0 beyond what there can be."""
        noise, size = self.noise, float((self.away**2).sum())
        if not noise > 0:
            return np.ones(len(SIGNALS))
        grown = 1 + SIGNALS
        log = -self.freedom / 2 * (np.log(grown) + size / noise / grown)
        possible = noise * SIGNALS <= self.most
        possible[0] = True
        return np.asarray(np.where(possible, np.exp(log - log[possible].max()), 0.0))

    def drawn(self, signal: float, generator: np.random.Generator) -> Floats:
        """Shape (values, k): joint shares or moments, without noise."""
        kept = signal / (1 + signal)
        noise = _centred(generator.normal(0, np.sqrt(self.error)), self.rows, self.weights)
        return np.asarray(self.alike + kept * self.away + np.sqrt(kept) * noise)


def _centred(joint: Floats, rows: Floats | None, weights: Floats) -> Floats:
    """Less the common part of all classes, and of all values."""
    found = joint - np.outer(joint.sum(axis=1), weights)
    return np.asarray(found if rows is None else found - np.outer(rows, found.sum(axis=0)))


def fleets(statistics: Statistics, generator: np.random.Generator, draws: int) -> Iterator[Fleet]:
    """Fleets that the statistics could be of, as likely as they make them.

    Args:
        statistics: of a discrete or Gaussian campaign.
        generator: what the fleets are drawn with.
        draws: how many.
    """
    shares = class_shares(statistics)
    spread = np.sqrt(np.where(np.isfinite(shares.variance), shares.variance, 1.0))
    prior = POSTPROCESSES["simplex"].prior(statistics)
    numbers = statistics.schema.numeric if statistics.fit.family == GAUSSIAN else ()
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
                features.append(Feature(table, np.ones(len(prior)), _left_out(statistics, index)))
        yield Fleet(_possible(generator.normal(shares.share if shares.share.any() else prior, spread)), tuple(features))


def _signals(likelihood: Sequence[Floats], generator: np.random.Generator) -> Iterator[list[float]]:
    """τ² of every contrast, again and again: a Gibbs sampler over their common law and the contrasts' τ²."""
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
    return [one for one in statistics.questions if (one.subject.kind, one.subject.feature) == (kind, feature) and one.n]


def _left_out(statistics: Statistics, feature: int) -> int | None:
    """The code of a missing value."""
    found = statistics.schema.observed[feature]
    if not may_be_missing(found):
        return None
    return found.missing_code if isinstance(found, Categorical) else found.size - 1


def _there(statistics: Statistics, feature: int, prior: Floats) -> Floats:
    """Shape (k,): the share of a class that has the number."""
    asked = _asked(statistics, PRESENT, feature)
    if not asked:
        return np.ones(len(prior))
    n = sum(one.n for one in asked)
    joint = sum((one.estimate for one in asked), np.zeros(2 * len(prior)))[len(prior) :] / n
    return np.asarray(np.clip(joint / prior, 1 / n, 1))


def _of_table(statistics: Statistics, feature: int, prior: Floats) -> _Contrast:
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
    """Of a number's first and second moments, shape (1, k) each, among the records that have it."""
    schema, found = statistics.schema, statistics.questions
    row, total = schema.numeric.index(feature), float(share.sum())
    noise = [Estimated(one.subject, one.n, one.variance / max(one.n, 1)) for one in found]
    weights = share / total
    contrasts = []
    for power in (1, SQUARE):
        joint = np.nan_to_num(moments(found, schema, power)[row]) / total
        error = np.nan_to_num(moments(noise, schema, power)[row], nan=1.0) / total**2
        most = (4.0 if power == 1 else 1.0) * float(weights @ weights)
        contrasts.append(_Contrast.of(joint[None], error[None], None, weights, most))
    return contrasts


def _normal(statistics: Statistics, first: Floats, second: Floats) -> NormalParameters:
    floor = statistics.fit.variance_floor_micro / MICRO
    mean = np.clip(first[0], -1, 1)
    return NormalParameters(mean, np.clip(second[0] - mean**2, floor, 1))


def _possible_table(joint: Floats, rows: Floats) -> Floats:
    """Shape (values, k): P(value | class) of the nearest joint shares with these sums over the classes."""
    possible = [project_to_simplex(row, total) for row, total in zip(joint, rows.tolist(), strict=True)]
    table = np.array(possible) + _LEAST
    return np.asarray(table / table.sum(axis=0), np.float64)


def _possible(shares: Floats) -> Floats:
    found = project_to_simplex(shares, 1.0) + _LEAST
    return np.asarray(found / found.sum(), np.float64)
