"""Densities and distribution functions of real-valued noise, from the textbook formulas, in floating point."""

from fractions import Fraction
from functools import lru_cache
from math import erf, pi, sqrt

import numpy as np

_NODES = np.linspace(-9, 9, 721)
"""Nodes of the trapezoidal rule for an expectation over a standard normal variable: right to 1e-15."""
_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()


def log_density(name, sigma=None):
    """The logarithm of a law's density, for arrays of any shape. ``sigma`` is that of Laplace-log-normal noise."""
    if name == "cauchy":
        name = "gamma2"
    if name.startswith("gamma"):
        gamma = float(Fraction(name.removeprefix("gamma")))
        area = 2 * pi / gamma / np.sin(pi / gamma)
        return lambda z: -np.log(area) - np.logaddexp(0, gamma * np.log(np.maximum(np.abs(z), 1e-300)))
    if name == "student-t":
        return lambda z: np.log(2 / (pi * sqrt(3))) - 2 * np.log1p(z**2 / 3)
    if name == "laplace":
        return lambda z: -np.abs(z) - np.log(2)
    if name == "gaussian":
        return lambda z: -(z**2) / 2 - np.log(2 * pi) / 2
    assert sigma is not None
    nodes, values = _log_normal_table(float(sigma))
    return lambda z: np.interp(np.log(np.abs(z) + 1e-9), nodes, values)


@lru_cache
def _log_normal_table(sigma):
    """Log densities of Laplace-log-normal noise at 6,000 values of ln(|z| + 1e-9)."""
    nodes = np.linspace(np.log(1e-9), np.log(1e7), 6_000)
    z = np.exp(nodes) - 1e-9
    return nodes, np.concatenate([_log_normal_density(part, sigma) for part in np.array_split(z, 20)])


def _log_normal_density(z, sigma):
    """The logarithm of E[e^(−σY)·e^(−z·e^(−σY))/2]. Far tails come from Y up to 36, so all terms are logarithms."""
    y = np.linspace(-12, 36, 1921)
    terms = -sigma * y - z[:, None] * np.exp(-sigma * y) - y**2 / 2
    largest = terms.max(axis=1)
    sums = np.exp(terms - largest[:, None]).sum(axis=1)
    return largest + np.log(sums * (y[1] - y[0]) / sqrt(2 * pi) / 2)


def distribution(name, sigma=None):
    """P(Z ≤ z), for ``(n,) float64``."""
    if name == "cauchy":
        return lambda z: 0.5 + np.arctan(z) / pi
    if name.startswith("gamma"):
        return _integrated(log_density(name))
    if name == "student-t":
        return lambda z: 0.5 + (z / sqrt(3) / (1 + z**2 / 3) + np.arctan(z / sqrt(3))) / pi
    if name == "laplace":
        return _laplace
    if name == "gaussian":
        return lambda z: np.array([0.5 + erf(each / sqrt(2)) / 2 for each in z])
    rate = np.exp(-float(sigma or 0) * _NODES)
    return lambda z: (_laplace(z[:, None] * rate) * _WEIGHTS).sum(axis=1)


def _laplace(z):
    tail = np.exp(-np.abs(z)) / 2
    return np.where(z < 0, tail, 1 - tail)


def _integrated(log_density):
    """The integral of a density, by the midpoint rule in ln |z| from e^−40 to e^60."""
    step = 1e-3
    middles = np.arange(-40, 60, step) + step / 2
    z = np.exp(middles)
    half = np.cumsum(np.exp(log_density(z)) * z * step)
    half *= 0.5 / half[-1]
    return lambda value: 0.5 + np.sign(value) * np.interp(np.log(np.abs(value) + 1e-17), middles + step / 2, half)
