"""A node's noisy sums for campaigns with the sensitivity ``smooth`` (``protocol.nodes.smooth`` has the formulas).

Classes are disjoint parts of the records, and a change of features touches one, so ε' of a vector serves all classes.
Mean and sum of squares follow from the noisy sum and the noisy variance, which is post-processing. A missing number
counts as u = 0. Values are rounded to a public grid of 4097 points before the variance is taken.

Source: Nissim, Raskhodnikova, Smith (2007); Bun, Steinke (2019); docs/decisions/0077.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from edge_sdk.node.value_counts import CELLS, GRID_BITS, ValueCounts, global_sensitivity, smooth_sensitivity
from protocol import SCALE
from protocol.mechanisms.noise import discrete_laplace
from protocol.nodes.smooth import calibration, least_records, variance_of_sums
from protocol.nodes.terms import SMOOTH, ranges, released_vectors, sensitivity, shares
from protocol.noise.rounding import rounded
from protocol.questions import MOMENT, SQUARE
from protocol.stream import Stream
from protocol.sums.vectors import Vector, rate, with_noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.documents.campaign import Campaign

NOISE_TAG = b"hearsay/1/node smooth noise"
"""Tag of the stream of a summary's noise. The vectors are perturbed in their order, each from its first number on."""
GRID_OF_NOISE = 1 << 30
"""A noisy variance is rounded to this part of the global sensitivity."""


def smooth_sums(
    campaign: Campaign, exact: Sequence[int], counts: Mapping[int, Sequence[int]], epsilon_micro: int, seed: bytes
) -> tuple[int, ...]:
    """The numbers of a summary with noise for the smooth sensitivity, clipped to the campaign's public ranges.

    Args:
        campaign: a campaign for nodes with the sensitivity ``smooth``.
        exact: shape (M,), the exact sums.
        counts: numeric feature → shape (k·CELLS,), number of records at each grid point of u, class by class.
        epsilon_micro: ε of the summary in millionths.
        seed: 32 fresh random bytes, used for nothing else.

    Returns:
        M integers.
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
    """Noisy sums of squares of one number in all k classes, in units of 1/S.

    Args:
        counts: shape (k·CELLS,), number of records at each grid point, class by class.
        exact: shape (k,), the exact Σ⌊u²/S⌋.
        sums: shape (k,), the noisy sums of u.
        share: ε' in millionths.
        stream: the randomness; its position advances.
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
    """The variance of at least two values of u with noise for its smooth sensitivity, in units of u².

    Args:
        data: the values on the grid.
        share: ε' in millionths.
        stream: the randomness; its position advances.
    """
    noise = calibration(share)
    grid = global_sensitivity(data.n, data.width) / GRID_OF_NOISE
    scale = noise.multiplier * smooth_sensitivity(data, noise.beta).value
    steps = rounded(data.variance() / grid, scale / grid, noise.law.draw(stream))
    return steps * grid * (1 << 2 * GRID_BITS)
