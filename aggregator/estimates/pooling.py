"""Several estimates of the shares of the classes combined into one, with the parts of its variance."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.debias import Z95, Law
from aggregator.estimates.intervals import Interval, score_interval
from aggregator.estimates.ratios import Pairs, cell_variance, ratio_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.question_estimate import Sample, Vote

    Floats = NDArray[np.float64]


class Pool(NamedTuple):
    """Estimated shares of the classes, combined with fixed weights, with the parts of their variance.

    The variance of a share f is noise(f) + f(1 − f)·scatter for the population. For these devices ``chosen`` replaces
    ``scatter``.

    Attributes:
        share: shape (k,) float64, unbiased.
        answers: number of combined answers.
        noise: noise variance as a function of the share.
        chosen: part of the scatter from the random choice of the answers to each question.
        people: part of the scatter from the random choice of the devices.
        by_sample: sum of the weights of each stratum's questions.
        is_counted: False if a number of answers is a noisy sum. Its noise is in every share, so intervals are for the
            ratios of the shares to their sum.
    """

    share: Floats
    answers: int
    noise: Law
    chosen: float
    people: float
    by_sample: dict[Sample, float]
    is_counted: bool = True

    @property
    def total(self) -> float:
        """What the shares are divided by to be shares of all answers: 1, or their sum if that is not known to be 1."""
        return 1.0 if self.is_counted else float(self.share.sum())

    @property
    def scatter(self) -> float:
        """Sampling variance for the population, in multiples of f(1 − f)."""
        return self.chosen + self.people

    def interval(self, scatter: float, z: float = Z95) -> Interval:
        """Intervals of shape (k,) float64, given the scatter of one of the two populations; ``z``: quantile.

        Score intervals, or Fieller's intervals in [0, 1] for the ratios to the sum if that is not known.
        """
        if not self.is_counted:
            one = np.ones_like(self.share)
            variance = cell_variance(one, 1.0, self.noise, Pairs(0.0, 0.0), len(self.share), scatter)
            found = ratio_interval(self.share, self.total * one, variance, z=z)
            return Interval(found.low, found.high)
        return score_interval(self.share, 1, self.noise, scatter, is_binomial=False, z=z)

    @property
    def likely(self) -> Floats:
        """Shape (k,) float64 in [0, 1]: middles of the population's intervals, at which variances are taken."""
        interval = self.interval(self.scatter)
        return np.clip((interval.low + interval.high) / 2, 0, 1)


def pooled(votes: Sequence[Vote]) -> Pool:
    """Combine at least one vote by inverse variance (formulas: :func:`aggregator.estimates.class_shares.class_shares`).

    With w_j the weight and n_j the answers of question j, W_s the sum of the weights, N_s the answers and c_s the
    concentration of stratum s, and d the number of a set of devices:

        chosen = Σ_j w_j²/n_j − Σ_s W_s²/N_s     answers to a question are drawn from a stratum without replacement
        people = Σ_d (Σ_{s of d} W_s √c_s)²      devices may answer in several strata and periods
    """
    weights = np.array([1 / vote.planned_variance for vote in votes])
    weights /= weights.sum()
    share = np.asarray(weights @ np.array([vote.share for vote in votes]), np.float64)
    squares = [w * w / vote.n for w, vote in zip(weights.tolist(), votes, strict=True)]
    noise = Law(*(float(np.dot(squares, ends)) for ends in zip(*(vote.law for vote in votes), strict=True)))
    by_sample: dict[Sample, float] = {}
    for weight, vote in zip(weights.tolist(), votes, strict=True):
        by_sample[vote.sample] = by_sample.get(vote.sample, 0.0) + weight
    by_devices: dict[int, float] = {}
    for sample, weight in by_sample.items():
        by_devices[sample.people] = by_devices.get(sample.people, 0.0) + weight * sqrt(sample.concentration)
    chosen = sum(squares) - sum(weight**2 / sample.answers for sample, weight in by_sample.items())
    people = sum(part**2 for part in by_devices.values())
    is_counted = all(vote.is_counted for vote in votes)
    return Pool(share, sum(vote.n for vote in votes), noise, chosen, people, by_sample, is_counted)
