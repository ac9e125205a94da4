"""The method ``smooth``: mean and variance of each number and class, noise for their smooth sensitivities.

f is released as f + k·S·Z, S the smooth sensitivity of the class's numbers and Z noise of a kind that the terms name;
``aggregator.curator.noise`` proves what that costs and draws Z exactly. Rounding to the grid GS/2³⁰, GS the global
sensitivity, and clipping to ±2⁶⁴ steps of the grid are post-processing. S depends on the records, so the stated
variance of the noise is an upper bound: that for S = GS; infinite for noise with heavy tails.

Source: Nissim, Raskhodnikova, Smith (2007); Zafarani, Clifton (2020), with the corrected sensitivities of
docs/smooth.md.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, NamedTuple

from aggregator.common.arrays import Integers
from aggregator.curator.accounting import Budget, Cost, cost_of
from aggregator.curator.methods.per_class import Moments, PerClass
from aggregator.curator.noise.calibrating import NAMES, calibrate, law
from aggregator.curator.noise.releasing import release
from aggregator.curator.smooth_sensitivity import (
    BoundedValues,
    global_sensitivity_of_mean,
    global_sensitivity_of_variance,
    smooth_sensitivity_of_mean,
    smooth_sensitivity_of_variance,
    trimmed_mean,
    variance,
)
from aggregator.curator.terms import FitTerms
from protocol import SCALE
from protocol.errors import InputError
from protocol.noise.calibration import Calibration
from protocol.questions import MOMENT
from protocol.schema import Schema
from protocol.stream import Stream

GRID = 1 << 30
"""Number of steps of the public grid in a global sensitivity."""
LARGEST_STEPS = 1 << 64
"""A released number beyond ±this many steps is clipped: noise with heavy tails may leave the range of doubles.

The range is public and the clipping is post-processing. A mean in [−S, S] has 2²⁹·n steps or fewer, n the class's size.
"""


class Released(NamedTuple):
    """One noisy number.

    Attributes:
        value: the number, in the statistic's units.
        noise: upper bound of the variance of its noise; infinite for noise without a variance.
        steps: the number in steps of the public grid.
    """

    value: float
    noise: float
    steps: int


class Smooth(PerClass):
    """Noisy mean and variance, noise scaled to the smooth sensitivity."""

    name = "smooth"
    noises: ClassVar[tuple[str, ...]] = NAMES

    def check_noise(self, terms: FitTerms) -> None:
        """Refuse a noise that the method does not offer.

        Raises:
            InputError: ``noise_unknown``: the terms name no noise, or one that does not exist.
        """
        if terms.noise is None or (self.noises is not NAMES and terms.noise not in self.noises):
            raise InputError("noise_unknown", f"the noise of '{self.name}' is one of {', '.join(self.noises)}")
        law(terms.noise)

    def cost(self, schema: Schema, terms: FitTerms) -> Cost:
        """Sequential composition over tables, means and variances, with the proven cost of each noise.

        Raises:
            InputError: the reasons of :meth:`check`; ``noise_unfit``: the noise needs δ > 0.
        """
        self.check(schema, terms)
        parts = self.budgets(schema, terms)
        found = [cost_of([budget.epsilon_micro]) for subject, budget in parts.items() if subject.kind != MOMENT]
        for subject, budget in parts.items():
            if subject.kind == MOMENT:
                noise = calibrated(str(terms.noise), budget)
                found.append(Cost(budget.epsilon_micro, noise.delta, noise.rho))
        rhos = [one.rho for one in found if one.rho is not None]
        return Cost(
            sum(one.epsilon_micro for one in found),
            sum((one.delta for one in found), Fraction(0)),
            sum(rhos, Fraction(0)) if len(rhos) == len(found) else None,
        )

    def moments(self, values: Integers, budgets: tuple[Budget, Budget], terms: FitTerms, stream: Stream) -> Moments:
        """Noisy mean and variance with noise for the smooth sensitivities."""
        data = BoundedValues(values, -SCALE, SCALE)
        first = noisy_mean(data, self.trim(data.n, terms), budgets[0], terms, stream)
        second = noisy_variance(data, budgets[1], terms, stream)
        return Moments.of_variance(
            first.value / SCALE,
            second.value / SCALE**2,
            first.noise / SCALE**2,
            second.noise / SCALE**4,
            (first.steps, second.steps),
        )

    def trim(self, n: int, terms: FitTerms) -> int:
        """How many of ``n`` values the mean leaves out at either end: none."""
        del n, terms
        return 0


@lru_cache(maxsize=256)
def calibrated(noise: str, budget: Budget) -> Calibration:
    """The constants of a noise for one vector's budget. They are cached: the proof of their cost takes milliseconds.

    Raises:
        InputError: the reasons of :func:`aggregator.curator.noise.calibrating.calibrate`.
    """
    return calibrate(noise, budget.epsilon, budget.delta)


def noisy_mean(data: BoundedValues, trim: int, budget: Budget, terms: FitTerms, stream: Stream) -> Released:
    """A trimmed mean with noise for its smooth sensitivity; ``trim`` values are left out at either end."""
    noise = calibrated(str(terms.noise), budget)
    largest = global_sensitivity_of_mean(data.n, data.width, trim)
    sensitivity = smooth_sensitivity_of_mean(data, noise.beta, trim)
    grid = largest / GRID
    found = release(trimmed_mean(data, trim), sensitivity, noise, grid, stream)
    return _clipped(found, grid, noise.variance(largest))


def noisy_variance(data: BoundedValues, budget: Budget, terms: FitTerms, stream: Stream) -> Released:
    """A variance with noise for its smooth sensitivity."""
    noise = calibrated(str(terms.noise), budget)
    largest = global_sensitivity_of_variance(data.n, data.width)
    grid = largest / GRID
    found = release(variance(data), smooth_sensitivity_of_variance(data, noise.beta), noise, grid, stream)
    return _clipped(found, grid, noise.variance(largest))


def _clipped(found: Fraction, grid: Fraction, noise: float) -> Released:
    """A multiple of ``grid``, clipped to ±:data:`LARGEST_STEPS` steps. ``noise``: variance of its noise."""
    steps = min(max(int(found / grid), -LARGEST_STEPS), LARGEST_STEPS)
    return Released(float(steps * grid), noise, steps)
