"""Smooth sensitivity of the trimmed mean and of the variance, computed fast, with proven bounds (docs/smooth.md).

In: n integers within public bounds. Out: the statistic as a fraction, and S ≥ S* = max over t of e^(−βt)·A(t), A(t) the
largest change by one more value once t values differ. Publish neither S nor the scale of the noise.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, log
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from aggregator.common.arrays import Floats, Integers
from protocol.errors import InputError
from protocol.noise.rational_bounds import FLOOR_BITS, SmoothSensitivity, inner_beta, smooth_bound

_LARGEST_SUM = 1 << 61


class BoundedValues:
    """n integers within public bounds, sorted. All functions of this module read such an object.

    Integers make every sum exact; real values are first rounded to a public grid. ``ordered``, (n,) int64, are the
    values minus ``low`` in increasing order.
    """

    __slots__ = ("_sums", "high", "low", "n", "ordered", "width")

    def __init__(self, values: ArrayLike, low: int, high: int) -> None:
        """Check, sort and add up integers. The bounds must be chosen without looking at the values.

        Raises InputError ``range_invalid``: bounds that are no integers or not in order, or n·(high − low) above 2⁶¹;
        ``values_invalid``: a value is no integer; ``outside_bounds``.
        """
        given = np.asarray(values)
        if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
            raise InputError("values_invalid", "values are integers in one dimension: round them to a grid first")
        if not (_is_whole(low) and _is_whole(high) and low < high):
            raise InputError("range_invalid", "bounds are two integers, the lower below the upper")
        if given.size and not (low <= int(given.min()) and int(given.max()) <= high):
            raise InputError("outside_bounds", "a value is outside the bounds: clip it, or take wider bounds")
        self.n, self.low, self.high, self.width = given.size, int(low), int(high), int(high) - int(low)
        if max(self.n, 1) * self.width > _LARGEST_SUM or max(abs(self.low), abs(self.high)) > _LARGEST_SUM:
            raise InputError("range_invalid", "n times the width of the bounds is above 2^61: use a coarser grid")
        self.ordered: Integers = np.sort(given.astype(np.int64) - self.low)
        self._sums: Integers = np.concatenate([[0], np.cumsum(self.ordered)]).astype(np.int64)

    def sum_of_smallest(self, count: Integers) -> Integers:
        """Return the sums of the ``count`` smallest values minus ``low``; ``count`` is ``(k,) int64`` in 0 … n."""
        found: Integers = self._sums[count]
        return found

    def mirrored(self) -> BoundedValues:
        """Return the same values, reflected at the middle of the bounds: v becomes low + high − v."""
        return BoundedValues(self.width - self.ordered, 0, self.width)


def trimmed_mean(data: BoundedValues, trim: int = 0) -> Fraction:
    """Return the exact mean without the ``trim`` smallest and largest values. Raises ``trim_invalid``."""
    _check_trim(data.n, trim)
    kept = data.ordered[trim : data.n - trim]
    return data.low + Fraction(int(kept.sum()), len(kept))


def variance(data: BoundedValues) -> Fraction:
    """Return the population variance (divisor n), exactly; ``class_too_small`` for fewer than two values."""
    _check_two(data.n)
    total = int(data.ordered.sum())
    return Fraction(data.n * _sum_of_squares(data.ordered) - total * total, data.n * data.n)


def global_sensitivity_of_mean(n: int, width: int, trim: int = 0) -> Fraction:
    """Return the largest change of the trimmed mean over all neighbours, (high − low)/(n − 2·trim): a public number."""
    _check_trim(n, trim)
    return Fraction(width, n - 2 * trim)


def global_sensitivity_of_variance(n: int, width: int) -> Fraction:
    """Return the largest change of the variance over all neighbours, (n − 1)/n²·(high − low)²: a public number."""
    _check_two(n)
    return Fraction((n - 1) * width * width, n * n)


def smooth_sensitivity_of_mean(data: BoundedValues, beta: Fraction, trim: int = 0) -> SmoothSensitivity:
    """Return the smooth sensitivity of :func:`trimmed_mean` with m = ``trim``, in O(n log n).

        A(t) = max over 0 ≤ l ≤ t+1 of (x_(n−m+1+t−l) − x_(m+1−l))/(n − 2m)

    with x_(i) = low for i < 1 and high for i > n. Raises InputError: the error of :func:`trimmed_mean`;
    ``beta_invalid``: β is outside 2⁻³⁰ … 64.
    """
    _check_trim(data.n, trim)
    inner = inner_beta(beta)
    difference, distance = _widest_pair(data, float(inner), trim)
    units = data.n - 2 * trim
    return smooth_bound(
        Fraction(difference, units), distance, beta, global_sensitivity_of_mean(data.n, data.width, trim)
    )


def smooth_sensitivity_of_variance(data: BoundedValues, beta: Fraction) -> SmoothSensitivity:
    """Return the smooth sensitivity of :func:`variance`, in O(n log n + (1/β) log n).

    The search needs no t above 1 + ln 4/β, since A(1) is at least a quarter of the global sensitivity. Raises
    InputError: the error of :func:`variance`; ``beta_invalid``: β is outside 2⁻³⁰ … 64.
    """
    _check_two(data.n)
    inner = float(inner_beta(beta))
    distances = np.arange(min(data.n, ceil(1 + log(4) / inner)) + 1, dtype=np.int64)
    factors = [_variance_factors(side, distances) for side in (data, data.mirrored())]
    floats = np.stack([pair[0].astype(np.float64) * pair[1] for side in factors for pair in side])
    weighted = floats * np.exp(-inner * distances)
    which, t = np.unravel_index(int(np.argmax(weighted)), weighted.shape)
    first, second = [pair for side in factors for pair in side][which]
    largest = Fraction(int(first[t]) * int(second[t]), data.n**2 * (data.n - 1))
    return smooth_bound(largest, int(t), beta, global_sensitivity_of_variance(data.n, data.width))


def _variance_factors(data: BoundedValues, distances: Integers) -> list[tuple[Integers, Integers]]:
    """Return three candidates for A(t)·n²·(n − 1), t in ``distances``, each as two factors; all ``(k,) int64``.

    A(t): how much one more changed value can change the variance of n values, of which t were changed. W: the width,
    P(c): the sum of the c smallest values, r: a mean of n − 1 values. The candidates are (n − 1)² times

        (W − r)²              a replaced value moves from r to the upper bound; r = P(n−t)/(n−1), t ≥ 1
        (x_(n) − r)²          the largest value moves to r;                     r = P(n−1−t)/(n−1), t ≤ n−1
        (W−y)(W + y − 2r)     a kept value y moves to the upper bound;          r = (P(n−t) − y)/(n−1), t ≤ n−1

    The third is a concave parabola in y with vertex (W + P(n−t))/(n+1), so only the values next to it are tried.
    """
    n, width, ordered = data.n, data.width, data.ordered
    kept = n - distances
    rest = data.sum_of_smallest(kept)
    moved = np.where(distances >= 1, (n - 1) * width - rest, 0)
    largest = np.where(kept >= 1, (n - 1) * ordered[-1] - data.sum_of_smallest(np.maximum(kept - 1, 0)), 0)
    above = np.searchsorted(ordered, (width + rest) // (n + 1), side="right")
    pairs = [(moved, moved), (largest, largest)]
    for position in (above, above - 1):
        y = ordered[np.clip(position, 0, np.maximum(kept - 1, 0))]
        gap = np.where(kept >= 1, width - y, 0)
        slope = np.maximum((n - 1) * width - 2 * rest + (n + 1) * y, 0)
        pairs.append((gap * (n - 1), slope))
    return pairs


class _Pairs(NamedTuple):
    """Pairs of values for the mean of n values without the m smallest and m largest, weighted by their distance t.

        F(a, b) = e^(−β(a + b − 1))·(upper[a] − lower[b]),   0 ≤ a, b ≤ K,  t = a + b − 1 ≥ 0

    ``upper`` rises: x_(n−m), x_(n−m+1), …, the upper bound; ``lower`` falls: x_(m+1), x_(m), …, the lower bound;
    ``weights``: e^(−βa). All have the shape (K + 1,). x_(i): the i-th smallest value.
    """

    upper: Integers
    lower: Integers
    weights: Floats

    @classmethod
    def of(cls, data: BoundedValues, beta: float, trim: int) -> _Pairs:
        """Return all pairs up to the distance beyond which the weight is too small to matter (:data:`FLOOR_BITS`)."""
        reach = min(trim + 1, ceil(FLOOR_BITS * log(2) / beta) + 1)
        upper = np.append(data.ordered[data.n - trim - 1 :], data.width)
        lower = np.append(data.ordered[trim::-1], 0)
        return cls(upper[: reach + 1], lower[: reach + 1], np.exp(-beta * np.arange(reach + 1)))

    def up_to(self, reach: int) -> _Pairs:
        return _Pairs(self.upper[: reach + 1], self.lower[: reach + 1], self.weights[: reach + 1])

    def weighted(self, a: Integers, b: Integers) -> Floats:
        """Return F(a, b)·e^(−β) for ``(k,) int64`` a and b; 0 for a = b = 0, which is no pair."""
        found: Floats = self.weights[a] * self.weights[b] * (self.upper[a] - self.lower[b])
        found[(a == 0) & (b == 0)] = 0
        return found

    def edges(self) -> tuple[Integers, Integers]:
        """Return the 7·(K + 1) pairs (a, b) with a or b in {0, 1, K}, and those with a = b."""
        every = np.arange(len(self.upper))
        fixed = [np.full(len(every), each) for each in (0, 1, len(every) - 1)]
        return np.concatenate([*fixed, *3 * [every], every]), np.concatenate([*3 * [every], *fixed, every])

    def partners(self) -> Integers:
        """Return for every a the b with the largest F(a, b), ``(K + 1,) int64``, in O(K log K).

        F(a, b)·F(a', b') ≤ F(a, b')·F(a', b) for a < a' and b < b', so the best b falls as a rises. The middle a is
        searched first; every further a only between the best b of the nearest smaller and larger a that were searched.
        """
        size = len(self.upper)
        best = np.zeros(size, dtype=np.int64)
        step = 1 << (size.bit_length() - 1)
        while step:
            rows = np.arange(step - 1, size, 2 * step)
            highest = np.where(rows >= step, best[rows - step], size - 1)
            lowest = np.where(rows + step < size, best[np.minimum(rows + step, size - 1)], 0)
            best[rows] = self._best_within(rows, lowest, highest)
            step //= 2
        return best

    def _best_within(self, rows: Integers, lowest: Integers, highest: Integers) -> Integers:
        """Return for each a of ``rows`` the b in ``lowest`` … ``highest`` of largest F(a, b), all ``(k,) int64``."""
        lengths = highest - lowest + 1
        starts = np.cumsum(lengths) - lengths
        b = np.arange(lengths.sum()) + np.repeat(lowest - starts, lengths)
        values = self.weighted(np.repeat(rows, lengths), b)
        is_largest = np.flatnonzero(values == np.repeat(np.maximum.reduceat(values, starts), lengths))
        found: Integers = b[is_largest[np.searchsorted(is_largest, starts)]]
        return found


def _widest_pair(data: BoundedValues, beta: float, trim: int) -> tuple[int, int]:
    """Return upper[a] − lower[b] and t of the pair with the largest F(a, b), up to a tiny error (:class:`_Pairs`)."""
    pairs = _Pairs.of(data, beta, trim)
    a, b = pairs.edges()
    values = pairs.weighted(a, b)
    best = float(values.max())
    if best == 0:  # No pair within the reach has two different values.
        return 0, 0
    reach = ceil(log(data.width / best) / beta) + 1  # A pair with a larger F has e^(−β(a + b))·width > best.
    others = pairs.up_to(reach).partners()
    a = np.append(a[values.argmax()], np.arange(len(others)))
    b = np.append(b[values.argmax()], others)
    largest = int(pairs.weighted(a, b).argmax())
    return int(pairs.upper[a[largest]] - pairs.lower[b[largest]]), int(a[largest] + b[largest] - 1)


def _sum_of_squares(values: Integers) -> int:
    if values.size and int(values[-1]) ** 2 * values.size >= 1 << 63:
        return sum(value * value for value in values.tolist())
    return int(values @ values)


def _is_whole(number: object) -> bool:
    return isinstance(number, Integral)


def _check_trim(n: int, trim: int) -> None:
    if not (_is_whole(trim) and 0 <= trim <= (n - 1) // 2) or n < 1:
        raise InputError("trim_invalid", "trim is a whole number, and trimming leaves at least one value")


def _check_two(n: int) -> None:
    if n < 2:
        raise InputError("class_too_small", "a variance needs at least two values: leave the feature or the class out")
