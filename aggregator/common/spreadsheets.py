"""Escape text in CSV files so that no spreadsheet runs it as a formula. The text can be recovered.

A cell that could begin a formula, or begins with an apostrophe, gets an apostrophe in front. To recover the text,
remove one apostrophe at the start of every text, and after every semicolon, tab and line break.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MARK = "'"
_FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20'"
_BEGINS_A_FORMULA = re.compile(f"^(?=[{_FORMULA}\t\r\n])|(?<=[;\t\r\n])(?=[{_FORMULA}])")
"""The places before a character that begins a formula (full-width forms included) or before an apostrophe.

A cell begins at the start of the text. In a spreadsheet with other separators, a cell also begins after a semicolon,
tab or line break.
"""
_MARKED = re.compile(f"(^|[;\t\r\n]){MARK}")
_NUMBERS = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?( -?[0-9]+)*")
"""A number, or the integers of an answer separated by spaces. No spreadsheet runs such a text."""


def to_cell(text: str) -> str:
    """Return a text as a cell of a CSV file.

    >>> [to_cell(text) for text in ("=1+1", "'=1+1", "-3.5", "3 -4", "plain", "a;=1+2")]
    ["'=1+1", "''=1+1", '-3.5', '3 -4', 'plain', "a;'=1+2"]
    """
    return text if _NUMBERS.fullmatch(text) else _BEGINS_A_FORMULA.sub(MARK, text)


def from_cell(cell: str) -> str:
    """Return the text from which :func:`to_cell` made this cell.

    >>> [from_cell(cell) for cell in ("'=1+1", "''=1+1", "-3.5", "plain", "a;'=1+2")]
    ['=1+1', "'=1+1", '-3.5', 'plain', 'a;=1+2']
    """
    return _MARKED.sub(r"\1", cell)


def csv_text(frame: pd.DataFrame) -> str:
    """Return a frame as CSV with one header line: names and texts escaped, missing values empty."""
    shown = frame.rename(columns=lambda name: to_cell(str(name)))
    for place, kind in enumerate(shown.dtypes):
        if kind.kind not in "biufc":
            shown.isetitem(place, [to_cell(cell) if isinstance(cell, str) else cell for cell in shown.iloc[:, place]])
    return str(shown.to_csv(index=False))
