"""The method ``bun-steinke``: trimmed means of each number and of its square, by class.

The noise is Student's t with three degrees of freedom (pure ε) or Laplace-log-normal (concentrated differential
privacy; the stated (ε, δ) follows), both scaled to the smooth sensitivity of the trimmed mean. The variance of a number
is the mean of its squares minus the square of its mean. Trimming leaves out the largest squares, so variances come out
too small.

Source: Bun, Steinke, "Average-Case Averages: Private Algorithms for Smooth Sensitivity and Mean Estimation" (2019).
"""

from __future__ import annotations

from aggregator.common.arrays import Integers
from aggregator.curator.accounting import Budget
from aggregator.curator.methods.per_class import Moments
from aggregator.curator.methods.smooth import noisy_mean
from aggregator.curator.methods.smooth_trimmed import SmoothTrimmed
from aggregator.curator.smooth_sensitivity import BoundedValues
from aggregator.curator.terms import FitTerms
from protocol import SCALE
from protocol.stream import Stream


class BunSteinke(SmoothTrimmed):
    """Noisy trimmed means of numbers and of squares ⌊u²/S⌋."""

    name = "bun-steinke"
    noises = ("student-t", "laplace-log-normal")

    def moments(self, values: Integers, budgets: tuple[Budget, Budget], terms: FitTerms, stream: Stream) -> Moments:
        """Noisy trimmed means of u and ⌊u²/S⌋, with noise for their smooth sensitivities."""
        trim = self.trim(len(values), terms)
        numbers = BoundedValues(values, -SCALE, SCALE)
        squares = BoundedValues(values * values // SCALE, 0, SCALE)
        first = noisy_mean(numbers, trim, budgets[0], terms, stream)
        second = noisy_mean(squares, trim, budgets[1], terms, stream)
        return Moments(
            first.value / SCALE,
            second.value / SCALE,
            first.noise / SCALE**2,
            second.noise / SCALE**2,
            (first.steps, second.steps),
        )
