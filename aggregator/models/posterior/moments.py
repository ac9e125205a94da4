"""Means and variances of numbers under the post-processing ``posterior``: shrunk by their noise to the pooled ones.

For one number x in [−1, 1], with P(c) the share of class c among the records with the number, m_c and s_c the
estimated means of x·[y = c] and x²·[y = c], and their known variances:

1. The pooled mean μ = Σm_c/ΣP(c) has a normal prior of mean 0 and variance 1/3, the pooled mean square's excess over
   μ² a gamma prior of mean 1/3 and shape 1. The result is the pooled variance T.
2. A class's deviation m_c/P(c) − μ has a normal prior of variance τ². The posterior mean is averaged over
   τ² ∈ T·:data:`BETWEEN`, weighted by the density of all classes' deviations.
3. A class's variance has a gamma prior whose mean W is T minus the variance between the classes. The posterior mean
   is averaged over the shapes :data:`SHAPES`, weighted by the density of all classes' estimates.

A number whose classes can not be told apart gets one mean and one variance, so it says nothing of the class. Without
noise the results are the moments.

Source: docs/math.md, section 4; docs/decisions/0056.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.models.posterior.noisy_gamma import evidence_weights, posterior

BETWEEN = (0.003, 0.03, 0.1, 0.3, 1.0)
"""Variances τ² of the classes' means, in units of the pooled variance; equally likely."""
SHAPES = (1.0, 3.0, 10.0, 100.0)
"""Shapes of the prior of the classes' variances; equally likely."""
_UNIFORM_VARIANCE = 1 / 3
_LEAST_WITHIN = 0.05
"""Smallest variance within the classes, in units of the pooled variance."""


class Moments(NamedTuple):
    """First and second moments of one number: shape (k,) float64 each.

    Attributes:
        first, second: estimated means of x·[y = c] and x²·[y = c].
        first_variance, second_variance: their variances.
        share: P(number present, class c), positive.
    """

    first: Floats
    second: Floats
    first_variance: Floats
    second_variance: Floats
    share: Floats


def shrunk(of: Moments) -> tuple[Floats, Floats]:
    """Mean in [−1, 1] and positive variance of a number in every class: shape (k,) float64 each."""
    total = of.share.sum()
    error = float(of.first_variance.sum()) / total**2
    centre = float(of.first.sum()) / total * _UNIFORM_VARIANCE / (_UNIFORM_VARIANCE + error)
    centre = float(np.clip(centre, -1, 1))
    excess = float(of.second.sum()) / total - centre**2
    noise = float(of.second_variance.sum()) / total**2 + 4 * centre**2 * error
    pooled = min(1.0, float(posterior(np.array([excess]), noise, _UNIFORM_VARIANCE, 1.0).mean[0]))
    mean = np.clip(centre + _deviations(of, centre, pooled), -1, 1)
    return mean, _variances(of, mean, centre, pooled)


def _deviations(of: Moments, centre: float, pooled: float) -> Floats:
    """Posterior means of the classes' deviations from the pooled mean: shape (k,) float64."""
    away = of.first / of.share - centre
    noise = of.first_variance / of.share**2
    between = pooled * np.array(BETWEEN)[:, None]
    spread = between + noise
    # The deviations, weighted by P(c), sum to 0: k densities say as much as k − 1.
    freedom = (len(away) - 1) / len(away)
    evidence = -freedom / 2 * (np.log(spread) + away**2 / spread).sum(axis=1)
    return np.asarray(evidence_weights(evidence) @ (away * between / spread), np.float64)


def _variances(of: Moments, mean: Floats, centre: float, pooled: float) -> Floats:
    """Posterior means of the classes' variances: shape (k,) float64. ``mean``: shape (k,) float64, the means."""
    weights = of.share / of.share.sum()
    within = max(pooled - float(weights @ (mean - centre) ** 2), _LEAST_WITHIN * pooled)
    raw = of.second / of.share - mean**2
    noise = (of.second_variance + 4 * mean**2 * of.first_variance) / of.share**2
    found = [posterior(raw, noise, within, shape) for shape in SHAPES]
    evidence = np.array([one.evidence.sum() for one in found])
    return np.asarray(evidence_weights(evidence) @ np.array([one.mean for one in found]), np.float64)
