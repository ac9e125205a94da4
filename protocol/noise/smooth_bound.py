"""The proven part of a smooth sensitivity: from a distance t and A(t) to a number S that is β-smooth, exactly.

A(t) is the largest change of a statistic from any data set, t values of which differ from the given one, to a neighbour
of it. S* = max over t of e^(−βt)·A(t) changes by at most the factor e^β between neighbours. The search for the best t
uses floating point, and may miss the largest e^(−βt)·A(t) by the factor 1 − η. :func:`smooth_bound` makes up for this.

Source: Nissim, Raskhodnikova, Smith, STOC 2007; docs/smooth.md, "Rounding".
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from protocol.errors import InputError
from protocol.noise.rational_bounds import exp_above, round_up

FLOOR_BITS = 256
"""S is never below 2^−256 of the global sensitivity. The maximum of S* and a constant is as smooth as S*."""
SLACK = Fraction(1, 1 << 36)
"""η: relative error of the search in floating point, with a wide margin (docs/smooth.md, "Rounding")."""
SMALLEST_BETA = Fraction(1, 1 << 30)
LARGEST_BETA = Fraction(64)


class SmoothSensitivity(NamedTuple):
    """An upper bound S ≥ S* that changes by at most the factor e^β between neighbours. It is a private number.

    Attributes:
        value: S, a dyadic fraction, in units of the statistic. S exceeds S* by at most the factor (1 + 2η)·e^(3ηt), η =
            2⁻³⁶, t = ``distance``: by less than one part in 10⁸ for t ≤ 200.
        beta: β.
        distance: the t with the largest e^(−βt)·A(t).
    """

    value: Fraction
    beta: Fraction
    distance: int


def smooth_bound(change: Fraction, distance: int, beta: Fraction, global_sensitivity: Fraction) -> SmoothSensitivity:
    """S from A(t) = ``change`` at t = ``distance``, found up to a factor 1 − η with the smoothing β − 3η.

    S is between S* and (1 + 2η)·S* for this smaller smoothing, so S changes by at most e^(β − 3η)·(1 + 2η) < e^β.

    Raises:
        InputError: ``beta_invalid``: β is outside 2⁻³⁰ … 64.
    """
    least = global_sensitivity / (1 << FLOOR_BITS)
    found = max(change * exp_above(-inner_beta(beta) * distance), least) * (1 + SLACK + SLACK**2 * 2)
    return SmoothSensitivity(round_up(found), beta, distance)


def inner_beta(beta: Fraction) -> Fraction:
    """β − 3η: what rounding adds to the smoothness of the search is taken off β.

    Raises:
        InputError: ``beta_invalid``: β is outside 2⁻³⁰ … 64.
    """
    if not SMALLEST_BETA <= beta <= LARGEST_BETA:
        raise InputError("beta_invalid", "the smoothing β is between 2^-30 and 64: take another ε or another noise")
    return Fraction(beta) - 3 * SLACK
