"""The method ``global-std``: mean and standard deviation of each number and class (Vaidya et al. 2013).

n is the public size of the class, u in [−S, S] its numbers, V = nΣu² − (Σu)². The standard deviation √V/n is the
Euclidean norm of the centred numbers over √n, and centring shrinks the change of one coordinate by √(1 − 1/n). So one
number changes it by at most Δ = 2S·√(n − 1)/n, which is reached if all others are equal. It is released on the grid of
Δ/G, G = 2²⁰: ⌊G·√V/(2S·√(n − 1))⌋ changes by at most G (``global_var`` says why a floor costs nothing).

Δ falls with 1/√n, that of the variance with 1/n: ``global-var`` is better for large classes.
"""

from __future__ import annotations

from math import isqrt, sqrt

from aggregator.common.arrays import Integers
from aggregator.curator.accounting import Budget
from aggregator.curator.methods.global_var import GRID, sum_and_spread
from aggregator.curator.methods.per_class import Moments, PerClass
from aggregator.curator.terms import FitTerms
from protocol import SCALE
from protocol.questions import MOMENT, SQUARE, Subject
from protocol.stream import Stream
from protocol.sums.vectors import Vector, with_noise

_WIDTH = 2 * SCALE


class GlobalDeviation(PerClass):
    """Noisy sum over the public class size, and noisy standard deviation."""

    name = "global-std"

    def moments(self, values: Integers, budgets: tuple[Budget, Budget], terms: FitTerms, stream: Stream) -> Moments:
        """Noisy mean and variance; a standard deviation that noise made negative counts as 0."""
        del terms
        n = len(values)
        first, second = (with_noise(vector, stream) for vector in vectors(values, budgets))
        unit = 2 * sqrt(n - 1) / (n * GRID)
        deviation, noise = max(second.values[0] * unit, 0.0), second.variance * unit**2
        return Moments.of_variance(
            first.values[0] / (n * SCALE),
            deviation**2,
            first.variance / (n * SCALE) ** 2,
            4 * deviation**2 * noise + 5 * noise**2,
            (first.values[0], second.values[0]),
        )


def vectors(values: Integers, budgets: tuple[Budget, Budget]) -> tuple[Vector, Vector]:
    """The exact sum and the standard deviation on its grid, with sensitivities and ε. Never to leave the curator.

    Args:
        values: shape (n,) int64, n ≥ 2, numbers u in [−S, S].
        budgets: ε of sum and standard deviation.
    """
    total, spread = sum_and_spread(values)
    on_grid = isqrt(spread * GRID**2 // ((len(values) - 1) * _WIDTH**2))
    return (
        Vector(Subject(MOMENT, None, 1, 1), (total,), _WIDTH, budgets[0].epsilon_micro),
        Vector(Subject(MOMENT, None, 1, SQUARE), (on_grid,), GRID, budgets[1].epsilon_micro),
    )
