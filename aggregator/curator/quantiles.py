"""Bins of equal frequency with differential privacy: edges drawn by the exponential mechanism, exactly.

The edges of a number are drawn level by level: first the middle edge, then the middle edge of either side, among the
records of that side, and so on (Kaplan, Schnapp, Stemmer 2022). The sides are disjoint parts of the records, so a level
costs what one of its draws costs. m edges have L = ⌈log₂(m + 1)⌉ levels, and each gets ε/L. Records without the number
take no part: they are in no side.

One draw chooses an integer e of a range that was drawn before. Of the records x of this range, a share j/b is to be
below e. An edge that misses by s(e) = |(b − j)·#{x < e} − j·#{x ≥ e}| is drawn with probability ∝ e^{−γ·min(s(e) − s⁎,
T)}, where s⁎ is the least s of the range. One record more changes s(e), and so min(s(e), s⁎ + T), by at most
Δ = max(j, b − j) at every e; so the draw costs 2γΔ. A replaced record is one record less in one side and one more in
perhaps another, and costs twice as much. All adjacencies but ``add-remove`` take Δ = 2·max(j, b − j).

The weights are integers, 2^B e^{−γk} with a relative error of at most η, which adds at most 5η to the cost; γ ≤ 1 is
chosen for ε − 10⁻²⁰, and η < 10⁻³⁰. Integers are drawn uniformly by rejection. No floating-point number takes part.

Source: McSherry, Talwar (FOCS 2007); Smith (STOC 2011); docs/math.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.curator.accounting import Cost, cost_of
from aggregator.curator.noise.whole_numbers import below
from protocol import SCALE
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.noise.rational_bounds import exp_below
from protocol.stream import Stream
from protocol.sums.adjacency import ADD_REMOVE

MAX_EDGES = 1023
_MARGIN = Fraction(1, 10**20)
"""Part of ε that covers the rounding of the weights."""
_BITS = 256
_DEEPEST = 80
"""γT: the least weight is e^−80 of the largest; its relative error is below 2^−140."""


class Draw(NamedTuple):
    """The distribution of one edge.

    Attributes:
        starts: shape (p,) int64: the first integer of each of p pieces of the range.
        lengths: shape (p,) int64: number of integers of each piece, at least 1.
        weights: p integers: the weight of every integer of a piece.
    """

    starts: Integers
    lengths: Integers
    weights: tuple[int, ...]

    def one(self, stream: Stream) -> int:
        """Draw one integer of the range, with probability ∝ its weight."""
        totals: dict[int, int] = {}
        for weight, length in zip(self.weights, self.lengths.tolist(), strict=True):
            totals[weight] = totals.get(weight, 0) + length
        ticket = below(stream, sum(weight * count for weight, count in totals.items()))
        for chosen, count in sorted(totals.items()):
            if ticket < chosen * count:
                break
            ticket -= chosen * count
        place = ticket // chosen
        for weight, start, length in zip(self.weights, self.starts.tolist(), self.lengths.tolist(), strict=True):
            if weight == chosen:
                if place < length:
                    return int(start + place)
                place -= length
        raise AssertionError

    def probabilities(self) -> dict[int, Fraction]:
        """Every integer of the range with its exact probability. For small ranges."""
        total = sum(w * length for w, length in zip(self.weights, self.lengths.tolist(), strict=True))
        pieces = zip(self.weights, self.starts.tolist(), self.lengths.tolist(), strict=True)
        return {start + i: Fraction(w, total) for w, start, length in pieces for i in range(length)}


def levels(edges: int) -> int:
    """L, the number of levels of the draws of ``edges`` edges."""
    return edges.bit_length()


def check_edges(bins: int, epsilon_micro: int) -> None:
    """Refuse a number of bins, or an ε in millionths, for which no edges can be drawn.

    Raises:
        InputError: ``bins_invalid``; ``epsilon_invalid``.
    """
    if not 2 <= bins <= MAX_EDGES + 1:
        raise InputError("bins_invalid", f"private bins of equal frequency are 2 to {MAX_EDGES + 1}")
    if epsilon_micro < 1:
        raise InputError("epsilon_invalid", "ε is too small to be divided among the bins' edges")


def edges_cost(epsilon_micro: int) -> Cost:
    """The cost of the edges of one number: all of ε, whatever the number of edges."""
    return cost_of([epsilon_micro])


def private_edges(
    numbers: Integers,
    bins: int,
    epsilon_micro: int,
    adjacency: str,
    stream: Stream,
    bounds: tuple[int, int] = (-SCALE, SCALE),
) -> list[int]:
    """Inner edges of bins that hold about as many records each. Run by the curator, after the cost was recorded.

    Args:
        numbers: shape (n,) int64: the records' numbers within the bounds; records that lack the number left out.
        bins: number of bins, 2 to 1024.
        epsilon_micro: ε of all edges together, in millionths.
        adjacency: which data sets are neighbours.
        stream: the randomness.
        bounds: public least and largest number.

    Returns:
        At most ``bins`` − 1 rising integers above the least number. There are fewer only if two drawn edges have too
        few integers between them.

    Raises:
        InputError: ``bins_invalid``; ``epsilon_invalid``: ε is not positive.
    """
    check_edges(bins, epsilon_micro)
    share = Fraction(epsilon_micro, MICRO * levels(bins - 1))
    ordered = np.sort(numbers)
    return [edge for edge in _below_and_above(ordered, bins, bounds, share, adjacency, stream) if edge is not None]


def _below_and_above(
    ordered: Integers, bins: int, bounds: tuple[int, int], share: Fraction, adjacency: str, stream: Stream
) -> Iterator[int | None]:
    """The edges of sorted numbers from ``bounds[0]`` to ``bounds[1]``, rising; None for edges without a place."""
    if bins < 2:
        return
    left = (bins + 1) // 2
    low, high = bounds
    if low >= high:
        yield None
        return
    edge = edge_law(ordered, (left, bins), bounds, share, adjacency).one(stream)
    cut = int(np.searchsorted(ordered, edge))
    yield from _below_and_above(ordered[:cut], left, (low, edge - 1), share, adjacency, stream)
    yield edge
    yield from _below_and_above(ordered[cut:], bins - left, (edge, high), share, adjacency, stream)


def edge_law(
    ordered: Integers, ratio: tuple[int, int], bounds: tuple[int, int], epsilon: Fraction, adjacency: str
) -> Draw:
    """The distribution of one edge, above ``bounds[0]`` and at most ``bounds[1]``.

    Args:
        ordered: shape (n,) int64, rising numbers within the bounds.
        ratio: (j, b): a share j/b of the records is to be below the edge.
        bounds: the least and the largest number; the least is below the largest.
        epsilon: ε of this draw.
        adjacency: which data sets are neighbours.
    """
    j, b = ratio
    low, high = bounds
    delta = max(j, b - j) * (1 if adjacency == ADD_REMOVE else 2)
    gamma = min((epsilon - _MARGIN) / (2 * delta), Fraction(1))
    values, counts = np.unique(ordered, return_counts=True)
    starts = np.concatenate([[low + 1], values + 1])
    ends = np.concatenate([values, [high]])
    smaller = np.concatenate([[0], np.cumsum(counts)])
    there = ends >= starts
    misses = np.abs((b - j) * smaller - j * (len(ordered) - smaller))[there]
    deepest = -(-_DEEPEST * gamma.denominator // gamma.numerator)
    beyond = np.minimum(misses - misses.min(), deepest)
    weight = _weights(gamma, np.unique(beyond).tolist())
    weights: Sequence[int] = [weight[k] for k in beyond.tolist()]
    return Draw(starts[there].astype(np.int64), (ends - starts + 1)[there].astype(np.int64), tuple(weights))


def _weights(gamma: Fraction, depths: Sequence[int]) -> dict[int, int]:
    """2^B e^{−γk} as an integer, for every k of ``depths``, which rise from 0 to at most 81/γ.

    Each weight follows from the one before, in fixed point with 2B bits. The factors have a relative error of at most
    82·10⁻⁵⁷, the roundings 2^−390; of at most 2^17 weights the last is wrong by less than 10⁻³⁰.
    """
    factors: dict[int, int] = {}
    found, last, product = {}, 0, 1 << 2 * _BITS
    for k in depths:
        step = k - last
        if step not in factors:
            factor = exp_below(-gamma * step) * (1 << 2 * _BITS)
            factors[step] = factor.numerator // factor.denominator
        product = product * factors[step] >> 2 * _BITS if step else product
        found[k], last = product >> _BITS, k
    return found
