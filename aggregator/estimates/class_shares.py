"""The shares of the classes, combined from all questions with information about the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.intervals import Interval
from aggregator.estimates.question_estimate import Pool, Vote, pooled
from aggregator.estimates.statistics import Statistics


class ClassShares(NamedTuple):
    """Shares of the classes in the population of the devices.

    All have the shape (k,) float64. ``share`` is unbiased and may be negative, with ``variance`` of noise and sampling
    (infinite without answers). 95 % intervals are for the population and for the devices that answered, about
    ``ratio``: shares of all records, which differ from ``share`` if the number of records is a noisy sum (NaN if that
    is not positive).
    """

    share: Floats
    variance: Floats
    interval: Interval
    devices_interval: Interval
    ratio: Floats
    ratio_variance: Floats


def class_shares(statistics: Statistics) -> ClassShares:
    """Return the shares of the classes from all questions about the classes, weighted by inverse variance.

    These are the questions about the class, alone or with a feature's value or a number's presence, that have answers
    and an estimator (:func:`aggregator.estimates.debias.marginal`). Without any the shares are 0, their variances
    infinite.

        share_c = Σ_j w_j s_jc      w_j ∝ 1 / Var s_jc at equal shares 1/k, Σ_j w_j = 1
        Var = Σ_j w_j² φ_j(f)/n_j + f(1 − f) [Σ_j w_j²/n_j − Σ_s W_s²/N_s + Σ_d (Σ_{s of d} W_s √c_s)²]

    s_jc: question j's estimate of the share of class c; n_j: its answers; φ_j: the noise variance of one. W_s: sum of
    the weights of stratum s (questions of which a device is asked one), N_s and c_s its answers and their concentration
    (``aggregator.estimates.recurrence``); d: a set of devices. No weight depends on an answer, so share_c is unbiased.
    f is the middle of the class's 95 % interval, because the variance at the estimate would be 0 if all answers were
    equal.

    Source: docs/math.md, section 4 ("combine by inverse variance"); decision 41.
    """
    votes = [vote for question in statistics.questions for vote in question.classes]
    found = combined(votes, len(statistics.schema.label.classes))
    if all(question.has_interval for question in statistics.questions if question.classes):
        return found
    endless = np.full(len(found.share), np.inf)
    none = Interval(-endless, endless)
    return found._replace(interval=none, devices_interval=none)


def combined(votes: Sequence[Vote], classes: int) -> ClassShares:
    """Return the shares of the classes by the formulas of :func:`class_shares`; ``votes``: one per question."""
    if not votes:
        endless = np.full(classes, np.inf)
        nothing = Interval(-endless, endless)
        return ClassShares(np.zeros(classes), endless, nothing, nothing, np.zeros(classes), endless)
    pool = pooled(votes)
    likely = pool.likely
    variance = pool.noise.at(likely) + pool.scatter * likely * (1 - likely)
    both = pool.interval(pool.scatter), pool.interval(pool.chosen)
    return ClassShares(pool.share, variance, *both, *_ratios(pool, variance))


def _ratios(pool: Pool, variance: Floats) -> tuple[Floats, Floats]:
    """Return the classes' shares of all records, ρ = x̂/ŷ, and their variances; x̂: a share of ``pool``, ŷ: their sum.

    Var ρ = φ [(1 − ρ)² + (k − 1) ρ²]/ŷ² + ``scatter`` ρ(1 − ρ), with k classes and φ, the noise variance of each x̂
    """
    if pool.is_counted:
        return pool.share, variance
    if pool.total <= 0:
        return np.full_like(pool.share, np.nan), np.full_like(pool.share, np.inf)
    ratio, likely = pool.share / pool.total, pool.likely
    noise = pool.noise.at(likely) / pool.total**2
    others = len(ratio) - 1
    return ratio, noise * ((1 - likely) ** 2 + others * likely**2) + pool.scatter * likely * (1 - likely)
