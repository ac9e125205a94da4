"""The shares of the classes, combined from all questions with information about the classes."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.debias import Law
from aggregator.estimates.intervals import Interval, score_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.question_estimate import Sample, Vote
    from aggregator.estimates.statistics import Statistics

    Floats = NDArray[np.float64]


class ClassShares(NamedTuple):
    """Shares of the classes in the population of the devices.

    Attributes:
        share: shape (k,) float64, unbiased; may be negative. Zeros without answers.
        variance: shape (k,) float64, of noise and sampling. Infinite without answers.
        interval: 95 % intervals for the population's shares; without finite ends if there are no answers.
        devices_interval: the same intervals for these devices.
    """

    share: Floats
    variance: Floats
    interval: Interval
    devices_interval: Interval


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
    """

    share: Floats
    answers: int
    noise: Law
    chosen: float
    people: float
    by_sample: dict[Sample, float]

    @property
    def scatter(self) -> float:
        """Sampling variance for the population, in multiples of f(1 − f)."""
        return self.chosen + self.people

    def interval(self, scatter: float) -> Interval:
        """95 % score intervals of shape (k,) float64, given the scatter of one of the two populations."""
        return score_interval(self.share, 1, self.noise, scatter, is_binomial=False)

    @property
    def likely(self) -> Floats:
        """Shape (k,) float64 in [0, 1]: middles of the population's intervals, at which variances are taken."""
        interval = self.interval(self.scatter)
        return np.clip((interval.low + interval.high) / 2, 0, 1)


def class_shares(statistics: Statistics) -> ClassShares:
    """Shares of the classes from all questions about the classes, weighted by inverse variance.

    These are the questions about the class alone, about a feature's value and the class (cell questions), and about
    the presence of a number and the class, if they have answers and :func:`aggregator.estimates.debias.marginal` has
    an estimator for their mechanism. Without such a question the shares are 0, with infinite variances.

        share_c = Σ_j w_j s_jc      w_j ∝ 1 / Var s_jc at equal shares 1/k, Σ_j w_j = 1

    where k is the number of classes and s_jc question j's estimate of the share of class c; the
    estimate of a question about a feature is the sum over the feature's values.
    The weights depend on the mechanisms and the numbers of answers,
    never on the answers, so share_c is unbiased. With n_j answers to question j, φ_j the noise variance of one
    answer to it, N_s answers and concentration c_s of stratum s (``aggregator.estimates.recurrence``), W_s the sum
    of the stratum's weights and f the class's share

        Var = Σ_j w_j² φ_j(f)/n_j + f(1 − f) [Σ_j w_j²/n_j − Σ_s W_s²/N_s + Σ_d (Σ_{s of d} W_s √c_s)²]

    Noise is independent between questions. Within a stratum, the devices are divided among the questions without
    replacement; between strata, the divisions are independent. d numbers the sets of devices: all strata of one
    source have the same devices, and sources may be declared to share no device (``aggregator.estimates.joining``).
    f is the middle of its 95 % interval, because the variance at the estimate would be 0 if all answers were equal.

    Source: docs/math.md, section 4 ("combine by inverse variance"); docs/decisions/0041.
    """
    votes = [vote for question in statistics.questions for vote in question.classes]
    return combined(votes, len(statistics.schema.label.classes))


def combined(votes: Sequence[Vote], classes: int) -> ClassShares:
    """Shares of the classes from the votes of all questions, by the formulas of :func:`class_shares`.

    Args:
        votes: one vote per question about the classes; without votes the shares are 0, with infinite variances.
        classes: k, the number of classes.
    """
    if not votes:
        endless = np.full(classes, np.inf)
        nothing = Interval(-endless, endless)
        return ClassShares(np.zeros(classes), endless, nothing, nothing)
    pool = pooled(votes)
    likely = pool.likely
    variance = pool.noise.at(likely) + pool.scatter * likely * (1 - likely)
    return ClassShares(pool.share, variance, pool.interval(pool.scatter), pool.interval(pool.chosen))


def pooled(votes: Sequence[Vote]) -> Pool:
    """Combine at least one vote by the formulas of :func:`class_shares`.

    ``chosen`` is Σ_j w_j²/n_j − Σ_s W_s²/N_s: the answers to a question are drawn from their stratum without
    replacement. ``people`` is Σ_d (Σ_s W_s √c_s)²: devices may answer in several strata and periods.
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
    return Pool(share, sum(vote.n for vote in votes), noise, chosen, people, by_sample)
