"""Small schemas of two classes, as text: for plans a category and a number, for designs two categories and a number."""

from __future__ import annotations

PLAN = """
name = "plans"
label = { name = "class", classes = ["a", "b"] }
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
DESIGN = """
name = "designs"
label = { name = "class", classes = ["n", "y"] }
features = [
    { name = "letter", kind = "categorical", values = ["a", "b", "c", "d", "e", "f"] },
    { name = "size", kind = "numeric", low = "-1", high = "1", bins = 8 },
    { name = "noise", kind = "categorical", values = ["p", "q"], missing = "p" },
]
"""
