"""One small schema for designs from pilots: two classes, two categories and a number."""

from __future__ import annotations

SCHEMA = """
name = "designs"
[label]
name = "class"
classes = ["n", "y"]
[[features]]
name = "letter"
kind = "categorical"
values = ["a", "b", "c", "d", "e", "f"]
[[features]]
name = "size"
kind = "numeric"
low = "-1"
high = "1"
bins = 8
[[features]]
name = "noise"
kind = "categorical"
values = ["p", "q"]
missing = "p"
"""
