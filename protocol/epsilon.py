"""ε and δ without floats: integer micro-ε and pico-δ, exponentials rounded down, exact privacy loss.

ε is a multiple of 10⁻⁶; documents state it as an integer number of millionths. E = e^ε comes from 60-digit decimal
arithmetic and is lowered by one part in 10⁵⁰. So no probability that is computed from E belongs to a larger ε.
``PERIOD_MICRO`` … ``LIFETIME_DELTA_PICO`` are a device's limits if its owner sets none. Source: docs/math.md, section
1.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from math import inf, nextafter, prod
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple, Self

from protocol.documents.payload import DAY_SECONDS
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

MICRO = 1_000_000
PICO = 10**12
"""Documents state δ as an integer multiple of 1/PICO."""
MIN_ANSWER_MICRO = 1_000
MAX_ANSWER_MICRO = 16 * MICRO
_MAX_CHARACTERS = 100
_DELTA_PLACES = 12
_ZERO = frozenset(("0", "0.0", 0, 0.0))
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_ARITHMETIC = Context(prec=60, rounding=ROUND_HALF_EVEN, Emin=-999999, Emax=999999)
# 1 − 10⁻⁵⁰, written as text: a subtraction in the default context would give 1.
_JUST_BELOW_ONE = Decimal("0." + 50 * "9")


def micro_epsilon(epsilon: str | float | Decimal) -> int:
    """Return ε as an integer number of millionths.

    Raises InputError ``epsilon_invalid``: no value that :func:`millionths` takes.
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, str | Integral | float | Decimal):
        raise InputError("epsilon_invalid", "ε is given as text, integer, float or Decimal")
    micro = millionths(epsilon)
    if micro is None:
        raise InputError(
            "epsilon_invalid", "ε is a positive number below 10⁶ with at most six decimal places, such as 0.5"
        )
    return micro


def millionths(value: object) -> int | None:
    """Return a positive multiple of 10⁻⁶ below 10⁶ as an integer number of millionths, or None for every other value.

    ``value``: a text of ASCII digits, for example ``0.5``, ``.5`` or ``5e-1``, of at most 100 characters; an integer of
    any type; a float, which is read as its shortest text; or a Decimal. A bool is no number.
    """
    return decimal_multiple(value, 6, MICRO)


def decimal_multiple(value: object, places: int, bound: int) -> int | None:
    """Return the integer k of a value k·10^−``places`` above 0 and below ``bound``, or None for every other value.

    ``value`` is a number, or its text, as :func:`millionths` takes it.
    """
    number = _exact(value)
    if number is None or not number.is_finite() or not 0 < number < bound:
        return None
    # Decimal arithmetic would round to the precision of the caller's context, so the digits are used.
    _, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    shift = int(exponent) + len(digits) - len(text) + places
    if shift < 0:
        return None
    found: int = int(text) * 10**shift
    return found


def _exact(value: object) -> Decimal | None:
    """Return a number, or the number in a text of ASCII digits, as a Decimal, or None for every other value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        value = float.__repr__(value)
    if isinstance(value, str):
        return Decimal(value) if len(value) <= _MAX_CHARACTERS and _NUMBER.fullmatch(value) else None
    if isinstance(value, Integral):
        return Decimal(int(value))
    return value if isinstance(value, Decimal) else None


def check_answer_micro(micro: int) -> None:
    """Refuse (``epsilon_invalid``) an ε per answer, in millionths, that is no integer of 1000 … 16000000."""
    if type(micro) is not int or not MIN_ANSWER_MICRO <= micro <= MAX_ANSWER_MICRO:
        raise InputError("epsilon_invalid", "ε per answer lies between 0.001 and 16")


def format_micro(micro: int) -> str:
    """Return ``micro`` millionths as the shortest decimal text: 1500000 → ``1.5``."""
    whole, fraction = divmod(micro, MICRO)
    return f"{whole}.{fraction:06d}".rstrip("0").rstrip(".")


def pico_delta(delta: str | float | Decimal) -> int:
    """Return δ as an integer number of 10⁻¹². δ bounds the probability that noise fails to give the promised ε.

    ``delta`` is 0, or a positive multiple of 10⁻¹² below 1, written as :func:`millionths` takes it.

    Raises InputError ``delta_invalid``: no such number.
    """
    if not isinstance(delta, bool) and isinstance(delta, str | int | float | Decimal) and delta in _ZERO:
        return 0
    pico = decimal_multiple(delta, _DELTA_PLACES, 1)
    if pico is None:
        raise InputError("delta_invalid", "δ is 0 or a number below 1 with at most 12 decimal places, for example 1e-5")
    return pico


def format_pico(pico: int) -> str:
    """Return ``pico`` multiples of 10⁻¹² as text: 10000000 → ``1e-05``, 500000000000 → ``0.5``, 0 → ``0``."""
    if not pico:
        return "0"
    digits = str(pico).rstrip("0")
    exponent = len(str(pico)) - 1 - _DELTA_PLACES
    if exponent >= -4:
        whole, fraction = divmod(pico, PICO)
        return f"{whole}.{fraction:012d}".rstrip("0").rstrip(".")
    return f"{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e-{-exponent:02d}"


@lru_cache(maxsize=1024)
def exp_below(numerator: int, denominator: int = MICRO) -> Fraction:
    """Return a fraction just below e^(numerator/denominator): the relative difference is at most 10⁻⁴⁹."""
    from fractions import Fraction

    exponent = _ARITHMETIC.divide(Decimal(numerator), Decimal(denominator))
    power = _ARITHMETIC.exp(exponent)
    return Fraction(_ARITHMETIC.multiply(power, _JUST_BELOW_ONE))


def ceiling(fraction: Fraction) -> int:
    """Return the smallest integer that is not below ``fraction``."""
    return -((-fraction.numerator) // fraction.denominator)


class PrivacyLoss(float):
    """An exact privacy loss, ln(ratio) + exponent, in nats. As a float it is rounded up.

    The loss is the logarithm of the largest ratio of an answer's probabilities under two inputs.

    Attributes:
        ratio: the rational factor of that ratio.
        exponent: natural logarithm of its irrational factor (discrete Laplace noise); 0 for mechanisms with rational
            probabilities.
    """

    ratio: Fraction
    exponent: Fraction

    def __new__(cls, ratio: Fraction, exponent: Fraction | int = 0) -> Self:
        """Return the loss ln(ratio) + exponent, rounded up to a float."""
        from fractions import Fraction

        exponent = Fraction(exponent)
        numerator, denominator = Decimal(ratio.numerator), Decimal(ratio.denominator)
        logarithm = _ARITHMETIC.ln(_ARITHMETIC.divide(numerator, denominator))
        total = Fraction(logarithm) + exponent
        nearest = float(total)
        self = super().__new__(cls, nearest if Fraction(nearest) >= total else nextafter(nearest, inf))
        self.ratio = ratio
        self.exponent = exponent
        return self

    def above(self, other: PrivacyLoss) -> bool:
        """Return whether this loss is larger than ``other``, also if both round to the same float.

        For equal floats the comparison is exact if the exponents are equal, else right to 1 part in 10⁴⁹.
        """
        if float(self) != float(other):
            return float(self) > float(other)
        if self.exponent == other.exponent:
            return self.ratio > other.ratio
        difference = other.exponent - self.exponent
        return self.ratio > other.ratio * exp_below(difference.numerator, difference.denominator)

    def exceeds(self, micro: int) -> bool:
        """Return whether this loss is above an ε of ``micro`` millionths. The comparison is right to 1 part in 10⁴⁹."""
        from fractions import Fraction

        allowed = Fraction(micro, MICRO) - self.exponent
        if self.ratio == 1:
            return allowed < 0
        return self.ratio > exp_below(allowed.numerator, allowed.denominator)


def composed(losses: Iterable[PrivacyLoss]) -> PrivacyLoss:
    """Return the privacy loss of several answers about one record together. ``losses`` has the loss of each answer.

    By sequential composition the ratios are multiplied and the exponents are added. The ratios are multiplied in pairs,
    then in pairs of pairs: one by one, the growing product for thousands of answers takes minutes on a device.
    """
    from fractions import Fraction

    losses = list(losses)
    ratios = [loss.ratio for loss in losses] or [Fraction(1)]
    while len(ratios) > 1:
        ratios = [prod(ratios[start : start + 2], start=Fraction(1)) for start in range(0, len(ratios), 2)]
    return PrivacyLoss(ratios[0], sum((loss.exponent for loss in losses), Fraction(0)))


PERIOD_MICRO = 4 * MICRO
"""Largest ε of one campaign in one of its periods, in millionths."""
DAY_MICRO = 4 * MICRO
"""Largest ε in any 24 hours, over all campaigns, in millionths."""
LIFETIME_MICRO = 100 * MICRO
"""Largest ε in a device's life, over all campaigns, in millionths."""
PERIOD_DELTA_PICO = 20_000_000
"""Largest δ of one masked campaign in one of its periods, in 10⁻¹²: 2·10⁻⁵, twice the usual 10⁻⁵ of a campaign. For a
changed record costs up to twice as much as an added or removed one, and nodes count changes unless their owner says
otherwise."""
LIFETIME_DELTA_PICO = 500_000_000
"""Largest δ in a node's life, in 10⁻¹²: 5·10⁻⁴, or 25 periods, as for ε. So noise fails for a record with a chance of
at most 1 in 2000."""


class Limit(NamedTuple):
    """An owner's limit: at most ``micro`` millionths of ε in any time span of ``seconds`` seconds."""

    micro: int
    seconds: int


class Pace(NamedTuple):
    """A limit on a campaign's answers: at most ``answers`` in any time span of ``seconds`` seconds.

    Attributes:
        begun: largest number of the campaign's periods that begin in such a time span.
    """

    answers: int
    seconds: int
    begun: int

    def __str__(self) -> str:
        days = self.seconds // DAY_SECONDS
        return f"{self.answers} of the {self.begun} periods of {'a day' if days == 1 else f'{days} days'}"


def paces(epsilon_micro: int, time_precision: int, limits: Iterable[Limit]) -> list[Pace]:
    """Return the limits on a campaign's answers that follow from the owner's limits on ε, the shortest time span first.

    ``epsilon_micro`` is the cost of one period of ``time_precision`` seconds. Only limits that keep a device from
    answering in every period are returned; limits that other limits imply are left out.

    >>> list(map(str, paces(1_000_000, 3_600, [Limit(DAY_MICRO, DAY_SECONDS)])))
    ['4 of the 24 periods of a day']
    >>> paces(1_000_000, DAY_SECONDS, [Limit(DAY_MICRO, DAY_SECONDS)])
    []
    """
    found: list[Pace] = []
    for limit in sorted(limits, key=lambda limit: limit.seconds):
        most = limit.micro // epsilon_micro
        if _seconds_for(most, time_precision, found) < limit.seconds:
            found = [pace for pace in found if pace.answers < most]
            found.append(Pace(most, limit.seconds, -(-limit.seconds // time_precision)))
    return found


def _seconds_for(answers: int, time_precision: int, limiting: list[Pace]) -> int:
    """Return the seconds from the first answer to answer ``answers`` + 1, if each comes as soon as it is allowed."""
    if not limiting:
        return answers * time_precision
    *inner, pace = limiting
    groups, rest = divmod(answers, pace.answers)
    return groups * pace.seconds + _seconds_for(rest, time_precision, inner)


def days_paid(answers: int, time_precision: int, limiting: list[Pace]) -> int:
    """Return in how many days, rounded up, a device gives ``answers`` answers, each as soon as the limits allow it.

    The time begins with the first answer and ends with the period of the last answer. ``time_precision`` is the length
    of a period in seconds, ``limiting`` the result of :func:`paces`.

    >>> daily = [Limit(DAY_MICRO, DAY_SECONDS)]
    >>> [days_paid(100, T, paces(1_000_000, T, daily)) for T in (3_600, 46_800, 86_400, 7 * 86_400)]
    [25, 55, 100, 700]
    >>> days_paid(5, DAY_SECONDS, paces(1_000_000, DAY_SECONDS, [*daily, Limit(1_000_000, 7 * DAY_SECONDS)]))
    29
    """
    if answers < 1:
        return 0
    return -(-(_seconds_for(answers - 1, time_precision, limiting) + time_precision) // DAY_SECONDS)
