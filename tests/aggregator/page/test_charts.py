"""Bars with whiskers are well-formed, escaped and cut at the ends of their axis."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import reason

from aggregator.page.charts import Bar, whiskers

NUMBERS = st.none() | st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(st.text("ab<&\"'é", max_size=40), NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_every_mark_is_inside_of_the_drawing_whatever_the_rows(rows):
    drawn = ET.fromstring(whiskers('a "title" <b>', [Bar(*row) for row in rows]))
    _, _, width, height = map(float, drawn.get("viewBox").split())
    for mark in drawn.iter():
        numbers = [float(each) for each in re.findall(r"-?\d+\.?\d*", mark.get("d", ""))]
        numbers += [float(mark.get(name)) for name in ("x", "y", "width", "height") if mark.get(name)]
        assert all(0 <= number <= max(width, height) for number in numbers)
        assert all(map(math.isfinite, numbers))


def test_a_whisker_spans_its_interval_and_a_row_without_one_says_so():
    drawn = ET.fromstring(whiskers("shares", [Bar("a", 0.5, 0.25, 0.75), Bar("b", 0.5)], unit="%"))
    (whisker,) = (mark for mark in drawn.iter() if mark.get("class") == "whisker")
    start, stop = re.match(r"M([\d.]+) [\d.]+H([\d.]+)", whisker.get("d")).groups()
    assert float(stop) - float(start) == pytest.approx((360 - 140 - 52) / 2, abs=0.2)
    texts = [mark.text for mark in drawn.iter() if mark.text]
    assert "a: 50.0%, 25.0% to 75.0%" in texts
    assert texts.count("not determined") == 1


@pytest.mark.parametrize(("rows", "low", "high"), [([], 0, 1), ([Bar("a", 1)], 1, 1)])
def test_a_chart_of_nothing_is_refused(rows, low, high):
    assert reason(whiskers, "t", rows, low=low, high=high) == "plot_invalid"
