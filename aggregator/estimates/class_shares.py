"""The shares of the classes, from every question that tells of them."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.debias import Law, Marginal, marginal
from aggregator.estimates.intervals import score_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.recurrence import Recurrence
    from aggregator.estimates.statistics import Statistics
    from protocol.documents.campaign import Campaign

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

        Var = Σ_j w_j² φ_j(f)/n_j + f(1 − f) [Σ_j w_j²/n_j − Σ_s W_s²/N_s + (Σ_s W_s √c_s)²]

    Noise is independent between questions. Which answers a question gets is chosen without putting back
    within a stratum and independently between strata; the devices are the same in all. It is taken at the
    middle of the 95 % interval for f: at the estimate itself it would be 0 where all answers are alike.

    Source: docs/math.md, section 4 ("combine by inverse variance"); docs/decisions/0041.
    """
    tally = statistics.tally
    return combined(statistics.campaign, tally.n, tally.counts, statistics.recurrence)


def combined(
    campaign: Campaign, asked: Sequence[int], counts: Sequence[Sequence[int]], recurrence: Recurrence
) -> ClassShares:
    """As :func:`class_shares`, from a tally's numbers."""
    classes = len(campaign.schema.label.classes)
    votes = [
        _Vote(question.stratum, result)
        for question, n, cells in zip(campaign.questions, asked, counts, strict=True)
        if n and (result := marginal(question.mechanism, n, cells, classes)) is not None
    ]
    if not votes:
        return ClassShares(np.zeros(classes), np.full(classes, np.inf))
    weights = np.array([1 / vote.planned_variance for vote in votes])
    weights /= weights.sum()
    share = np.asarray(weights @ np.array([vote.marginal.estimate / vote.n for vote in votes]), np.float64)
    squares = [w * w / vote.n for w, vote in zip(weights.tolist(), votes, strict=True)]
    noise = Law(*(float(np.dot(squares, ends)) for ends in zip(*(vote.marginal.law for vote in votes), strict=True)))
    scatter = sum(squares) + _over_strata(weights.tolist(), votes, recurrence)
    interval = score_interval(share, 1, noise, scatter, is_binomial=False)
    likely = np.clip((interval.low + interval.high) / 2, 0, 1)
    return ClassShares(share, noise.at(likely) + scatter * likely * (1 - likely))


class _Vote(NamedTuple):
    """What one question says about the classes."""

    stratum: int
    marginal: Marginal

    @property
    def n(self) -> int:
        return self.marginal.n

    @property
    def planned_variance(self) -> float:
        """Of its estimate of a share, if all classes had the same."""
        equal = 1 / len(self.marginal.estimate)
        return self.marginal.planned_variance / self.n**2 + equal * (1 - equal) / self.n


def _over_strata(weights: Sequence[float], votes: Sequence[_Vote], recurrence: Recurrence) -> float:
    """(Σ_s W_s √c_s)² − Σ_s W_s²/N_s: what the same devices in all strata add, and choosing among them saves."""
    by_stratum: dict[int, float] = {}
    for weight, vote in zip(weights, votes, strict=True):
        by_stratum[vote.stratum] = by_stratum.get(vote.stratum, 0.0) + weight
    same = sum(weight * sqrt(recurrence.concentration[stratum]) for stratum, weight in by_stratum.items())
    return same**2 - sum(weight**2 / recurrence.answers[stratum] for stratum, weight in by_stratum.items())
