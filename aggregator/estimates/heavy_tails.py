"""Tails and quantiles of noise that is not normal: the sum of Laplace noise and normal noise.

Noise of a few summaries, or of a curator, has heavier tails than normal noise. κ, its excess kurtosis, is 3 for Laplace
noise, 3/N for the sum of N equal ones and 0 for normal noise. Each function takes the κ of the whole error of an
estimate, of noise and normal sampling together: κ = κ₀ (noise/(noise + sampling))², κ₀ that of the noise.
"""

from __future__ import annotations

from math import erfc, exp, log, sqrt

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Z95

_LAPLACE = 3.0
_LEAST_SHARE = 0.03
"""Below this share of Laplace noise in the variance, the tail is taken for that of normal noise."""
_MOST_SHARE = 0.999


def relative_kurtosis(kurtosis: float, noise: Floats, sampling: Floats) -> Floats:
    """κ of an error of noise and normal sampling; ``kurtosis``: κ₀ of the noise.

    ``noise``, ``sampling`` and result: variances, and κ, of shape (K,) float64. Noise of infinite variance counts as
    all of the error.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(1 / (1 + sampling / noise))
    return np.asarray(kurtosis * share**2, np.float64)


def quantile95(kurtosis: Floats) -> Floats:
    """0.975 quantile in standard deviations: z + (z³ − 3z) κ/24, the Cornish-Fisher expansion, z = 1.96.

    It is 2.17 for Laplace noise, where ln 20/√2 = 2.12 is exact. ``kurtosis`` and result: float64 of one shape.
    """
    return Z95 + (Z95**3 - 3 * Z95) * kurtosis / 24


def two_sided_tail(size: float, kurtosis: float) -> float:
    """P(|X| > t) for X of variance 1: the sum of one Laplace noise and of normal noise, with the excess kurtosis κ.

    The Laplace noise has the share √(κ/3) of the variance. The sum of several Laplace noises has lighter tails than
    one of equal kurtosis, so for such a sum the result is an upper bound far out. With σ² the variance of the normal
    noise and b the scale of the other,

        P(X > t) = Φ(−t/σ) + ½ e^{σ²/2b²} [e^{−t/b} Φ(t/σ − σ/b) − e^{t/b} Φ(−t/σ − σ/b)]

    Args:
        size: t ≥ 0.
        kurtosis: κ; above 3 it counts as 3.
    """
    share = sqrt(min(max(kurtosis, 0.0), _LAPLACE) / _LAPLACE)
    if share < _LEAST_SHARE:
        return _below(-size) * 2
    scale = sqrt(share / 2)
    if share > _MOST_SHARE:
        return exp(-size / scale)
    sd = sqrt(1 - share)
    middle, lift = sd / scale, (1 - share) / (2 * scale**2)
    near, far = _below(size / sd - middle), _below(-size / sd - middle)
    mixed = (exp(lift - size / scale + log(near)) if near else 0.0) - (
        exp(lift + size / scale + log(far)) if far else 0.0
    )
    return min(1.0, max(0.0, 2 * _below(-size / sd) + mixed))


def _below(x: float) -> float:
    """Φ(x), the normal distribution function."""
    return erfc(-x / sqrt(2)) / 2
