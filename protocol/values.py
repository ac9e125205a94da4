"""What a value in a record is: missing, a listed text, an exact number, or nothing that has a meaning.

Devices hold typed and foreign values (numpy's, Decimals, enumerations) or the texts of a file; schemas come
from text files. Nothing here raises because of a value, or keeps one in an error.
Source: docs/formats.md, section 5 (values of a record); docs/decisions/0001.
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import isfinite, isnan
from operator import index
from typing import TYPE_CHECKING, Any

from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

MAX_BOUND_CHARACTERS = 40
MAX_BOUND_EXPONENT = 300
_BOUND = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE]([+-]?[0-9]+))?")
MAX_DIGITS = 4300
"""An integer of more digits is no listed text, and outside all bounds."""
_NEAR_ZERO = Decimal("1e-400")
_TOO_LONG_INTEGER = 10**MAX_DIGITS
_BOOLEANS = ("bool", "bool_")
_ABSENT = ("NAType", "NaTType")
"""Types of data frames for a cell that is not there."""


def parse_bound(text: str) -> Decimal:
    """A bound's decimal text as an exact number.

    The text is ``-?digits(.digits)?([eE][+-]?digits)?`` in ASCII, of at most 40 characters, with an exponent
    of −300 … 300. The number is 0 or of a size from 10^−300 to just below 10^301.

    Raises:
        InputError: ``schema_invalid``.
    """
    number = _spelled(text) if isinstance(text, str) else None
    if number is not None:
        return number
    raise InputError("schema_invalid", "a bound is a finite decimal number, for example -2.5 or 1e6")


def _spelled(text: str) -> Decimal | None:
    """The number that a text spells by the grammar of bounds; None for every other text."""
    match = _BOUND.fullmatch(text) if len(text) <= MAX_BOUND_CHARACTERS else None
    if match is None or abs(int(match[1] or 0)) > MAX_BOUND_EXPONENT:
        return None
    number = Decimal(text)
    return number if not number or abs(number.adjusted()) <= MAX_BOUND_EXPONENT else None


def is_missing(value: object) -> bool:
    """Whether a record says nothing: None, the empty text, NaN of every kind, a data frame's NA and NaT.

    What says something and has no meaning for a feature is *unlisted* instead; a feature may tell the two apart.
    """
    if value is None or type(value) is int:
        return value is None
    if isinstance(value, str):
        return not str.__len__(value)
    if type(value).__name__ in _ABSENT:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    return _converted(_differs_from_itself, value) is True


def _differs_from_itself(value: Any) -> bool:
    return bool(value != value)  # noqa: PLR0124 - NaN, and times that are none


def as_text(value: object) -> str | None:
    """A categorical value as the text that schemas list; None where it has none.

    A text is itself; a boolean is ``true`` or ``false``; a number that is integral (3, 3.0, a decimal 3, whatever
    library it comes from) is its decimal digits, and −0.0 is 0. Other numbers and other types are no listed value,
    nor are integers of more than 4300 digits.
    """
    if type(value) is str:
        return value
    if type(value) is int:
        return _digits(value)
    if type(value).__name__ in _BOOLEANS:
        truth = _converted(bool, value)
        return None if truth is None else "true" if truth else "false"
    if isinstance(value, str):
        return str.__str__(value)
    number = as_number(value)
    if number is None or (type(number) is float and not isfinite(number)):
        return None
    numerator, denominator = number.as_integer_ratio()
    return _digits(numerator) if denominator == 1 else None


def _digits(number: int) -> str | None:
    """The decimal text of an integer, whatever limit the interpreter was given; None above 4300 digits."""
    if -(1 << 63) <= number < 1 << 64:
        return str(number)
    return str(Decimal(number)) if abs(number) < _TOO_LONG_INTEGER else None


def as_number(value: object) -> int | float | Fraction | Decimal | None:
    """A number without loss; None for booleans, NaN, other text and everything that is no real number.

    The same number has the same code however it arrives: integers of other types (NumPy's among them) become
    int, what knows its exact ratio (Decimal, Fraction, floats of other widths) a Fraction, text by the grammar of
    bounds a Decimal, and only the rest goes through float. Infinities are floats.
    """
    if type(value) is int:
        return value
    if isinstance(value, str):
        return _spelled(str.__str__(value))
    if type(value).__name__ in _BOOLEANS or isinstance(value, (bytes, complex)):
        return None
    number: float | None
    if isinstance(value, float):
        number = float.__float__(value)
    else:
        exact: int | Fraction | None = _as_integer(value)
        if exact is None:
            exact = _as_fraction(value)
        if exact is not None:
            return exact
        number = _converted(float, value) if hasattr(type(value), "__float__") and not _is_complex(value) else None
    return None if number is None or isnan(number) else number


def _is_complex(value: object) -> bool:
    """Whether a number has two parts, in whatever width: NumPy turns one into a float, with a warning."""
    return type(value).__name__.startswith(("complex", "clongdouble"))


def _as_integer(value: object) -> int | None:
    """The exact int of an integer of another type."""
    number: int | None = _converted(index, value) if hasattr(type(value), "__index__") else None
    return number


def _as_fraction(value: object) -> Fraction | None:
    """What a value's own exact ratio says; None for a value without one, NaN and infinities among them."""
    ratio: Fraction | None = _converted(_ratio, value) if hasattr(type(value), "as_integer_ratio") else None
    return ratio


def _ratio(value: Any) -> Fraction:
    from fractions import Fraction

    number = _moderate(value) if isinstance(value, Decimal) else value
    numerator, denominator = number.as_integer_ratio()
    return Fraction(index(numerator), index(denominator))


def _moderate(number: Decimal) -> Decimal:
    """A number of the same code whose ratio has some thousand digits: that of 1e999999999 would fill the memory.

    Numbers of more than 4300 digits lie beyond all bounds and are no listed text. Bounds lie below 10^301 and are
    multiples of 10^−340, so the places where rounding turns are multiples of
    10^−340/4S: a number nearer to 0 than 10^−400 is on the same side of all of them as 10^−400 with its sign.
    """
    if not number.is_finite():
        return number
    if not number:
        return Decimal(0)
    if number.adjusted() >= MAX_DIGITS:
        return Decimal("Infinity").copy_sign(number)
    return _NEAR_ZERO.copy_sign(number) if number.adjusted() < _NEAR_ZERO.adjusted() else number


def _converted(convert: Callable[[Any], Any], value: object) -> Any:
    """What a conversion makes of a foreign value, or None: it may raise anything, with the value in its text."""
    try:
        return convert(value)
    except Exception:  # noqa: BLE001
        return None
