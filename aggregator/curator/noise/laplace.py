"""Laplace noise on real numbers, for (ε, δ): its tails are too light for a changing scale at δ = 0.

Source: Nissim, Raskhodnikova, Smith, STOC 2007 (the published constants). docs/smooth.md proves the constants here.
"""

from __future__ import annotations

from fractions import Fraction
from math import expm1, log

from aggregator.curator.noise.exponentials import exponential
from protocol.noise.law import Law, left_for_shift, needs_delta
from protocol.noise.lazy import LazyReal, Signed
from protocol.noise.rational_bounds import exp_above, exp_below, log_above
from protocol.stream import Stream


class RealLaplace(Law):
    """Density e^−|z|/2."""

    name = "laplace"
    variance = 2.0

    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly."""
        return Signed(stream, exponential(stream))

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """1/k + max(β, (e^β − 1)·ln((1 − e^−β)/δ) − β).

        Raises:
            InputError: ``noise_unfit``: δ is 0.
        """
        if delta == 0:
            raise needs_delta(self.name)
        tail = log_above((1 - exp_below(-beta)) / delta)
        return 1 / multiplier + max(beta, (exp_above(beta) - 1) * tail - beta)

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Half of ε for β, unless β is given; the equation for β is solved by bisection.

        Raises:
            InputError: ``noise_unfit``: δ is 0.
        """
        if delta == 0:
            raise needs_delta(self.name)

        def spent(beta: float) -> float:
            return max(beta, expm1(beta) * log(-expm1(-beta) / delta) - beta)

        if beta is None:
            low, high = 0.0, epsilon / 2
            for _ in range(100):
                middle = (low + high) / 2
                low, high = (middle, high) if spent(middle) <= epsilon / 2 else (low, middle)
            beta = low
        return self, 1 / left_for_shift(epsilon, spent(beta)), beta

    def published(self, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
        """K = 2/ε and β = ε/(2 ln(2/δ)) of Nissim, Raskhodnikova and Smith, β rounded down."""
        return 2 / epsilon, epsilon / (2 * log_above(2 / delta))
