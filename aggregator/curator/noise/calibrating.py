"""From a privacy budget to the constants of a noise: which (k, β) gives ε, (ε, δ) or ρ, with a proven cost.

The constants are guessed in floating point and then proven with rational bounds. docs/smooth.md compares all noises in
one table and derives the bounds.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import sqrt

from aggregator.curator.noise.admissible import Admissible, Cauchy
from aggregator.curator.noise.gaussian import Gaussian
from aggregator.curator.noise.laplace import RealLaplace
from aggregator.curator.noise.laplace_log_normal import LaplaceLogNormal
from protocol.errors import InputError
from protocol.noise.calibration import Calibration, calibrated, check_budget, proven
from protocol.noise.law import Law, PureLaw
from protocol.noise.rational_bounds import round_up
from protocol.noise.student import StudentT

NAMES = ("cauchy", "gamma4", "student-t", "laplace", "gaussian", "laplace-log-normal")
"""Names of noises. Besides ``gamma4``, ``gamma3``, ``gamma5/2`` and all other fractions γ > 1 are names."""


def law(name: str) -> Law:
    """The law of the given name.

    Raises:
        InputError: ``noise_unknown``: no law has this name.
    """
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
    """The constants of a noise whose release is (``epsilon``, ``delta``)-differentially private.

    Args:
        name: ``cauchy``, ``gamma4`` (any fraction above 1 for the 4), ``student-t``, ``laplace``, ``gaussian`` or
            ``laplace-log-normal``. The last three need δ > 0; the others do not use δ and cost none.
        epsilon, delta: the budget of this one release.
        beta: the smoothing β. None leaves about half of ε to β.

    Raises:
        InputError: ``noise_unknown``: no law has this name; ``noise_unfit``: the noise needs δ > 0;
            ``beta_invalid``: β alone costs all of ε; ``epsilon_invalid``: ε or δ is outside its range.
    """
    return calibrated(law(name), epsilon, delta, beta)


def calibrate_to_rho(name: str, rho: Fraction, delta: Fraction, beta: Fraction | None = None) -> Calibration:
    """The constants of a noise whose release is ρ-zero-concentrated differentially private.

    Laws of pure privacy get ε = √(2ρ). Of Laplace-log-normal noise ``delta`` > 0 chooses which of the pairs (ε, δ) that
    follow from ρ the calibration states.

    Raises:
        InputError: ``noise_unfit``: the law has no ρ, or ``delta`` is 0; others as :func:`calibrate`.
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
    """The constants that Nissim, Raskhodnikova and Smith published. They give more noise than :func:`calibrate`.

    Raises:
        InputError: ``noise_unfit``: the paper has no constants for this noise, or they do not give (ε, δ); others as
            :func:`calibrate`.
    """
    check_budget(epsilon, delta)
    found = law(name)
    if isinstance(found, Admissible):
        return proven(found, *found.published(epsilon), epsilon, Fraction(0))
    if isinstance(found, RealLaplace | Gaussian) and delta:
        return proven(found, *found.published(epsilon, delta), epsilon, delta)
    raise InputError("noise_unfit", f"there are no published constants for {name} noise with this δ")
