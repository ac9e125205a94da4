"""From a law and a privacy budget to the constants of the noise, with a proven cost.

The constants are guessed in floating point and then proven with rational bounds.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from protocol.errors import InputError
from protocol.noise.law import Law, PureLaw
from protocol.noise.rational_bounds import round_up

LEAST_EPSILON, LARGEST_EPSILON = Fraction(1, 10**6), Fraction(64)
LEAST_DELTA = Fraction(1, 10**100)


class Calibration(NamedTuple):
    """A noise and its constants: the statistic f is released as f + k·S·Z.

    Attributes:
        law: the distribution of Z.
        multiplier: k.
        beta: β; S must be smooth for this β or a smaller one.
        epsilon, delta: a release is (ε, δ)-differentially private; δ = 0 is pure.
        rho: a release is ρ-zero-concentrated differentially private; None if the law has no such bound.
    """

    law: Law
    multiplier: Fraction
    beta: Fraction
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None

    def variance(self, sensitivity: Fraction) -> float:
        """Variance of k·S·Z for S = ``sensitivity``; infinite for heavy tails.

        Public only if ``sensitivity`` is: with the global sensitivity it is an upper bound that may be published.
        """
        return self.law.variance * float(self.multiplier * sensitivity) ** 2


def calibrated(law: Law, epsilon: Fraction, delta: Fraction, beta: Fraction | None = None) -> Calibration:
    """The constants of a law whose release is (``epsilon``, ``delta``)-differentially private.

    Args:
        law: the law. A pure law does not use δ and costs none.
        epsilon, delta: the budget of this one release.
        beta: the smoothing β. None leaves about half of ε to β.

    Raises:
        InputError: ``noise_unfit``: the law needs δ > 0; ``beta_invalid``: β alone costs all of ε;
            ``epsilon_invalid``: ε or δ is outside its range.
    """
    check_budget(epsilon, delta)
    fitted, multiplier, smoothing = law.fitted(float(epsilon), float(delta), None if beta is None else float(beta))
    if isinstance(fitted, PureLaw):
        delta = Fraction(0)
    beta = Fraction(smoothing) if beta is None else beta
    return proven(fitted, _raised(fitted, multiplier, beta, epsilon, delta), beta, epsilon, delta)


def proven(law: Law, multiplier: Fraction, beta: Fraction, epsilon: Fraction, delta: Fraction) -> Calibration:
    """The calibration with these constants, after a proof that its cost is at most (ε, δ).

    Raises:
        InputError: ``noise_unfit``: the cost is larger.
    """
    if law.epsilon_above(multiplier, beta, delta) > epsilon:
        raise InputError("noise_unfit", f"these constants of {law.name} noise cost more than ε: take a smaller ε")
    return Calibration(law, multiplier, beta, epsilon, delta, law.rho_above(multiplier, beta))


def check_budget(epsilon: Fraction, delta: Fraction) -> None:
    """Refuse an ε (or ρ) or a δ outside its range (``epsilon_invalid``)."""
    if not LEAST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise InputError("epsilon_invalid", "ε (or ρ) of one release is between 0.000001 and 64")
    if delta and not LEAST_DELTA <= delta < 1:
        raise InputError("epsilon_invalid", "δ is 0, or between 10^-100 and 1")


def _raised(law: Law, guess: float, beta: Fraction, epsilon: Fraction, delta: Fraction) -> Fraction:
    """``guess`` as a fraction, raised by the smallest margin 2^−40, 2^−38, … for which the cost is at most ε."""
    for bits in range(40, 0, -2):
        multiplier = round_up(Fraction(guess) * (1 + Fraction(1, 1 << bits)))
        if law.epsilon_above(multiplier, beta, delta) <= epsilon:
            return multiplier
    raise InputError("beta_invalid", "the smoothing β alone costs nearly the whole ε: take a smaller β")
