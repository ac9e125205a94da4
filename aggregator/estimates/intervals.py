"""95 % intervals for the estimates of one question: one function per family of mechanisms; and tails of heavy noise.

κ₀ is the excess kurtosis of noise: 3 for a Laplace noise, 3/N for the sum of N equal ones, 0 for normal noise; κ that
of an error of noise plus normal sampling error.
"""

from __future__ import annotations

from math import erfc, exp, log, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Z95, Law, noise_law, sign_size
from protocol.documents.memory_terms import Remembered
from protocol.errors import InputError
from protocol.mechanisms import FrequencyMechanism, Mechanism
from protocol.mechanisms.by_family import ByFamily
from protocol.mechanisms.numeric import CoinMechanism, NumericMechanism
from protocol.mechanisms.she import SummedHistogram

_LAPLACE = 3.0
_LEAST_SHARE = 0.03
"""If Laplace noise has less than this share of the variance, the tail is that of normal noise."""
_MOST_SHARE = 0.999


class Interval(NamedTuple):
    """Lower and upper ends, float64 of one shape: of n times the shares or means, n answers; else of shares."""

    low: Floats
    high: Floats

    def between(self, least: float, most: float) -> Interval:
        """Return the interval clipped to the possible values [``least``, ``most``], but never shrunk to a point.

        With middle x and half width h, an x below ``least`` first moves the upper end up to x + √(h² + (x − least)²),
        an x above ``most`` the lower end down: each value is compared with the possible one that fits best.
        """
        with np.errstate(invalid="ignore"):  # an infinite interval has no middle, and stays as it is
            middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
            low = np.where(middle > most, middle - np.hypot(half, middle - most), self.low)
            high = np.where(middle < least, middle + np.hypot(half, middle - least), self.high)
        return Interval(np.clip(low, least, most), np.clip(high, least, most))


def normal_interval(estimate: Floats, sd: Floats) -> Interval:
    """Return the intervals estimate ∓ 1.96·sd, for nearly normal estimates such as sums of many noises."""
    return Interval(estimate - Z95 * sd, estimate + Z95 * sd)


@ByFamily
def count_interval(mechanism: Mechanism, n: int, estimate: Floats, dependence: Floats | float = 1.0) -> Interval | None:
    """Return intervals from the distribution of one question's counts. Run by the aggregator.

    ``n`` ≥ 1; ``estimate``: shape (K,) float64, of :func:`aggregator.estimates.debias.debias`; ``dependence``: D, the
    sampling variance in multiples of that of n different devices. The intervals are for n times the shares or means;
    None if the counts have no simple distribution. Raises InputError ``mechanism_incomplete``: no interval is
    registered.
    """
    del n, estimate, dependence
    raise InputError("mechanism_incomplete", f"there is no interval for answers of '{mechanism.name}'")


@count_interval.register(NumericMechanism)
def no_score_interval(
    mechanism: NumericMechanism, n: int, estimate: Floats, dependence: Floats | float = 1.0
) -> Interval | None:
    """Return None for ``piecewise``, ``hybrid`` and ``laplace``: :func:`normal_interval` suits sums of many noises."""
    del mechanism, n, estimate, dependence
    return None


@count_interval.register(FrequencyMechanism)
def pure_interval(
    mechanism: FrequencyMechanism, n: int, estimate: Floats, dependence: Floats | float = 1.0
) -> Interval:
    """Return 95 % score intervals for pure protocols: Wilson's intervals if ``dependence`` is 1.

    An answer of a random device supports value i of share f with probability λ = q + f(p − q), p and q the mechanism's.
    With ``dependence`` 1 the interval contains f with probability 0.93 to 0.97 if n ≥ 50 and nλ, n(1 − λ) ≥ 10; 0.91 to
    0.985 if n ≥ 20 and nλ, n(1 − λ) ≥ 1; else at least 0.82 (n ≥ 2). The estimate ∓ 1.96·sd has 0.6 or less in some
    cases.

    Source: Wilson, JASA 22 (1927), 209-212.
    """
    found = score_interval(estimate / n, n, Law.pure(mechanism.p, mechanism.q), dependence)
    return Interval(n * found.low, n * found.high)


@count_interval.register(SummedHistogram)
@count_interval.register(Remembered)
def noise_interval(mechanism: Mechanism, n: int, estimate: Floats, dependence: Floats | float = 1.0) -> Interval:
    """Return score intervals by the noise law; outside [0, n] the variance is that of the noise alone.

    They are for ``she``, and for reports of kept answers, whose counts are not binomial.
    """
    law = noise_law(mechanism)
    assert law is not None
    found = score_interval(estimate / n, n, law, dependence, is_binomial=False)
    return Interval(n * found.low, n * found.high)


@count_interval.register(CoinMechanism)
def sign_interval(mechanism: CoinMechanism, n: int, estimate: Floats, dependence: Floats | float = 1.0) -> Interval:
    """Return score intervals for ``bit``, ``bits`` and ``duchi``, as for a pure protocol.

    With m the mean of the devices' numbers, f = (1 + m)/2 takes the place of the share: an answer is 1 with probability
    ½ + m/(2B) = q + f(p − q), p = ½ + 1/(2B), q = 1 − p, B :func:`aggregator.estimates.debias.sign_size`.
    """
    size = sign_size(mechanism)
    gain = 1 / (2 * size)
    found = score_interval((1 + estimate / n) / 2, n, Law.pure(1 / 2 + gain, 1 / 2 - gain), dependence)
    return Interval(n * (2 * found.low - 1), n * (2 * found.high - 1))


def score_interval(
    share: Floats, n: float, law: Law, dependence: Floats | float = 1.0, *, is_binomial: bool = True, z: float = Z95
) -> Interval:
    """Return the score interval: all shares f that a score test does not reject, (f̂ − f)² ≤ z² V(f).

        V(f) = [φ(f) + D f(1 − f)]/n        φ(f) = φ₀ + f(φ₁ − φ₀), the noise variance of one answer

    The condition is a quadratic inequality in f. Because V is taken at the tested f and not at f̂, the coverage also
    holds if f̂ is 0 and few devices answered many times. Outside [0, 1] D has no meaning: the inequality is also solved
    with D limited to 1 (to 0 if the counts are not binomial), and the result is the smallest interval with both
    solutions.

    Args:
        share: f̂, the estimated shares, float64 of any shape.
        n: number of answers.
        law: noise variance of one answer: φ₀ at share 0, φ₁ at share 1.
        dependence: D of :func:`count_interval`, float, or float64 of a shape that broadcasts with ``share``.
        is_binomial: whether the counts are binomial at D = 1.
        z: quantile of the normal distribution that the test compares with.
    """
    beyond = np.minimum(dependence, 1.0) if is_binomial else 0.0
    ends = [_roots(share, n, law, scatter, z) for scatter in (np.asarray(dependence), np.asarray(beyond))]
    return Interval(np.minimum(ends[0].low, ends[1].low), np.maximum(ends[0].high, ends[1].high))


def _roots(share: Floats, n: float, law: Law, scatter: Floats, z: float) -> Interval:
    """Return lowest and highest share f with (f̂ − f)² ≤ z² V(f); f̂: ``share``, V: see :func:`score_interval`."""
    k = z**2 / n
    square = 1 + k * scatter
    middle = (share + k * (law.at_one - law.at_zero + scatter) / 2) / square
    inside = middle**2 - (share**2 - k * law.at_zero) / square
    half = np.sqrt(np.maximum(inside, 0))
    return Interval(np.where(inside < 0, np.inf, middle - half), np.where(inside < 0, -np.inf, middle + half))


def relative_kurtosis(kurtosis: float, noise: Floats, sampling: Floats) -> Floats:
    """Return the excess kurtosis of errors that are noise plus normal sampling error: shape (K,) float64.

        κ = κ₀ (noise/(noise + sampling))²      ``kurtosis``: κ₀; ``noise``, ``sampling``: variances

    Noise of infinite variance counts as the whole error.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(1 / (1 + sampling / noise))
    return np.asarray(kurtosis * share**2, np.float64)


def quantile95(kurtosis: Floats) -> Floats:
    """Return the 0.975 quantile of an error in standard deviations: z + (z³ − 3z) κ/24 (Cornish-Fisher), z = 1.96."""
    return Z95 + (Z95**3 - 3 * Z95) * kurtosis / 24


def two_sided_tail(size: float, kurtosis: float) -> float:
    """Return P(|X| > t) for an error X of variance 1 and excess kurtosis κ: one Laplace noise plus normal noise.

        P(X > t) = Φ(−t/σ) + ½ e^{σ²/2b²} [e^{−t/b} Φ(t/σ − σ/b) − e^{t/b} Φ(−t/σ − σ/b)]

    t: ``size`` ≥ 0; σ²: variance of the normal noise; b: scale of the Laplace noise, whose share of the variance is
    √(κ/3), κ at most 3. For the sum of several Laplace noises it is an upper bound at large t.
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
    """Return Φ(x), the normal distribution function."""
    return erfc(-x / sqrt(2)) / 2
