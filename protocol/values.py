"""How a value of a record is read: as missing, as a text, as an exact number, or as none of these.

Records hold Python values, values of libraries (numpy, Decimal, enumerations) or the texts of a file; schemas come
from text files. The functions that read a record's value never raise, so no error text contains such a value.
Source: docs/formats.md, section 5 (values of a record); decision 1.
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
"""Most digits of an integer that can be a listed text. Integers of more digits are outside the bounds of every
feature."""
_NEAR_ZERO = Decimal("1e-400")
_TOO_LONG_INTEGER = 10**MAX_DIGITS
_BOOLEANS = ("bool", "bool_")
_ABSENT = ("NAType", "NaTType")
"""Type names of pandas' NA and NaT: cells without a value."""


def parse_bound(text: str) -> Decimal:
    """Read the decimal text of a bound as an exact number.

    The text is ``-?digits(.digits)?([eE][+-]?digits)?`` in ASCII, of at most 40 characters, with an exponent
    of −300 … 300. The number is 0, or its absolute value is at least 10^−300 and below 10^301.

    Raises:
        InputError: ``schema_invalid``: ``text`` is no text, or not of this form.
    """
    number = _read_decimal(text) if isinstance(text, str) else None
    if number is not None:
        return number
    raise InputError("schema_invalid", "a bound is a finite decimal number, for example -2.5 or 1e6")


def _read_decimal(text: str) -> Decimal | None:
    """The number in a text that follows the grammar of bounds; None for every other text."""
    match = _BOUND.fullmatch(text) if len(text) <= MAX_BOUND_CHARACTERS else None
    if match is None or abs(int(match[1] or 0)) > MAX_BOUND_EXPONENT:
        return None
    number = Decimal(text)
    return number if not number or abs(number.adjusted()) <= MAX_BOUND_EXPONENT else None


def is_missing(value: object) -> bool:
    """Whether a value is missing: None, the empty text, NaN of any type, or pandas' NA and NaT. Never raises.

    NaN is every value that is not equal to itself.

    Any other value that a feature can not read is *unlisted*. A feature may code the two cases differently.
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
    return bool(value != value)  # noqa: PLR0124 - true for NaN and for numpy's NaT


def as_text(value: object) -> str | None:
    """A categorical value as the text that schemas list; None for a value without such a text.

    A text stays as it is. A boolean becomes ``true`` or ``false``. An integral number of any type (3, 3.0,
    Decimal 3) becomes its decimal digits; −0.0 becomes 0. The result is None for other numbers, other types and
    integers of more than 4300 digits.
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
    """The decimal text of an integer; None above 4300 digits, whatever limit the interpreter is set to."""
    if -(1 << 63) <= number < 1 << 64:
        return str(number)
    return str(Decimal(number)) if abs(number) < _TOO_LONG_INTEGER else None


def as_number(value: object) -> int | float | Fraction | Decimal | None:
    """A value as a number; None for everything that is no real number. Never raises.

    Every feature gives the result the same code as the exact value. None is the result for booleans, bytes, NaN, and
    texts that do not follow the grammar of :func:`parse_bound`. Integers of other types (NumPy) become int; types with
    an exact ratio (Decimal, Fraction, floats of other widths) become Fraction; texts become Decimal; floats stay; all
    other types are converted by ``float``. A Decimal from ±10^4300 on becomes a float infinity, and a Decimal between 0
    and ±10^−400 becomes ±10^−400. Infinities are floats.
    """
    if type(value) is int:
        return value
    if isinstance(value, str):
        return _read_decimal(str.__str__(value))
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
    """Whether the type is a complex number of any width. NumPy would turn it into a float, with a warning."""
    return type(value).__name__.startswith(("complex", "clongdouble"))


def _as_integer(value: object) -> int | None:
    """The int that equals an integer of another type; None for other values."""
    number: int | None = _converted(index, value) if hasattr(type(value), "__index__") else None
    return number


def _as_fraction(value: object) -> Fraction | None:
    """The exact ratio of a value; None for values without one, for example NaN and infinities."""
    ratio: Fraction | None = _converted(_ratio, value) if hasattr(type(value), "as_integer_ratio") else None
    return ratio


def _ratio(value: Any) -> Fraction:
    from fractions import Fraction

    number = _moderate(value) if isinstance(value, Decimal) else value
    numerator, denominator = number.as_integer_ratio()
    return Fraction(index(numerator), index(denominator))


def _moderate(number: Decimal) -> Decimal:
    """A number that every feature codes as ``number`` and whose ratio has at most some thousand digits.

    The ratio of 1e999999999 would fill the memory. Numbers of more than 4300 digits are outside all bounds and are no
    listed text: they become infinity. Bounds are below 10^301 and multiples of 10^−340, so all rounding ties of
    scaled numbers are multiples of 10^−340/4S. A number between 0 and ±10^−400 is on the same side of every tie as
    ±10^−400: it becomes ±10^−400.
    """
    if not number.is_finite():
        return number
    if not number:
        return Decimal(0)
    if number.adjusted() >= MAX_DIGITS:
        return Decimal("Infinity").copy_sign(number)
    return _NEAR_ZERO.copy_sign(number) if number.adjusted() < _NEAR_ZERO.adjusted() else number


def _converted(convert: Callable[[Any], Any], value: object) -> Any:
    """``convert(value)``; None if it raises. Errors of another library are dropped: they may contain the value."""
    try:
        return convert(value)
    except Exception:  # noqa: BLE001
        return None
