"""95 % intervals for ratios of estimates, by Fieller's theorem with the variance of the tested ratio.

Nothing is divided by an estimate, so the set holds the true ratio as often as stated, also if the divisor is small or
negative. Source: Fieller, J. Roy. Stat. Soc. B 16 (1954), 175-185; docs/math.md, section 1; decision 57.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Z95, Law, Pairs

Mask = NDArray[np.bool_]


class Ratio(NamedTuple):
    """Intervals for ratios, as wide as possible where not ``determined``: the set excludes neither end of the range."""

    low: Floats
    high: Floats
    determined: Mask


class Variance(NamedTuple):
    """Variance V(ρ) = ``constant`` + ``linear`` ρ + ``square`` ρ² of x̂ − ρ ŷ; x̂, ŷ: numerator and denominator."""

    constant: Floats | float
    linear: Floats | float
    square: Floats | float

    def at(self, ratio: float) -> Floats:
        """Return V at one ratio, float64 of the broadcast shape."""
        return np.asarray(self.constant + ratio * (self.linear + ratio * self.square), np.float64)


class Others(NamedTuple):
    """Variances of a class's share y, as all questions but that of a feature's own table estimate it.

    ``noise``: variance of this estimate's noise. ``scatter``: its sampling variance; ``joint``: its sampling covariance
    with the estimate by the table's own question; both in multiples of y(1 − y).
    """

    noise: Floats | float
    scatter: Floats | float
    joint: Floats | float


ALONE = Others(0.0, 0.0, 0.0)
"""The value if no other question estimates the share of the column."""


def cell_variance(
    share: Floats,
    n: Floats | float,
    law: Law,
    pairs: Pairs,
    members: int,
    dependence: Floats | float,
    own: float = 1.0,
    others: Others = ALONE,
) -> Variance:
    """Return the variance of x̂ − ρ ŷ, where x̂ is the share of one cell of a table and ŷ the share of its column.

        ŷ = β·(sum over all cells of the column) + (1 − β)·(share by other questions)
        V(ρ) = [φ₀ W₂ + γ₀ (W₁² − W₂) + κ M₂ + 2 (γ₁ − γ₀) W₁ M₁ + D (M₂ − M₁²)]/n + (1 − β)² ρ² [ν + y(1 − y)(S − 2J)]
        κ = φ₁ − φ₀ − 2(γ₁ − γ₀)   W₁ = 1 − sβρ   W₂ = 1 − 2βρ + sβ²ρ²   M₁ = (1 − β) yρ   M₂ = yρ − β(2 − β) yρ²

    W₁, W₂ are sum and sum of squares of the cells' weights, M₁, M₂ mean and mean square of the weight of what a device
    holds; φ₀, φ₁ the law's variances, γ₀, γ₁ the covariances; ν, S, J noise, scatter and joint of ``others``.

    Args:
        share: y, the column's share, float64 of any shape; clipped to [0, 1].
        n: number of answers, at least 1; float, or float64 of a shape that broadcasts with ``share``.
        law, pairs: noise of one answer.
        members: s, number of cells in the column.
        dependence: D, the sampling variance in multiples of that of n different devices.
        own: β, the weight of the table's own cells in ŷ.
        others: variances of the estimate of ŷ by other questions; not used if ``own`` is 1.
    """
    y, apart, s, rest = np.clip(share, 0, 1), pairs.at_zero, members, 1 - own
    tilt = pairs.at_one - apart
    between = (law.at_one - law.at_zero - 2 * tilt + dependence) * y
    square = (
        own**2 * s * (law.at_zero + apart * (s - 1))
        - own * (2 - own) * between
        - rest * y * (2 * tilt * s * own + rest * dependence * y)
    )
    return Variance(
        law.at_zero / n,
        (-2 * own * (law.at_zero + apart * (s - 1)) + between + 2 * rest * tilt * y) / n,
        square / n + rest**2 * (others.noise + y * (1 - y) * (others.scatter - 2 * others.joint)),
    )


def own_weight(variance: Callable[[float], Variance]) -> float:
    """Return β of :func:`cell_variance` in [0, 1] with the smallest variance at ρ = 1/2, the middle ratio.

    ``variance``: from β to V, for one column, at shares that do not depend on the answers; so ŷ stays unbiased.
    """
    at = [float(variance(own).at(0.5).max()) for own in (0.0, 0.5, 1.0)]
    bend = 2 * (at[0] - 2 * at[1] + at[2])
    if bend <= 0:
        return 1.0 if at[2] <= at[0] else 0.0
    return min(max((bend + at[0] - at[2]) / (2 * bend), 0.0), 1.0)


def ratio_interval(
    numerator: Floats,
    denominator: Floats,
    variance: Variance,
    least: float = 0.0,
    most: float = 1.0,
    z: Floats | float = Z95,
) -> Ratio:
    """Return the ratios ρ in [``least``, ``most``] that a test does not reject, from estimates x̂ and ŷ.

        (x̂ − ρ ŷ)²/V(ρ) ≤ z² + m,   V(ρ) = v₀ + v₁ ρ + v₂ ρ², the variance of x̂ − ρ ŷ if ρ is true

    m is 0 if x̂/ŷ is possible, else the smaller of the left side at ρ = least and ρ = most: without it, an impossible
    estimate would leave one point, "0 to 0", which looks certain where the reports only do not fit. The ratio is not
    determined if both ends belong to the set; if one does, the interval is one-sided.

    Args:
        numerator, denominator: x̂ and ŷ, float64 of shapes that broadcast to the result's.
        variance: V(ρ), correct for every possible ratio.
        least, most: range of the possible ratios.
        z: quantile of the level, in standard deviations; float64 of a shape that broadcasts.
    """
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    k = z**2 + _least_misfit(numerator, denominator, variance, least, most)
    square = denominator**2 - k * np.asarray(variance.square)
    linear = -2 * numerator * denominator - k * np.asarray(variance.linear)
    constant = numerator**2 - k * np.asarray(variance.constant)
    square, linear, constant = np.broadcast_arrays(square, linear, constant)
    excess = [constant + end * (linear + end * square) for end in (least, most)]
    holds_least, holds_most = (value <= 0 for value in excess)
    first, second = _roots(square, linear, constant)
    inside = [(least <= root) & (root <= most) for root in (first, second)]
    # With one end in the set, exactly one root is possible. Rounding may place it just outside.
    single = np.clip(np.where(inside[0], first, np.where(inside[1], second, np.nan)), least, most)
    nearer = np.where(_is_nearer(numerator, denominator, variance, least, most), least, most)
    low = np.where(inside[0] & inside[1], first, nearer)
    high = np.where(inside[0] & inside[1], second, nearer)
    low = np.where(holds_most, np.where(np.isnan(single), most, single), low)
    high = np.where(holds_least, np.where(np.isnan(single), least, single), high)
    low, high = np.where(holds_least, least, low), np.where(holds_most, most, high)
    return Ratio(low, high, ~(holds_least & holds_most))


def _least_misfit(numerator: Floats, denominator: Floats, variance: Variance, least: float, most: float) -> Floats:
    """Return 0 if x̂/ŷ is a possible ratio, else the lesser (x̂ − ρŷ)²/V(ρ) at ρ = ``least`` and ρ = ``most``."""
    ends = [numerator - end * denominator for end in (least, most)]
    is_outside = ends[0] * ends[1] > 0  # x̂ − ρŷ has one sign from least to most, so no possible ratio fits exactly
    with np.errstate(divide="ignore", invalid="ignore"):
        misfits = [gap**2 / np.maximum(variance.at(end), 0) for gap, end in zip(ends, (least, most), strict=True)]
    found = np.minimum(*misfits)
    return np.where(is_outside & np.isfinite(found), found, 0.0)


def _roots(square: Floats, linear: Floats, constant: Floats) -> tuple[Floats, Floats]:
    """Return the roots of square·ρ² + linear·ρ + constant, the smaller one first; NaN if they are not real."""
    inside = linear**2 - 4 * square * constant
    with np.errstate(divide="ignore", invalid="ignore"):
        # This form does not subtract nearly equal numbers.
        half = -(linear + np.where(linear < 0, -1.0, 1.0) * np.sqrt(np.where(inside < 0, np.nan, inside))) / 2
        one, other = half / square, constant / half
    one = np.where(np.isfinite(one), one, np.nan)
    other = np.where(np.isfinite(other), other, np.nan)
    return np.fmin(one, other), np.fmax(one, other)


def _is_nearer(numerator: Floats, denominator: Floats, variance: Variance, least: float, most: float) -> Mask:
    """Return whether ``least`` fits as well as ``most`` by (x̂ − ρ ŷ)²/V, compared without a division; V may be 0."""
    squares = [(numerator - end * denominator) ** 2 for end in (least, most)]
    scales = [np.maximum(variance.at(end), 0) for end in (least, most)]
    exact = (scales[0] == 0) & (scales[1] == 0)
    with np.errstate(invalid="ignore"):  # 0·∞ where the noise has no variance: both ends are in the set then.
        first, second = squares[0] * np.where(exact, 1.0, scales[1]), squares[1] * np.where(exact, 1.0, scales[0])
    return np.asarray(first <= second)
