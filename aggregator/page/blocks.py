"""The parts of a page: sections of blocks. Every text is bounded in length, and has no invisible characters.

Names and cards come from files of other people. Every text of a block passes :func:`clipped`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from protocol.documents.payload import sentence

MOST_CHARACTERS = 600
"""Length of a text on the page. Longer texts are cut; the number of characters left out is shown."""
MOST_CELL = 120
"""Length of the text of one cell of a table."""
MOST_ROWS = 100
"""Rows of one table. The number of the other rows is shown, with the command that prints them."""


class Paragraph(NamedTuple):
    """A text. ``tone`` is ``plain``, ``warning`` or ``good``."""

    text: str
    tone: str = "plain"


class Items(NamedTuple):
    """A list of sentences, with an introductory line."""

    lead: str
    texts: tuple[str, ...]


class Facts(NamedTuple):
    """Pairs of name and value. ``caption``: for readers who see only the table. ``more``: what is left out, if any."""

    caption: str
    rows: tuple[tuple[str, str], ...]
    more: str = ""


class Table(NamedTuple):
    """A table.

    ``numeric``: positions of the columns that are aligned on the right; ``more``: what is left out, and the command
    that prints it; ``folded``: whether the reader opens the table to see the rows.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    more: str = ""
    folded: bool = False


class Chart(NamedTuple):
    """A chart as SVG markup, the table of its numbers, and a heading of the third level above it, or none if empty."""

    svg: str
    table: Table
    heading: str = ""


class Commands(NamedTuple):
    """Commands to copy. Each has a sentence that says what the command shows."""

    lines: tuple[tuple[str, str], ...]


Block = Paragraph | Items | Facts | Table | Chart | Commands


class Section(NamedTuple):
    """A section of a page: its heading of the second level, and its blocks. ``name``: anchor for links to it."""

    name: str
    title: str
    blocks: tuple[Block, ...]


def clipped(value: object, most: int = MOST_CHARACTERS) -> str:
    """Return a value as text on one line, of at most ``most`` characters and a note of how many are left out."""
    text = value if isinstance(value, str) else str(value)
    left = len(text) - most
    shown = sentence(text[:most])
    cut = len(shown) - most
    if left <= 0 and cut <= 0:
        return shown
    return f"{shown[:most]}… ({max(left, 0) or cut} characters more)"


def paragraph(text: object, tone: str = "plain") -> Paragraph:
    """Return a paragraph of bounded text."""
    return Paragraph(clipped(text, 2 * MOST_CHARACTERS), tone)


def items(lead: str, texts: Iterable[object]) -> Items:
    """Return a list of at most :data:`MOST_ROWS` bounded sentences."""
    found = list(texts)
    shown = [clipped(text) for text in found[:MOST_ROWS]]
    if len(found) > len(shown):
        shown.append(f"and {len(found) - len(shown)} more")
    return Items(clipped(lead), tuple(shown))


def facts(caption: str, pairs: Mapping[str, object], more: str = "") -> Facts:
    """Return at most :data:`MOST_ROWS` bounded names and values. ``more``: the command that prints the others."""
    listed = list(pairs.items())
    rows = tuple((clipped(name, MOST_CELL), clipped(value)) for name, value in listed[:MOST_ROWS])
    return Facts(clipped(caption), rows, _left_out(len(listed) - len(rows), more))


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    numeric: Iterable[int] = (),
    *,
    more: str = "",
    folded: bool = False,
    most: int = MOST_ROWS,
) -> Table:
    """Return a table of bounded cells, with at most ``most`` rows. Floats have four significant digits.

    The arguments are the fields of :class:`Table`; ``more`` is the command that prints the rows which are left out.
    """
    listed = list(rows)
    shown = tuple(tuple(_cell(value) for value in row) for row in listed[:most])
    names = tuple(clipped(name, MOST_CELL) for name in columns)
    left = _left_out(len(listed) - len(shown), more)
    return Table(clipped(caption), names, shown, frozenset(numeric), left, folded)


def _left_out(number: int, command: str) -> str:
    if number <= 0:
        return ""
    return f"{number} more rows are left out" + (f"; {command} prints them" if command else "")


def _cell(value: object) -> str:
    if value is None:
        return ""
    return clipped(f"{value:.4g}" if isinstance(value, float) else value, MOST_CELL)
