"""Every stable reason in the source is explained in docs/reasons.md, and nothing else is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COVERED = ("protocol",)
"""Packages whose reasons must all be documented: extend as edge_sdk, aggregator and simulation are."""
ALL = ("protocol", "edge_sdk", "aggregator", "simulation")
CARRIERS = {"HearsayError", "InputError", "DocumentError", "PolicyError", "StorageError", "Damage"}
WORD = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def is_reason_name(name):
    return name == "reason" or name.upper().endswith("REASON")


def texts(node):
    """The string constants that an expression may come to; None for a form not looked through."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.IfExp):
        one, other = texts(node.body), texts(node.orelse)
        return None if one is None or other is None else one | other
    if isinstance(node, ast.Name) and is_reason_name(node.id):
        return set()  # what it is bound to is collected where that happens
    return None


def reasons(source):
    """The reasons that a source text may raise, and the places where that can not be seen."""
    found, unclear = set(), []

    def take(node):
        seen = texts(node)
        if seen is None:
            unclear.append((node.lineno, ast.unparse(node)))
        found.update(seen or ())

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in CARRIERS and node.args:
                take(node.args[0])
        elif isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and is_reason_name(t.id) for t in node.targets
        ):
            take(node.value)
        elif isinstance(node, ast.arguments):
            defaults = node.defaults + node.kw_defaults
            named = (node.posonlyargs + node.args)[
                len(node.posonlyargs + node.args) - len(node.defaults) :
            ] + node.kwonlyargs
            for argument, default in zip(named, defaults, strict=True):
                if default is not None and is_reason_name(argument.arg):
                    take(default)
    return found, unclear


def of_package(package):
    found, unclear = set(), []
    for path in sorted((ROOT / package).rglob("*.py")):
        some, places = reasons(path.read_text(encoding="utf-8"))
        found |= some
        unclear += [(path.name, *place) for place in places]
    return found, unclear


def documented():
    page = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert all(meaning.endswith(".") and advice.endswith(".") for _, meaning, advice in rows)
    return [reason for reason, _, _ in rows]


@pytest.mark.parametrize("package", COVERED)
def test_every_reason_is_documented(package):
    found, unclear = of_package(package)
    assert unclear == []
    assert found <= set(documented())
    assert all(WORD.fullmatch(reason) for reason in found)


def test_the_walk_finds_what_protocol_surely_raises():
    found, _ = of_package("protocol")
    assert {"malformed", "invalid_campaign", "invalid_model", "truncated", "epsilon_invalid", "value_refused"} <= found
    assert len(found) > 30


def test_no_row_is_repeated_or_about_nothing():
    rows = documented()
    assert len(set(rows)) == len(rows)
    source = "\n".join(path.read_text(encoding="utf-8") for package in ALL for path in (ROOT / package).rglob("*.py"))
    assert [reason for reason in rows if f'"{reason}"' not in source] == []


def test_the_walk_sees_each_way_of_naming_a_reason():
    found, unclear = reasons(
        "_REASON = 'a'\n"
        "def f(x, reason='b', *, other_reason='c'):\n"
        "    reason = 'd' if x else 'e'\n"
        "    raise errors.InputError('f', 'text')\n"
        "    raise InputError(reason, 'text')\n"
        "    raise DocumentError(x.y, 'text')\n"
        "    yield Damage('g', 0, 1)\n"
    )
    assert found == set("abcdefg")
    assert unclear == [(6, "x.y")]
