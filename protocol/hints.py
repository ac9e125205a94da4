"""Hints about probable mistakes in the values of a record, for its owner."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from protocol.features import Numeric
from protocol.shown import quoted
from protocol.values import MAX_BOUND_CHARACTERS, as_number, as_text, parse_bound

if TYPE_CHECKING:
    from decimal import Decimal

_DECIMAL_COMMA = re.compile("-?[0-9]+,[0-9]+")
_MISSING_CODE = re.compile("-[0-9]+|9+")
"""Integers that data files often use for a missing value, for example -1, -99, 99, 999: every negative integer, and
every integer whose digits are all 9."""


class Part(Protocol):
    """A label or a feature of a schema."""

    name: str

    def knows(self, value: object) -> bool:
        """Whether ``value`` is a class of this label, or a listed value or a number of this feature."""


def hint(part: Part, value: object) -> str:
    """A sentence on a probable mistake in ``value``, a record's value of ``part``; the empty text if there is none.

    For a numeric feature: a decimal comma, or a number outside the bounds. For the label or a categorical feature: an
    unlisted integer that may stand for a missing value (negative, or only nines). The sentence names the label or the
    feature, not the value.
    """
    name = quoted(part.name)
    if not isinstance(part, Numeric):
        text = as_text(value)
        if text is None or part.knows(value) or len(text) > MAX_BOUND_CHARACTERS or not _MISSING_CODE.fullmatch(text):
            return ""
        return f"{name}: this code is not listed; if it stands for a missing value, leave the value out"
    if isinstance(value, str) and _has_decimal_comma(str.__str__(value)):
        return f"{name}: a decimal comma is not read; write a point"
    number = as_number(value)
    if number is None or _is_between(number, part.low, part.high):
        return ""
    return f"{name}: outside its range, so it counts as the nearer end; if it stands for a missing value, leave it out"


def _has_decimal_comma(text: str) -> bool:
    return len(text) <= MAX_BOUND_CHARACTERS and _DECIMAL_COMMA.fullmatch(text) is not None


def _is_between(number: float | Fraction | Decimal, low: str, high: str) -> bool:
    exact = number if isinstance(number, float) else Fraction(number)
    return Fraction(parse_bound(low)) <= exact <= Fraction(parse_bound(high))
