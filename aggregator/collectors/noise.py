"""The noise that each of the two collectors adds to its half of the sums, and what it costs.

With Q blocks (features) a changed record moves two cells of each block by one: L1 = 2Q, L2² = 2Q. Each collector adds
its own noise to every cell, enough for the whole ε, so that one honest collector suffices. Discrete Laplace noise has
the rate ⌊ε/2Q⌋. Discrete Gaussian noise has the least integer as variance for which a bound of δ is at most the stated.

Source: docs/math.md, section 9; Canonne, Kamath, Steinke (2020) for both kinds of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, isqrt

from aggregator.curator.concentrated import rho_within
from aggregator.curator.sampling import discrete_gaussian
from protocol.documents.campaign import Campaign
from protocol.documents.shared_terms import GAUSSIAN, LAPLACE, cell_micro
from protocol.epsilon import MICRO
from protocol.mechanisms.noise import discrete_laplace
from protocol.noise.rational_bounds import exp_above, exp_below, root_above, round_up
from protocol.noise.sums import laplace_variance
from protocol.shared.report import terms_of
from protocol.stream import Stream

TAG = b"hearsay/1/shared-noise"
COLLECTORS = 2
_PICO = 10**12
_DIGITS = Context(prec=50)
_LEAST = Decimal(10) ** -45
_MARGIN = Fraction(1, 10**30)
"""More than all rounding errors and the terms that are left out, relative to a tail."""
_FAR = Fraction(80)
_TWO_PI = Fraction(31415926535897932, 5 * 10**15)
"""2π, rounded down."""
_TWO_PI_SQUARE = Fraction(197392088, 10**7)
"""2π², rounded down."""


@lru_cache(maxsize=256)
def gaussian_variance(blocks: int, epsilon_micro: int, delta_pico: int) -> int:
    """Return σ², the least integer for which noise of this variance in every cell gives (ε, δ), by one of two bounds.

    One is Q/σ² ≤ ρ, the ρ that gives (ε, δ); Q is the number of blocks. The other is :func:`delta_above`, which is near
    the exact δ and saves a tenth to a fifth of the variance.
    """
    epsilon, delta = Fraction(epsilon_micro, MICRO), Fraction(delta_pico, _PICO)
    low, high = 0, ceil(blocks / rho_within(epsilon, delta))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if delta_above(2 * blocks, middle, epsilon) <= delta else (middle, high)
    return high


def delta_above(changed: int, variance: int, epsilon: Fraction) -> Fraction:
    """Return an upper bound of the δ at ε of discrete Gaussian noise, if n counts change by one; 1 if it finds none.

    Only the sum S of the noise of these counts matters: δ = P(S > σ²ε − n/2) − e^ε·P(S > σ²ε + n/2). S is discrete
    Gaussian of variance nσ², but for a factor between 1 − η and 1 + η, where η is below 10^−7 for σ² ≥ n ≤ 10.
    Of the two tails, which are convex, one term in h is computed; the others are bounded by a chord, or by the middle.

    Args:
        changed: n, the number of counts that change by one.
        variance: σ², of each count's noise.
        epsilon: ε.

    Source: docs/math.md, section 9; Canonne, Kamath, Steinke (2020), theorem 7, for one count.
    """
    square, first = changed * variance, floor(variance * epsilon - Fraction(changed, 2)) + 1
    dual = round_up(exp_above(-min(_TWO_PI_SQUARE * variance / changed, _FAR)))
    if first < 0 or first * first < square or 4 * changed * dual > 1:
        return Fraction(1)
    # (1 + x)/(1 − x) ≤ e^3x for x ≤ 1/4.
    eta = round_up(exp_above(3 * dual * (changed - 1)) - 1 + _MARGIN)
    if eta > Fraction(1, 2):
        return Fraction(1)
    stride = 2 * (isqrt(square) // 800) + 1
    begin, terms = _tail(square, first, stride)
    upper = begin * (stride + 1) / 2 + stride * (terms - begin)
    lower = stride * _tail(square, first + changed + stride // 2, stride)[1]
    # √(2πs²) ≤ Σ e^(−k²/2s²) ≤ (1 + η)·√(2πs²).
    upper, lower = upper * (1 + eta) / (1 - eta), lower * (1 - eta) / (1 + eta) ** 2
    return max(upper - exp_below(epsilon) * lower, Fraction(0)) * root_above(1 / (_TWO_PI * square))


def _tail(square: int, start: int, stride: int) -> tuple[Fraction, Fraction]:
    """Return e^(−k²/2s²) at k = ``start``, and its sum over k = start, start + h, …, within 10^−35 of their size."""
    unit = Decimal(2 * square)
    term = begin = total = _DIGITS.exp(-Decimal(start * start) / unit)
    ratio = _DIGITS.exp(-Decimal(2 * start * stride + stride * stride) / unit)
    turn = _DIGITS.exp(-Decimal(2 * stride * stride) / unit)
    least = begin * _LEAST
    while term > least:
        term = _DIGITS.multiply(term, ratio)
        ratio = _DIGITS.multiply(ratio, turn)
        total = _DIGITS.add(total, term)
    return Fraction(begin), Fraction(total)


def cell_variance(noise: str, blocks: int, epsilon_micro: int, delta_pico: int) -> float:
    """Return the variance of one collector's noise in one cell."""
    if noise == GAUSSIAN:
        return float(gaussian_variance(blocks, epsilon_micro, delta_pico))
    return laplace_variance(Fraction(epsilon_micro // (2 * blocks), MICRO))


def better_noise(blocks: int, epsilon_micro: int, delta_pico: int) -> str:
    """Return the kind of noise with the smaller variance; Laplace noise without a δ, and if both are equal."""
    if not delta_pico:
        return LAPLACE
    return min((LAPLACE, GAUSSIAN), key=lambda kind: cell_variance(kind, blocks, epsilon_micro, delta_pico))


def variance_of(campaign: Campaign) -> float:
    """Return the variance of both collectors' noise together in one cell of a shared campaign."""
    terms = terms_of(campaign)
    blocks = len(campaign.blocks)
    return COLLECTORS * cell_variance(terms.noise, blocks, campaign.epsilon_micro, terms.delta_pico)


def kurtosis_of(campaign: Campaign) -> float:
    """Return the excess kurtosis of both collectors' noise together in one cell of a shared campaign."""
    return kurtosis(terms_of(campaign).noise, variance_of(campaign) / COLLECTORS)


def kurtosis(noise: str, variance: float) -> float:
    """Return the excess kurtosis of the sum of both collectors' noise, each of this variance v.

    For one Laplace noise the fourth cumulant is 3v² + v; Gaussian noise is taken to have none.
    """
    return 0.0 if noise == GAUSSIAN else (3 * variance**2 + variance) / (COLLECTORS * variance**2)


def noisy(campaign: Campaign, sums: Sequence[int], seed: bytes) -> list[int]:
    """Return one collector's sums with its noise. Each number is an integer, not reduced modulo p.

    Args:
        campaign: a shared campaign.
        sums: the collector's share of the sums over the accepted reports.
        seed: 32 fresh random bytes, used for nothing else.
    """
    terms, stream = terms_of(campaign), Stream(seed, TAG)
    if terms.noise == GAUSSIAN:
        variance = gaussian_variance(len(campaign.blocks), campaign.epsilon_micro, terms.delta_pico)
        return [each + discrete_gaussian(stream, variance) for each in sums]
    s, t = Fraction(cell_micro(len(campaign.blocks), campaign.epsilon_micro), MICRO).as_integer_ratio()
    return [each + discrete_laplace(stream, s, t) for each in sums]
