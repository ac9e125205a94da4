"""The examples in the docstrings of the four packages print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import ModuleType

TREE = Path(__file__).parents[1]
PACKAGES = ("protocol", "edge_sdk", "aggregator", "simulation", "research")
MODULES = sorted(
    ".".join(path.relative_to(TREE).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in (TREE / package).rglob("*.py")
    if ">>>" in path.read_text()
)


def test_the_examples_of_the_modules_print_what_they_say():
    found = {name: doctest.testmod(importlib.import_module(name)) for name in MODULES}
    assert [name for name, result in found.items() if result.failed] == []
    assert sum(result.attempted > 0 for result in found.values()) >= 10
    assert doctest.testmod(ModuleType("wrong", ">>> 1 + 1\n3"), report=False).failed == 1
