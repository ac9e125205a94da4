"""One small schema for plans: two classes, a category and a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.publishing.schemas.schema_file import parse_schema_text

if TYPE_CHECKING:
    from protocol.schema import Schema

SCHEMA = """
name = "plans"
[label]
name = "class"
classes = ["a", "b"]
[[features]]
name = "colour"
kind = "categorical"
values = ["red", "green", "blue"]
missing = "red"
[[features]]
name = "width"
kind = "numeric"
low = "-4"
high = "4"
bins = 4
"""


def schema() -> Schema:
    """The parsed schema."""
    return parse_schema_text(SCHEMA).schema
