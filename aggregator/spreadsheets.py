"""Text that a spreadsheet shows and never runs, without loss.

A cell of a CSV file that begins with ``=`` or its like is a formula to spreadsheets, and names come from
campaigns that others wrote. Such a cell gets an apostrophe before it, and so does one that has an
apostrophe there already. Whoever takes one apostrophe away from every text that begins with one, and after
every semicolon, tab and line break, has the text again. Numbers are left alone. Parquet and JSON hold the
texts as they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MARK = "'"
_FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20'"
_BEGINS_A_FORMULA = re.compile(f"^(?=[{_FORMULA}\t\r\n])|(?<=[;\t\r\n])(?=[{_FORMULA}])")
"""Before what spreadsheets take for the begin of a formula or a command, full-width forms too, and before the mark.

A cell begins at the begin of the text; where a spreadsheet separates by another sign than the comma, or takes lines
apart, also after a semicolon, tab or line break.
"""
_MARKED = re.compile(f"(^|[;\t\r\n]){MARK}")
_NUMBERS = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?( -?[0-9]+)*")
"""A number, or the integers of an answer with spaces between them: nothing that could be run."""


def to_cell(text: str) -> str:
    """A text as a cell of a CSV file.

    >>> [to_cell(text) for text in ("=1+1", "'=1+1", "-3.5", "3 -4", "plain", "a;=1+2")]
    ["'=1+1", "''=1+1", '-3.5', '3 -4', 'plain', "a;'=1+2"]
    """
    return text if _NUMBERS.fullmatch(text) else _BEGINS_A_FORMULA.sub(MARK, text)


def from_cell(cell: str) -> str:
    """The text that :func:`to_cell` made a cell of.

    >>> [from_cell(cell) for cell in ("'=1+1", "''=1+1", "-3.5", "plain", "a;'=1+2")]
    ['=1+1', "'=1+1", '-3.5', 'plain', 'a;=1+2']
    """
    return _MARKED.sub(r"\1", cell)


def csv_text(frame: pd.DataFrame) -> str:
    """A frame as CSV with one header line: names and texts as cells, numbers as they are, nothing as an empty cell."""
    shown = frame.rename(columns=lambda name: to_cell(str(name)))
    for place, kind in enumerate(shown.dtypes):
        if kind.kind not in "biufc":
            shown.isetitem(place, [to_cell(cell) if isinstance(cell, str) else cell for cell in shown.iloc[:, place]])
    return str(shown.to_csv(index=False))
