"""The method ``global-var``: mean and variance of each number and class, noise for their global sensitivities.

n is the public size of the class, u in [−S, S] its numbers, V = nΣu² − (Σu)² = n² times the population variance.

- Mean: Σu is an integer with Δ = 2S; its noisy value over n is the noisy mean.
- Variance: one number changes it by at most Δ = (n − 1)/n²·(2S)² (docs/smooth.md). It is released on the grid of Δ/G,
  G = 2²⁰: ⌊G·V/((n − 1)(2S)²)⌋ is an integer that changes by at most G, since G is an integer and |a − b| ≤ G gives
  |⌊a⌋ − ⌊b⌋| ≤ G. So the grid costs no privacy; it moves the variance by less than Δ/G.

Source: Vaidya, Shafiq, Basu, Hong (2013), with the variance in place of the standard deviation.
"""

from __future__ import annotations

from aggregator.common.arrays import Integers
from aggregator.curator.accounting import Budget
from aggregator.curator.methods.per_class import Moments, PerClass
from aggregator.curator.terms import FitTerms
from protocol import SCALE
from protocol.questions import MOMENT, SQUARE, Subject
from protocol.stream import Stream
from protocol.sums.vectors import Vector, with_noise

GRID = 1 << 20
"""G: number of grid steps of a variance's (or standard deviation's) sensitivity."""
_WIDTH = 2 * SCALE


class GlobalVariance(PerClass):
    """Noisy sum over the public class size, and noisy variance."""

    name = "global-var"

    def moments(self, values: Integers, budgets: tuple[Budget, Budget], terms: FitTerms, stream: Stream) -> Moments:
        """Noisy mean and variance with noise for the global sensitivities."""
        del terms
        n = len(values)
        first, second = (with_noise(vector, stream) for vector in vectors(values, budgets))
        unit = 4 * (n - 1) / (n * n * GRID)
        return Moments.of_variance(
            first.values[0] / (n * SCALE),
            second.values[0] * unit,
            first.variance / (n * SCALE) ** 2,
            second.variance * unit**2,
            (first.values[0], second.values[0]),
        )


def vectors(values: Integers, budgets: tuple[Budget, Budget]) -> tuple[Vector, Vector]:
    """The exact sum and the variance on its grid, each with its sensitivity and ε. Never to leave the curator.

    Args:
        values: shape (n,) int64, n ≥ 2, numbers u in [−S, S].
        budgets: ε of sum and variance.
    """
    total, spread = sum_and_spread(values)
    on_grid = spread * GRID // ((len(values) - 1) * _WIDTH**2)
    return (
        Vector(Subject(MOMENT, None, 1, 1), (total,), _WIDTH, budgets[0].epsilon_micro),
        Vector(Subject(MOMENT, None, 1, SQUARE), (on_grid,), GRID, budgets[1].epsilon_micro),
    )


def sum_and_spread(values: Integers) -> tuple[int, int]:
    """Σu and V = nΣu² − (Σu)², exactly; ``values``: shape (n,) int64 in [−S, S]."""
    total = int(values.sum())
    return total, len(values) * int((values * values).sum()) - total**2
