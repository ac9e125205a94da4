"""The examples in the docstrings of the four packages print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import ModuleType

import pytest

TREE = Path(__file__).parents[1]
PACKAGES = ("protocol", "edge_sdk", "aggregator", "simulation", "research")
MODULES = sorted(
    ".".join(path.relative_to(TREE).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in (TREE / package).rglob("*.py")
    if ">>>" in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_print_what_they_say(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_are_found_and_run():
    run = [doctest.testmod(importlib.import_module(name)).attempted for name in MODULES]
    assert sum(map(bool, run)) >= 10


def test_an_example_with_a_wrong_result_is_seen():
    assert doctest.testmod(ModuleType("wrong", ">>> 1 + 1\n3"), report=False).failed == 1
