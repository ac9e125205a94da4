"""Kinds of real-valued noise for smooth sensitivity, by name, with constants k and β that provably give ε, (ε, δ) or ρ.

A statistic f is released as f + k·S·Z: S its β-smooth sensitivity, Z the noise. Constants are proven with rational
bounds. Sources: docs/smooth.md; Nissim, Raskhodnikova, Smith, STOC 2007; Bun, Steinke, NeurIPS 2019.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil, cosh, exp, expm1, floor, inf, log, log1p, pi, sin, sinh, sqrt

from aggregator.curator.sampling import exponential, normal_magnitude
from protocol.errors import InputError
from protocol.noise.law import (
    Calibration,
    Law,
    LazyReal,
    PureLaw,
    Signed,
    StudentT,
    calibrated,
    check_budget,
    left_for_shift,
    needs_delta,
    power_tail_magnitude,
    proven,
)
from protocol.noise.rational_bounds import exp_above, exp_below, log_above, root_above, round_up
from protocol.stream import Stream

LARGEST = 64
"""Largest numerator of γ. Larger powers make the sampler slow."""


class Admissible(PureLaw):
    """Density ∝ 1/(1 + |z|^γ), γ > 1 a fraction, for pure ε. γ = 2 is the Cauchy law; only γ > 3 has a variance.

    A shift of the noise by Δ costs at most (γ−1)^(1−1/γ)·Δ, a stretch by the factor e^λ at most max(1, γ−1)·|λ|.
    """

    def __init__(self, gamma: Fraction) -> None:
        """Make the law; ``noise_unknown`` (``InputError``) if γ is not above 1, or its numerator above 64."""
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
        """Return (γ−1)^(1−1/γ)/k + max(1, γ−1)·β, with k = ``multiplier``; ``delta`` is not needed."""
        del delta
        return self._shift() / multiplier + self._stretch * beta

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Return this law, k and β: β takes half of ε, unless it is given."""
        del delta
        stretch = float(self._stretch)
        beta = epsilon / (2 * stretch) if beta is None else beta
        return self, float(self._shift()) / left_for_shift(epsilon, stretch * beta), beta

    def published(self, epsilon: Fraction) -> tuple[Fraction, Fraction]:
        """Return k = 2(γ+1)/ε and β = ε/(2(γ+1)) of Nissim, Raskhodnikova and Smith."""
        return 2 * (self.gamma + 1) / epsilon, epsilon / (2 * (self.gamma + 1))

    def _shift(self) -> Fraction:
        """Return (γ−1)^(1−1/γ), rounded up: the steepest slope of ln(1 + z^γ)."""
        less = self.gamma - 1
        return exp_above(less / self.gamma * log_above(less))


class Cauchy(Admissible):
    """The standard Cauchy law, density 1/(π(1 + z²)), with its exact cost.

    It is arcosh(1 + ((a − b)² + (s − t)²)/(2st)), the largest log ratio for locations a, b and scales s, t.
    """

    def __init__(self) -> None:
        super().__init__(Fraction(2))
        self.name = "cauchy"

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """Return the larger of the hyperbolic distances for equal scales and for scales in the ratio e^β."""
        del delta
        square = 1 / (2 * multiplier**2)
        cosh = (exp_above(beta) + exp_above(-beta)) / 2
        largest = max(1 + square, cosh + exp_above(-beta) * square)
        return log_above(largest + root_above(largest**2 - 1))

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Return this law, k ≤ 1.16/ε, and β = max(ε/2, ln(2 cosh ε − 1)), at most 0.99 ε, unless β is given."""
        del delta
        beta = min(max(epsilon / 2, log(2 * cosh(epsilon) - 1)), 0.99 * epsilon) if beta is None else beta
        left = left_for_shift(epsilon, beta)
        unequal = sqrt(exp(-beta) / (4 * sinh((epsilon + beta) / 2) * sinh(left / 2)))
        return self, max(1 / (2 * sinh(epsilon / 2)), unequal), beta


class RealLaplace(Law):
    """Density e^−|z|/2, for (ε, δ): its tails are too light for a changing scale at δ = 0."""

    name = "laplace"
    variance = 2.0

    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly."""
        return Signed(stream, exponential(stream))

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """Return 1/k + max(β, (e^β − 1)·ln((1 − e^−β)/δ) − β), with k = ``multiplier``."""
        if delta == 0:
            raise needs_delta(self.name)
        tail = log_above((1 - exp_below(-beta)) / delta)
        return 1 / multiplier + max(beta, (exp_above(beta) - 1) * tail - beta)

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Return this law, k and β: β takes half of ε, unless it is given. Bisection finds β."""
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
        """Return k = 2/ε and β = ε/(2 ln(2/δ)) of Nissim, Raskhodnikova and Smith, β rounded down."""
        return 2 / epsilon, epsilon / (2 * log_above(2 / delta))


class Gaussian(Law):
    """The standard normal law, for (ε, δ). τ = √(2 ln(1/δ)) is exceeded by |Z| with probability at most δ."""

    name = "gaussian"
    variance = 1.0

    def draw(self, stream: Stream) -> LazyReal:
        """Draw Z exactly."""
        return Signed(stream, normal_magnitude(stream))

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """Return 1/(2k²) + max(τ/k + β, e^β·τ/k + (e^(2β) − 1)·τ²/2), with k = ``multiplier``."""
        if delta == 0:
            raise needs_delta(self.name)
        square = 2 * log_above(1 / delta)
        slope = root_above(square) / multiplier
        larger = exp_above(beta) * slope + (exp_above(2 * beta) - 1) * square / 2
        return 1 / (2 * multiplier**2) + max(slope + beta, larger)

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Return this law, k and β: β takes half of ε, unless it is given."""
        if delta == 0:
            raise needs_delta(self.name)
        square = 2 * log(1 / delta)
        beta = min(log1p(epsilon / square) / 2, epsilon / 2) if beta is None else beta
        growth = exp(beta)
        left = left_for_shift(epsilon, max(beta, (growth**2 - 1) * square / 2))
        slope = growth * sqrt(square)
        return self, (slope + sqrt(slope**2 + 2 * left)) / (2 * left), beta

    def published(self, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
        """Return k = 5√(2 ln(2/δ))/ε and β = ε/(4(1 + ln(2/δ))) of Nissim, Raskhodnikova and Smith, safely rounded."""
        tail = log_above(2 / delta)
        return 5 * root_above(2 * tail) / epsilon, epsilon / (4 * (1 + tail))


class LaplaceLogNormal(Law):
    """The law of X·e^(σY), X Laplace, Y normal, σ a fraction: all moments are finite.

    A release with constants k and β costs ρ = ½·(β/σ + e^(3σ²/2)/k)² of zero-concentrated differential privacy.
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
        """Return ½·(β/σ + e^(3σ²/2)/k)², rounded up; k is ``multiplier``."""
        return (beta / self.sigma + exp_above(self.sigma**2 * 3 / 2) / multiplier) ** 2 / 2

    def epsilon_above(self, multiplier: Fraction, beta: Fraction, delta: Fraction) -> Fraction:
        """Return ρ + 2√(ρ·ln(1/δ)) (Bun and Steinke, "Concentrated Differential Privacy", 2016, Proposition 1.3)."""
        if delta == 0:
            raise needs_delta(self.name)
        rho = self.rho_above(multiplier, beta)
        return rho + 2 * root_above(rho * log_above(1 / delta))

    def fitted(self, epsilon: float, delta: float, beta: float | None) -> tuple[Law, float, float]:
        """Return the law whose σ gives the least noise variance for this β, k and β. The default of β is √(2ρ)/6."""
        if delta == 0:
            raise needs_delta(self.name)
        tail = log(1 / delta)
        return self.fitted_to_rho((epsilon / (sqrt(tail + epsilon) + sqrt(tail))) ** 2, beta)

    def fitted_to_rho(self, rho: float, beta: float | None) -> tuple[Law, float, float]:
        """Return law, k and β as :meth:`fitted` does, for a budget of ρ.

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
        """Return the products of both factors' bounds, rounded outwards."""
        x_low, x_high = self._x.bounds(bits)
        y_low, y_high = self._y.bounds(bits)
        digits = bits // 3 + 24
        low = exp_below(self._sigma * Fraction(y_low, 1 << bits), digits)
        high = exp_above(self._sigma * Fraction(y_high, 1 << bits), digits)
        return floor(x_low * low), ceil(x_high * high)


NAMES = ("cauchy", "gamma4", "student-t", "laplace", "gaussian", "laplace-log-normal")
"""Names of noises. Besides ``gamma4``, ``gamma3``, ``gamma5/2`` and all other fractions γ > 1 are names."""


def law(name: str) -> Law:
    """Return the law of the given name, or raise ``noise_unknown`` (``InputError``)."""
    if name == "cauchy":
        return Cauchy()
    if match := re.fullmatch(r"gamma([0-9]{1,3})(?:/([1-9][0-9]?))?", name):
        gamma = Fraction(int(match[1]), int(match[2] or 1))
        return Cauchy() if gamma == 2 else Admissible(gamma)
    for found in (StudentT, RealLaplace, Gaussian, LaplaceLogNormal):
        if found.name == name:
            return found()
    raise InputError("noise_unknown", f"choose from {', '.join(NAMES)}, or gamma and a number above 1")


def calibrate(name: str, epsilon: Fraction, delta: Fraction = Fraction(0), beta: Fraction | None = None) -> Calibration:
    """Return the constants k and β of a noise whose release is (``epsilon``, ``delta``)-differentially private.

    Raises InputError: ``noise_unknown``; ``noise_unfit``: the noise needs δ > 0; ``beta_invalid``: β alone costs all of
    ε; ``epsilon_invalid``: ε or δ is outside its range. ``name``: ``cauchy``, ``gamma4`` (any fraction above 1 for the
    4), ``student-t``, ``laplace``, ``gaussian`` or ``laplace-log-normal``. The last three need δ > 0; the first three
    do not use δ and cost none. ``epsilon``, ``delta``: the budget of this one release. ``beta``: β of the smooth
    sensitivity. For None it takes about half of ε.
    """
    return calibrated(law(name), epsilon, delta, beta)


def calibrate_to_rho(name: str, rho: Fraction, delta: Fraction, beta: Fraction | None = None) -> Calibration:
    """Return the constants k and β of a noise whose release is ρ-zero-concentrated differentially private.

    Laws of pure privacy get ε = √(2ρ); Laplace-log-normal noise states the ε that follows for ``delta`` > 0. Raises the
    errors of :func:`calibrate`, ``noise_unfit`` also for a law without ρ.
    """
    check_budget(rho, delta)
    found = law(name)
    if isinstance(found, PureLaw):
        return calibrate(name, Fraction(sqrt(2 * rho)) * (1 - Fraction(1, 1 << 50)), Fraction(0), beta)
    if not isinstance(found, LaplaceLogNormal):
        raise InputError("noise_unfit", f"{name} noise has no ρ: take laplace-log-normal, student-t or cauchy")
    fitted, guess, smoothing = found.fitted_to_rho(float(rho) * (1 - 2.0**-40), None if beta is None else float(beta))
    beta = Fraction(smoothing) if beta is None else beta
    multiplier = round_up(Fraction(guess))
    return proven(fitted, multiplier, beta, fitted.epsilon_above(multiplier, beta, delta), delta)


def published(name: str, epsilon: Fraction, delta: Fraction = Fraction(0)) -> Calibration:
    """Return the constants that Nissim, Raskhodnikova and Smith published. They give more noise than :func:`calibrate`.

    Raises InputError ``noise_unfit``: the paper has no constants for this noise, or its constants do not give (ε, δ);
    and those of :func:`calibrate`.
    """
    check_budget(epsilon, delta)
    found = law(name)
    if isinstance(found, Admissible):
        return proven(found, *found.published(epsilon), epsilon, Fraction(0))
    if isinstance(found, RealLaplace | Gaussian) and delta:
        return proven(found, *found.published(epsilon, delta), epsilon, delta)
    raise InputError("noise_unfit", f"there are no published constants for {name} noise with this δ")
