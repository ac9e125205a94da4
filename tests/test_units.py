"""One unit per name: what is called epsilon is ε, what ends in _micro is a whole number of millionths."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("protocol", "edge_sdk", "aggregator", "simulation", "research", "examples")


def _is_epsilon(name: str) -> bool:
    return name.startswith("epsilon") and not name.endswith("_micro")


def _called(value: ast.expr) -> str:
    """The name of a value that is passed on as it is; empty for anything that is computed."""
    return value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""


def given_names(tree: ast.AST) -> list[tuple[str, str]]:
    """Each name that is given a value, with that value's name: keys, keywords, assignments."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys = zip(node.keys, node.values, strict=True)
            found += [(str(key.value), _called(value)) for key, value in keys if isinstance(key, ast.Constant)]
        elif isinstance(node, ast.keyword) and node.arg:
            found.append((node.arg, _called(node.value)))
        elif isinstance(node, ast.Assign):
            found += [(_called(target), _called(node.value)) for target in node.targets]
    return found


def mixed(source: str) -> list[tuple[str, str]]:
    """Names of one unit that are given a value called by the other."""
    return [
        (name, value)
        for name, value in given_names(ast.parse(source))
        if (_is_epsilon(name) and value.endswith("_micro")) or (name.endswith("_micro") and _is_epsilon(value))
    ]


@pytest.mark.slow
def test_no_name_of_one_unit_takes_a_value_of_the_other():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 150
    assert {str(path): found for path in paths if (found := mixed(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "wrong",
    ["f(epsilon=x.epsilon_micro)", "{'epsilon_total': total_micro}", "epsilon = day_micro", "a.spent_micro = epsilon"],
)
def test_the_test_finds_what_is_mixed(wrong):
    assert len(mixed(wrong)) == 1
    assert mixed("f(epsilon=format_micro(x.epsilon_micro), epsilon_micro=micro_epsilon(epsilon))") == []
