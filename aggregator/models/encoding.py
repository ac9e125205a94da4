"""Compute the codes of a whole frame at once, equal to those that a device computes record by record.

``protocol.features`` defines the rules; a rule is applied once to each distinct cell. u is a scaled number, an integer
from −S to S, where S is :data:`protocol.SCALE`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from protocol import SCALE
from protocol.errors import InputError
from protocol.features import TIE, Feature, Joined, Numeric, as_number, is_missing, parse_bound
from protocol.schema import Label, Projection, Schema

MISSING = -1
"""Code of a missing value. Scoring leaves missing values out."""

NO_NUMBER = -(1 << 40)
"""Stands in an array of scaled numbers for a cell without a number."""

HALF = 0.5

_EXACT_INTEGERS = 1 << 53
"""A double represents every integer up to this size exactly."""


def _encode_known(frame: pd.DataFrame, schema: Schema) -> EncodedFrame:
    """Return code and scaled number of every feature, before the projection. Unknown cells count as missing."""
    if schema.features and not any(feature.name in frame.columns for feature in schema.features):
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
    """Raise ``duplicate_column`` (``InputError``) if two columns have the name of the label or of one feature."""
    for part in (schema.label, *schema.features):
        _check_single(frame, part.name)


def _check_single(frame: pd.DataFrame, name: str) -> None:
    if (frame.columns == name).sum() > 1:
        raise InputError("duplicate_column", f"the frame has more than one column '{name}'; rename one")


class EncodedFrame(NamedTuple):
    """The features of all records of a frame, as codes and scaled numbers.

    ``codes``: shape (rows, features) int64: value codes, or :data:`MISSING` (scoring only). ``numbers``: shape (rows,
    features) int64: scaled numbers u; :data:`NO_NUMBER` for categories and missing numbers.
    """

    codes: Integers
    numbers: Integers


def recognise(frame: pd.DataFrame, schema: Schema) -> EncodedFrame:
    """Return codes and numbers of every row for scoring, equal to :meth:`protocol.schema.Schema.recognise`.

    Cells without a listed value or number count as missing, and so does a feature without a column. Raises InputError:
    ``columns_missing``: no feature has a column; ``duplicate_column``; ``digits_lost``: see :func:`label_codes`.
    """
    return _project(schema, _encode_known(frame, schema), MISSING)


def observe(frame: pd.DataFrame, schema: Schema) -> EncodedFrame:
    """Return codes and numbers of every row as a device reports them (:meth:`protocol.schema.Schema.observe`).

    A missing value has its own code or its substitute. A feature without a column is missing in every row. Raises
    InputError: the errors of :func:`recognise`; ``value_refused``: the schema refuses values that are not listed.
    """
    return _project(schema, _reported(frame, schema), None)


def _reported(frame: pd.DataFrame, schema: Schema) -> EncodedFrame:
    """Return codes and scaled numbers as in reports, before the projection: missing cells get their substitute."""
    codes, numbers = _encode_known(frame, schema)
    for index, feature in enumerate(schema.features):
        missing = codes[:, index] == MISSING
        if feature.unlisted == "refuse" and feature.name in frame.columns:
            _check_listed(frame[feature.name], missing, f"feature '{feature.name}'")
        codes[missing, index] = feature.missing_code
        if isinstance(feature, Numeric) and feature.substitute is not None:
            numbers[missing, index] = feature.substitute
    return EncodedFrame(codes, numbers)


def _project(schema: Schema, encoded: EncodedFrame, missing: int | None) -> EncodedFrame:
    """Return the observed features: those not projected, then components, in groups and joined. ``missing``: code."""
    projection = schema.projection
    if projection is None:
        return combined(encoded, schema)
    codes, numbers = encoded
    inputs = numbers[:, projection.inputs]
    complete = (inputs != NO_NUMBER).all(axis=1)
    outputs = projected_numbers(projection, np.where(complete[:, None], inputs, 0))
    part_codes = np.empty_like(outputs)
    for index, part in enumerate(projection.components):
        part_codes[:, index] = np.searchsorted(np.array(part.edges), outputs[:, index], side="right")
        part_codes[~complete, index] = part.size - 1 if missing is None else missing
    outputs[~complete] = NO_NUMBER
    kept = list(schema.kept)
    single = EncodedFrame(np.hstack([codes[:, kept], part_codes]), np.hstack([numbers[:, kept], outputs]))
    return combined(single, schema)


def projected_numbers(projection: Projection, inputs: Integers) -> Integers:
    """Return a projection's K outputs, (rows, K) int64, of scaled ``inputs``, (rows, n) int64, none of them missing."""
    sums = inputs @ np.array(projection.matrix, np.int64).T
    outputs = (sums + np.array(projection.offsets, np.int64)) >> projection.shift
    bounds = np.array([(part.low, part.high) for part in projection.components], np.int64).T
    return np.asarray(np.clip(outputs, *bounds), np.int64)


def combined(single: EncodedFrame, schema: Schema) -> EncodedFrame:
    """Return the observed features, from those of ``schema.ungrouped``: groups replace codes, joined ones are one.

    The codes of joined features are those of :meth:`protocol.features.Joined.code`, and their numbers
    :data:`NO_NUMBER`.
    """
    codes, numbers = single
    if schema.groups:
        codes = codes.copy()
        for index, groups in enumerate(schema.groups):
            if groups is not None:
                codes[:, index] = np.where(codes[:, index] == MISSING, MISSING, np.array(groups)[codes[:, index]])
    if not schema.asked_as:
        return EncodedFrame(codes, numbers)
    columns = [
        _joined_codes(codes[:, part], feature) if isinstance(feature, Joined) else codes[:, part[0]]
        for part, feature in zip(schema.parts, schema.observed, strict=True)
    ]
    alone = [part[0] for part in schema.parts if len(part) == 1]
    none = np.full((len(codes), len(schema.joins)), NO_NUMBER)
    return EncodedFrame(np.column_stack(columns), np.hstack([numbers[:, alone], none]))


def _joined_codes(codes: Integers, joined: Joined) -> Integers:
    """Return the codes of a joined feature, (rows,) int64, from those of its members, (rows, members)."""
    sizes = np.array([member.size for member in joined.members])
    missing = codes == MISSING
    whole, partly = np.zeros(len(codes), np.int64), np.zeros(len(codes), np.int64)
    for place, size in enumerate(sizes.tolist()):
        whole = whole * size + codes[:, place]
        partly = partly * (size + 1) + np.where(missing[:, place], size, codes[:, place])
    known = np.where(missing.any(axis=1), joined.size + partly, whole)
    return np.where(missing.all(axis=1), MISSING, known)


def feature_numbers(column: pd.Series, feature: Numeric) -> Integers:
    """Return the scaled number u of every cell, (rows,) int64, or :data:`NO_NUMBER`, as a device computes it."""
    _check_digits(column, feature)
    if _are_floats(column):
        return _scaled(column.to_numpy().astype(np.float64), feature)
    return _by_value(column, feature.scaled, NO_NUMBER)


def _is_plain(column: pd.Series, kinds: str) -> bool:
    """Return whether a column has a numpy dtype of one of ``kinds``, with at most 64 bits."""
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in kinds and column.dtype.itemsize <= 8


def _are_floats(column: pd.Series) -> bool:
    """Return whether every cell converts to a double without rounding."""
    if _is_plain(column, "iu") and not column.empty:
        return max(abs(int(column.min())), abs(int(column.max()))) <= _EXACT_INTEGERS
    return _is_plain(column, "f")


def _scaled(numbers: NDArray[np.float64], feature: Numeric) -> Integers:
    """Return scaled numbers of floats, (rows,) int64; cells near a rounding tie are scaled exactly, as devices do."""
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


def label_codes(frame: pd.DataFrame, label: Label, *, substitute: bool = False) -> Integers:
    """Return the class code of every record: shape (rows,) int64.

    A record whose label is no class has the code :data:`MISSING`, or with ``substitute`` that of the label's
    substitute, as in a report. Raises InputError: ``label_missing``, ``duplicate_column``; ``digits_lost``: the column
    holds floats so large that integers lost digits which the schema needs; ``value_refused``: a label is no class, and
    has no substitute.
    """
    if label.name not in frame.columns:
        raise InputError("label_missing", f"the frame has no column '{label.name}'")
    _check_single(frame, label.name)
    _check_digits(frame[label.name], label)
    codes = _by_value(frame[label.name], label.known_code, MISSING)
    if substitute:
        missing = codes == MISSING
        if label.unlisted == "refuse":
            _check_listed(frame[label.name], missing, "the label")
        codes[missing] = label.substitute
    return codes


def feature_codes(column: pd.Series, feature: Feature) -> Integers:
    """Return each cell's code, (rows,) int64, or :data:`MISSING`. Raises ``digits_lost`` as :func:`label_codes`."""
    if isinstance(feature, Numeric):
        return _bins(feature_numbers(column, feature), feature)
    _check_digits(column, feature)
    return _by_value(column, feature.known_code, MISSING)


def _check_digits(column: pd.Series, part: Label | Feature) -> None:
    """Raise ``digits_lost`` for a column of floats (exact up to 2^53) in which needed digits may have been lost."""
    if not pd.api.types.is_float_dtype(column.dtype):
        return
    kind = getattr(column.dtype, "numpy_dtype", column.dtype)
    bits = np.finfo(kind).nmant + 1
    sizes = np.abs(column.to_numpy(dtype=np.float64, na_value=np.nan))
    large = sizes[np.isfinite(sizes) & (sizes >= 2.0**bits)]
    if large.size and _needs_digits(part, large, bits):
        raise InputError(
            "digits_lost",
            f"column '{part.name}' holds floats of 2^{bits} or more, which may have lost digits; read it as text, or "
            "with pandas' Int64",
        )


def _needs_digits(part: Label | Feature, large: NDArray[np.float64], bits: int) -> bool:
    """Return whether the schema codes ``large`` numbers differently from the next float with ``bits`` bits."""
    if isinstance(part, Numeric):
        low, high = parse_bound(part.low), parse_bound(part.high)
        inside = float(large.min()) <= max(abs(low), abs(high))
        gap = Decimal(float(large.min())) / (1 << bits - 1)
        return inside and gap * 2 * SCALE > high - low
    listed = part.classes if isinstance(part, Label) else part.values  # noqa: PD011 - `part` is a feature
    numbers = (as_number(text) for text in listed)
    return any(number >= 1 << bits or number <= -1 << bits for number in numbers if number is not None)


def _bins(numbers: Integers, feature: Numeric) -> Integers:
    """Return bin codes, the number of edges ≤ each number: (rows,) int64; :data:`MISSING` for :data:`NO_NUMBER`."""
    found = np.searchsorted(np.array(feature.edges, np.int64), numbers, side="right")
    return np.where(numbers == NO_NUMBER, MISSING, found).astype(np.int64)


def _check_listed(column: pd.Series, missing: NDArray[np.bool_], what: str) -> None:
    """Raise an error if one of the cells that ``missing``, shape (rows,) bool, marks has a value: it is not listed."""
    cells = column.astype(object).to_numpy()
    if not all(is_missing(cells[index]) for index in np.flatnonzero(missing)):
        raise InputError("value_refused", f"{what} has a value that is not listed")


def _by_value(column: pd.Series, rule: Callable[[object], int | None], nothing: int) -> Integers:
    """Return ``rule`` of every cell, (rows,) int64, called once per distinct cell; ``nothing`` replaces None."""
    if _is_plain(column, "fiub") or (column.dtype == object and pd.api.types.infer_dtype(column) == "string"):
        places, distinct = pd.factorize(column.to_numpy())  # None and NaN get the place −1: the last entry
        results = [nothing if (one := rule(cell)) is None else one for cell in distinct.tolist()]
        return np.asarray(np.array([*results, nothing], dtype=np.int64)[places], np.int64)
    cells = column.astype(object).to_numpy()
    found = np.full(len(cells), nothing, dtype=np.int64)
    memory: dict[tuple[type, Any], int] = {}
    for index, cell in enumerate(cells):
        key = (type(cell), cell)  # 1 and True are equal but have different codes
        try:
            code = memory.get(key)
        except Exception:  # noqa: BLE001 - an unhashable cell, such as a list, is never a listed value
            key, code = (type(cell), None), None
        if code is None:
            result = rule(cell)
            code = memory[key] = nothing if result is None else result
        found[index] = code
    return found
