"""The confidence interval of a mean of few repetitions, by Student's t distribution."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan, cos, pi, sin, sqrt, tan
from statistics import fmean, stdev

CONFIDENCE = 0.95
SMALLEST_SPREAD = 1e-12
"""Values that differ by less are equal: the difference is rounding."""


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """A 95 % confidence interval of the mean of n independent, identically distributed values.

    The ends are x̄ − t·s/√n and x̄ + t·s/√n. x̄ is the sample mean, s the sample standard deviation, t the quantile of
    Student's distribution with n − 1 degrees of freedom. The interval is exact for normal values. It covers the mean
    less often than in 95 % of all cases if the values are far from normal, for example if only few values are possible.
    None for n < 2, and if all values are equal: equal values do not show how much the values vary.
    """
    if len(values) < 2 or max(values) - min(values) < SMALLEST_SPREAD:
        return None
    half = two_sided_quantile(len(values) - 1) * stdev(values) / sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def within(t: float, freedom: int) -> float:
    """The probability P(|T| ≤ t) for Student's T with ν = ``freedom`` degrees of freedom.

    With θ = atan(t/√ν): 2/π·(θ + sin θ·Σ) for odd ν and sin θ·Σ for even ν, where Σ runs over
    cos θ, cos³θ·2/3, cos⁵θ·2·4/(3·5) … (odd) or 1, cos²θ·1/2, cos⁴θ·1·3/(2·4) … (even), up to the power ν − 2.
    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term, total = cos(angle) if odd else 1.0, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cos(angle) ** 2 * (power + 1) / (power + 2)
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def two_sided_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The t with P(|T| ≤ t) = ``confidence``, for Student's T with ν = ``freedom`` degrees of freedom.

    The search halves the range of the angle atan(t/√ν).
    """
    low, high = 0.0, pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if within(tan(middle) * sqrt(freedom), freedom) < confidence:
            low = middle
        else:
            high = middle
    return tan(low) * sqrt(freedom)
