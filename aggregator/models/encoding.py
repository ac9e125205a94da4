"""A whole frame's codes at once, equal to what a device computes record by record.

The rules live in ``protocol.features``; here each distinct cell is coded by them once, and floats that are far
from a rounding tie are scaled together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from protocol import SCALE
from protocol.errors import InputError
from protocol.features import TIE, Feature, Numeric
from protocol.values import is_missing

if TYPE_CHECKING:
    from collections.abc import Callable

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
        InputError: ``columns_missing``: the frame has none of the features; ``duplicate_column``.
    """
    return _sight(frame, schema).codes


def _sight(frame: pd.DataFrame, schema: Schema) -> EncodedFrame:
    """Code and u of every cell and feature, before the projection, missing where nothing is known."""
    if not any(feature.name in frame.columns for feature in schema.features):
        raise InputError("columns_missing", "the frame has none of the model's features as a column")
    check_columns(frame, schema)
    shape = (len(frame), len(schema.features))
    codes, numbers = np.full(shape, MISSING, dtype=np.int64), np.full(shape, NO_NUMBER, dtype=np.int64)
    for index, feature in enumerate(schema.features):
        if feature.name in frame.columns:
            column = frame[feature.name]
            if isinstance(feature, Numeric):
                numbers[:, index] = feature_numbers(column, feature)
                codes[:, index] = _bins(numbers[:, index], feature)
            else:
                codes[:, index] = feature_codes(column, feature)
    return EncodedFrame(codes, numbers)


def check_columns(frame: pd.DataFrame, schema: Schema) -> None:
    """Refuse a frame of which it is not clear what a record says.

    Raises:
        InputError: ``duplicate_column``: two columns have the name of the label or of one feature.
    """
    for part in (schema.label, *schema.features):
        if (frame.columns == part.name).sum() > 1:
            raise InputError("duplicate_column", f"the frame has more than one column '{part.name}'; rename one")


def report_codes(frame: pd.DataFrame, schema: Schema) -> Codes:
    """Shape (rows, features): the code that a report uses, so a missing value has one too.

    Raises:
        InputError: ``columns_missing``; ``value_refused``, where a feature's ``unlisted`` is ``refuse``.
    """
    return _reported(frame, schema).codes


class EncodedFrame(NamedTuple):
    """What the observed features of a whole frame look like.

    Attributes:
        codes: shape (rows, observed): value codes, :data:`MISSING` where missing (scoring only).
        numbers: shape (rows, observed): u of numbers, :data:`NO_NUMBER` of categories and missing numbers.
    """

    codes: Codes
    numbers: Codes


def recognise(frame: pd.DataFrame, schema: Schema) -> EncodedFrame:
    """What scoring uses: :meth:`protocol.schema.Schema.recognise` of every row.

    Raises:
        InputError: ``columns_missing``.
    """
    return _project(schema, _sight(frame, schema), MISSING)


def observe(frame: pd.DataFrame, schema: Schema) -> EncodedFrame:
    """What reports use: :meth:`protocol.schema.Schema.observe` of every row.

    Raises:
        InputError: ``columns_missing``; ``value_refused``.
    """
    return _project(schema, _reported(frame, schema), None)


def _reported(frame: pd.DataFrame, schema: Schema) -> EncodedFrame:
    """Code and u as a report uses them, before the projection: what is missing takes its code and substitute."""
    codes, numbers = _sight(frame, schema)
    for index, feature in enumerate(schema.features):
        missing = codes[:, index] == MISSING
        if feature.unlisted == "refuse" and feature.name in frame.columns:
            _check_listed(frame[feature.name], missing, f"feature '{feature.name}'")
        codes[missing, index] = feature.missing_code
        if isinstance(feature, Numeric) and feature.substitute is not None:
            numbers[missing, index] = feature.substitute
    return EncodedFrame(codes, numbers)


def _project(schema: Schema, seen: EncodedFrame, missing: int | None) -> EncodedFrame:
    """The observed features: what is not projected, then the components in 64-bit integers.

    Args:
        missing: the code of a missing component; None takes the component's own.
    """
    projection = schema.projection
    if projection is None:
        return seen
    codes, numbers = seen
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
    return EncodedFrame(np.hstack([codes[:, kept], part_codes]), np.hstack([numbers[:, kept], outputs]))


def feature_numbers(column: pd.Series, feature: Numeric) -> Codes:
    """Shape (rows,): ``scaled`` of every cell of one column, :data:`NO_NUMBER` where it is None."""
    if _are_floats(column):
        return _scaled(column.to_numpy().astype(np.float64), feature)
    return _by_value(column, feature.scaled, NO_NUMBER)


def _is_plain(column: pd.Series, kinds: str) -> bool:
    """Whether a column is an array of numpy's numbers of these kinds, of at most 64 bits."""
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in kinds and column.dtype.itemsize <= 8


def _are_floats(column: pd.Series) -> bool:
    """Whether every cell is a float, or an integer that is a float too, so that nothing is rounded on the way."""
    if _is_plain(column, "iu") and not column.empty:
        return max(abs(int(column.min())), abs(int(column.max()))) <= _EXACT_INTEGERS
    return _is_plain(column, "f")


def _scaled(numbers: NDArray[np.float64], feature: Numeric) -> Codes:
    """``scaled`` of floats: they place most cells, and those near a rounding tie are scaled exactly, as on a device."""
    found = np.full(len(numbers), NO_NUMBER, dtype=np.int64)
    with np.errstate(invalid="ignore", over="ignore"):
        near = (numbers - feature.float_low) * feature.float_scale
        floor = np.floor(near)
        sure = (near > 0) & (near < 2 * SCALE) & (np.abs(near - floor - HALF) > TIE)
        below, above = near < -1, near > 2 * SCALE + 1
    found[sure] = (floor[sure] + (near[sure] - floor[sure] > HALF) - SCALE).astype(np.int64)
    found[below], found[above] = -SCALE, SCALE
    rest = np.flatnonzero(~(sure | below | above | np.isnan(numbers)))
    distinct, places = np.unique(numbers[rest], return_inverse=True)
    found[rest] = np.array([feature.scaled(number) for number in distinct.tolist()], np.int64)[places]
    return found


def label_codes(frame: pd.DataFrame, label: Label, *, substitute: bool = False) -> Codes:
    """Shape (rows,): the class of every record, :data:`MISSING` or, as in a report, the substitute if unknown.

    Raises:
        InputError: ``label_missing``; ``value_refused``.
    """
    if label.name not in frame.columns:
        raise InputError("label_missing", f"the frame has no column '{label.name}'")
    codes = _by_value(frame[label.name], label.known_code, MISSING)
    if substitute:
        missing = codes == MISSING
        if label.unlisted == "refuse":
            _check_listed(frame[label.name], missing, "the label")
        codes[missing] = label.substitute
    return codes


def feature_codes(column: pd.Series, feature: Feature) -> Codes:
    """Shape (rows,): ``known_code`` of every cell of one column."""
    if isinstance(feature, Numeric):
        return _bins(feature_numbers(column, feature), feature)
    return _by_value(column, feature.known_code, MISSING)


def _bins(numbers: Codes, feature: Numeric) -> Codes:
    """The number of edges that are not above each number, :data:`MISSING` where there is no number."""
    found = np.searchsorted(np.array(feature.edges, np.int64), numbers, side="right")
    return np.where(numbers == NO_NUMBER, MISSING, found).astype(np.int64)


def _check_listed(column: pd.Series, missing: NDArray[np.bool_], what: str) -> None:
    cells = column.astype(object).to_numpy()
    if not all(is_missing(cells[index]) for index in np.flatnonzero(missing)):
        raise InputError("value_refused", f"{what} has a value that is not listed")


def _by_value(column: pd.Series, rule: Callable[[object], int | None], nothing: int) -> Codes:
    """What the protocol's own rule says of every cell, each distinct one asked once; ``nothing`` where it is None."""
    if _is_plain(column, "fiub") or (column.dtype == object and pd.api.types.infer_dtype(column) == "string"):
        places, distinct = pd.factorize(column.to_numpy())  # None and NaN are −1, the last entry
        said = [nothing if (one := rule(cell)) is None else one for cell in distinct.tolist()]
        return np.asarray(np.array([*said, nothing], dtype=np.int64)[places], np.int64)
    cells = column.astype(object).to_numpy()
    found = np.full(len(cells), nothing, dtype=np.int64)
    memory: dict[tuple[type, Any], int] = {}
    for index, cell in enumerate(cells):
        key = (type(cell), cell)  # 1 and True are equal and yet coded differently
        try:
            code = memory.get(key)
        except Exception:  # noqa: BLE001 - a list or the like: no listed value, and no key either
            key, code = (type(cell), None), None
        if code is None:
            said_of = rule(cell)
            code = memory[key] = nothing if said_of is None else said_of
        found[index] = code
    return found
