"""Figures of the pages are those of the CSV files; every figure of the reproduction has its file and its plot."""

from __future__ import annotations

import re

import pytest
from support.reference import need_reference

from benchmarks.reproduce import figures, page
from benchmarks.reproduce.__main__ import PARTS
from benchmarks.reproduce.__main__ import main as reproduce
from benchmarks.shared.reference import FOLDER

PAGES = [(name, (page.ROOT / name).read_text("utf-8")) for name in page.PAGES]


@pytest.mark.parametrize(("name", "text"), PAGES, ids=page.PAGES)
def test_a_page_has_the_figures_of_the_files(name, text):
    """After a change of the results: ``python -m benchmarks.reproduce.page``.

    A line that begins with a comment is HTML in Markdown, and ends the paragraph; tables have such lines.
    """
    assert len(page.PLACE.findall(text)) >= 4
    assert page.filled(text) == text, f"{name} is not up to date"
    assert re.findall(r"^ *<!--=[^>]+-->(?=[^\n])", text, re.MULTILINE) == [], name
    place = page.PLACE.search(text)
    changed = text.replace(place["text"], place["text"] + "1", 1)
    assert page.filled(changed) == text != changed, name


def test_a_figure_is_named_and_of_one_row_exactly():
    with pytest.raises(KeyError):
        page.filled("<!--=no-such-figure-->1<!--=-->")
    with pytest.raises(LookupError, match="6 rows"):
        figures.one("reproduce/theta.csv", theta="0.25")


COMMAND = re.compile(r"^python -m benchmarks\.(\S+)(.*?)(?: +#.*)?$", re.MULTILINE)


def commands():
    """The commands of the first block of reproduction.md: module, and its words."""
    text = (page.ROOT / "docs" / "reproduction.md").read_text("utf-8")
    block = re.search(r"```bash\n(.*?)```", text, re.DOTALL)[1]
    found = [(module, words.split()) for module, words in COMMAND.findall(block)]
    assert len(found) == len(block.splitlines())
    return found


def test_the_commands_of_the_page_are_understood(tmp_path, capsys, monkeypatch):
    """Without the data the reproduction says so; the page is up to date."""
    monkeypatch.setenv("HEARSAY_REFERENCE", "")  # The reproduction sets the variable; the test's end restores it.
    monkeypatch.setattr("benchmarks.shared.reference.FOLDER", tmp_path)
    for module, words in commands():
        if module == "reproduce.page":
            assert page.main([*words, "--check"]) == 0
            continue
        assert reproduce([str(tmp_path) if word == "DIR" else word for word in words]) == 2
        said = capsys.readouterr().err
        assert "HEARSAY_REFERENCE" in said
        assert "are not here" in said


@pytest.mark.slow
def test_the_commands_of_the_page_measure(tmp_path, monkeypatch):
    """The quick command with the smallest part."""
    need_reference()
    monkeypatch.setenv("HEARSAY_REFERENCE", str(FOLDER))
    [quick] = [words for module, words in commands() if "--quick" in words]
    words = [str(FOLDER) if word == "DIR" else word for word in quick]
    assert reproduce([*words, "--only", "theta", "--folder", str(tmp_path), "--processes", "1"]) == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"reproduce-theta.svg", "theta-variance.csv", "theta.csv"}


def test_every_part_has_a_file_and_a_place_on_the_page():
    text = (page.ROOT / "docs" / "reproduction.md").read_text("utf-8")
    for part in PARTS:
        assert (figures.RESULTS / "reproduce" / f"{part}.csv").is_file()
        assert f"`{part}.csv`" in text
    for plot in (page.ROOT / "docs" / "plots").glob("reproduce-*.svg"):
        assert f"plots/{plot.name}" in text
