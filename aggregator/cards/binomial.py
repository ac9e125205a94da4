"""Probabilities of the binomial distribution, for arrays and for up to 10⁹ trials.

The logarithm of a probability has an absolute error below 10⁻⁹. Source: Loader, "Fast and accurate computation of
binomial probabilities", 2000.
"""

from __future__ import annotations

from math import ceil, lgamma, log, pi

import numpy as np
from numpy.typing import ArrayLike

from aggregator.common.arrays import Floats

_EXACT = 16
_STIRLING = np.array(
    [0.0] + [lgamma(n + 1) - (n + 0.5) * log(n) + n - 0.5 * log(2 * pi) for n in range(1, _EXACT)], np.float64
)
_BLOCKS = 64
_AT_ONCE = 1 << 12
_REACH = 12.0
"""Number of standard deviations by which a summed tail extends beyond its begin, or beyond the mean."""


def log_probability(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Floats:
    """Return ln P(X = k) for X ~ Bin(n, p), float64 of the common shape; k: integers of 0 … n, n ≥ 0, 0 < p < 1."""
    k, n, p = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in (k, n, p)))
    rest = n - k
    inner = (k > 0) & (rest > 0)
    some, total, other = np.where(inner, k, 1.0), np.where(inner, n, 2.0), np.where(inner, rest, 1.0)
    middle = (
        _stirling_error(total)
        - _stirling_error(some)
        - _stirling_error(other)
        - _deviance(some, total * p)
        - _deviance(other, total * (1 - p))
        + 0.5 * np.log(total / (2 * pi * some * other))
    )
    return np.where(inner, middle, np.where(k > 0, n * np.log(p), n * np.log1p(-p)))


def _stirling_error(n: Floats) -> Floats:
    """Return the logarithm of n! minus Stirling's formula (n + ½)ln n − n + ½ ln 2π, for n ≥ 1."""
    square = np.maximum(n, _EXACT) ** 2
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / np.maximum(
        n, _EXACT
    )
    return np.where(n < _EXACT, _STIRLING[np.minimum(n, _EXACT - 1).astype(np.int64)], series)


def _deviance(x: Floats, mean: Floats) -> Floats:
    excess = (x - mean) / mean
    return mean * ((1 + excess) * np.log1p(excess) - excess)


def upper_tail(k: ArrayLike, n: ArrayLike, p: ArrayLike) -> Floats:
    """Return a lower bound of P(X ≥ k) for X ~ Bin(n, p), exact to about three digits where k is above the mean.

    Between the ends of each block of values a geometric sequence replaces the log-concave probabilities, which are
    never smaller. The result is 1 for k ≤ 0 and 0 for k > n.
    """
    k, n, p = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in (k, n, p)))
    flat = [each.ravel() for each in (k, n, p)]
    some = (slice(start, start + _AT_ONCE) for start in range(0, k.size, _AT_ONCE))
    found = [_upper_tail(*(each[rows] for each in flat)) for rows in some]
    return np.concatenate([np.empty(0), *found]).reshape(k.shape)


def _upper_tail(k: Floats, n: Floats, p: Floats) -> Floats:
    margin = _REACH * np.sqrt(n * p * (1 - p)) + 40
    first = np.clip(np.maximum(k, np.floor(n * p - margin)), 0, n)  # What is further below has no weight.
    reach = np.maximum(first, n * p) + margin
    last = np.minimum(n, np.ceil(reach))
    step = np.linspace(0, 1, _BLOCKS + 1)
    ends = np.floor(first[..., None] + (last - first)[..., None] * step)
    logs = log_probability(ends, n[..., None], p[..., None])
    length = np.diff(ends, axis=-1)
    slope = np.diff(logs, axis=-1) / np.maximum(length, 1)
    values = np.exp(logs)
    flat = np.abs(slope) < 1e-9
    # A geometric sum from one end up to the other, without it: the difference of both over (ratio − 1).
    sums = np.where(flat, values[..., :-1] * length, np.diff(values, axis=-1) / np.expm1(np.where(flat, 1, slope)))
    total = sums.sum(axis=-1) + values[..., -1]
    return np.where(k > n, 0.0, np.where(k <= 0, 1.0, np.minimum(total, 1.0)))


def most_likely(n: int, p: float, chance: float) -> int:
    """Return a number that X ~ Bin(n, p) exceeds with probability at most ``chance``, by Chernoff's bound; at most n.

    P(X ≥ x n) ≤ exp(−n·KL(x, p)) for x ≥ p, where KL is the divergence of two coins.
    """
    if n == 0 or p <= 0:
        return 0
    low, high = p, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if n * _coin_divergence(middle, p) < -log(chance):
            low = middle
        else:
            high = middle
    return min(n, ceil(n * high))


def least_likely(n: int, p: float, chance: float) -> int:
    """Return a number that X ~ Bin(n, p) falls below with probability at most ``chance`` (see :func:`most_likely`)."""
    return n - most_likely(n, 1 - p, chance)


def _coin_divergence(x: float, p: float) -> float:
    """Return the Kullback-Leibler divergence x ln(x/p) + (1 − x) ln((1 − x)/(1 − p)) of coins, for p ≤ x ≤ 1."""
    if p >= 1:
        return 0.0
    rest = (1 - x) * log((1 - x) / (1 - p)) if x < 1 else 0.0
    return x * log(x / p) + rest
