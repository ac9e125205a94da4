"""Charts are well-formed SVG whose marks lie where the numbers say; what can not be drawn is refused."""

import xml.etree.ElementTree as ET
from math import inf, nan

import pytest
from support.failures import refusal

from aggregator.common.plots import Bars, Line, bar_chart, line_chart

GROUND = "#fff"


def marks(text, kind):
    return [element for element in ET.fromstring(text).iter() if element.tag.endswith(f"}}{kind}")]


def test_bars_are_as_high_as_their_values():
    drawn = marks(bar_chart("t", ["1", "2"], [Bars("a", [0.5, 0.25]), Bars("b", [0, 1])]), "rect")
    bars = [float(bar.get("height")) for bar in drawn if bar.get("fill") != GROUND][:4]
    assert bars[0] == pytest.approx(2 * bars[1], abs=0.02)
    assert bars[3] == pytest.approx(2 * bars[0], abs=0.02)
    assert bars[2] == 0


def test_names_can_not_break_the_document():
    text = bar_chart("<b>&", ["</svg>"], [Bars('"', [1])], x_label="<", y_label="&")
    assert "</svg>" in [element.text for element in marks(text, "text")]


def test_a_line_on_logarithmic_axes_is_straight_for_a_power():
    xs = [1, 10, 100]
    (line,) = marks(line_chart("t", [Line("x²", xs, [x**2 for x in xs])], log_x=True, log_y=True), "polyline")
    (x0, y0), (x1, y1), (x2, y2) = [map(float, point.split(",")) for point in line.get("points").split()]
    assert (x1 - x0, y1 - y0) == pytest.approx((x2 - x1, y2 - y1), abs=0.02)
    assert y2 < y0


def test_numbers_that_are_not_finite_leave_a_gap_and_marks_are_drawn():
    text = line_chart("t", [Line("a", [1, 2, 3, 4, 5], [1, 2, nan, 4, inf])], marks=[(2, 2, "here")])
    assert len(marks(text, "polyline")) == 2
    assert len(marks(text, "circle")) == 1


def test_ticks_are_round_numbers_and_the_axis_ends_at_one():
    drawn = line_chart("t", [Line("a", [1, 2, 3], [75.4, 80.1, 83.6])], from_zero=False)
    for tick in ("74", "76", "78", "80", "82", "84"):
        assert f">{tick}<" in drawn
    assert ">0<" not in drawn
    drawn = line_chart("t", [Line("a", [1, 2, 3], [75.4, 80.1, 83.6])])
    assert all(f">{tick}<" in drawn for tick in ("0", "20", "40", "60", "80", "100"))
    assert ">16.73<" not in drawn


def test_what_can_not_be_drawn_is_refused():
    for values in ([], [1], [1, -1], [1, nan], [1, inf]):
        assert refusal(bar_chart, "t", ["1", "2"], [Bars("a", values)]) == "plot_invalid"
    for line in (Line("a", [], []), Line("a", [1, 2], [nan, nan]), Line("a", [1, 2], [0, 1])):
        assert refusal(line_chart, "t", [line], log_y=True) == "plot_invalid"
