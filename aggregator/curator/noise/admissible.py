"""Noise with density ∝ 1/(1 + |z|^γ), γ > 1, for pure ε. γ = 2 is the Cauchy law; only γ > 3 has a variance.

Source: Nissim, Raskhodnikova, Smith, "Smooth Sensitivity and Sampling in Private Data Analysis", STOC 2007 (the family
and its published constants). The constants here are smaller; docs/smooth.md proves them.
"""

from __future__ import annotations

from fractions import Fraction
from math import cosh, exp, inf, log, pi, sin, sinh, sqrt

from protocol.errors import InputError
from protocol.noise.law import Law, PureLaw, left_for_shift
from protocol.noise.lazy import LazyReal, Signed
from protocol.noise.power_tails import power_tail_magnitude
from protocol.noise.rational_bounds import exp_above, log_above, root_above
from protocol.stream import Stream

LARGEST = 64
"""Largest numerator of γ. Larger powers make the sampler slow."""


class Admissible(PureLaw):
    """Density ∝ 1/(1 + |z|^γ) for a fraction γ.

    A shift by Δ costs at most (γ−1)^(1−1/γ)·Δ, a stretch by e^λ at most max(1, γ−1)·|λ|.
    """

    def __init__(self, gamma: Fraction) -> None:
        """A law with the given γ.

        Raises:
            InputError: ``noise_unknown``: γ is not above 1, or its numerator is above 64.
        """
        if not (gamma > 1 and gamma.numerator <= LARGEST):
            raise InputError("noise_unknown", "gamma is a fraction above 1 with a numerator of at most 64")
        self.gamma = gamma
        self.name = f"gamma{gamma}"
        ratio = pi / float(gamma)
        self.variance = sin(ratio) / sin(3 * ratio) if gamma > 3 else inf
        self._stretch = max(Fraction(1), gamma - 1)

    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly."""
        return Signed(stream, power_tail_magnitude(stream, self.gamma))

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """(γ−1)^(1−1/γ)/k + max(1, γ−1)·β; ``delta`` is not needed."""
        del delta
        return self._shift() / multiplier + self._stretch * beta

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Half of ε for β, unless β is given."""
        del delta
        stretch = float(self._stretch)
        beta = epsilon / (2 * stretch) if beta is None else beta
        return self, float(self._shift()) / left_for_shift(epsilon, stretch * beta), beta

    def published(self, epsilon: Fraction) -> tuple[Fraction, Fraction]:
        """K = 2(γ+1)/ε and β = ε/(2(γ+1)) of Nissim, Raskhodnikova and Smith."""
        return 2 * (self.gamma + 1) / epsilon, epsilon / (2 * (self.gamma + 1))

    def _shift(self) -> Fraction:
        """(γ−1)^(1−1/γ), rounded up: the steepest slope of ln(1 + z^γ)."""
        less = self.gamma - 1
        return exp_above(less / self.gamma * log_above(less))


class Cauchy(Admissible):
    """The standard Cauchy law, density 1/(π(1 + z²)), with its exact cost.

    The largest log ratio of two Cauchy densities with locations a, b and scales s, t is the hyperbolic distance
    arcosh(1 + ((a − b)² + (s − t)²)/(2st)).
    """

    def __init__(self) -> None:
        super().__init__(Fraction(2))
        self.name = "cauchy"

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """The larger of the hyperbolic distances for equal scales and for scales in the ratio e^β."""
        del delta
        square = 1 / (2 * multiplier**2)
        cosh = (exp_above(beta) + exp_above(-beta)) / 2
        largest = max(1 + square, cosh + exp_above(-beta) * square)
        return log_above(largest + root_above(largest**2 - 1))

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """β = max(ε/2, ln(2 cosh ε − 1)), but at most 0.99 ε, unless β is given.

        k is then at most 1.16/ε, where 1/ε is the least of all for small ε. A β up to ln(2 cosh ε − 1) costs nothing.
        """
        del delta
        beta = min(max(epsilon / 2, log(2 * cosh(epsilon) - 1)), 0.99 * epsilon) if beta is None else beta
        left = left_for_shift(epsilon, beta)
        unequal = sqrt(exp(-beta) / (4 * sinh((epsilon + beta) / 2) * sinh(left / 2)))
        return self, max(1 / (2 * sinh(epsilon / 2)), unequal), beta
