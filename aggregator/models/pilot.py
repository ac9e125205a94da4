"""A pilot file for a schema that exists: checked more strictly than devices check records, since it can be mended.

Run by the analyst. No error text contains a cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from aggregator.models.encoding import label_codes
from aggregator.tables import MISSING_TOKENS, numbers_of, shorten, typed
from protocol.errors import InputError
from protocol.features import Numeric
from protocol.values import as_number

if TYPE_CHECKING:
    from collections.abc import Collection

    from protocol.schema import Schema


class Outside(NamedTuple):
    """How many of a pilot's numbers lie outside the bounds of a feature, and go to its end bins."""

    name: str
    below: int
    above: int
    missing: int


def check_pilot(table: pd.DataFrame, schema: Schema, missing: Collection[str] = MISSING_TOKENS) -> pd.DataFrame:
    """A pilot table of text as typed values.

    Args:
        table: as :func:`aggregator.tables.read_table` returns it.
        schema: every numeric feature has a column.
        missing: cells that stand for a missing value.

    Raises:
        InputError: ``columns_missing``, ``label_missing``; ``value_invalid``: a cell of a numeric feature is
            no finite number to a device and does not mean missing; ``one_class``: no two classes of the schema occur.
    """
    names = [feature.name for feature in schema.features if isinstance(feature, Numeric)]
    absent = [name for name in names if name not in table.columns]
    if absent:
        raise InputError("columns_missing", f"the pilot has no column for the numeric features {shorten(absent)}")
    for name in names:
        _check_numbers(table[name], missing)
    frame = typed(table, schema, missing)
    if len(set(label_codes(frame, schema.label, substitute=True).tolist())) < 2:
        raise InputError("one_class", "the pilot has one class, so nothing tells classes apart")
    return frame


def _check_numbers(column: pd.Series, missing: Collection[str]) -> None:
    for line, cell in zip(column.index, column, strict=True):
        if cell not in missing and as_number(cell) is None:
            raise InputError(
                "value_invalid",
                f"column '{column.name}', line {line}: not a finite number, or spelled as devices do not "
                "read it (0.5 and not .5, 5 and not 5. or +5); if it means missing, say --missing TOKEN",
            )


def outside(frame: pd.DataFrame, schema: Schema) -> list[Outside]:
    """Underflow and overflow of every numeric feature of a pilot.

    Devices never say whether a number was outside: the end bins hold what lies beyond them. Only a pilot
    can show it, before bounds are signed.
    """
    found = []
    for feature in schema.features:
        if isinstance(feature, Numeric):
            numbers = numbers_of(frame[feature.name]).to_numpy()
            below, above = (numbers < float(feature.low)).sum(), (numbers > float(feature.high)).sum()
            found.append(Outside(feature.name, int(below), int(above), int(pd.isna(numbers).sum())))
    return found
