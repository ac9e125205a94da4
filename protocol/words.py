"""Texts for people: the id of a document as words, times as dates, and hints about probable mistakes in a record.

Two people can compare an id over the telephone: sixteen bits become one pronounceable word of five letters (the
proquint scheme of D. S. Wilkerson, 2009). Dates are computed here, because the date functions of 32-bit systems end in
2038.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from protocol.documents.payload import quoted
from protocol.features import MAX_BOUND_CHARACTERS, Numeric, as_number, as_text, parse_bound

if TYPE_CHECKING:
    from decimal import Decimal

_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aiou"


def to_words(identifier: bytes, count: int = 5) -> str:
    """Return the first 16·``count`` bits of ``identifier``, which must have as many, as words joined by hyphens.

    >>> to_words(bytes([127, 0, 0, 1]), 2)
    'lusab-babad'
    """
    pieces = (int.from_bytes(identifier[2 * i : 2 * i + 2], "big") for i in range(count))
    return "-".join(
        _CONSONANTS[piece >> 12]
        + _VOWELS[piece >> 10 & 3]
        + _CONSONANTS[piece >> 6 & 15]
        + _VOWELS[piece >> 4 & 3]
        + _CONSONANTS[piece & 15]
        for piece in pieces
    )


_DECIMAL_COMMA = re.compile("-?[0-9]+,[0-9]+")
_MISSING_CODE = re.compile("-[0-9]+|9+")
"""Integers that data files often use for a missing value, for example -1, 99, 999: every negative integer, and every
integer whose digits are all 9."""


class Part(Protocol):
    """What :func:`hint` needs of a label or a feature of a schema."""

    name: str

    def knows(self, value: object) -> bool:
        """Return whether ``value`` is a class of this label, or a listed value or a number of this feature."""


def hint(part: Part, value: object) -> str:
    """Return a sentence on a probable mistake in a record's ``value`` of ``part``, or the empty text if there is none.

    A mistake in a numeric feature is a decimal comma, or a number outside the bounds. A mistake in the label or a
    categorical feature is an unlisted integer that may stand for a missing value (negative, or only nines). The
    sentence names the label or the feature, not the value.
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


_LAST = 253_402_300_799
_DAY_SECONDS = 86_400
WARNED_SECONDS = 7 * _DAY_SECONDS
"""A warning is shown from this number of seconds before a document expires."""


def date(seconds: int, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Format a time, in seconds since 1970, in UTC. A time after the year 9999 becomes the last second of that year.

    >>> date(2**32)
    '2106-02-07 06:28:16 UTC'
    """
    from datetime import UTC, datetime, timedelta  # most uses of this module need no date

    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=min(seconds, _LAST)):{form}}"


def expiry_warning(what: str, expires: int, now: int, then: str) -> str:
    """Return a sentence if a document has expired or will within a week, else the empty text.

    ``what`` names the document in the sentence; ``then`` says the consequence of the expiry, and who does what about
    it.

    >>> expiry_warning("campaign 'pumps'", 2 * 86_400, 3_600, "devices stop answering")
    "campaign 'pumps' expires at 1970-01-03 00:00:00 UTC, in less than 2 days: devices stop answering"
    """
    if expires > now + WARNED_SECONDS:
        return ""
    days = -((now - expires) // _DAY_SECONDS)
    ahead = "a day" if days == 1 else f"{days} days"
    said = f"expires at {date(expires)}, in less than {ahead}" if now < expires else f"expired at {date(expires)}"
    return f"{what} {said}: {then}"
