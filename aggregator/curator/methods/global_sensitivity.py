"""The methods ``global-var`` and ``global-std``: noise for global sensitivities of mean and spread in each class.

n is the public size of the class, u in [−S, S] its scaled numbers (S: 65536), Δ a global sensitivity: 2S for Σu. The
spread is released on the grid of Δ/G, G = 2²⁰. Source: docs/math.md, section 7; docs/smooth.md; Vaidya et al. (2013).
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
    """Releases a noisy sum over the public class size, and a noisy measure of spread, which a subclass chooses."""

    def moments(self, values: Integers, shares: tuple[Share, Share], terms: FitTerms, stream: Stream) -> Moments:
        """Return a mean and a variance with noise for their global sensitivities."""
        del terms
        n = len(values)
        first, second = (with_noise(vector, stream) for vector in self.vectors(values, shares))
        variance, noise = self.variance(n, second.values[0], second.variance)
        mean, mean_noise = first.values[0] / (n * SCALE), first.variance / (n * SCALE) ** 2
        return Moments.of_variance(mean, variance, mean_noise, noise, (first.values[0], second.values[0]))

    def vectors(self, values: Integers, shares: tuple[Share, Share]) -> tuple[Vector, Vector]:
        """Return exact sum and spread of n ≥ 2 scaled numbers, with sensitivity and ε. Never publish them."""
        total = int(values.sum())
        on_grid = self.on_grid(len(values), len(values) * int((values * values).sum()) - total**2)
        return (
            Vector(Subject(MOMENT, None, 1, 1), (total,), _WIDTH, shares[0].epsilon_micro),
            Vector(Subject(MOMENT, None, 1, SQUARE), (on_grid,), GRID, shares[1].epsilon_micro),
        )

    @abstractmethod
    def on_grid(self, n: int, squares: int) -> int:
        """Return the measure of spread of n numbers, in grid steps; ``squares`` is n² times their variance."""

    @abstractmethod
    def variance(self, n: int, steps: int, noise: float) -> tuple[float, float]:
        """Return the variance of n numbers in [−1, 1], from a noisy number of grid steps, and that of its noise."""


class GlobalVariance(GlobalSensitivity):
    """Releases a noisy mean and a noisy variance."""

    name = "global-var"

    def on_grid(self, n: int, squares: int) -> int:
        """Return ⌊G·V/((n − 1)(2S)²)⌋ with the symbols of the module's docstring; ``squares`` is V."""
        return squares * GRID // ((n - 1) * _WIDTH**2)

    def variance(self, n: int, steps: int, noise: float) -> tuple[float, float]:
        """Return the variance of ``steps`` steps of Δ/G, and the variance of its noise."""
        unit = 4 * (n - 1) / (n * n * GRID)
        return steps * unit, noise * unit**2


class GlobalDeviation(GlobalSensitivity):
    """Releases a noisy mean and a noisy standard deviation."""

    name = "global-std"

    def on_grid(self, n: int, squares: int) -> int:
        """Return ⌊G·√V/(2S·√(n − 1))⌋ with the symbols of the module's docstring; ``squares`` is V."""
        return isqrt(squares * GRID**2 // ((n - 1) * _WIDTH**2))

    def variance(self, n: int, steps: int, noise: float) -> tuple[float, float]:
        """Return the square of a deviation of ``steps`` steps (0 if negative), and the variance of its noise."""
        unit = 2 * sqrt(n - 1) / (n * GRID)
        deviation, spread = max(steps * unit, 0.0), noise * unit**2
        return deviation**2, 4 * deviation**2 * spread + 5 * spread**2
