"""Facts about one subject as a tree, from which text, JSON and HTML are made.

A :class:`Fact` has a key and a value for programs, and a label and a text for people. :class:`Facts` holds the facts of
one subject with sentences, a table, and parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Fact(NamedTuple):
    """One fact, for programs and for people.

    ``key``: name for programs; None if the fact is for people alone. ``value``: in the types of JSON and bytes.
    ``text``: what people read; None shows the value. ``label``: None shows the key; empty if it is for programs alone.
    """

    key: str | None
    value: Any
    text: object = None
    label: str | None = None

    @property
    def pair(self) -> tuple[str, object]:
        """Return the label and the text that people read."""
        shown = self.value if self.text is None else self.text
        label = str(self.key).replace("_", " ") if self.label is None else self.label
        return label, ("no", "yes")[shown] if isinstance(shown, bool) else shown


def said(label: str, text: object) -> Fact:
    """Make a fact for people alone."""
    return Fact(None, None, text, label)


def stated(key: str, value: Any) -> Fact:
    """Make a fact for programs alone."""
    return Fact(key, value, label="")


def all_said(pairs: Mapping[str, object]) -> list[Fact]:
    """Make facts for people alone from a mapping label → text."""
    return [said(label, text) for label, text in pairs.items()]


class Table(NamedTuple):
    """A table for people. ``numeric`` names the columns of numbers; ``meaning`` says in a sentence what they are."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    numeric: tuple[str, ...] = ()
    meaning: str = ""


class Facts(NamedTuple):
    """The facts about one subject.

    ``notes`` are sentences about the last of the facts, ``parts`` facts below these, each with its title, for people
    alone. ``warning``: something that the reader should reconsider.
    """

    title: str
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()
    table: Table | None = None
    parts: tuple[Facts, ...] = ()
    warning: str = ""

    def pairs(self) -> Iterator[tuple[str, object]]:
        """Yield the label and the text of every fact for people."""
        return (fact.pair for fact in self.facts if fact.label != "")

    def to_json(self) -> dict[str, Any]:
        """Return the value of every fact for programs by its key."""
        return {fact.key: fact.value for fact in self.facts if fact.key is not None}
