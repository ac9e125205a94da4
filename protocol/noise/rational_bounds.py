"""Rational lower and upper bounds of exponentials, logarithms and roots, and of a smooth sensitivity.

Privacy constants are proven with these bounds. They come from decimal arithmetic, whose functions are rounded
correctly: each result is wrong by at most two units of its last digit. Each bound is the result moved by a hundred.

The smooth sensitivity of a statistic is S* = max over t of e^(−βt)·A(t). A(t) is the largest change of the statistic
between a data set with t values other than the given one and a neighbour of that data set. Callers search the best t in
floating point, so they may miss the maximum by the factor 1 − η; :func:`smooth_bound` makes up for this.
Source: Nissim, Raskhodnikova, Smith, STOC 2007; docs/smooth.md, "Rounding".
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from protocol.errors import InputError

BITS = 64
"""Significant bits of a number that :func:`round_up` or :func:`round_down` returns."""
DIGITS = 60
"""Decimal digits of the arithmetic."""


def round_up(number: Fraction, bits: int = BITS) -> Fraction:
    """Return the smallest number m·2^e ≥ ``number`` with an integer m below 2^``bits``; ``number`` is positive or 0.

    The result is above ``number`` by less than the factor 1 + 2^(1 − bits).
    """
    if number == 0:
        return number
    exponent = number.numerator.bit_length() - number.denominator.bit_length() - bits
    unit = Fraction(2) ** exponent
    mantissa = -(-number // unit)
    while mantissa >> bits:
        unit *= 2
        mantissa = -(-number // unit)
    return mantissa * unit


def round_down(number: Fraction, bits: int = BITS) -> Fraction:
    """Return the largest number m·2^e ≤ ``number`` with an integer m of at most ``bits`` + 1 bits; ``number`` ≥ 0."""
    if number == 0:
        return number
    unit = Fraction(2) ** (number.numerator.bit_length() - number.denominator.bit_length() - bits)
    return (number // unit) * unit


def exp_above(x: Fraction, digits: int = DIGITS) -> Fraction:
    """Return a fraction just above e^x: by at most the factor 1 + (1 + |x|)·10^(3 − digits)."""
    return _exp(x, digits) * (1 + (1 + abs(x)) * _unit(digits))


def exp_below(x: Fraction, digits: int = DIGITS) -> Fraction:
    """Return a fraction just below e^x: by at most the factor 1 − (1 + |x|)·10^(3 − digits)."""
    return _exp(x, digits) * (1 - (1 + abs(x)) * _unit(digits))


def log_above(x: Fraction) -> Fraction:
    """Return a fraction just above the natural logarithm of ``x`` > 0, by at most 10⁻⁵⁶·(1 + |ln x|)."""
    found = Fraction(_context(DIGITS).ln(_decimal(x, DIGITS)))
    return found + (1 + abs(found)) * _unit(DIGITS)


def root_above(x: Fraction) -> Fraction:
    """Return a fraction just above √x, x ≥ 0, by at most the factor 1 + 10⁻⁵⁶."""
    return Fraction(_context(DIGITS).sqrt(_decimal(x, DIGITS))) * (1 + _unit(DIGITS))


def integer_root(number: int, degree: int) -> int:
    """Return the largest integer r with r^``degree`` ≤ ``number``; ``number`` ≥ 0, ``degree`` ≥ 1."""
    if degree == 1 or number < 2:
        return number
    if degree == 2:
        return isqrt(number)
    root = 1 << -(-number.bit_length() // degree)
    while True:  # Newton's method starts above the root and decreases until it has the result.
        lower = ((degree - 1) * root + number // root ** (degree - 1)) // degree
        if lower >= root:
            return root
        root = lower


def _context(digits: int) -> Context:
    return Context(prec=digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)


def _decimal(x: Fraction, digits: int) -> Decimal:
    """Return ``x`` as a Decimal with a relative error of at most 10^(1 − digits)."""
    return _context(digits).divide(Decimal(x.numerator), Decimal(x.denominator))


def _exp(x: Fraction, digits: int) -> Fraction:
    return Fraction(_context(digits).exp(_decimal(x, digits)))


def _unit(digits: int) -> Fraction:
    """Return 10^(3 − digits), which is more than all rounding errors of one function."""
    return Fraction(1, 10 ** (digits - 3))


FLOOR_BITS = 256
"""The bound S of :func:`smooth_bound` is never below 2^−256 of the global sensitivity. The maximum of S* and a constant
is as smooth as S*."""
SLACK = Fraction(1, 1 << 36)
"""η: relative error, with a wide margin, of the floating-point search for t (docs/smooth.md, "Rounding")."""
SMALLEST_BETA = Fraction(1, 1 << 30)
LARGEST_BETA = Fraction(64)


class SmoothSensitivity(NamedTuple):
    """An upper bound S of the smooth sensitivity S*: neighbours' S differ by at most the factor e^β. It is private.

    Attributes:
        value: S, a dyadic fraction, in units of the statistic. S exceeds S* by at most the factor (1 + 2η)·e^(3ηt), η =
            2⁻³⁶, t = ``distance``: by less than one part in 10⁸ for t ≤ 200.
        beta: β, the smoothing.
        distance: the t with the largest e^(−βt)·A(t); A(t): see the docstring of this module.
    """

    value: Fraction
    beta: Fraction
    distance: int


def smooth_bound(change: Fraction, distance: int, beta: Fraction, global_sensitivity: Fraction) -> SmoothSensitivity:
    """Return the upper bound S of the smooth sensitivity S* from A(t) = ``change`` at t = ``distance``.

    The caller must have searched this t with the smoothing β − 3η (:func:`inner_beta`), up to a factor 1 − η, η = 2⁻³⁶.
    S is between S* and (1 + 2η)·S* for this smaller smoothing, so S changes by at most e^(β − 3η)·(1 + 2η) < e^β.
    Raises InputError ``beta_invalid``: β is outside 2⁻³⁰ … 64.
    """
    least = global_sensitivity / (1 << FLOOR_BITS)
    found = max(change * exp_above(-inner_beta(beta) * distance), least) * (1 + SLACK + SLACK**2 * 2)
    return SmoothSensitivity(round_up(found), beta, distance)


def inner_beta(beta: Fraction) -> Fraction:
    """Return β − 3η, η = 2⁻³⁶: the smoothing of the search for a β of 2⁻³⁰ … 64 (else ``beta_invalid``)."""
    if not SMALLEST_BETA <= beta <= LARGEST_BETA:
        raise InputError("beta_invalid", "the smoothing β is between 2^-30 and 64: take another ε or another noise")
    return Fraction(beta) - 3 * SLACK
