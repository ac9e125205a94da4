"""Gaussian noise on real numbers, for (ε, δ).

Source: Nissim, Raskhodnikova, Smith, STOC 2007 (the published constants). docs/smooth.md proves the constants here.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp, log, log1p, sqrt

from aggregator.curator.noise.exponentials import normal_magnitude
from protocol.noise.law import Law, left_for_shift, needs_delta
from protocol.noise.lazy import LazyReal, Signed
from protocol.noise.rational_bounds import exp_above, log_above, root_above
from protocol.stream import Stream


class Gaussian(Law):
    """The standard normal law. τ = √(2 ln(1/δ)) is exceeded by |Z| with probability at most δ."""

    name = "gaussian"
    variance = 1.0

    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly."""
        return Signed(stream, normal_magnitude(stream))

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """1/(2k²) + max(τ/k + β, e^β·τ/k + (e^(2β) − 1)·τ²/2).

        Raises:
            InputError: ``noise_unfit``: δ is 0.
        """
        if delta == 0:
            raise needs_delta(self.name)
        square = 2 * log_above(1 / delta)
        slope = root_above(square) / multiplier
        larger = exp_above(beta) * slope + (exp_above(2 * beta) - 1) * square / 2
        return 1 / (2 * multiplier**2) + max(slope + beta, larger)

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Half of ε for β, unless β is given.

        Raises:
            InputError: ``noise_unfit``: δ is 0.
        """
        if delta == 0:
            raise needs_delta(self.name)
        square = 2 * log(1 / delta)
        beta = min(log1p(epsilon / square) / 2, epsilon / 2) if beta is None else beta
        growth = exp(beta)
        left = left_for_shift(epsilon, max(beta, (growth**2 - 1) * square / 2))
        slope = growth * sqrt(square)
        return self, (slope + sqrt(slope**2 + 2 * left)) / (2 * left), beta

    def published(self, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
        """K = 5√(2 ln(2/δ))/ε and β = ε/(4(1 + ln(2/δ))) of Nissim, Raskhodnikova and Smith, rounded to be safe."""
        tail = log_above(2 / delta)
        return 5 * root_above(2 * tail) / epsilon, epsilon / (4 * (1 + tail))
