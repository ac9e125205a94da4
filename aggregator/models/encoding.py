"""A whole frame's codes at once, equal to what a device computes record by record.

The rules live in ``protocol.features``; here each distinct cell is coded by them once, and numbers are
compared with thresholds that are exact. A cell that pandas calls missing (None, NaN, NA) is missing.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf, nextafter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from protocol import SCALE
from protocol.errors import InputError
from protocol.features import TIE, Feature, Numeric

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from protocol.schema import Label, Schema

    Codes = NDArray[np.int64]

MISSING = -1
"""Stands for a missing value, which scoring leaves out."""

NO_NUMBER = -(1 << 40)
"""Stands for u where there is none."""

HALF = 0.5

_EXACT_INTEGERS = 1 << 53


def known_codes(frame: pd.DataFrame, schema: Schema) -> Codes:
    """Shape (rows, features): ``known_code`` of every cell, :data:`MISSING` where it is None.

    A feature whose column is absent is missing in every row.

    Raises:
        InputError: ``columns_missing``: the frame has none of the features.
    """
    if not any(feature.name in frame.columns for feature in schema.features):
        raise InputError("columns_missing", "the frame has none of the model's features as a column")
    codes = np.full((len(frame), len(schema.features)), MISSING, dtype=np.int64)
    for index, feature in enumerate(schema.features):
        if feature.name in frame.columns:
            codes[:, index] = feature_codes(frame[feature.name], feature)
    return codes


def report_codes(frame: pd.DataFrame, schema: Schema) -> Codes:
    """Shape (rows, features): the code that a report uses, so a missing value has one too.

    Raises:
        InputError: ``columns_missing``; ``value_refused``, where a feature's ``unlisted`` is ``refuse``.
    """
    codes = known_codes(frame, schema)
    for index, feature in enumerate(schema.features):
        missing = codes[:, index] == MISSING
        if feature.unlisted == "refuse" and feature.name in frame.columns:
            _check_listed(frame[feature.name], missing, f"feature '{feature.name}'")
        codes[missing, index] = feature.missing_code
    return codes


class Sight(NamedTuple):
    """What the observed features of a whole frame look like.

    Attributes:
        codes: shape (rows, observed): value codes, :data:`MISSING` where missing (scoring only).
        numbers: shape (rows, observed): u of numbers, :data:`NO_NUMBER` of categories and missing numbers.
    """

    codes: Codes
    numbers: Codes


def recognise(frame: pd.DataFrame, schema: Schema) -> Sight:
    """What scoring uses: :meth:`protocol.schema.Schema.recognise` of every row.

    Raises:
        InputError: ``columns_missing``.
    """
    codes = known_codes(frame, schema)
    numbers = _numbers(frame, schema)
    return _project(schema, codes, numbers, MISSING)


def observe(frame: pd.DataFrame, schema: Schema) -> Sight:
    """What reports use: :meth:`protocol.schema.Schema.observe` of every row.

    Raises:
        InputError: ``columns_missing``; ``value_refused``.
    """
    codes = report_codes(frame, schema)
    numbers = _numbers(frame, schema)
    for index, feature in enumerate(schema.features):
        if isinstance(feature, Numeric) and feature.substitute is not None:
            column = numbers[:, index]
            column[column == NO_NUMBER] = feature.substitute
    return _project(schema, codes, numbers, None)


def _numbers(frame: pd.DataFrame, schema: Schema) -> Codes:
    """Shape (rows, features): u of every number that is there."""
    numbers = np.full((len(frame), len(schema.features)), NO_NUMBER, dtype=np.int64)
    for index, feature in enumerate(schema.features):
        if isinstance(feature, Numeric) and feature.name in frame.columns:
            numbers[:, index] = feature_numbers(frame[feature.name], feature)
    return numbers


def _project(schema: Schema, codes: Codes, numbers: Codes, missing: int | None) -> Sight:
    """The observed features: what is not projected, then the components in 64-bit integers.

    Args:
        missing: the code of a missing component; None takes the component's own.
    """
    projection = schema.projection
    if projection is None:
        return Sight(codes, numbers)
    inputs = numbers[:, projection.inputs]
    there = (inputs != NO_NUMBER).all(axis=1)
    sums = np.where(there[:, None], inputs, 0) @ np.array(projection.matrix, np.int64).T
    outputs = (sums + np.array(projection.offsets, np.int64)) >> projection.shift
    part_codes = np.empty_like(outputs)
    for index, part in enumerate(projection.components):
        outputs[:, index] = np.clip(outputs[:, index], part.low, part.high)
        part_codes[:, index] = np.searchsorted(np.array(part.edges), outputs[:, index], side="right")
        part_codes[~there, index] = part.size - 1 if missing is None else missing
    outputs[~there] = NO_NUMBER
    kept = list(schema.kept)
    return Sight(np.hstack([codes[:, kept], part_codes]), np.hstack([numbers[:, kept], outputs]))


def feature_numbers(column: pd.Series, feature: Numeric) -> Codes:
    """Shape (rows,): ``scaled`` of every cell of one column, :data:`NO_NUMBER` where it is None.

    Floats place most cells; those near a rounding tie are scaled exactly, as a device scales all.
    """
    found = np.full(len(column), NO_NUMBER, dtype=np.int64)
    rest = np.ones(len(column), dtype=bool)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "f" and column.dtype.itemsize <= 8:
        values = column.to_numpy().astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            near = (values - feature.float_low) * feature.float_scale
            floor = np.floor(near)
            sure = (near > 0) & (near < 2 * SCALE) & (np.abs(near - floor - 0.5) > TIE)
        found[sure] = (floor[sure] + (near[sure] - floor[sure] > HALF) - SCALE).astype(np.int64)
        rest = ~sure & ~np.isnan(values)
    cells = column.astype(object).to_numpy()
    for index in np.flatnonzero(rest & column.notna().to_numpy()):
        scaled = feature.scaled(cells[index])
        if scaled is not None:
            found[index] = scaled
    return found


def label_codes(frame: pd.DataFrame, label: Label, *, substitute: bool = False) -> Codes:
    """Shape (rows,): the class of every record, :data:`MISSING` or, as in a report, the substitute if unknown.

    Raises:
        InputError: ``label_missing``; ``value_refused``.
    """
    if label.name not in frame.columns:
        raise InputError("label_missing", f"the frame has no column '{label.name}'")
    codes = _coded_by_value(frame[label.name], label)
    if substitute:
        missing = codes == MISSING
        if label.unlisted == "refuse":
            _check_listed(frame[label.name], missing, "the label")
        codes[missing] = label.substitute
    return codes


def feature_codes(column: pd.Series, feature: Feature) -> Codes:
    """Shape (rows,): ``known_code`` of every cell of one column."""
    if isinstance(feature, Numeric) and isinstance(column.dtype, np.dtype):
        if column.dtype.kind == "f" and column.dtype.itemsize <= 8:
            return _binned(column.to_numpy(), feature)
        if column.dtype.kind in "iu" and (column.empty or _fits_a_float(column)):
            return _binned(column.to_numpy(), feature)
    return _coded_by_value(column, feature)


def _check_listed(column: pd.Series, missing: NDArray[np.bool_], what: str) -> None:
    if bool((missing & column.notna().to_numpy()).any()):
        raise InputError("value_refused", f"{what} has a value that is not listed")


def _fits_a_float(column: pd.Series) -> bool:
    """Whether every integer of a column is a float too, so that comparisons are exact."""
    return max(abs(int(column.min())), abs(int(column.max()))) <= _EXACT_INTEGERS


def _coded_by_value(column: pd.Series, rule: Feature | Label) -> Codes:
    """Code every cell by the protocol's own rule, each distinct one once."""
    cells = column.astype(object).to_numpy()
    codes = np.full(len(cells), MISSING, dtype=np.int64)
    memory: dict[tuple[type, Any], int] = {}
    for index in np.flatnonzero(column.notna().to_numpy()):
        cell = cells[index]
        key = (type(cell), cell)  # 1, 1.0 and True are equal and yet coded differently
        try:
            found = memory.get(key)
        except TypeError:  # a list or the like: no listed value, and no key either
            key, found = (type(cell), None), None
        if found is None:
            code = rule.known_code(cell)
            found = memory[key] = MISSING if code is None else code
        codes[index] = found
    return codes


def _binned(numbers: NDArray[Any], feature: Numeric) -> Codes:
    """Bins of float64 or small integers: the number of thresholds that are ≤ x."""
    found = np.searchsorted(thresholds(feature), numbers.astype(np.float64), side="right")
    return np.where(np.isnan(numbers.astype(np.float64)), MISSING, found).astype(np.int64)


def thresholds(feature: Numeric) -> NDArray[np.float64]:
    """Shape (edges,): per edge the smallest float whose scaled value reaches it.

    Scaling is monotone, so x is in bin b if and only if exactly b thresholds are ≤ x. The first guess,
    low + (e − ½ + S)/2S·(high − low), is where rounding turns to edge e; it is then moved by single floats.
    """
    low, high = Fraction(feature.low), Fraction(feature.high)
    return np.array([_threshold(feature, edge, low, high) for edge in feature.edges], dtype=np.float64)


def _threshold(feature: Numeric, edge: int, low: Fraction, high: Fraction) -> float:
    guess = float(low + Fraction(2 * (edge + SCALE) - 1, 4 * SCALE) * (high - low))
    while _reaches(feature, guess, edge):
        guess = nextafter(guess, -inf)
    while not _reaches(feature, guess, edge):
        guess = nextafter(guess, inf)
    return guess


def _reaches(feature: Numeric, number: float, edge: int) -> bool:
    scaled = feature.scaled(number)
    return scaled is not None and scaled >= edge
