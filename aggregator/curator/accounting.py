"""Costs of a curator's queries: how a fit divides its ε, how costs add up, and whether a total allows one more query.

A fit's vectors (lists of noisy numbers, :mod:`protocol.noise.sums`) compose sequentially: their ε add up. Source: Bun,
Steinke (TCC 2016), proposition 1.4, for ρ = ε²/2; docs/math.md, section 7; proofs: decision 70.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from aggregator.curator.concentrated import epsilon_above, rho_within
from aggregator.curator.terms import EQUAL, TWO_TO_ONE
from protocol import SCALE
from protocol.epsilon import MICRO, ceiling
from protocol.errors import InputError
from protocol.features import as_number
from protocol.questions import CLASS, MOMENT, SENSITIVITIES, Subject


class Cost(NamedTuple):
    """Exact cost of a query: ε in millionths, δ, and ρ of zero-concentrated privacy (Σ ε²/2 over vectors, or None)."""

    epsilon_micro: int
    delta: Fraction
    rho: Fraction | None


class Share(NamedTuple):
    """ε and δ of one released vector: ε in millionths; δ is 0 for noise that needs none."""

    epsilon_micro: int
    delta: Fraction = Fraction(0)

    @property
    def epsilon(self) -> Fraction:
        """ε as a fraction."""
        return Fraction(self.epsilon_micro, MICRO)


def cost_of(shares: Iterable[int]) -> Cost:
    """Return the cost of vectors with pure ε by sequential composition; ``shares``: ε of each vector in millionths."""
    shares = list(shares)
    rho = sum((Fraction(share * share, 2 * MICRO * MICRO) for share in shares), Fraction(0))
    return Cost(sum(shares), Fraction(0), rho)


def divide(epsilon_micro: int, subjects: Sequence[Subject], classes: int, adjacency: str, division: str) -> list[int]:
    """Return ε of each vector of a fit in millionths, rounded down. The division never looks at the records.

    - ``equal``: the class counts and every feature get equal parts; the vectors of one feature share its part equally.
    - ``2:1``: the class counts and every category get one part, every number two: each vector has one part (a number
      that may be missing has three).
    - ``worth``: ε_j ∝ (w_j Δ_j²)^(1/3) minimises Σ w_j Δ_j²/ε_j², the noise in a record's score to first order. Δ_j is
      the sensitivity of vector j; w_j, what a unit of noise variance adds to the score: 1 for class counts, A² for a
      table of A values, 3 for a sum, 4.5 for a sum of squares (k equal classes, uniform numbers).

    A vector of sensitivity 0 gets 0. ``epsilon_micro``: the total; ``classes``: k. Raises InputError
    ``epsilon_invalid``: a vector's ε is less than a millionth.
    """
    sensitive = [SENSITIVITIES[one.kind, one.power][adjacency] > 0 for one in subjects]
    owners = [(one.kind == CLASS, one.feature) for one in subjects]
    weights = []
    for one, is_sensitive, owner in zip(subjects, sensitive, owners, strict=True):
        if not is_sensitive:
            weights.append(Fraction(0))
        elif division == EQUAL:
            of_feature = sum(other == owner and needs for other, needs in zip(owners, sensitive, strict=True))
            weights.append(Fraction(1, of_feature))
        else:
            weights.append(Fraction(1) if division == TWO_TO_ONE else _worth(one, classes, adjacency))
    total = sum(weights, Fraction(0))
    shares = [int(epsilon_micro * weight / total) if total else 0 for weight in weights]
    if any(is_sensitive and share < 1 for is_sensitive, share in zip(sensitive, shares, strict=True)):
        raise InputError("epsilon_invalid", f"ε is too small to be divided among {sum(sensitive)} released vectors")
    return shares


def _worth(subject: Subject, classes: int, adjacency: str) -> Fraction:
    """Return one vector's weight in the division ``worth`` of :func:`divide`, (w Δ²)^(1/3), to millionths."""
    delta = SENSITIVITIES[subject.kind, subject.power][adjacency]
    if subject.kind == MOMENT:
        weight, relative = (3.0, delta / SCALE) if subject.power == 1 else (4.5, delta / SCALE)
    else:
        weight, relative = float(subject.size // classes) ** 2, float(delta)
    return Fraction(max(round(MICRO * (weight * relative**2) ** (1 / 3)), 1), MICRO)


MAX_MICRO = MICRO * MICRO
"""ε of a query and of a total is below this number of millionths."""
MAX_RHO = 10**12
"""ρ of a query is below this number, which is more than ε²/2 for every ε."""
PLACES = 30
"""δ and ρ are multiples of 10^−30."""
_UNIT = 10**PLACES
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,30})?")


class Spending(NamedTuple):
    """The summed costs of some queries: Σ ε in millionths, Σ δ and Σ ρ."""

    epsilon_micro: int = 0
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)

    def plus(self, cost: Cost) -> Spending:
        """Return the summed costs with one more query, whose cost was checked by :func:`checked`."""
        return Spending(
            self.epsilon_micro + cost.epsilon_micro, self.delta + cost.delta, self.rho + concentrated_cost(cost)
        )


class Remainder(NamedTuple):
    """What one further query may cost: the largest ε in millionths at δ = 0 (0: nothing), the largest δ and ρ."""

    epsilon_micro: int
    delta: Fraction
    rho: Fraction


class Total(NamedTuple):
    """The total (E, D) that queries may spend together (E in millionths), made by :func:`total`.

    One more query is allowed if Σ δ ≤ D − δ_c, and Σ ε ≤ E or Σ ρ is at most the ρ that gives (E, δ_c)
    (:mod:`aggregator.curator.concentrated`). δ_c is the part of D for this concentrated account; 0: there is none.
    """

    epsilon_micro: int
    delta: Fraction
    concentrated_delta: Fraction

    @property
    def rho(self) -> Fraction:
        """The largest Σ ρ of the concentrated account, rounded down; 0 without such an account."""
        if not self.concentrated_delta:
            return Fraction(0)
        return rho_within(Fraction(self.epsilon_micro, MICRO), self.concentrated_delta)

    @property
    def spendable_delta(self) -> Fraction:
        """D − δ_c, the largest Σ δ of all queries."""
        return self.delta - self.concentrated_delta

    def covers(self, spent: Spending) -> bool:
        """Return whether the summed costs ``spent`` of some queries are within this total."""
        within = spent.epsilon_micro <= self.epsilon_micro or spent.rho <= self.rho
        return within and spent.delta <= self.spendable_delta

    def left(self, spent: Spending) -> Remainder:
        """Return what one further query may cost after queries with the summed costs ``spent``."""
        rho = max(self.rho - spent.rho, Fraction(0))
        # ρ = ε²/2 of a query with δ = 0; the square root of an integer is exact and rounded down.
        by_rho = isqrt(int(2 * rho * MICRO**2))
        basic = max(self.epsilon_micro - spent.epsilon_micro, 0)
        return Remainder(max(basic, by_rho), max(self.spendable_delta - spent.delta, Fraction(0)), rho)

    def concentrated_epsilon(self, spent: Spending) -> float | None:
        """Return the concentrated account's ε, from Σ ρ of the queries, for people; None without it."""
        if not self.concentrated_delta:
            return None
        return float(epsilon_above(spent.rho, self.concentrated_delta))


def total(epsilon_micro: int, delta: Fraction, concentrated_delta: Fraction | None = None) -> Total:
    """Check and return a total (E, D), E in millionths; δ_c is ``concentrated_delta``, or half of D for None.

    Raises InputError ``epsilon_invalid``: E is not from 1 to below :data:`MAX_MICRO`; ``delta_invalid``: D or δ_c is no
    multiple of 10^−30, D is not from 0 to below 1, or δ_c not from 0 to D.
    """
    _check_epsilon(epsilon_micro)
    delta = Fraction(delta)
    if concentrated_delta is None:
        concentrated_delta = Fraction(int(delta * _UNIT) // 2, _UNIT)
    reserved = Fraction(concentrated_delta)
    if not 0 <= delta < 1 or not 0 <= reserved <= delta or (delta * _UNIT).denominator != 1:
        raise InputError("delta_invalid", "δ is from 0 to below 1, with at most 30 decimal places; see --help")
    if (reserved * _UNIT).denominator != 1:
        raise InputError("delta_invalid", "the δ reserved for concentrated accounting has at most 30 decimals")
    return Total(epsilon_micro, delta, reserved)


def checked(cost: Cost) -> Cost:
    """Return a query's cost with δ and ρ rounded up to multiples of 10^−30, after a check.

    Raises InputError: ``epsilon_invalid``: ε is no integer from 1 to below :data:`MAX_MICRO` millionths;
    ``delta_invalid``: δ is not from 0 to below 1, or ρ is not positive and below :data:`MAX_RHO`.
    """
    _check_epsilon(cost.epsilon_micro)
    delta, rho = _rounded_up(cost.delta), None if cost.rho is None else _rounded_up(cost.rho)
    if not 0 <= cost.delta <= delta < 1 or (rho is not None and not 0 < rho < MAX_RHO):
        raise InputError("delta_invalid", "a query's δ is from 0 to below 1, and its ρ is positive and below 10¹²")
    return cost._replace(delta=delta, rho=rho)


def concentrated_cost(cost: Cost) -> Fraction:
    """Return ρ of a query: the stated one; or ε²/2, if no ρ is stated, or if δ is 0 and ε²/2 is less."""
    of_epsilon = Fraction(cost.epsilon_micro**2, 2 * MICRO**2)
    if cost.rho is None:
        return of_epsilon
    return min(of_epsilon, cost.rho) if cost.delta == 0 else cost.rho


def parse_delta(text: str) -> Fraction:
    """Return δ from a decimal text such as ``1e-6`` of at most 40 characters; any other raises ``delta_invalid``."""
    found = as_number(text)
    if not isinstance(found, Decimal):
        raise InputError("delta_invalid", "δ is a decimal number, for example 1e-6")
    return Fraction(found)


def read_decimal(text: object) -> Fraction:
    """Return the number in a text of :func:`decimal_text`; any other raises ``delta_invalid`` (``InputError``)."""
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text):
        raise InputError("delta_invalid", "δ or ρ is not a decimal number of at most 12 digits and 30 decimal places")
    return Fraction(text)


def decimal_text(number: Fraction) -> str:
    """Return a multiple of 10^−30 as decimal text without an exponent, for example ``0.000001``."""
    whole, part = divmod(int(number * _UNIT), _UNIT)
    return f"{whole}.{part:0{PLACES}d}".rstrip("0").rstrip(".")


def _check_epsilon(micro: object) -> None:
    if type(micro) is not int or not 0 < micro < MAX_MICRO:
        raise InputError("epsilon_invalid", "ε is a positive number below 10⁶ with at most six decimal places")


def _rounded_up(number: Fraction) -> Fraction:
    return Fraction(ceiling(Fraction(number) * _UNIT), _UNIT)
