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

    Attributes:
        share: shape (k,) float64, unbiased; may be negative. Zeros without answers.
        variance: shape (k,) float64, of noise and sampling. Infinite without answers.
        interval: 95 % intervals for the population's shares; without finite ends if there are no answers, or if a
            question's errors have no known law (``QuestionEstimate.has_interval``).
        devices_interval: the same intervals for the devices that answered.
        ratio, ratio_variance: shape (k,) float64, shares of all records and their variances. They equal ``share`` and
            ``variance`` unless the number n of records is a noisy sum: then ``share`` is in units of that n, and
            ``ratio`` is ``share`` divided by its sum; the intervals are about ``ratio``. NaN and infinite if that sum
            is not positive.
    """

    share: Floats
    variance: Floats
    interval: Interval
    devices_interval: Interval
    ratio: Floats
    ratio_variance: Floats


def class_shares(statistics: Statistics) -> ClassShares:
    """Return the shares of the classes from all questions about the classes, weighted by inverse variance.

    These are the questions about the class alone, about a feature's value and the class (cell questions), and about
    the presence of a number and the class, if they have answers and :func:`aggregator.estimates.debias.marginal` has
    an estimator for their mechanism. Without such a question the shares are 0, with infinite variances.

        share_c = Σ_j w_j s_jc      w_j ∝ 1 / Var s_jc at equal shares 1/k, Σ_j w_j = 1

    k is the number of classes and s_jc question j's estimate of the share of class c, for a question about a feature
    the sum over its values. The weights depend on the mechanisms and the numbers of answers, never on the answers, so
    share_c is unbiased. With n_j answers to question j, φ_j the noise variance of one answer to it, N_s answers and
    concentration c_s of stratum s (``aggregator.estimates.recurrence``), W_s the sum of the stratum's weights and f the
    class's share

        Var = Σ_j w_j² φ_j(f)/n_j + f(1 − f) [Σ_j w_j²/n_j − Σ_s W_s²/N_s + Σ_d (Σ_{s of d} W_s √c_s)²]

    Noise is independent between questions. A stratum is a group of questions of which a device is asked one. Within a
    stratum, the devices are divided among the questions without replacement; the divisions of different strata are
    independent. d is a set of devices: all strata of one source have the same devices, and sources may be declared to
    share none (``aggregator.estimates.joining``). f is taken as the middle of its 95 % interval, because the variance
    at the estimate would be 0 if all answers were equal.

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
    """Return the shares of the classes from the estimates of all questions, by the formulas of :func:`class_shares`.

    ``votes``: one entry per question about the classes; without any the shares are 0, with infinite variances.
    """
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
    """Return shares of all records with their variances, shape (k,) float64 each: ρ = x̂/ŷ.

        Var ρ = φ [(1 − ρ)² + (k − 1) ρ²]/ŷ² + scatter ρ(1 − ρ)

    x̂ is a share of ``pool``, ŷ the sum of all k shares, and φ the noise variance of each, which is independent.
    ``variance``: shape (k,) float64, of the shares x̂.
    """
    if pool.is_counted:
        return pool.share, variance
    if pool.total <= 0:
        return np.full_like(pool.share, np.nan), np.full_like(pool.share, np.inf)
    ratio, likely = pool.share / pool.total, pool.likely
    noise = pool.noise.at(likely) / pool.total**2
    others = len(ratio) - 1
    return ratio, noise * ((1 - likely) ** 2 + others * likely**2) + pool.scatter * likely * (1 - likely)
