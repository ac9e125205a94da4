"""The methods ``smooth``, ``smooth-trimmed`` and ``bun-steinke``: noise for smooth sensitivities, by number and class.

A statistic f is released as f + k·S·Z: S its smooth sensitivity on the class's numbers, k a constant, Z noise that the
terms name. Sources: docs/smooth.md; Nissim, Raskhodnikova, Smith (2007); Zafarani, Clifton (2020); Bun, Steinke (2019).
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, NamedTuple

from aggregator.common.arrays import Integers
from aggregator.curator.accounting import Cost, Share, cost_of
from aggregator.curator.methods.per_class import Moments, PerClass
from aggregator.curator.noise import NAMES, calibrate, law
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
from protocol.epsilon import MICRO
from protocol.errors import InputError
from protocol.noise.law import Calibration, rounded
from protocol.noise.rational_bounds import SmoothSensitivity
from protocol.questions import MOMENT
from protocol.schema import Schema
from protocol.stream import Stream

GRID = 1 << 30
"""Number of steps of the public grid in a global sensitivity."""
LARGEST_STEPS = 1 << 64
"""A released number beyond ±this many steps is clipped: noise with heavy tails may leave the range of doubles.

The range is public and the clipping is post-processing. A mean in [−S, S] has 2²⁹·n steps or fewer, n the class's size.
"""


class NoisyNumber(NamedTuple):
    """One noisy number, a bound of its noise's variance (infinite if it has none), and its steps of the public grid."""

    value: float
    noise: float
    steps: int


class Smooth(PerClass):
    """Releases mean and variance with noise scaled to their smooth sensitivities."""

    name = "smooth"
    noises: ClassVar[tuple[str, ...]] = NAMES

    def check_noise(self, terms: FitTerms) -> None:
        """Raise ``noise_unknown`` if the terms name no noise, or one that the method does not offer."""
        if terms.noise is None or (self.noises is not NAMES and terms.noise not in self.noises):
            raise InputError("noise_unknown", f"the noise of '{self.name}' is one of {', '.join(self.noises)}")
        law(terms.noise)

    def cost(self, schema: Schema, terms: FitTerms) -> Cost:
        """Return the summed costs of tables, means and variances. Raises ``noise_unfit`` and as :meth:`check`."""
        self.check(schema, terms)
        found = []
        for subject, share in self.shares(schema, terms).items():
            if subject.kind == MOMENT:
                noise = calibrated(str(terms.noise), share)
                found.append(Cost(share.epsilon_micro, noise.delta, noise.rho))
            else:
                found.append(cost_of([share.epsilon_micro]))
        rhos = [one.rho for one in found if one.rho is not None]
        return Cost(
            sum(one.epsilon_micro for one in found),
            sum((one.delta for one in found), Fraction(0)),
            sum(rhos, Fraction(0)) if len(rhos) == len(found) else None,
        )

    def moments(self, values: Integers, shares: tuple[Share, Share], terms: FitTerms, stream: Stream) -> Moments:
        """Return a mean and a variance with noise for their smooth sensitivities."""
        data = BoundedValues(values, -SCALE, SCALE)
        first = noisy_mean(data, self.trim(data.n, terms), shares[0], terms, stream)
        second = noisy_variance(data, shares[1], terms, stream)
        return Moments.of_variance(
            first.value / SCALE,
            second.value / SCALE**2,
            first.noise / SCALE**2,
            second.noise / SCALE**4,
            (first.steps, second.steps),
        )

    def trim(self, n: int, terms: FitTerms) -> int:
        """Return how many of ``n`` values the mean leaves out at either end: 0."""
        del n, terms
        return 0


class SmoothTrimmed(Smooth):
    """Releases trimmed mean and variance with noise scaled to their smooth sensitivities."""

    name = "smooth-trimmed"

    def trim(self, n: int, terms: FitTerms) -> int:
        """Return how many of ``n`` values the mean leaves out at either end: the share of the terms, rounded down."""
        return n * terms.trim_micro // MICRO


class BunSteinke(SmoothTrimmed):
    """Releases noisy trimmed means of the scaled numbers u and of the squares ⌊u²/S⌋ (S: 65536)."""

    name = "bun-steinke"
    noises = ("student-t", "laplace-log-normal")

    def moments(self, values: Integers, shares: tuple[Share, Share], terms: FitTerms, stream: Stream) -> Moments:
        """Return trimmed means of u and ⌊u²/S⌋ (:class:`BunSteinke`) with noise for their smooth sensitivities."""
        trim = self.trim(len(values), terms)
        numbers = BoundedValues(values, -SCALE, SCALE)
        squares = BoundedValues(values * values // SCALE, 0, SCALE)
        first = noisy_mean(numbers, trim, shares[0], terms, stream)
        second = noisy_mean(squares, trim, shares[1], terms, stream)
        return Moments(
            first.value / SCALE,
            second.value / SCALE,
            first.noise / SCALE**2,
            second.noise / SCALE**2,
            (first.steps, second.steps),
        )


@lru_cache(maxsize=256)
def calibrated(noise: str, share: Share) -> Calibration:
    """Return the constants of a noise for one vector. They are cached: the proof of their cost takes milliseconds."""
    return calibrate(noise, share.epsilon, share.delta)


def noisy_mean(data: BoundedValues, trim: int, share: Share, terms: FitTerms, stream: Stream) -> NoisyNumber:
    """Return a trimmed mean with noise for its smooth sensitivity; ``trim`` values are left out at either end."""
    noise = calibrated(str(terms.noise), share)
    sensitivity = smooth_sensitivity_of_mean(data, noise.beta, trim)
    largest = global_sensitivity_of_mean(data.n, data.width, trim)
    return _released(trimmed_mean(data, trim), sensitivity, noise, largest, stream)


def noisy_variance(data: BoundedValues, share: Share, terms: FitTerms, stream: Stream) -> NoisyNumber:
    """Return a variance with noise for its smooth sensitivity."""
    noise = calibrated(str(terms.noise), share)
    sensitivity = smooth_sensitivity_of_variance(data, noise.beta)
    return _released(variance(data), sensitivity, noise, global_sensitivity_of_variance(data.n, data.width), stream)


def _released(
    statistic: Fraction, sensitivity: SmoothSensitivity, noise: Calibration, largest: Fraction, stream: Stream
) -> NoisyNumber:
    """Return a statistic of global sensitivity ``largest`` with noise, clipped to ±:data:`LARGEST_STEPS` steps."""
    grid = largest / GRID
    found = release(statistic, sensitivity, noise, grid, stream)
    steps = min(max(int(found / grid), -LARGEST_STEPS), LARGEST_STEPS)
    return NoisyNumber(float(steps * grid), noise.variance(largest), steps)


def release(
    statistic: Fraction, sensitivity: SmoothSensitivity, calibration: Calibration, grid: Fraction, stream: Stream
) -> Fraction:
    """Return f + k·S·Z, rounded to the nearest multiple of ``grid``, for publication.

    f: ``statistic``; S: ``sensitivity``; ``calibration`` has k and the law of Z. ``grid`` must not depend on the data,
    and ``stream`` is as secret as they are. Raises InputError: ``beta_invalid``: S is not as smooth as the noise needs;
    ``grid_invalid``: not positive.
    """
    if sensitivity.beta > calibration.beta:
        raise InputError("beta_invalid", "the smooth sensitivity was computed for a larger β than the noise allows")
    if grid <= 0:
        raise InputError("grid_invalid", "the grid to round to is a positive number")
    noise = calibration.law.draw(stream)
    return grid * rounded(statistic / grid, calibration.multiplier * sensitivity.value / grid, noise)
