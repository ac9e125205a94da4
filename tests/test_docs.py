"""The documents can be read: bounded lines, references to sections, links and functions that exist."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WIDTH = 120
REFERENCE = re.compile(r"(formats|math)\.md`?,? (?:sections? )?((?:\d+(?:\.\d+)?(?:, | and | to )?)+)")


def sections(name: str) -> set[str]:
    """Numbers of the sections of a page, and of the numbered points of each: "8" and "8.3"."""
    found, current = set(), ""
    for line in (DOCS / f"{name}.md").read_text("utf-8").splitlines():
        if heading := re.match(r"## (\d+)\. ", line):
            current = heading[1]
            found.add(current)
        elif line.startswith("#"):
            continue
        elif current and (point := re.match(r"(\d+)\. ", line)):
            found.add(f"{current}.{point[1]}")
    return found


@pytest.mark.parametrize("name", ["formats.md", "reference/life-cycles.md", "math.md", "smooth.md"])
def test_no_line_is_wider_than_a_window(name):
    lines = (DOCS / name).read_text("utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) >= WIDTH] == []


def referring() -> list[Path]:
    folders = ("protocol", "edge_sdk", "aggregator", "simulation", "research", "tests", "benchmarks")
    modules = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [*modules, *DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]


def test_references_name_sections_that_exist():
    there = {name: sections(name) for name in ("formats", "math")}
    checked = 0
    for path in referring():
        for name, numbers in REFERENCE.findall(path.read_text("utf-8")):
            for number in re.findall(r"\d+(?:\.\d+)?", numbers):
                assert number in there[name], f"{path.relative_to(ROOT)} refers to {name}.md, section {number}"
                checked += 1
    assert checked >= 100


def test_links_between_documents_lead_to_files():
    for path in (*DOCS.rglob("*.md"), ROOT / "README.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


def test_edges_of_life_cycles_name_what_exists():
    page = (DOCS / "reference" / "life-cycles.md").read_text("utf-8")
    named = set(re.findall(r"`((?:edge_sdk|aggregator|protocol|research)\.[\w.]+)`", page))
    assert len(named) >= 20
    for path in named:
        assert callable(pkgutil.resolve_name(path)), path
    reasons = (DOCS / "reference" / "reasons.md").read_text("utf-8")
    for stated in re.findall(r"reason:\s+((?:`\w+`(?:,\s+)?)+)", page):
        for reason in re.findall(r"\w+", stated):
            assert f"| `{reason}` |" in reasons, reason


def test_named_benchmarks_exist():
    """Texts, result files and imports name benchmarks by module or by path."""
    texts = [*referring(), ROOT / "Makefile", *(ROOT / "benchmarks" / "results").glob("*.txt")]
    checked = 0
    for path in texts:
        text = path.read_text("utf-8")
        named = re.findall(r"(?:python -m|from) (benchmarks(?:\.\w+)+)", text) + re.findall(
            r"benchmarks/\w+(?:/\w+)*\.py", text
        )
        for name in named:
            place = ROOT / name.removesuffix(".py").replace(".", "/")
            assert place.with_suffix(".py").is_file() or place.is_dir(), f"{path.relative_to(ROOT)} names {name}"
            checked += 1
    assert checked >= 100


PACKAGES = ("protocol", "edge_sdk", "aggregator", "simulation", "research")
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if ">>>" in path.read_text()
)


def test_the_examples_of_the_modules_print_what_they_say():
    found = {name: doctest.testmod(importlib.import_module(name)) for name in MODULES}
    assert [name for name, result in found.items() if result.failed] == []
    assert sum(result.attempted > 0 for result in found.values()) >= 10
    assert doctest.testmod(ModuleType("wrong", ">>> 1 + 1\n3"), report=False).failed == 1


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
