"""Posterior mean of a number g > 0 with a gamma prior (shape a, mean μ), from a normal estimate x of variance v.

With t = g/√v the posterior density is ∝ t^(a−1) exp(−t²/2 − z t), z = a√v/μ − x/√v. K(z) is the log of its integral, h
= −K′ its mean: the posterior mean of g is √v·h(z). Source: docs/math.md, section 4 (``posterior``).
"""

from __future__ import annotations

from functools import lru_cache
from math import lgamma, log, pi
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats

REACH = 32.0
"""Largest |z| of the table."""
_STEP = 0.04
_POINTS = 900
_DEPTH = 40
"""Number of terms of the continued fraction for h(z)."""
_LEAST_SD = 1e-9
"""Smallest standard deviation of the noise, so that z is finite for estimates without noise."""


class Posterior(NamedTuple):
    """Posterior means, all positive, and log p(x), the logarithms of the estimates' densities; both of one shape."""

    mean: Floats
    evidence: Floats


class _Table(NamedTuple):
    """The module's K, h and −h′ at the points z = −REACH, −REACH + step, … REACH: shape (points,) float64 each."""

    log_mass: Floats
    mean: Floats
    variance: Floats


def posterior(estimate: Floats, variance: Floats | float, centre: Floats | float, shape: float) -> Posterior:
    """Return the posterior means of numbers with independent gamma priors, and the densities of their estimates.

        log p(x) = a log(a/μ) − log Γ(a) + (a − 1)(log v)/2 + K(z) − x²/(2v) − log(2π)/2

    Args:
        estimate: x, float64 of any shape; may be negative.
        variance: v ≥ 0 of the normal noise, float or float64 of the estimate's shape.
        centre: μ > 0, the prior's mean, float or float64 of the estimate's shape.
        shape: a > 0. The prior's standard deviation is μ/√a.
    """
    sd = np.maximum(np.sqrt(variance), _LEAST_SD)
    scaled = estimate / sd
    z = np.asarray(shape * sd / centre - scaled, np.float64)
    log_mass, mean = _interpolated(z, shape)
    high, low = z > REACH, z < -REACH
    if high.any():
        log_mass[high], mean[high] = _far_right(z[high], shape)
    if low.any():
        log_mass[low], mean[low] = _far_left(z[low], shape)
    evidence = shape * np.log(shape / centre) - lgamma(shape) + (shape - 1) * np.log(sd) + log_mass
    return Posterior(np.asarray(sd * mean), np.asarray(evidence - scaled**2 / 2 - log(2 * pi) / 2))


def evidence_weights(evidence: Floats) -> Floats:
    """Return the priors' weights, (n,), proportional to e^evidence with sum 1; ``evidence``: their log densities."""
    weights = np.exp(evidence - evidence.max())
    return np.asarray(weights / weights.sum(), np.float64)


@lru_cache(maxsize=64)
def _table(shape: float) -> _Table:
    """Return K, h and −h′ by the trapezoidal rule over log t, with the exact mass below the first point."""
    z = np.arange(-REACH, REACH + _STEP / 2, _STEP)[:, None]
    t = np.geomspace(1e-12 if shape < 0.5 else 1e-7, REACH + 14, _POINTS)
    width = log(t[1] / t[0])
    exponent = shape * np.log(t) - t * t / 2 - z * t
    most = exponent.max(axis=1)
    density = np.exp(exponent - most[:, None])
    mass = density.sum(axis=1) * width + np.exp(shape * log(t[0]) - most) / shape
    mean = density @ t * width / mass
    return _Table(most + np.log(mass), mean, density @ (t * t) * width / mass - mean**2)


def _interpolated(z: Floats, shape: float) -> tuple[Floats, Floats]:
    """Return K(z) and h(z) by cubic Hermite interpolation, for z clipped to [−REACH, REACH]."""
    table = _table(shape)
    place = (np.clip(z, -REACH, REACH) + REACH) / _STEP
    left = np.minimum(place.astype(np.int64), len(table.mean) - 2)
    u = place - left
    at = {"left": (1 + 2 * u) * (1 - u) ** 2, "right": u * u * (3 - 2 * u)}
    slope = {"left": _STEP * u * (1 - u) ** 2, "right": _STEP * u * u * (u - 1)}

    def cubic(value: Floats, falling: Floats) -> Floats:
        ends = at["left"] * value[left] + at["right"] * value[left + 1]
        return np.asarray(ends - slope["left"] * falling[left] - slope["right"] * falling[left + 1])

    return cubic(table.log_mass, table.mean), cubic(table.mean, table.variance)


def _far_right(z: Floats, shape: float) -> tuple[Floats, Floats]:
    """Return K(z) and h_a(z) = a/(z + h_{a+1}(z)), a continued fraction, for z > REACH."""
    t = 2 * shape / (z + np.sqrt(z * z + 4 * shape))
    peak = shape * np.log(t) - t * t / 2 - z * t - np.log(z * t + 2 * t * t) / 2
    correction = lgamma(shape) - shape * log(shape) + shape + log(shape) / 2
    mean = np.zeros_like(z)
    for ahead in range(_DEPTH, -1, -1):
        mean = (shape + ahead) / (z + mean)
    return peak + correction, mean


def _far_left(z: Floats, shape: float) -> tuple[Floats, Floats]:
    """Return K(z) and h(z) for z < −REACH: a normal density around its mode, with the third derivative in the mean."""
    mode = (-z + np.sqrt(z * z + 4 * (shape - 1))) / 2
    curvature = 1 + (shape - 1) / mode**2
    log_mass = (shape - 1) * np.log(mode) - mode**2 / 2 - z * mode + np.log(2 * pi / curvature) / 2
    return log_mass, mode + (shape - 1) / mode**3 / curvature**2
