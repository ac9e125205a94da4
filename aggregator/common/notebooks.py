"""Results as small HTML tables for notebooks. Markup and unprintable characters in other people's names are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from protocol.documents.payload import is_printable

MOST_ROWS = 60
"""Largest number of rows of a table that are shown. The number of the other rows is shown below."""


def text(value: object) -> str:
    """Return a value as HTML text, safe in an attribute too: floats with six digits, empty text for None."""
    if value is None:
        return ""
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    return escape("".join(character if is_printable(character) else "\ufffd" for character in shown), quote=True)


def facts(title: str, pairs: Mapping[str, object]) -> str:
    """Return HTML of the heading ``title``, and of a table with one row per name and value in ``pairs``."""
    rows = "".join(f"<tr><th>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in pairs.items())
    return f"<div><strong>{text(title)}</strong><table>{rows}</table></div>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return HTML of a table with the headings ``columns``: the first :data:`MOST_ROWS` rows, and how many follow."""
    listed = [list(row) for row in rows]
    head = "".join(f"<th>{text(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in listed[:MOST_ROWS])
    more = f"<p>and {len(listed) - MOST_ROWS} more</p>" if len(listed) > MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
