"""The documentation as a site: it builds without a warning, needs no network, has every page and public name."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aggregator
import edge_sdk
import simulation

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PARTS = ["Start", "Tutorials", "How to", "Reference", "Explanation", "Decisions"]


@pytest.fixture(scope="module")
def generated():
    """The module ``docs/generate_decisions.py``."""
    spec = importlib.util.spec_from_file_location("generate_decisions", DOCS / "generate_decisions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_of_decisions_is_that_of_their_files_and_amended_ones_exist(generated):
    assert (DOCS / "decisions" / "index.md").read_text("utf-8") == generated.index(), "run make docs"
    numbers = {each.number for each in generated.decisions()}
    named = {int(n) for each in generated.decisions() for n in re.findall(r"decision (\d+)", each.status)}
    assert named
    assert named <= numbers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("## 1. Title\n\n2026-11-22\n", r"subject\.md"),
        ("## 1. Title\n\nText\n", r"subject\.md"),
        ("## Title\n\n2026-11-22 · accepted\n", r"subject\.md"),
        ("## 1. Title\n\n2026-11-22 · accepted\n\n" * 2, "one number"),
    ],
)
def test_a_decision_without_date_status_or_a_number_of_its_own_is_seen(generated, monkeypatch, tmp_path, text, said):
    (tmp_path / "subject.md").write_text(f"# Subject\n\n{text}", "utf-8")
    monkeypatch.setattr(generated, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=said):
        generated.decisions()


def parts() -> dict[str, list[str]]:
    """Pages of each part of the site, as ``mkdocs.yml`` lists them."""
    listed = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1]
    found: dict[str, list[str]] = {}
    for line in listed.splitlines():
        if part := re.match(r"  - ([A-Z][\w ]*):", line):
            found[part[1]] = []
        found[list(found)[-1]] += re.findall(r"([\w/-]+\.md)", line)
    return found


def test_every_page_is_in_one_part_and_a_folders_pages_in_its_own():
    listed = parts()
    assert list(listed) == [part for part in PARTS if part in listed]
    pages = [page for part in listed.values() for page in part]
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(pages) == sorted(
        page for page in there if not page.startswith("decisions/") or page == "decisions/index.md"
    )
    for part, folder in (("Tutorials", "tutorials"), ("How to", "how-to"), ("Reference", "reference")):
        assert [page for page in pages if page.startswith(f"{folder}/") and page not in listed[part]] == []


@pytest.mark.parametrize("package", [aggregator, edge_sdk, simulation], ids=lambda package: package.__name__)
def test_every_public_name_is_in_the_reference(package):
    described = "".join(path.read_text("utf-8") for path in (DOCS / "reference" / "api").glob("*.md"))
    for name in package.__all__:
        there = getattr(package, name)
        whole = f"::: {there.__module__}.{there.__qualname__}\n"
        assert whole in described or f"::: {there.__module__}\n" in described, f"{package.__name__}.{name}"


def build(folder, *arguments):
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_with_proofs_and_functions_and_loads_nothing_from_elsewhere(tmp_path):
    site = tmp_path / "site"
    done = build(site)
    assert (done.returncode, "WARNING" in done.stdout + done.stderr) == (0, False), done.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    loading = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//")
    assert [page for page in pages if loading.search(page.read_text("utf-8"))] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\"?https?:|@import", style.read_text("utf-8")), style
    assert (site / "reference" / "api" / "edge_sdk.html").read_text("utf-8").count("doc-function") > 20
    assert not re.search(r":(?:meth|class|func):", (site / "reference" / "api" / "aggregator.html").read_text("utf-8"))
    linked = re.findall(r'href="(source/tests/[^"#]+)"', (site / "math.html").read_text("utf-8"))
    assert len(set(linked)) >= 5
    assert all((site / path).is_file() for path in linked)


@pytest.mark.slow
def test_a_page_with_a_broken_link_is_refused(tmp_path):
    """The settings of the site, about two pages."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Start\n\n[a](missing.md) [b](other.md#nowhere)\n", "utf-8")
    (tmp_path / "docs" / "other.md").write_text("# Other\n", "utf-8")
    (tmp_path / "docs" / "left-out.md").write_text("# Left out\n", "utf-8")
    settings = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[0]
    settings = re.sub(r"(?m)^(?:hooks|exclude_docs):.*(?:\n  .*)*", "", settings)
    settings = settings.replace("site_dir: build/site", "site_dir: out") + "\nnav: [index.md, other.md]\n"
    (tmp_path / "mkdocs.yml").write_text(settings, "utf-8")
    done = build(tmp_path / "out", "--config-file", tmp_path / "mkdocs.yml")
    assert done.returncode == 1
    for said in ("missing.md", "'#nowhere'", "left-out.md"):
        assert said in done.stderr
