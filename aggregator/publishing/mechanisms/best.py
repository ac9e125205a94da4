"""Multiple comparisons with the best: which of several shares can be the largest, all statements together at 95 %.

Source: Hsu, Annals of Statistics 12 (1984), 1136-1144 (the intervals); Dunnett, JASA 50 (1955), 1096-1121 (the
quantile); Zou and Donner, Statistics in Medicine 27 (2008), 1693-1702 (a difference from two score intervals).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import erf, hypot, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.intervals import Interval, score_interval
from aggregator.estimates.question_estimate import Right

LEVEL = 0.95
"""Probability with which all intervals of one call hold together."""
_Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
_REACH = 9.0
_STEPS_PER_UNIT = 512
_NODES = 6.0 * np.linspace(-1, 1, 81)
"""Nodes of the trapezoidal rule for an expectation over a standard normal variable; the error is below 1e-9."""
_ROUNDS, _TRIED = 4, 17
"""Each round of the search for a quantile tries so many values; four rounds find it to 1e-4 of a standard error."""


class Share(NamedTuple):
    """An estimated share with what its intervals need.

    Attributes:
        right: unbiased estimate, which may lie outside [0, 1], and the noise variance of one answer.
        n: number of answers, at least 1.
        scatter: sampling variance, in multiples of the sampling variance of n different devices.
        is_binomial: whether the counts are binomial where ``scatter`` is 1.
    """

    right: Right
    n: int
    scatter: float = 1.0
    is_binomial: bool = True

    @property
    def share(self) -> float:
        """The estimate itself."""
        return self.right.share

    @property
    def standard_error(self) -> float:
        """Standard error of the estimate for the population, from the estimated share, clipped to [0, 1]."""
        share = min(max(self.share, 0.0), 1.0)
        noise = float(self.right.law.at(np.array(share)))
        return sqrt((noise + self.scatter * share * (1 - share)) / self.n)

    def interval(self, z: float) -> tuple[float, float]:
        """Score interval of the share at the normal quantile ``z``, not clipped to [0, 1]."""
        ends = score_interval(
            np.array([self.share]), self.n, self.right.law, self.scatter, is_binomial=self.is_binomial, z=z
        )
        return float(ends.low[0]), float(ends.high[0])


def together(shares: Sequence[Share]) -> list[tuple[float, float]]:
    """Intervals of m shares that hold together with 95 %: each has the level 0.95^(1/m).

    By Šidák's inequality this is enough for normal estimates with any correlations.
    """
    if not shares:
        return []
    z = NormalDist().inv_cdf((1 + LEVEL ** (1 / len(shares))) / 2)
    return [one.interval(z) for one in shares]


def against_the_best(shares: Sequence[Share]) -> Interval:
    """Intervals of each share minus the largest of the *other* shares, which hold together with 95 %.

    Let i be the true best. With 95 % no other share j is estimated by more than a bound above i, relative to the truth:

        (f̂_j − f_j) − (f̂_i − f_i) ≤ U_ij − (f̂_i − f̂_j)      for all j at once

    where U_ij is the upper end of f_i − f_j at Dunnett's one-sided quantile for the control i (:func:`dunnett`), from
    the two score intervals. From this event alone follow, for every k,

        upper end  max(0, min_{j≠k} U_kj)      lower end  min_{j≠k, j∈G} −U_jk, or 0 if G = {k}

    with G the shares whose upper end is above 0: those that can be the largest. The derivation uses independent
    estimates. If the same devices answered about several models, errors of the estimates have correlations; positive
    ones make the event more probable.

    Args:
        shares: m shares, m ≥ 2.

    Returns:
        Ends of shape (m,) float64. An upper end of 0 says that the share is not the largest. If all upper ends but one
        are 0, that one is the largest, and its lower end is 0.
    """
    above = _upper_ends(shares)
    high = np.maximum(0.0, above.min(axis=1))
    candidates = high > 0
    low = np.empty(len(shares))
    for place in range(len(shares)):
        others = candidates.copy()
        others[place] = False
        low[place] = (-above[others, place]).min() if others.any() else 0.0
    return Interval(low, high)


def _upper_ends(shares: Sequence[Share]) -> Floats:
    """U of :func:`against_the_best`: (m, m) float64, row i has the upper ends of f_i − f_j; ∞ on the diagonal."""
    widths = [one.interval(_Z) for one in shares]
    sds = np.array([(high - low) / (2 * _Z) for low, high in widths])
    found = np.full((len(shares), len(shares)), np.inf)
    for i, one in enumerate(shares):
        z = dunnett(sds, i)
        up = one.interval(z)[1] - one.share
        for j, other in enumerate(shares):
            if i != j:
                found[i, j] = one.share - other.share + hypot(up, other.share - other.interval(z)[0])
    return found


def dunnett(sds: Floats, control: int) -> float:
    """The quantile d with P(X_j − X_i ≤ d √(σ_j² + σ_i²) for all j ≠ i) = 0.95, for independent X_j ~ N(0, σ_j²).

        P = E ∏_j Φ((d √(σ_j² + σ_i²) + σ_i Z)/σ_j),   Z standard normal

    Args:
        sds: σ, shape (m,) float64, positive, m ≥ 2.
        control: i.
    """
    own, others = float(sds[control]), np.delete(sds, control)
    differences = np.hypot(own, others)
    weights = np.exp(-(_NODES**2) / 2)
    weights /= weights.sum()
    tail = (1 - LEVEL) / len(others)  # By Bonferroni's inequality the quantile is at most that of this tail.
    low, high = NormalDist().inv_cdf(LEVEL) - 0.01, NormalDist().inv_cdf(1 - tail) + 0.01
    for _ in range(_ROUNDS):
        tried = np.linspace(low, high, _TRIED)
        limits = tried[:, None, None] * differences + own * _NODES[:, None]
        reached = _normal_cdf(limits / others).prod(axis=2) @ weights
        place = min(max(int(np.searchsorted(reached, LEVEL)), 1), _TRIED - 1)
        low, high = float(tried[place - 1]), float(tried[place])
    return high


def _normal_cdf(x: Floats) -> Floats:
    """Φ(x), float64 of the shape of ``x``, from a table; the error is below 2e-7."""
    grid, values = _table()
    return np.interp(x, grid, values)


@lru_cache(maxsize=1)
def _table() -> tuple[Floats, Floats]:
    grid = np.linspace(-_REACH, _REACH, int(2 * _REACH * _STEPS_PER_UNIT) + 1)
    return grid, np.array([(1 + erf(x / sqrt(2))) / 2 for x in grid.tolist()])
