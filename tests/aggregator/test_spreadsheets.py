"""A text of a campaign is no formula in a spreadsheet, and is not lost either."""

from __future__ import annotations

import csv
from io import StringIO

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import stores
from support.commands import run
from support.publisher import NOW, Publisher
from support.reports import batch, opened, report

from aggregator.common.spreadsheets import csv_text, from_cell, to_cell
from protocol.features import Categorical
from protocol.schema import Label, build_schema

FORMULAS = ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", '=HYPERLINK("http://x")', "-1+2", "- 1", "1"]
RUNS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


@given(st.one_of(st.text(), st.sampled_from(FORMULAS), st.text("'=-1 .e")))
@example("'")
@example("")
def test_no_cell_is_a_formula_and_no_text_is_lost(text):
    cell = to_cell(text)
    assert from_cell(cell) == text
    if cell.startswith(RUNS):
        assert all(float(part) == float(part) for part in cell.split(" "))


def test_a_frame_keeps_its_numbers_and_its_gaps():
    frame = pd.DataFrame({"=a": ["=x", None, "y"], "n": [1, 2, 3], "f": [-1.5, float("nan"), 2.0]})
    numbers = ["-1", "+2.5", "-3 4 -5", "1e-9", "-1.5E+3"]
    assert [*map(to_cell, numbers)] == numbers
    assert csv_text(frame) == "'=a,n,f\n'=x,1,-1.5\n,2,\ny,3,2.0\n"


def test_estimates_of_a_hostile_campaign_are_no_formulas(tmp_path):
    schema = build_schema(Label("=label", ("@SUM(1)", "-b")), [Categorical("=cmd|' /C calc'!A0", ("=1+1", "\uff1d2"))])
    raw = Publisher(schema=schema).campaign()
    campaign = opened(raw)
    store = stores.stored(
        tmp_path, raw, batch(campaign, [report(campaign, device, 0) for device in range(30)]), now=NOW
    )
    said = run("estimate", "--store", store.path, "--csv")
    rows = list(csv.reader(StringIO(said.stdout)))
    texts = [cell for row in rows for cell in row if cell.startswith(RUNS)]
    assert all(float(cell) == float(cell) for cell in texts)
    assert any("@SUM(1)" in cell for row in rows for cell in row)
    out = tmp_path / "o.csv"
    run("export", "--store", store.path, "--format", "csv", "-o", out)
    with out.open(newline="") as file:
        assert not [cell for row in csv.reader(file) for cell in row if cell.startswith(RUNS)]


@pytest.mark.parametrize("separator", [";", "\t", "\n", "\r", "\r\n"])
@pytest.mark.parametrize("text", ["a{}=1+2", "a{}'=1+2", "=1{}+2{}@x", "{}-2", "1{}-3"])
def test_no_part_of_a_text_runs_where_the_separator_is_another(separator, text):
    """German and French spreadsheets take ``a;=1+2`` for two cells, quoted or not."""
    text = text.replace("{}", separator)
    cell = to_cell(text)
    assert not [part for part in cell.replace(separator, "\0").split("\0") if part.startswith(("=", "+", "-", "@"))]
    assert from_cell(cell) == text
