"""Make a node's noisy sums for campaigns with sensitivity ``smooth`` (formulas: ``protocol.nodes.terms``).

A number scaled to integers from −S to S, S = 65536, is called u; a missing one counts as u = 0. Values are rounded to a
public grid of 4097 points. Two data sets are neighbours if they have equally many values, and one value differs.
Source: docs/smooth.md; Nissim, Raskhodnikova, Smith (2007); Bun, Steinke (2019); decision 77.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil, exp, log
from typing import TYPE_CHECKING

from protocol import SCALE
from protocol.mechanisms.noise import discrete_laplace
from protocol.nodes.terms import (
    SMOOTH,
    calibration,
    least_records,
    ranges,
    released_vectors,
    sensitivity,
    shares,
    variance_of_sums,
)
from protocol.noise.law import rounded
from protocol.noise.rational_bounds import SmoothSensitivity, inner_beta, smooth_bound
from protocol.noise.sums import Vector, rate, with_noise
from protocol.questions import MOMENT, SQUARE
from protocol.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from protocol.documents.campaign import Campaign

GRID_BITS = 5
"""A scaled number u is counted at the grid point of the nearest multiple of 2^GRID_BITS."""
CELLS = (2 * SCALE >> GRID_BITS) + 1
"""Number of grid points from −S to S, S = 65536: 4097."""


def cell_of(u: int) -> int:
    """Return the grid point 0 … CELLS − 1 nearest to a scaled number u in [−S, S]; of two, the upper one."""
    return (u + SCALE + (1 << GRID_BITS - 1)) >> GRID_BITS


class ValueCounts:
    """Values on a grid of points 0 … W, stored as counts. A value at grid point j is the integer j.

    Attributes:
        n: number of the values.
        width: W, the largest grid point.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        """Add up ``counts``: shape (W + 1,), W ≥ 1, the number of values at each grid point."""
        self.width = len(counts) - 1
        self._counts = list(accumulate(counts))
        self._sums = list(accumulate(position * count for position, count in enumerate(counts)))
        self._squares = sum(position * position * count for position, count in enumerate(counts))
        self.n = self._counts[-1]
        self._mirrored = counts[::-1]

    def sum_of_smallest(self, count: int) -> int:
        """Return the sum of the ``count`` smallest values, 0 ≤ ``count`` ≤ n."""
        if count == self.n:
            return self._sums[-1]
        position = bisect_right(self._counts, count)
        before, total = (self._counts[position - 1], self._sums[position - 1]) if position else (0, 0)
        return total + (count - before) * position

    def ordered(self, position: int) -> int:
        """Return the value at ``position`` 0 … n − 1 of the sorted values."""
        return bisect_right(self._counts, position)

    def at_most(self, value: int) -> int:
        """Return the number of values ≤ ``value``, for ``value`` ≥ 0."""
        return self._counts[min(value, self.width)]

    def variance(self) -> Fraction:
        """Return the exact population variance (divisor n); 0 for fewer than two values."""
        if self.n < 2:
            return Fraction(0)
        total = self._sums[-1]
        return Fraction(self.n * self._squares - total * total, self.n**2)

    def mirrored(self) -> ValueCounts:
        """Return the values mirrored at the middle of the grid: v becomes W − v."""
        return ValueCounts(self._mirrored)


def global_sensitivity(n: int, width: int) -> Fraction:
    """Return (n − 1)/n²·W²: how much one changed value can change the variance of n ≥ 2 values in 0 … W (``width``)."""
    return Fraction((n - 1) * width * width, n * n)


def smooth_sensitivity(data: ValueCounts, beta: Fraction) -> SmoothSensitivity:
    """Return the smooth sensitivity of the variance of at least two values: the largest e^(−βt)·A(t).

    A(t) is how much one changed value can change the variance after t values were changed. It grows with t
    (:class:`_Changes`), so e^(−βt)·A(t) is at most e^(−βt₁)·A(t₂) for t₁ ≤ t ≤ t₂. Intervals of t whose bound is not
    above the largest value found so far are left out. No t above 1 + ln 4/β is needed, since A(1) is at least a quarter
    of the global sensitivity. Raises InputError ``beta_invalid``: β is outside 2⁻³⁰ … 64.
    """
    inner = float(inner_beta(beta))
    changes = _Changes(data)
    last = min(data.n, ceil(1 + log(4) / inner))
    distance = max((0, 1, last), key=lambda t: exp(-inner * t) * float(changes.at(t)))
    best = exp(-inner * distance) * float(changes.at(distance))
    waiting = [(-exp(-inner * 0) * float(changes.at(last)), 0, last)]
    while waiting and -waiting[0][0] > best:
        _, first, end = heappop(waiting)
        middle = (first + end) // 2
        found = exp(-inner * middle) * float(changes.at(middle))
        if found > best:
            best, distance = found, middle
        for low, high in ((first, middle - 1), (middle + 1, end)):
            if low <= high and (bound := exp(-inner * low) * float(changes.at(high))) > best:
                heappush(waiting, (-bound, low, high))
    n = data.n
    largest = Fraction(changes.at(distance), n**2 * (n - 1))
    return smooth_bound(largest, distance, beta, global_sensitivity(n, data.width))


class _Changes:
    """Computes A(t)·n²·(n − 1) as exact integers. A(t): how much one more changed value can change the variance.

    Of n values from 0 to W, t were changed before. P(c): the sum of the c smallest values; x_(n): the largest value.
    A(t)·n²·(n − 1) is the largest candidate for the values and for their mirror image. Candidates are (n − 1)² times

        (W − r)²             a replaced value moves from r to the upper bound; r = P(n−t)/(n−1), t ≥ 1
        (x_(n) − r)²         the largest value moves to r; r = P(n−1−t)/(n−1), t ≤ n−1
        (W−y)(W + y − 2r)    a kept value y, one of the n − t smallest, moves to the upper bound;
                             r = (P(n−t) − y)/(n−1), t ≤ n−1

    The largest candidate grows with t. For r falls. And the largest of the n − t smallest values, which is not kept at
    t + 1, gives as y less than the first candidate at t + 1, whose r is the same. The third candidate is a concave
    parabola in y with its vertex at (W + P(n−t))/(n+1), so the values next to the vertex are enough.
    """

    def __init__(self, data: ValueCounts) -> None:
        self._sides = (data, data.mirrored())
        self._known: dict[int, int] = {}

    def at(self, t: int) -> int:
        """Return A(t)·n²·(n − 1), 0 ≤ t ≤ n."""
        if t not in self._known:
            self._known[t] = max(candidate for side in self._sides for candidate in self._candidates(side, t))
        return self._known[t]

    @staticmethod
    def _candidates(data: ValueCounts, t: int) -> Iterator[int]:
        n, width, kept = data.n, data.width, data.n - t
        rest = data.sum_of_smallest(kept)
        if t >= 1:
            yield ((n - 1) * width - rest) ** 2
        if kept >= 1:
            yield ((n - 1) * data.ordered(n - 1) - data.sum_of_smallest(kept - 1)) ** 2
            above = data.at_most((width + rest) // (n + 1))
            for position in (above, above - 1):
                y = data.ordered(min(max(position, 0), kept - 1))
                yield (width - y) * (n - 1) * ((n - 1) * width - 2 * rest + (n + 1) * y)


NOISE_TAG = b"hearsay/1/node smooth noise"
"""Tag of the random stream for a summary's noise. Vectors get their noise in order, each from its first number on."""
GRID_OF_NOISE = 1 << 30
"""A noisy variance is rounded to multiples of the global sensitivity divided by this number."""


def smooth_sums(
    campaign: Campaign, exact: Sequence[int], counts: Mapping[int, Sequence[int]], epsilon_micro: int, seed: bytes
) -> tuple[int, ...]:
    """Return the M numbers of a summary, with noise by smooth sensitivity, clipped to the campaign's public ranges.

    Args:
        campaign: a campaign for nodes with the sensitivity ``smooth``.
        counts: numeric feature → shape (k·CELLS,), the number of records at each grid point of u, class by class.
        seed: 32 fresh random bytes, used for nothing else.
    """
    stream, place = Stream(seed, NOISE_TAG), 0
    sums: dict[int | None, tuple[int, ...]] = {}
    released: list[int] = []
    parts = zip(
        released_vectors(campaign), shares(campaign, epsilon_micro), ranges(campaign, epsilon_micro), strict=True
    )
    for subject, share, (low, high) in parts:
        values = tuple(exact[place : place + subject.size])
        if (subject.kind, subject.power) == (MOMENT, SQUARE):
            assert subject.feature is not None
            noisy = noisy_squares(counts[subject.feature], values, sums[subject.feature], share, stream)
        else:
            noisy = with_noise(Vector(subject, values, sensitivity(subject, SMOOTH), share), stream).values
        if subject.kind == MOMENT and subject.power == 1:
            sums[subject.feature] = noisy
        released += [min(max(number, low), high) for number in noisy]
        place += subject.size
    return tuple(released)


def noisy_squares(
    counts: Sequence[int], exact: Sequence[int], sums: Sequence[int], share: int, stream: Stream
) -> tuple[int, ...]:
    """Return noisy sums of squares of one feature in all k classes, in units of 1/S, S = 65536.

    Args:
        counts: shape (k·CELLS,), number of records at each grid point, class by class.
        exact: shape (k,), the exact Σ⌊u²/S⌋.
        sums: shape (k,), the noisy sums of the scaled number u.
        share: ε', the ε of this vector, in millionths.
    """
    variance, least = Fraction(variance_of_sums(share)), least_records(share)
    s, t = rate(share, SCALE).as_integer_ratio()
    found = []
    for of_class, (square, total) in enumerate(zip(exact, sums, strict=True)):
        data = ValueCounts(counts[of_class * CELLS : (of_class + 1) * CELLS])
        if data.n < least:
            found.append(square + discrete_laplace(stream, s, t))
        else:
            spread = noisy_variance(data, share, stream)
            found.append(round((data.n * spread + (total**2 - variance) / data.n) / SCALE))
    return tuple(found)


def noisy_variance(data: ValueCounts, share: int, stream: Stream) -> Fraction:
    """Return the noisy variance of two or more values of a scaled number u, in units of u².

    ``share``: its ε in millionths.
    """
    noise = calibration(share)
    grid = global_sensitivity(data.n, data.width) / GRID_OF_NOISE
    scale = noise.multiplier * smooth_sensitivity(data, noise.beta).value
    steps = rounded(data.variance() / grid, scale / grid, noise.law.draw(stream))
    return steps * grid * (1 << 2 * GRID_BITS)
