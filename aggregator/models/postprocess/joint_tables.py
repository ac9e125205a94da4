"""Estimated joint tables of a feature's values and the classes, and the probabilities that post-processings make.

A cell of a table is one pair of a value and a class. Source: docs/math.md, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.statistics import Statistics
from protocol.errors import InputError
from protocol.questions import CELL

_LEAST = 1e-12
"""Added to variances of shares, since a share without noise that is 0 has the variance 0."""
HALF = 0.5
"""Number of reports that add-half smoothing adds to every cell, so that no probability is zero."""


class Tables(NamedTuple):
    """Probabilities of a discrete Naive Bayes model, all positive, as a post-processing returns them.

    ``prior``: shape (k,) float64, P(class), sums to 1. ``likelihood``: per feature, shape (values, k) float64, P(value
    | class); columns sum to 1, except with the post-processings ``printed`` and ``halves``.
    """

    prior: Floats
    likelihood: tuple[Floats, ...]


class JointTable(NamedTuple):
    """Unbiased estimate of one feature's joint table, from all questions about the feature's values and the class.

    ``estimate``: shape (values, k) float64, n times the share of value a and class c, in row a, column c. ``at_zero``,
    ``at_one``: noise variance if no device, or every device, holds the cell's value and class. ``scatter``: sampling
    variance in multiples of f(1 − f), f the cell's true share. All are in reports, of which there are ``n``. ``parts``:
    the tables of the joined sources; empty for one source.
    """

    estimate: Floats
    n: int
    at_zero: float
    at_one: float
    scatter: float
    parts: tuple[JointTable, ...] = ()

    @property
    def share(self) -> Floats:
        """Shape (values, k) float64: the estimate divided by n; zeros without answers."""
        return np.asarray(self.estimate / max(self.n, 1), np.float64)

    def variance(self, share: Floats | float) -> Floats:
        """Return the variance of an estimated share, of noise and sampling, at true shares in [0, 1].

            Var = [φ₀ + f(φ₁ − φ₀) + σ f(1 − f)]/n²

        f: the true share; φ₀, φ₁, σ: ``at_zero``, ``at_one`` and ``scatter``. n must be at least 1. Of several sources
        it is the variance of :meth:`weighted` at f.
        """
        f = np.clip(share, 0, 1)
        if self.parts:
            return np.asarray(1 / np.sum([1 / (part.variance(f) + _LEAST) for part in self.parts], axis=0), np.float64)
        total = self.at_zero + f * (self.at_one - self.at_zero) + self.scatter * f * (1 - f)
        return np.asarray(total / self.n**2, np.float64)

    def weighted(self, share: Floats) -> JointTable:
        """Return the table with each cell's sources weighted for that cell; unchanged for one source.

            Σ_j s_j/V_j(f) / Σ_j 1/V_j(f)

        s_j, V_j: the source's estimated share and its variance; f: ``share``, (values, k), a guess of the true shares.
        Records without noise so count for more in rare cells, where an answer's noise is many times its sampling error.
        The guess depends on answers, so the result has a small bias; post-processings alone use it. Decision 118.
        """
        if not self.parts:
            return self
        weights = [1 / (part.variance(share) + _LEAST) for part in self.parts]
        summed = sum(weight * part.share for weight, part in zip(weights, self.parts, strict=True))
        return self._replace(estimate=np.asarray(self.n * summed / sum(weights), np.float64))


def joint_table(statistics: Statistics, feature: int) -> JointTable:
    """Return one feature's joint table, summed over all questions about it; ``not_fittable`` if there is none."""
    found = _about(statistics, CELL, feature)
    table = _table(found, len(statistics.schema.label.classes))
    parts = [_table([part], table.estimate.shape[1]) for item in found for part in item.parts or (item,) if part.n]
    return table._replace(parts=tuple(parts)) if any(item.parts for item in found) else table


def _table(found: Sequence[QuestionEstimate], classes: int) -> JointTable:
    """Return the joint table that questions about one feature's values give together."""
    at_zero, at_one = np.sum([_noise(item) for item in found], axis=0).tolist()
    return JointTable(
        np.asarray(np.sum([item.estimate for item in found], axis=0), np.float64).reshape(-1, classes),
        sum(item.n for item in found),
        at_zero,
        at_one,
        float(sum(item.n * item.scatter for item in found)),
    )


def estimate_of(statistics: Statistics, kind: str, feature: int | None) -> Floats:
    """Return the estimate in reports, (K,), summed over all questions of a kind; ``not_fittable`` if there is none."""
    return np.asarray(np.sum([item.estimate for item in _about(statistics, kind, feature)], axis=0), np.float64)


def simplex_table(joint: JointTable) -> Floats:
    """Return P(value | class) by the post-processing ``simplex``: (values, k) float64, columns sum to 1.

    It is the nearest table (Euclidean) with cells ≥ 0 that sum to the number of answers, with half a report more in
    each cell.
    """
    projected = project_to_simplex(joint.estimate.ravel(), joint.n).reshape(joint.estimate.shape)
    return normalised(projected + HALF)


def project_to_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest point x to ``values``, (n,) float64, with x ≥ 0 and Σx = total: x = max(values − τ, 0).

    Sorting gives τ. With u the values in falling order and ρ the last j with u_j > (u_1 + … + u_j − total)/j,
    τ = (u_1 + … + u_ρ − total)/ρ. A total of 0 gives zeros.
    """
    if total <= 0:
        return np.zeros_like(values)
    falling = np.sort(values)[::-1]
    taus = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    tau = taus[np.flatnonzero(falling > taus)[-1]]
    return np.asarray(np.maximum(values - tau, 0.0))


def normalised(estimate: Floats) -> Floats:
    """Return the estimates divided by their sums over the first axis."""
    return np.asarray(estimate / estimate.sum(axis=0), np.float64)


def _about(statistics: Statistics, kind: str, feature: int | None) -> list[QuestionEstimate]:
    wanted = (kind, feature)
    found = [item for item in statistics.questions if (item.subject.kind, item.subject.feature) == wanted]
    if not found:
        raise InputError("not_fittable", "the campaign does not ask for the classes and for every feature")
    return found


def _noise(found: QuestionEstimate) -> tuple[float, float]:
    """Return the noise variances of a question's estimates at the true shares 0 and 1; both the mean without a law."""
    if not found.n:
        return 0.0, 0.0
    if found.law is not None:
        return found.n * found.law.at_zero, found.n * found.law.at_one
    mean = float(found.noise_variance.mean())
    return mean, mean
