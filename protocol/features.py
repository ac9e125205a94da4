"""One feature of a record: its listed values or its range, and the integer code of every possible value.

Missing values and values of any type have a code, so a device can report for every record. The functions that read a
record's value never raise, so no error text contains such a value.
Source: docs/formats.md, section 5 (features; values of a record); docs/math.md, sections 3 and 4; docs/decisions/0001.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from decimal import Decimal
from itertools import pairwise, product
from math import inf, isfinite, isnan, prod
from operator import index
from typing import TYPE_CHECKING, Any

from protocol import SCALE
from protocol.documents.payload import read_field, read_integer, read_text, read_texts
from protocol.errors import DocumentError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

MAX_BOUND_CHARACTERS = 40
MAX_BOUND_EXPONENT = 300
_BOUND = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE]([+-]?[0-9]+))?")
MAX_DIGITS = 4300
"""Most digits of an integer that a schema can list. Integers of more digits are outside the bounds of every feature."""
_NEAR_ZERO = Decimal("1e-400")
_TOO_LONG_INTEGER = 10**MAX_DIGITS
_BOOLEANS = ("bool", "bool_")
_ABSENT = ("NAType", "NaTType")
"""Type names of pandas' NA and NaT, which stand for a missing value."""


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
    """Return the number in a text that follows the grammar of bounds, or None for every other text."""
    match = _BOUND.fullmatch(text) if len(text) <= MAX_BOUND_CHARACTERS else None
    if match is None or abs(int(match[1] or 0)) > MAX_BOUND_EXPONENT:
        return None
    number = Decimal(text)
    return number if not number or abs(number.adjusted()) <= MAX_BOUND_EXPONENT else None


def is_missing(value: object) -> bool:
    """Return whether a value is missing: None, the empty text, NaN of any type, or pandas' NA and NaT. Never raises.

    Any other value that a feature can not read is *unlisted*; a feature may code missing and unlisted values
    differently.
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
    """Return a categorical value as the text that schemas list, or None for a value without such a text.

    A text stays as it is. A boolean becomes ``true`` or ``false``. An integral number of any type (3, 3.0, Decimal 3)
    becomes its decimal digits; −0.0 becomes 0. The result is None for other numbers, other types and integers of more
    than 4300 digits.
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
    """Return the decimal text of an integer, or None above 4300 digits, whatever limit the interpreter has."""
    if -(1 << 63) <= number < 1 << 64:
        return str(number)
    return str(Decimal(number)) if abs(number) < _TOO_LONG_INTEGER else None


def as_number(value: object) -> int | float | Fraction | Decimal | None:
    """Return a value as a number, or None for everything that is no real number. Never raises.

    Every feature gives the result the same code as it would give the exact value. Booleans, bytes, NaN, and texts that
    do not follow the grammar of :func:`parse_bound` become None. Integers of other types (NumPy) become int; types with
    an exact ratio (Decimal, Fraction, floats of other widths) become Fraction; texts become Decimal; floats stay; all
    other types are converted by ``float``. A Decimal from ±10^4300 on becomes an infinite float, and a Decimal between
    0 and ±10^−400 becomes ±10^−400.
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
    """Return whether the value's type is a complex number, which NumPy would turn into a float with a warning."""
    return type(value).__name__.startswith(("complex", "clongdouble"))


def _as_integer(value: object) -> int | None:
    """Return the int that equals an integer of another type, or None for other values."""
    number: int | None = _converted(index, value) if hasattr(type(value), "__index__") else None
    return number


def _as_fraction(value: object) -> Fraction | None:
    """Return the exact ratio of a value, or None for values without one, for example NaN and infinities."""
    ratio: Fraction | None = _converted(_ratio, value) if hasattr(type(value), "as_integer_ratio") else None
    return ratio


def _ratio(value: Any) -> Fraction:
    from fractions import Fraction

    number = _moderate(value) if isinstance(value, Decimal) else value
    numerator, denominator = number.as_integer_ratio()
    return Fraction(index(numerator), index(denominator))


def _moderate(number: Decimal) -> Decimal:
    """Return a number that every feature codes as ``number`` and whose ratio has at most some thousand digits.

    The ratio of 1e999999999 would fill the memory. Numbers of more than 4300 digits are outside all bounds and become
    infinity. All rounding ties of scaled numbers are multiples of 10^−340/4S, S = 65536, so a number between 0 and
    ±10^−400 is on the same side of every tie as ±10^−400.
    """
    if not number.is_finite():
        return number
    if not number:
        return Decimal(0)
    if number.adjusted() >= MAX_DIGITS:
        return Decimal("Infinity").copy_sign(number)
    return _NEAR_ZERO.copy_sign(number) if number.adjusted() < _NEAR_ZERO.adjusted() else number


def _converted(convert: Callable[[Any], Any], value: object) -> Any:
    """Return ``convert(value)``, or None if it raises: errors of another library may contain the value."""
    try:
        return convert(value)
    except Exception:  # noqa: BLE001
        return None


UNLISTED_RULES = ("missing", "other", "refuse")
MAX_VALUES = 65536
TIE = 0.01
"""Distance from a rounding tie, in units of the scaled integer, within which exact arithmetic replaces floats."""


class Categorical:
    """A feature with listed values.

    The codes are 0 … v − 1 for the v listed values in order; then one code for *missing*, unless there is a substitute;
    then one code for *other*, if ``unlisted`` is ``other``.

    Attributes:
        name: key of the feature in a record.
        values: the listed values, as text.
        unlisted: how a value that is not listed is coded: as ``missing``, as ``other``, or not at all (``refuse``).
            ``refuse`` is for development only: the existence of a report then depends on the record.
        substitute: code of the listed value that stands for a missing one; None if *missing* has its own code.
        size: number of codes.
    """

    kind = "categorical"
    __slots__ = ("_codes", "name", "size", "substitute", "unlisted", "values")

    def __init__(
        self, name: str, values: Sequence[str], unlisted: str = "missing", substitute: int | None = None
    ) -> None:
        """Set the attributes of the class and check them: wrong ones are refused as ``schema_invalid``."""
        self.name = name
        self.values = tuple(values)
        self.unlisted = unlisted
        self.substitute = substitute
        self._codes = {value: code for code, value in enumerate(self.values)}
        self.size = len(self.values) + (substitute is None) + (unlisted == "other")
        self._check()

    def _check(self) -> None:
        if len(self._codes) != len(self.values) or not self.values:
            raise InputError("schema_invalid", f"feature '{self.name}' lists no values, or one of them twice")
        if self.unlisted not in UNLISTED_RULES:
            raise InputError("schema_invalid", f"feature '{self.name}': unlisted is {', '.join(UNLISTED_RULES)}")
        if self.substitute is not None and not (
            type(self.substitute) is int and 0 <= self.substitute < len(self.values)
        ):
            raise InputError("schema_invalid", f"feature '{self.name}': the substitute is not a listed value")
        if not 2 <= self.size <= MAX_VALUES:
            raise InputError("schema_invalid", f"feature '{self.name}' can not tell two records apart; leave it out")

    @property
    def missing_code(self) -> int:
        """The code of a missing value: the substitute, or the code of *missing*."""
        return len(self.values) if self.substitute is None else self.substitute

    def knows(self, value: object) -> bool:
        """Return whether ``value`` is one of the listed values."""
        text = as_text(value)
        return text is not None and text in self._codes

    def known_code(self, value: object) -> int | None:
        """Return the code of ``value`` if it is listed, or if it is unlisted and *other* has a code; else None.

        Classification leaves out values without a code.
        """
        text = as_text(value)
        code = None if text is None else self._codes.get(text)
        if code is None and self.unlisted == "other" and not is_missing(value):
            return self.size - 1
        return code

    def code(self, value: object) -> int:
        """Return the code of ``value`` in a report. An unlisted value may be refused (``value_refused``)."""
        code = self.known_code(value)
        if code is not None:
            return code
        if self.unlisted == "refuse" and not is_missing(value):
            raise InputError("value_refused", f"feature '{self.name}' has a value that is not listed")
        return self.missing_code

    def reading(self, value: object) -> tuple[int, None]:
        """Return the code of ``value`` (:meth:`code`), and None, because a categorical feature has no number."""
        return self.code(value), None

    def known(self, value: object) -> tuple[int, None] | None:
        """Return the code of ``value`` for classification, and None as its number.

        Return None alone if there is no code.
        """
        code = self.known_code(value)
        return None if code is None else (code, None)

    def labels(self) -> list[str]:
        """Return the name of every code, in order: the values, then ``(missing)`` and ``(other)`` if coded."""
        names = list(self.values)
        if self.substitute is None:
            names.append("(missing)")
        if self.unlisted == "other":
            names.append("(other)")
        return names

    def to_dict(self) -> dict[str, Any]:
        """Return the feature as the dict that the payload of a campaign or model contains."""
        return {
            "kind": self.kind,
            "name": self.name,
            "values": list(self.values),
            "unlisted": self.unlisted,
            "substitute": self.substitute,
        }


class Numeric:
    """A numeric feature with public bounds. Numbers are scaled to [−S, S], S = 65536, and cut into bins at edges.

    A number x becomes u = (x − low)/(high − low)·2S − S, rounded half to even and clipped to [−S, S]. The code of u is
    its bin: the number of edges ≤ u.

    Attributes:
        name: key of the feature in a record.
        low, high: bounds as exact decimal text.
        edges: strictly increasing integers in (−S, S]; there is one bin more than edges.
        unlisted: how a value that is no number is coded: as ``missing``, or not at all (``refuse``).
        substitute: the u that stands for a missing number; None if *missing* has its own code, after the bins.
        size: number of codes.
        float_low, float_scale: (x − float_low)·float_scale, computed in floats, is within 0.01 of u + S before
            rounding. A float_scale of 0 means that floats are not precise enough.
    """

    kind = "numeric"
    __slots__ = (
        "_den",
        "_mul",
        "_num",
        "_off",
        "edges",
        "float_low",
        "float_scale",
        "high",
        "low",
        "name",
        "size",
        "substitute",
        "unlisted",
    )

    def __init__(
        self,
        name: str,
        low: str,
        high: str,
        edges: Sequence[int],
        unlisted: str = "missing",
        substitute: int | None = 0,
    ) -> None:
        """Set the attributes of the class and check them: wrong ones are refused as ``schema_invalid``."""
        self.name = name
        self.low = low
        self.high = high
        self.edges = tuple(edges)
        self.unlisted = unlisted
        self.substitute = substitute
        self.size = len(self.edges) + 1 + (substitute is None)
        self._check()
        low_n, low_d = parse_bound(low).as_integer_ratio()
        high_n, high_d = parse_bound(high).as_integer_ratio()
        span_n, span_d = high_n * low_d - low_n * high_d, high_d * low_d
        # The scaled integer u of x = n/d follows from u + S = (n·low_d − low_n·d)·2S·span_d / (d·low_d·span_n).
        self._mul, self._off = low_d, low_n
        self._num, self._den = 2 * SCALE * span_d, low_d * span_n
        self.float_low, self.float_scale = self._float_path()

    def _check(self) -> None:
        if parse_bound(self.low) >= parse_bound(self.high):
            raise InputError("schema_invalid", f"feature '{self.name}': the low bound is not below the high one")
        if not all(type(edge) is int for edge in self.edges) or not 1 <= len(self.edges) < MAX_VALUES:
            raise InputError("schema_invalid", f"feature '{self.name}' needs at least two bins")
        bounded = (-SCALE, *self.edges)
        if any(a >= b for a, b in pairwise(bounded)) or self.edges[-1] > SCALE:
            raise InputError(
                "schema_invalid", f"feature '{self.name}': the bin edges do not increase within the bounds"
            )
        if self.unlisted not in ("missing", "refuse"):
            raise InputError("schema_invalid", f"feature '{self.name}': unlisted is missing or refuse")
        if self.substitute is not None and not (type(self.substitute) is int and -SCALE <= self.substitute <= SCALE):
            raise InputError("schema_invalid", f"feature '{self.name}': the substitute is outside the bounds")

    def _float_path(self) -> tuple[float, float]:
        """Return ``float_low`` and ``float_scale``. A scale of 0 means that floats are not precise enough."""
        low, high = float(self.low), float(self.high)
        if not max(abs(low), abs(high)) < 1e6 * (high - low) < inf:
            return 0.0, 0.0
        return low, 2 * SCALE / (high - low)

    @property
    def missing_code(self) -> int:
        """The code of a missing number: the bin of the substitute, or the code after the bins."""
        return self.size - 1 if self.substitute is None else bisect_right(self.edges, self.substitute)

    def scaled(self, value: object) -> int | None:
        """Return ``value`` as an integer u of [−S, S], S = 65536: −S is the low bound, S the high bound.

        Numbers outside the bounds become −S or S. The result is None if ``value`` is missing or no number.
        """
        number = value if type(value) is float and value == value else as_number(value)  # noqa: PLR0124 - false for NaN
        if number is None:
            return None
        if type(number) is float:
            # Fast path: a float decides most numbers, three times as fast as the exact arithmetic below. The results
            # are equal.
            shifted = (number - self.float_low) * self.float_scale  # about u + S
            if 0 < shifted < 2 * SCALE:
                floor = int(shifted)
                if abs(shifted - floor - 0.5) > TIE:
                    return floor + (shifted - floor > 0.5) - SCALE
            if number in (inf, -inf):
                return SCALE if number > 0 else -SCALE
        return self.scale_ratio(*number.as_integer_ratio())

    def scale_ratio(self, numerator: int, denominator: int) -> int:
        """Return the scaled integer u (:meth:`scaled`) of numerator/denominator, exactly.

        The denominator must be positive.
        """
        top = (numerator * self._mul - self._off * denominator) * self._num
        bottom = denominator * self._den
        quotient, rest = divmod(top, bottom)
        if 2 * rest > bottom or (2 * rest == bottom and quotient & 1):
            quotient += 1
        return min(max(quotient - SCALE, -SCALE), SCALE)

    def knows(self, value: object) -> bool:
        """Return whether ``value`` is a number, also if it is outside the bounds."""
        return self.scaled(value) is not None

    def known_code(self, value: object) -> int | None:
        """Return the bin of the number ``value``, or None if ``value`` is missing or no number."""
        scaled = self.scaled(value)
        return None if scaled is None else bisect_right(self.edges, scaled)

    def code(self, value: object) -> int:
        """Return the code of ``value`` in a report. An unlisted value may be refused (``value_refused``)."""
        return self.reading(value)[0]

    def reading(self, value: object) -> tuple[int, int | None]:
        """Return the code (:meth:`code`) and the scaled integer u (:meth:`scaled`) of ``value`` for a report.

        A value that is missing or no number has the code :attr:`missing_code`, and the substitute (or None) as u.
        """
        number = self.scaled(value)
        if number is None:
            if self.unlisted == "refuse" and not is_missing(value):
                raise InputError("value_refused", f"feature '{self.name}' has a value that is not a number")
            return self.missing_code, self.substitute
        return bisect_right(self.edges, number), number

    def known(self, value: object) -> tuple[int, int] | None:
        """Return code and scaled integer of ``value`` for classification, or None if it is missing or no number."""
        number = self.scaled(value)
        return None if number is None else (bisect_right(self.edges, number), number)

    def labels(self) -> list[str]:
        """Return the name of every code, in order: the interval of each bin, and ``(missing)`` if that has a code."""
        low, high = float(self.low), float(self.high)
        inner = [low + (edge + SCALE) / (2 * SCALE) * (high - low) for edge in self.edges]
        texts = _told_apart((low, *inner, high))
        last = len(texts) - 2
        bins = [f"[{a}, {b}{']' if i == last else ')'}" for i, (a, b) in enumerate(pairwise(texts))]
        return bins if self.substitute is not None else [*bins, "(missing)"]

    def to_dict(self) -> dict[str, Any]:
        """Return the feature as the dict that the payload of a campaign or model contains."""
        return {
            "kind": self.kind,
            "name": self.name,
            "low": self.low,
            "high": self.high,
            "edges": list(self.edges),
            "unlisted": self.unlisted,
            "substitute": self.substitute,
        }


def _told_apart(numbers: Sequence[float]) -> list[str]:
    """Return rising numbers as texts that all differ; numbers below 10^15 are written without an exponent."""
    for digits in range(4, 18):
        texts = [f"{number:.{digits}g}" for number in numbers]
        if len(set(texts)) == len(texts):
            break
    return [f"{float(text):.0f}" if "e+" in text and abs(float(text)) < 1e15 else text for text in texts]


Feature = Categorical | Numeric


class Grouped:
    """A feature that is asked about in groups of its codes. It behaves like a category whose values are the groups.

    Attributes:
        groups: the group of every code of the feature: 0, 1, 2, … in the order of their first codes.
        size: number of groups.
        missing_code: number of the group that holds *missing* alone; None if there is no such group.
    """

    kind = "grouped"
    __slots__ = ("_labels", "groups", "missing_code", "name", "size")

    def __init__(self, name: str, labels: Sequence[str], groups: Sequence[int], missing: int | None) -> None:
        """Group the codes of a feature: ``labels`` names them, ``missing`` is that of missing values, or None."""
        self.name = name
        self.groups = tuple(groups)
        self.size = max(self.groups) + 1
        alone = missing is not None and self.groups.count(self.groups[missing]) == 1
        self.missing_code = self.groups[missing] if missing is not None and alone else None
        self._labels = labels

    def members(self) -> list[list[str]]:
        """Return, for every group in order, the names of its codes."""
        found: list[list[str]] = [[] for _ in range(self.size)]
        for label, group in zip(self._labels, self.groups, strict=True):
            found[group].append(label)
        return found

    def labels(self) -> list[str]:
        """Return the name of every group, in order: ``{a, b}``, or the code's own name if the group has one code."""
        return [each[0] if len(each) == 1 else f"{{{', '.join(each)}}}" for each in self.members()]


JOINED = " × "
"""Stands between the names of joined features, and between those of their values."""


class Joined:
    """Several features that are asked about as one. It behaves like a category whose values are their combinations.

    The combination of the codes a₁, …, aₘ of features with K₁, …, Kₘ codes has the code ((a₁·K₂ + a₂)·K₃ + a₃)…. Where
    classification knows some of the codes only, the code is ``size`` plus the same number for K₁ + 1, …, Kₘ + 1 codes,
    of which the last stands for an unknown one.

    Attributes:
        members: the features, in groups if they have groups.
        name: the names of the members, as in ``buying × safety``.
        size: number of combinations, K₁ ⋯ Kₘ.
        missing_code: None; a missing value of a member is one of the member's own codes.
    """

    kind = "joined"
    missing_code = None
    __slots__ = ("members", "name", "size")

    def __init__(self, members: Sequence[Any]) -> None:
        """Join features, each with a name, a size and labels."""
        self.members = tuple(members)
        self.name = JOINED.join(member.name for member in members)
        self.size: int = prod(member.size for member in members)

    def code(self, codes: Sequence[int | None]) -> int | None:
        """Return the code of a combination from a code or None for each member; None if none of them is known."""
        if all(code is None for code in codes):
            return None
        more = int(None in codes)
        found: int = 0
        for code, member in zip(codes, self.members, strict=True):
            found = found * (member.size + more) + (member.size if code is None else code)
        return found + more * self.size

    def matching(self, code: int) -> list[int]:
        """Return the codes of all combinations that agree with what a code says, also one of a partly known value."""
        if code < self.size:
            return [code]
        rest, known = code - self.size, []
        for member in reversed(self.members):
            rest, own = divmod(rest, member.size + 1)
            known.append(range(member.size) if own == member.size else (own,))
        found = [0]
        for member, own_codes in zip(self.members, reversed(known), strict=True):
            found = [before * member.size + own for before in found for own in own_codes]
        return found

    def labels(self) -> list[str]:
        """Return the name of every combination, in order: the names of the members' values, as in ``low × high``."""
        return [JOINED.join(names) for names in product(*(member.labels() for member in self.members))]


def parse_feature(entry: dict[str, Any], reason: str) -> Feature:
    """Read a feature from ``entry``, the map that a campaign or model carries.

    Raises:
        DocumentError: with ``reason``: a field is missing or of another type, or the kind is unknown.
        InputError: ``schema_invalid``: values that :class:`Categorical` or :class:`Numeric` refuses.
    """
    kind, name = read_text(entry, "kind", reason), read_text(entry, "name", reason)
    unlisted = read_text(entry, "unlisted", reason)
    if kind == Categorical.kind:
        if "substitute" not in entry:
            raise DocumentError(reason, f"feature '{name}' does not say what a missing value becomes")
        substitute = entry["substitute"]
        if substitute is not None:
            substitute = read_integer(entry, "substitute", 0, MAX_VALUES, reason)
        return Categorical(name, read_texts(entry, "values", reason), unlisted, substitute)
    if kind == Numeric.kind:
        low, high = read_text(entry, "low", reason), read_text(entry, "high", reason)
        edges = read_field(entry, "edges", list, reason)
        substitute = entry.get("substitute")
        if substitute is not None:
            substitute = read_integer(entry, "substitute", -SCALE, SCALE, reason)
        return Numeric(name, low, high, edges, unlisted, substitute)
    raise DocumentError(reason, f"feature '{name}' is of an unknown kind")
