"""The documents can be read: bounded lines, references to sections, links and functions that exist."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

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
