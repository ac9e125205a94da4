"""The section on what ``hearsay design`` and ``hearsay refine`` decided, and why."""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.cards.card_words import in_words
from aggregator.page.blocks import Block, Section, facts, paragraph, table

ANCHOR = "choices"
HEADING = "What design and refine decided, and why"
_COLUMNS, _ROWS = 6, 40
_FIRST = ("by", "why", "features", "names", "accuracy", "error", "chosen", "dropped", "devices", "epsilon", "seed")
"""Entries of a decision that come first, in this order."""


def section(chosen: object) -> Section:
    """Return the section about decisions. ``chosen``: a card's entry, a schema's table ``[decision]``, or None."""
    if not chosen:
        text = "No decision is recorded: a person chose what the campaign asks, or the record is not at hand."
        return Section(ANCHOR, HEADING, (paragraph(text),))
    if not isinstance(chosen, dict):
        return Section(ANCHOR, HEADING, (paragraph(in_words(chosen)),))
    tables = {name: value for name, value in chosen.items() if _is_table(value)}
    plain = {_shown(name): in_words(chosen[name]) for name in _ordered(chosen) if name not in tables}
    blocks: list[Block] = [facts("The decision", plain)] if plain else []
    for name, rows in tables.items():
        columns = _ordered(dict.fromkeys(key for row in rows for key in row))[:_COLUMNS]
        cells = [[in_words(row[key]) if key in row else "" for key in columns] for row in rows]
        heads = [_shown(key) for key in columns]
        blocks.append(table(_shown(name), heads, cells, more="hearsay show", most=_ROWS))
    return Section(ANCHOR, HEADING, tuple(blocks))


def _ordered(names: Iterable[object]) -> list[object]:
    """Return the names in the order in which people read them; a signed model's maps are sorted by name."""
    return sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))


def _shown(name: object) -> str:
    return str(name).replace("_", " ")


def _is_table(value: object) -> bool:
    """Return whether a value is a list of maps, to be shown as a table."""
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) and row for row in value)
