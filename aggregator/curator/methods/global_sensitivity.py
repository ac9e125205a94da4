"""The methods ``global-var`` and ``global-std``: noise for global sensitivities of each number and class.

n is the public size of the class, u in [−S, S] its numbers, V = nΣu² − (Σu)² = n² times the population variance.

- Mean: Σu is an integer with Δ = 2S; its noisy value over n is the noisy mean.
- Variance (``global-var``): one number changes it by at most Δ = (n − 1)/n²·(2S)² (docs/smooth.md). It is released on
  the grid of Δ/G, G = 2²⁰: ⌊G·V/((n − 1)(2S)²)⌋ is an integer that changes by at most G, since G is an integer and
  |a − b| ≤ G gives |⌊a⌋ − ⌊b⌋| ≤ G. So the grid costs no privacy; it moves the variance by less than Δ/G.
- Standard deviation (``global-std``): √V/n is the Euclidean norm of the centred numbers over √n, and centring shrinks
  the change of one coordinate by √(1 − 1/n). So one number changes it by at most Δ = 2S·√(n − 1)/n, which is reached if
  all others are equal. It is released as ⌊G·√V/(2S·√(n − 1))⌋. Δ falls with 1/√n, that of the variance with 1/n:
  ``global-var`` is better for large classes.

Source: Vaidya, Shafiq, Basu, Hong (2013) for the standard deviation.
"""

from __future__ import annotations

from abc import abstractmethod
from math import isqrt, sqrt

from aggregator.common.arrays import Integers
from aggregator.curator.accounting import Share
from aggregator.curator.methods.per_class import Moments, PerClass
from aggregator.curator.terms import FitTerms
from protocol import SCALE
from protocol.noise.sums import Vector, with_noise
from protocol.questions import MOMENT, SQUARE, Subject
from protocol.stream import Stream

GRID = 1 << 20
"""G: number of grid steps of the sensitivity of a variance or standard deviation."""
_WIDTH = 2 * SCALE


class GlobalSensitivity(PerClass):
    """Noisy sum over the public class size, and a noisy measure of spread. A subclass says which."""

    def moments(self, values: Integers, shares: tuple[Share, Share], terms: FitTerms, stream: Stream) -> Moments:
        """Noisy mean and variance with noise for the global sensitivities."""
        del terms
        n = len(values)
        first, second = (with_noise(vector, stream) for vector in self.vectors(values, shares))
        variance, noise = self.variance(n, second.values[0], second.variance)
        mean, mean_noise = first.values[0] / (n * SCALE), first.variance / (n * SCALE) ** 2
        return Moments.of_variance(mean, variance, mean_noise, noise, (first.values[0], second.values[0]))

    def vectors(self, values: Integers, shares: tuple[Share, Share]) -> tuple[Vector, Vector]:
        """The exact sum and spread on its grid, each with its sensitivity and ε. Never to leave the curator.

        Args:
            values: shape (n,) int64, n ≥ 2, numbers u in [−S, S].
            shares: ε of sum and spread.
        """
        total = int(values.sum())
        on_grid = self.on_grid(len(values), len(values) * int((values * values).sum()) - total**2)
        return (
            Vector(Subject(MOMENT, None, 1, 1), (total,), _WIDTH, shares[0].epsilon_micro),
            Vector(Subject(MOMENT, None, 1, SQUARE), (on_grid,), GRID, shares[1].epsilon_micro),
        )

    @abstractmethod
    def on_grid(self, n: int, squares: int) -> int:
        """The measure of spread of n numbers in steps of its grid; ``squares`` is V."""

    @abstractmethod
    def variance(self, n: int, steps: int, noise: float) -> tuple[float, float]:
        """The variance of n numbers in [−1, 1] by a noisy number of steps, and the variance of its noise.

        ``noise`` is the variance of the noise of the steps.
        """


class GlobalVariance(GlobalSensitivity):
    """Noisy mean and noisy variance."""

    name = "global-var"

    def on_grid(self, n: int, squares: int) -> int:
        """⌊G·V/((n − 1)(2S)²)⌋."""
        return squares * GRID // ((n - 1) * _WIDTH**2)

    def variance(self, n: int, steps: int, noise: float) -> tuple[float, float]:
        """Steps of Δ/G."""
        unit = 4 * (n - 1) / (n * n * GRID)
        return steps * unit, noise * unit**2


class GlobalDeviation(GlobalSensitivity):
    """Noisy mean and noisy standard deviation."""

    name = "global-std"

    def on_grid(self, n: int, squares: int) -> int:
        """⌊G·√V/(2S·√(n − 1))⌋."""
        return isqrt(squares * GRID**2 // ((n - 1) * _WIDTH**2))

    def variance(self, n: int, steps: int, noise: float) -> tuple[float, float]:
        """The square of steps of Δ/G; a standard deviation that noise made negative counts as 0."""
        unit = 2 * sqrt(n - 1) / (n * GRID)
        deviation, spread = max(steps * unit, 0.0), noise * unit**2
        return deviation**2, 4 * deviation**2 * spread + 5 * spread**2
