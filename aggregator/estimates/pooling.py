"""Several estimates of the shares of the classes combined into one, with the parts of its variance."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Z95, Law, Pairs
from aggregator.estimates.intervals import Interval, score_interval
from aggregator.estimates.question_estimate import Sample, Vote
from aggregator.estimates.ratios import cell_variance, ratio_interval


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


class VoteSums:
    """Sums over votes, from which the pool of all, or of all but those of one question, is found without adding again.

    Args:
        votes: at least one.
    """

    def __init__(self, votes: Sequence[Vote]) -> None:
        self._number = len(votes)
        self._all = _added(votes)
        self._is_counted = all(vote.is_counted for vote in votes)

    def pool(self, without: Sequence[Vote] = ()) -> Pool | None:
        """Combine by inverse variance (formulas: :func:`aggregator.estimates.class_shares.class_shares`).

        With w_j the weight and n_j the answers of question j, W_s the sum of the weights, N_s the answers and c_s the
        concentration of stratum s, and d the number of a set of devices:

            chosen = Σ_j w_j²/n_j − Σ_s W_s²/N_s     answers to a question are drawn from a stratum without replacement
            people = Σ_d (Σ_{s of d} W_s √c_s)²      devices may answer in several strata and periods

        Args:
            without: votes to leave out, some of those that were added.

        Returns:
            The pool; None if no vote is left.
        """
        if len(without) == self._number:
            return None
        added, own = self._all, _added(without)
        total = added.weight - own.weight
        by_sample = {
            sample: (weight - own.by_sample.get(sample, 0.0)) / total for sample, weight in added.by_sample.items()
        }
        by_devices: dict[int, float] = {}
        for sample, weight in by_sample.items():
            by_devices[sample.people] = by_devices.get(sample.people, 0.0) + weight * sqrt(sample.concentration)
        drawn = sum(weight**2 / sample.answers for sample, weight in by_sample.items())
        return Pool(
            np.asarray((added.share - own.share) / total, np.float64),
            added.answers - own.answers,
            Law(*(float(one) for one in (added.noise - own.noise) / total**2)),
            (added.squares - own.squares) / total**2 - drawn,
            sum(part**2 for part in by_devices.values()),
            by_sample,
            self._is_counted,
        )


class _Added(NamedTuple):
    """Sums over votes with the weights a_j = 1/variance: Σa, Σa·share, Σa²/n, Σa²·law/n, Σa of each sample, Σn."""

    weight: float
    share: Floats | float
    squares: float
    noise: Floats
    by_sample: dict[Sample, float]
    answers: int


def _added(votes: Sequence[Vote]) -> _Added:
    by_sample: dict[Sample, float] = {}
    if not votes:
        return _Added(0.0, 0.0, 0.0, np.zeros(2), by_sample, 0)
    weights = [1 / vote.planned_variance for vote in votes]
    for weight, vote in zip(weights, votes, strict=True):
        by_sample[vote.sample] = by_sample.get(vote.sample, 0.0) + weight
    squares = np.array([weight**2 / vote.n for weight, vote in zip(weights, votes, strict=True)])
    share = np.asarray(np.array(weights) @ np.array([vote.share for vote in votes]), np.float64)
    noise = np.asarray(squares @ np.array([tuple(vote.law) for vote in votes]), np.float64)
    return _Added(sum(weights), share, float(squares.sum()), noise, by_sample, sum(vote.n for vote in votes))


def pooled(votes: Sequence[Vote]) -> Pool:
    """Combine at least one vote by inverse variance (formulas: :meth:`VoteSums.pool`)."""
    found = VoteSums(votes).pool()
    assert found is not None
    return found
