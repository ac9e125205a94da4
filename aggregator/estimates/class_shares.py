"""The shares of the classes, from every question that tells of them."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.debias import Law
from aggregator.estimates.intervals import score_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.statistics import Sample, Statistics, Vote

    Floats = NDArray[np.float64]


class ClassShares(NamedTuple):
    """Shares of the classes in the population that the devices are drawn from.

    Attributes:
        share: shape (k,), unbiased; may be negative. Zeros if nobody was asked.
        variance: shape (k,), noise and sampling. Infinite if nobody was asked.
    """

    share: Floats
    variance: Floats


def class_shares(statistics: Statistics) -> ClassShares:
    """The classes' shares from the class question and every cell question, by inverse variance.

        share_c = Σ_j w_j s_jc      w_j ∝ 1 / Var s_jc at equal shares 1/k, Σ_j w_j = 1

    where s_jc is question j's estimate of the share of class c: for a cell question the sum over its
    values. The weights depend on the mechanisms and the numbers asked, never on the answers, so the
    sum is as unbiased as its parts. With n_j answers to question j, N_s and c_s of its stratum
    (``aggregator.estimates.recurrence``), W_s the sum of the stratum's weights and f the class's share

        Var = Σ_j w_j² φ_j(f)/n_j + f(1 − f) [Σ_j w_j²/n_j − Σ_s W_s²/N_s + Σ_d (Σ_{s of d} W_s √c_s)²]

    Noise is independent between questions. Which answers a question gets is chosen without putting back
    within a stratum and independently between strata; the devices d of one source are the same in all its strata,
    and different sources may share none (``aggregator.estimates.joining``). The variance is taken at the
    middle of the 95 % interval for f: at the estimate itself it would be 0 where all answers are alike.

    Source: docs/math.md, section 4 ("combine by inverse variance"); docs/decisions/0041.
    """
    votes = [vote for question in statistics.questions for vote in question.classes]
    return combined(votes, len(statistics.schema.label.classes))


def combined(votes: Sequence[Vote], classes: int) -> ClassShares:
    """As :func:`class_shares`, from the votes of all questions."""
    if not votes:
        return ClassShares(np.zeros(classes), np.full(classes, np.inf))
    weights = np.array([1 / vote.planned_variance for vote in votes])
    weights /= weights.sum()
    share = np.asarray(weights @ np.array([vote.share for vote in votes]), np.float64)
    squares = [w * w / vote.n for w, vote in zip(weights.tolist(), votes, strict=True)]
    noise = Law(*(float(np.dot(squares, ends)) for ends in zip(*(vote.law for vote in votes), strict=True)))
    scatter = sum(squares) + _over_samples(weights.tolist(), votes)
    interval = score_interval(share, 1, noise, scatter, is_binomial=False)
    likely = np.clip((interval.low + interval.high) / 2, 0, 1)
    return ClassShares(share, noise.at(likely) + scatter * likely * (1 - likely))


def _over_samples(weights: Sequence[float], votes: Sequence[Vote]) -> float:
    """Σ_d (Σ_s W_s √c_s)² − Σ_s W_s²/N_s: what the same devices in all strata add, and choosing among them saves."""
    found: dict[Sample, float] = {}
    for weight, vote in zip(weights, votes, strict=True):
        found[vote.sample] = found.get(vote.sample, 0.0) + weight
    same: dict[int, float] = {}
    for sample, weight in found.items():
        same[sample.people] = same.get(sample.people, 0.0) + weight * sqrt(sample.concentration)
    return sum(part**2 for part in same.values()) - sum(weight**2 / s.answers for s, weight in found.items())
