"""Zero-concentrated privacy as (ε, δ), with the best order: for curators' accounts and for collectors' noise.

ρ-zero-concentrated privacy gives (ε, δ) if for one α > 1, with a = α − 1,

    δ ≥ e^{a(αρ − ε)}/a · (1 − 1/α)^α,   so   ε = αρ + g(a),   g(a) = (ln(1/δ) + a·ln a − α·ln α)/a.

The logarithm of the right side is convex in α, so both functions below have one extremum over a. Any a gives a valid
bound; a worse a costs accuracy and no privacy. The result is always better than ε = ρ + 2√(ρ·ln(1/δ)) (Bun, Steinke
2016), which is the same without the factor (1 − 1/α)^α/a < 1.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), corollary 13.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from protocol.noise.rational_bounds import round_down, round_up

_ARITHMETIC = Context(prec=80, Emin=MIN_EMIN, Emax=MAX_EMAX)
_WIDTH, _STEPS = 80, 110
"""Half the range of ln a, and the halvings by thirds: ln a is then known to 10^−17, and the extremum to its square."""
_MARGIN = Fraction(1, 10**35)
"""More than all rounding errors, relative to the result."""


@lru_cache(maxsize=256)
def rho_within(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest ρ whose privacy gives (ε, δ), ε > 0 and 0 < δ < 1, rounded down to 65 bits."""
    logarithm, aim = _logarithm(delta), _decimal(epsilon)

    def affordable(a: Decimal) -> Decimal:
        return _ARITHMETIC.divide(_ARITHMETIC.subtract(aim, _offset(a, logarithm)), _ARITHMETIC.add(a, 1))

    return round_down(Fraction(_best(affordable)) * (1 - _MARGIN))


@lru_cache(maxsize=256)
def epsilon_above(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the least ε for which ρ-zero-concentrated privacy gives (ε, δ), 0 < δ < 1, rounded up to 64 bits."""
    logarithm, cost = _logarithm(delta), _decimal(rho)

    def saved(a: Decimal) -> Decimal:
        return -_ARITHMETIC.fma(_ARITHMETIC.add(a, 1), cost, _offset(a, logarithm))

    return round_up(max(-Fraction(_best(saved)) * (1 + _MARGIN), Fraction(0))) if rho else Fraction(0)


def _best(score: Callable[[Decimal], Decimal]) -> Decimal:
    """Return the maximum over a of a function that first rises and then falls."""
    low, high = Decimal(-_WIDTH), Decimal(_WIDTH)
    for _ in range(_STEPS):
        third = (high - low) / 3
        left, right = low + third, high - third
        if score(_ARITHMETIC.exp(left)) < score(_ARITHMETIC.exp(right)):
            low = left
        else:
            high = right
    return score(_ARITHMETIC.exp(low))


def _offset(a: Decimal, logarithm: Decimal) -> Decimal:
    """Return g(a); ``logarithm`` is ln(1/δ)."""
    order = _ARITHMETIC.add(a, 1)
    powers = _ARITHMETIC.subtract(
        _ARITHMETIC.multiply(a, _ARITHMETIC.ln(a)), _ARITHMETIC.multiply(order, _ARITHMETIC.ln(order))
    )
    return _ARITHMETIC.divide(_ARITHMETIC.add(logarithm, powers), a)


def _logarithm(delta: Fraction) -> Decimal:
    return _ARITHMETIC.ln(_decimal(1 / delta))


def _decimal(number: Fraction) -> Decimal:
    return _ARITHMETIC.divide(Decimal(number.numerator), Decimal(number.denominator))
