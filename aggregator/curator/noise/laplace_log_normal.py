"""Noise X·e^(σY), X Laplace and Y normal, for zero-concentrated differential privacy (zCDP), with all moments finite.

Source: Bun and Steinke, "Average-Case Averages: Private Algorithms for Smooth Sensitivity and Mean Estimation", NeurIPS
2019; docs/smooth.md derives the constants.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, exp, floor, log, sqrt

from aggregator.curator.noise.exponentials import exponential, normal_magnitude
from protocol.noise.law import Law, left_for_shift, needs_delta
from protocol.noise.lazy import LazyReal, Signed
from protocol.noise.rational_bounds import exp_above, exp_below, log_above, root_above
from protocol.stream import Stream


class LaplaceLogNormal(Law):
    """The law of X·e^(σY). A release costs ρ = ½·(β/σ + e^(3σ²/2)/k)² of zCDP.

    Attributes:
        sigma: σ, a fraction.
    """

    name = "laplace-log-normal"

    def __init__(self, sigma: Fraction = Fraction(1, 2)) -> None:
        self.sigma = sigma
        self.variance = 2 * exp(2 * float(sigma) ** 2)

    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly."""
        x = exponential(stream)
        y = Signed(stream, normal_magnitude(stream))
        return Signed(stream, TimesExponential(x, y, self.sigma))

    def rho_above(self, multiplier: Fraction, beta: Fraction) -> Fraction:
        """½·(β/σ + e^(3σ²/2)/k)², rounded up."""
        return (beta / self.sigma + exp_above(self.sigma**2 * 3 / 2) / multiplier) ** 2 / 2

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """ρ + 2√(ρ·ln(1/δ)) (Bun and Steinke, "Concentrated Differential Privacy", 2016, Proposition 1.3).

        Raises:
            InputError: ``noise_unfit``: δ is 0.
        """
        if delta == 0:
            raise needs_delta(self.name)
        rho = self.rho_above(multiplier, beta)
        return rho + 2 * root_above(rho * log_above(1 / delta))

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """The law with the σ of the least noise variance for this β; the default of β is √(2ρ)/6.

        Raises:
            InputError: ``noise_unfit``: δ is 0.
        """
        if delta == 0:
            raise needs_delta(self.name)
        tail = log(1 / delta)
        return self.fitted_to_rho((epsilon / (sqrt(tail + epsilon) + sqrt(tail))) ** 2, beta)

    def fitted_to_rho(self, rho: float, beta: float | None) -> tuple[Law, float, float]:
        """As :meth:`fitted`, for a budget of ρ.

        The noise variance ∝ e^(5σ²)/(c − β/σ)², c = √(2ρ), is least where 5cσ³ − 5βσ² − β = 0.
        """
        budget = sqrt(2 * rho)
        beta = budget / 6 if beta is None else beta
        low, high = beta / budget, 1 + 2 * beta / budget
        for _ in range(100):
            middle = (low + high) / 2
            falls = 5 * budget * middle**3 - 5 * beta * middle**2 - beta < 0
            low, high = (middle, high) if falls else (low, middle)
        sigma = Fraction(high).limit_denominator(1000)
        left = left_for_shift(budget, beta / float(sigma))
        return LaplaceLogNormal(sigma), exp(1.5 * float(sigma) ** 2) / left, beta


class TimesExponential(LazyReal):
    """x·e^(σy) for lazy reals x ≥ 0 and y and a fraction σ > 0."""

    __slots__ = ("_sigma", "_x", "_y")

    def __init__(self, x: LazyReal, y: LazyReal, sigma: Fraction) -> None:
        self._x = x
        self._y = y
        self._sigma = sigma

    def bounds(self, bits: int) -> tuple[int, int]:
        """Products of the bounds of both factors, rounded outwards."""
        x_low, x_high = self._x.bounds(bits)
        y_low, y_high = self._y.bounds(bits)
        digits = bits // 3 + 24
        low = exp_below(self._sigma * Fraction(y_low, 1 << bits), digits)
        high = exp_above(self._sigma * Fraction(y_high, 1 << bits), digits)
        return floor(x_low * low), ceil(x_high * high)
