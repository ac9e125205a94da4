"""Draft a schema from a pilot file: TOML text that the analyst corrects before it becomes a campaign.

Listed values and bounds of the pilot become public with the campaign, as comments in the draft say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from math import isfinite
from shlex import quote
from typing import NoReturn

import pandas as pd

from aggregator.common.tables import CONVERT_COMMAS, MISSING_TOKENS, advice_on_commas, check_label, check_text, shorten
from aggregator.publishing.schemas.schema_doubts import doubt, number_in, units_in
from aggregator.publishing.schemas.schema_file import MISSING_HAS_CODE, parse_schema_text, toml_array, toml_text
from protocol.documents.payload import is_text
from protocol.errors import InputError
from protocol.features import MAX_BOUND_CHARACTERS, MAX_VALUES, Numeric
from protocol.schema import MAX_CLASSES

DEFAULT_BINS = 4
DEFAULT_MAX_VALUES = 12
MAX_LISTED_VALUES = 256
"""Limit of the values of a category. A column with more is refused: its texts are probably names or serial numbers."""

_HEADER = """\
# Drafted from a pilot file. Read it before it becomes a campaign: everything here becomes public.
# - Bounds of numeric features came from the pilot. Replace them by bounds that are known without data.
# - Listed values came from the pilot. Add what other devices may hold; remove what only one person has.
"""

MOST_LISTED = 100
"""Largest number of columns that one error names."""
_UNPRINTABLE = "holds text that does not print or is over 1024 bytes"
_UNREAD = (
    "a number too large or too long, or spelled as devices do not read it (0.5 and not .5, 5 and not 5. or +5, and no "
    "spaces around it)"
)


def draft_schema(
    frame: pd.DataFrame,
    label: str,
    *,
    name: str,
    bins: int = DEFAULT_BINS,
    equal_frequency: bool = False,
    max_values: int = DEFAULT_MAX_VALUES,
    missing: Collection[str] = MISSING_TOKENS,
    drop: Collection[str] = (),
) -> str:
    """Draft a schema for a pilot's table of text, as TOML text. Run by the analyst.

    Numbers become a numeric feature if they have more than ``max_values`` different values, or are not whole; all other
    columns become categorical. A categorical feature that is never missing takes its most common value as substitute,
    which saves a code. A feature with missing values gets a code for them. A column that looks like times or serial
    numbers gets a comment (:func:`aggregator.publishing.schemas.schema_doubts.doubt`).

    Refused are columns that are mostly numbers, and cells that only other software reads as numbers, such as nan, +1 or
    .5. The error names the line of the first such cell, and at most :data:`MOST_LISTED` columns. ``frame``: a table of
    text from :func:`aggregator.common.tables.read_table`. ``name``: name of the campaigns made from this schema.
    ``equal_frequency``: edges at the pilot's quantiles instead of bins of equal width. Raises InputError: about the
    table ``table_invalid``; the label ``label_missing``, ``one_class``, ``too_many_classes``; the arguments
    ``column_unknown``, ``no_features``, ``bins_invalid``; a column ``constant_column``, ``value_invalid``,
    ``too_many_values``; ``schema_invalid``: a campaign would refuse the schema.
    """
    check_text(frame)
    if not 2 <= bins <= MAX_VALUES:
        raise InputError("bins_invalid", f"a numeric feature has 2 to {MAX_VALUES} bins")
    unknown = [f"'{column}'" for column in drop if column not in frame.columns]
    if unknown:
        raise InputError("column_unknown", f"there is no column {shorten(unknown)}; there are {shorten(frame.columns)}")
    if label in drop:
        raise InputError("label_missing", f"column '{label}' is both the label and dropped")
    features = [column for column in frame.columns if column != label and column not in drop]
    parts = [_HEADER, f"name = {toml_text(name)}\n", _label_table(frame, label, missing)]
    if not features:
        raise InputError("no_features", "there is no column besides the label to learn from")
    how = (bins, equal_frequency)
    unfit: list[_UnfitError] = []
    for column in features:
        try:
            parts.append(_feature_table(frame[column], how, max_values, set(missing)))
        except _UnfitError as error:
            unfit.append(error)
    _check_fit(unfit)
    text = "\n".join(parts)
    parse_schema_text(text)  # The draft is checked at once: an error here can still name the column of the pilot.
    return text


class _UnfitError(Exception):
    """A column that can not become a feature. ``what``: the problem, as a sentence that holds no private value."""

    def __init__(self, reason: str, column: str, what: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column
        self.what = what

    @property
    def may_mean_missing(self) -> bool:
        """Whether only some cells are wrong, which may mean missing."""
        return self.reason == "value_invalid"


def _check_fit(unfit: Sequence[_UnfitError]) -> None:
    if not unfit:
        return
    listed = list(unfit[:MOST_LISTED])
    whats = "; ".join(each.what for each in listed)
    if len(unfit) > len(listed):
        whats += f"; and {len(unfit) - len(listed)} more columns"
    leave = " ".join(f"--drop {quote(each.column)}" for each in listed)
    advice = f"leave {'it' if len(unfit) == 1 else 'them'} out: {leave}"
    if any(each.may_mean_missing for each in listed):
        advice = f"if a cell means missing, say hearsay schema --missing TOKEN, else correct it, or {advice}"
    raise InputError(unfit[0].reason, f"{whats}; {advice}")


def _label_table(frame: pd.DataFrame, label: str, missing: Collection[str]) -> str:
    classes = check_label(frame, label, missing)
    if len(classes) > MAX_CLASSES:
        raise InputError("too_many_classes", f"column '{label}' has {len(classes)} classes; {MAX_CLASSES} are the most")
    if not _are_printable(classes):
        raise InputError("schema_invalid", f"column '{label}' {_UNPRINTABLE}")
    common = _most_common(frame[label], missing)
    return (
        f"[label]\nname = {toml_text(label)}\nclasses = {toml_array(classes)}\n"
        f"substitute = {toml_text(common)}  # an unlabelled record counts as this\n"
    )


def _feature_table(column: pd.Series, how: tuple[int, bool], max_values: int, missing: set[str]) -> str:
    name = str(column.name)
    values = sorted(set(column) - missing)
    has_missing = bool(column.isin(missing).any())
    if len(values) + has_missing < 2:
        raise _UnfitError("constant_column", name, f"column '{name}' is the same in every record")
    numbers = {value: number for value in values if (number := number_in(value)) is not None}
    numeric = _is_numeric(numbers, max_values)
    if len(numbers) < len(values):
        _check_others(column[~column.isin(missing)], set(numbers), numeric=numeric)
    elif numeric:
        present = sorted(numbers[cell] for cell in column if cell in numbers)
        return _warning(column, missing) + _numeric_table(name, present, *how, has_missing=has_missing)
    if len(values) > MAX_LISTED_VALUES:
        commas = advice_on_commas(values)
        hint = f", numbers with commas ({commas}; {CONVERT_COMMAS[commas]})" if commas else units_in(values)
        raise _UnfitError("too_many_values", name, f"column '{name}' has {len(values)} different texts{hint}")
    if not _are_printable(values):
        raise _UnfitError("schema_invalid", name, f"column '{name}' {_UNPRINTABLE}")
    return _warning(column, missing) + _categorical_table(column, values, missing, has_missing=has_missing)


def _warning(column: pd.Series, missing: set[str]) -> str:
    why = doubt(column, missing)
    return "" if why is None else f"# Leave it out? {why}\n"


def _categorical_table(column: pd.Series, values: list[str], missing: set[str], *, has_missing: bool) -> str:
    if _whole(values):
        values = sorted(values, key=lambda text: (int(text), text))
    substitute = MISSING_HAS_CODE if has_missing else _most_common(column, missing)
    comment = (
        "a missing value has a code of its own"
        if substitute == MISSING_HAS_CODE
        else "never missing in the pilot: saves a code; or write code"
    )
    return (
        f'[[features]]\nname = {toml_text(str(column.name))}\nkind = "categorical"\n'
        f"values = {toml_array(values)}\nmissing = {toml_text(substitute)}  # {comment}\n"
    )


def _numeric_table(
    name: str,
    present: list[Decimal],
    bins: int,
    equal_frequency: bool,  # noqa: FBT001 - passed on from a pair
    *,
    has_missing: bool,
) -> str:
    low, high = outward(present[0], present[-1])
    stated = f"bins = {bins}  # of equal width; or edges = [...]"
    if equal_frequency:
        edges = toml_array(list(map(_plain, equal_frequency_edges(name, present, bins))))
        stated = f"edges = {edges}  # about as many of the pilot in each bin"
    absent = (
        f'missing = "{MISSING_HAS_CODE}"  # missing in the pilot now and then: it has a code of its own\n'
        if has_missing
        else "# never missing in the pilot; in reports a missing number counts as the middle, or as substitute = ...;\n"
        "# a prediction leaves it out\n"
    )
    return (
        f'[[features]]\nname = {toml_text(name)}\nkind = "numeric"\n'
        f"low = {toml_text(low)}  # bounds must be public knowledge\nhigh = {toml_text(high)}\n"
        f"{stated}\n"
        f"{absent}"
    )


def equal_frequency_edges(name: str, present: list[Decimal], bins: int) -> list[Decimal]:
    """Return the rising edges between bins with about equally many numbers. An edge belongs to the bin above it.

    Equal numbers stay together, so there may be fewer bins than asked for, and never fewer than two. ``present``: the
    feature's numbers, sorted, at least two of them different.
    """
    scale = Numeric(name, *outward(present[0], present[-1]), [0])

    def scaled(number: Decimal) -> int:
        return scale.scale_ratio(*number.as_integer_ratio())

    first = scaled(present[0])
    cuts = {scaled(cut): cut for cut in (present[len(present) * j // bins] for j in range(1, bins))}
    edges = [cut for place, cut in cuts.items() if place > first]
    # Without any edge, most numbers equal the smallest one. Then there are two bins: that number, and all larger ones.
    return edges or [next(number for number in present if scaled(number) > first)]


def outward(least: Decimal, most: Decimal) -> tuple[str, str]:
    """Return the bounds of a feature: ``least`` rounded down and ``most`` rounded up, to two digits of their distance.

    >>> outward(Decimal("0.137"), Decimal("9.81"))
    ('0.1', '9.9')
    """
    with localcontext(prec=100):
        step = Decimal(1).scaleb((most - least).adjusted() - 1)
        low = (least / step).to_integral_value(ROUND_FLOOR) * step
        high = (most / step).to_integral_value(ROUND_CEILING) * step
        return _plain(low), _plain(high)


def _plain(number: Decimal) -> str:
    """Return short decimal text: 0.10 → 0.1, 1E+2 → 100 where that is short."""
    number = number.normalize()
    return f"{number:f}" if abs(number.adjusted()) < 20 else str(number)


def _is_numeric(numbers: dict[str, Decimal], max_values: int) -> bool:
    distinct = set(numbers.values())
    return len(distinct) > 1 and (len(distinct) > max_values or not _whole(list(numbers)))


def _check_others(present: pd.Series, numbers: set[str], *, numeric: bool) -> None:
    others = present[~present.isin(numbers)]
    known = len(present) - len(others)
    extreme = others[[_is_extreme(value) for value in others]]
    rest = len(present) - len(extreme)
    if len(extreme) and (2 * known > rest or not rest):
        _refuse_cell(extreme, _UNREAD if isfinite(float(extreme.iloc[0])) else "not a finite number")
    if numeric and 2 * known > len(present):
        commas = advice_on_commas(others[:1])
        hint = f", but one with a comma ({commas}; {CONVERT_COMMAS[commas]})" if commas else ""
        _refuse_cell(others, f"not a number, though most are{hint}")


def _is_extreme(value: str) -> bool:
    """Return whether Python reads a text as a number and a schema does not, such as nan, inf, 1e400, +1 and .5."""
    try:
        float(value)
    except ValueError:
        return False
    return value.isascii() and "_" not in value


def _refuse_cell(cells: pd.Series, what: str) -> NoReturn:
    """Refuse a column because of some of its cells. The error names the first cell's line, but not its content."""
    place = f"line {cells.index[0]}" if cells.index.name == "line" else f"record {cells.index[0]}"
    raise _UnfitError("value_invalid", str(cells.name), f"column '{cells.name}', {place}: {what}")


def _whole(values: list[str]) -> bool:
    return all(
        len(value) <= MAX_BOUND_CHARACTERS
        and value.isascii()
        and value.removeprefix("-").isdecimal()
        and str(int(value)) == value
        for value in values
    )


def _most_common(column: pd.Series, missing: Collection[str]) -> str:
    counts = column[~column.isin(set(missing))].value_counts()
    return min(str(value) for value in counts.index[counts == counts.max()])


def _are_printable(values: list[str]) -> bool:
    return all(is_text(value, least=0) for value in values)
