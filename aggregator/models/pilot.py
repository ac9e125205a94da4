"""Checks of a pilot file against an existing schema. Run by the analyst.

The checks are stricter than the checks of records on devices, because the analyst can correct the file. No error text
contains a cell.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import pandas as pd

from aggregator.common.tables import MISSING_TOKENS, is_absent, numbers_of, shorten, typed
from aggregator.models.encoding import label_codes
from protocol.errors import InputError
from protocol.features import Numeric
from protocol.schema import Schema
from protocol.values import as_number


class Outside(NamedTuple):
    """Number of a pilot's cells below and above the bounds of a feature, and number of missing cells.

    Numbers outside the bounds belong to the first or the last bin.

    Attributes:
        name: name of the feature.
        below, above: number of cells below the lower and above the upper bound.
        missing: number of cells that are no number to a device.
    """

    name: str
    below: int
    above: int
    missing: int


def check_columns(pilot: pd.DataFrame, schema: Schema) -> None:
    """Refuse a pilot without a column for a feature, which would count as missing in every record.

    Raises:
        InputError: ``columns_missing``.
    """
    absent = [feature.name for feature in schema.features if feature.name not in pilot.columns]
    if absent:
        raise InputError("columns_missing", f"the pilot has no column for the features {shorten(absent)}")


def check_pilot(table: pd.DataFrame, schema: Schema, missing: Collection[str] = MISSING_TOKENS) -> pd.DataFrame:
    """Check a pilot table of text and convert it to typed values.

    Args:
        table: a table from :func:`aggregator.common.tables.read_table`, or any frame of records, in which NaN and None
            are missing values; with a column for every numeric feature.
        schema: the schema of the campaign.
        missing: texts of a missing value.

    Returns:
        The columns of the label and of the features, with texts and None for missing values
        (:func:`aggregator.common.tables.typed`).

    Raises:
        InputError: ``columns_missing``, ``label_missing``; ``value_invalid``: a cell of a numeric feature is neither
            a missing value nor a finite number by the devices' rules; ``value_refused``: a label is no class, and the
            schema refuses such labels; ``one_class``: the table has fewer than two classes of the schema, with the
            substitute in place of other labels.
    """
    frame = read_pilot(table, schema, missing)
    if len(set(label_codes(frame, schema.label, substitute=True).tolist())) < 2:
        raise InputError("one_class", "the pilot has one class, so nothing tells classes apart")
    return frame


def read_pilot(table: pd.DataFrame, schema: Schema, missing: Collection[str] = MISSING_TOKENS) -> pd.DataFrame:
    """Like :func:`check_pilot`, but with any number of classes: the result does not tell which classes there are.

    Raises:
        InputError: ``columns_missing``, ``value_invalid``.
    """
    names = [feature.name for feature in schema.features if isinstance(feature, Numeric)]
    absent = [name for name in names if name not in table.columns]
    if absent:
        raise InputError("columns_missing", f"the pilot has no column for the numeric features {shorten(absent)}")
    for name in names:
        _check_numbers(table[name], missing)
    return typed(table, schema, missing)


def _check_numbers(column: pd.Series, missing: Collection[str]) -> None:
    """Refuse a column with a cell that is neither missing nor a finite number by the devices' rules."""
    for line, cell in zip(column.index, column, strict=True):
        if not is_absent(cell, missing) and as_number(cell) is None:
            place = f"line {line}" if column.index.name == "line" else f"record {line}"
            raise InputError(
                "value_invalid",
                f"column '{column.name}', {place}: not a finite number, or spelled as devices do not read it (0.5 and "
                "not .5, 5 and not 5. or +5); if it means missing, say --missing TOKEN, or missing= in Python",
            )


def outside(frame: pd.DataFrame, schema: Schema) -> list[Outside]:
    """Number of cells outside the bounds, for every numeric feature of a pilot.

    Reports of devices do not show this, because numbers outside the bounds fall into the first or the last bin. Only a
    pilot shows it, before the bounds are signed.

    Args:
        frame: a table from :func:`check_pilot`.
        schema: the schema with the bounds.
    """
    found = []
    for feature in schema.features:
        if isinstance(feature, Numeric):
            numbers = numbers_of(frame[feature.name]).to_numpy()
            below, above = (numbers < float(feature.low)).sum(), (numbers > float(feature.high)).sum()
            found.append(Outside(feature.name, int(below), int(above), int(pd.isna(numbers).sum())))
    return found
