"""Charts of a page: horizontal bars with whiskers, as SVG inside the HTML. Colours come from the page's style sheet.

The drawing is as wide as a phone's screen, so that its texts can be read there; wider screens enlarge it a little.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from aggregator.common.plots import Axis, svg_text
from protocol.errors import InputError

_WIDTH = 360
_LEFT, _NEAR, _RIGHT = 140, 6, 52
_ROW, _LINE, _TOP, _BOTTOM = 22, 14, 6, 22
_LARGE = 1000
_LETTERS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
"""Powers of ten, and the letters of large numbers: 20k is 20,000."""
_MOST_LABEL = 130.0
"""Width of a name beside its bar. If a name of a chart is longer, all names of the chart stand above their bars."""
_MOST_CUT = 90
"""More characters than fit above a bar."""
_WIDTHS = (("iljtfrI.,:;'|!()[] -/", 4.8), ("mwMW@%&", 12.0))
"""Widths of narrow and wide characters in the wider ones of the fonts that browsers take, at 12 pixels."""


class Bar(NamedTuple):
    """One bar: a name, a value, and the ends of its 95 % interval.

    Both ends are None if there is no interval; then ``value`` may be None, too. ``noise`` is the largest value that
    noise alone would show, drawn as a line across the bar; None for no line.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    noise: float | None = None


def whiskers(
    title: str,
    rows: Sequence[Bar],
    *,
    low: float = 0.0,
    high: float = 1.0,
    unit: str = "",
    without: str = "not determined",
) -> str:
    """Draw bars with whiskers over a common axis, and return the markup of an inline SVG.

    Bars begin at 0, or at the end of the axis nearest to 0. Values and whiskers beyond the axis are cut at its ends.
    Raises InputError ``plot_invalid``: no row, or an axis without length.

    Args:
        title: what the bars are, for readers who do not see the chart.
        low, high: ends of the axis; low < high.
        unit: written after each value. ``%`` shows shares in percent.
        without: written in a row without an interval; empty where no row of the chart has one.
    """
    if not rows or not low < high:
        raise InputError("plot_invalid", "a chart needs a row, and an axis with two ends")
    axis = Axis(low, high, logarithmic=False)
    above = 0 if all(_fits(row.name, _MOST_LABEL) for row in rows) else _LINE
    row_height, left = _ROW + above, _NEAR if above else _LEFT
    height = _TOP + row_height * len(rows) + _BOTTOM
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
    ]
    floor = _TOP + row_height * len(rows)
    for tick in axis.ticks():
        x = _place(axis, tick, left)
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{floor}"/>')
        parts.append(svg_text(x, floor + 15, _shown(tick, unit, 0), "middle"))
    for number, row in enumerate(rows):
        parts += _bar(row, axis, _TOP + row_height * number + above, unit, without, left)
    return "\n".join([*parts, "</svg>"])


def _bar(row: Bar, axis: Axis, top: float, unit: str, without: str, left: float) -> list[str]:
    """Return the parts of one row: name, bar from ``left`` on, whisker, value."""
    middle = top + _ROW / 2
    name = svg_text(_LEFT - 6, middle + 4, row.name, "end")
    if left == _NEAR:
        name = svg_text(_NEAR, top - 1, _label(row.name), "start")
    parts = [f"<g><title>{escape(_in_words(row, unit, without))}</title>", name]
    if row.value is not None:
        zero = _place(axis, 0.0, left)
        end = _place(axis, row.value, left)
        start, width = min(zero, end), abs(end - zero)
        parts.append(f'<rect class="bar" x="{start:.1f}" y="{top + 4:.1f}" width="{width:.1f}" height="{_ROW - 8}"/>')
    if row.low is not None and row.high is not None:
        start, stop = _place(axis, row.low, left), _place(axis, row.high, left)
        ends = f"M{start:.1f} {middle - 5}V{middle + 5}M{stop:.1f} {middle - 5}V{middle + 5}"
        parts.append(f'<path class="whisker" d="M{start:.1f} {middle}H{stop:.1f}{ends}"/>')
    elif row.noise is not None:
        x = _place(axis, row.noise, left)
        parts.append(f'<path class="whisker" d="M{x:.1f} {middle - 9}V{middle + 9}"/>')
    elif without:
        parts.append(svg_text(left + 4, middle + 4, without, "start", 'class="unknown"'))
    if row.value is not None:
        parts.append(svg_text(_WIDTH, middle + 4, _shown(row.value, unit, 1), "end"))
    return [*parts, "</g>"]


def _fits(name: str, width: float) -> bool:
    return len(name) <= _MOST_CUT and sum(map(_width, name)) <= width


def _label(name: str) -> str:
    """Return a name, cut in its middle so that it is as wide as the chart: many long names begin alike."""
    if _fits(name, _WIDTH):
        return name
    first, last = name[:_MOST_CUT], name[-_MOST_CUT:]
    while sum(map(_width, first + last)) + _width("…") > _WIDTH:
        if len(first) > len(last):
            first = first[:-1]
        else:
            last = last[1:]
    return f"{first}…{last}"


def _width(character: str) -> float:
    """Return about the width of a character at 12 pixels, rather too large than too small."""
    for characters, width in _WIDTHS:
        if character in characters:
            return width
    if character == "…" or unicodedata.east_asian_width(character) in "WF":
        return 12.5
    return 8.8 if character.isupper() else 7.4


def _in_words(row: Bar, unit: str, without: str) -> str:
    value = "no value" if row.value is None else _shown(row.value, unit, 1)
    if row.low is None or row.high is None:
        alone = "" if row.noise is None else f", noise alone up to {_shown(row.noise, unit, 1)}"
        return f"{row.name}: {value}{alone}" + (f", interval {without}" if without else "")
    return f"{row.name}: {value}, {_shown(row.low, unit, 1)} to {_shown(row.high, unit, 1)}"


def _place(axis: Axis, value: float, left: float) -> float:
    """Return the horizontal position of a value, cut to the ends of the axis, which begins at ``left``."""
    return left + min(max(axis.share(value), 0.0), 1.0) * (_WIDTH - left - _RIGHT)


def _shown(value: float, unit: str, digits: int) -> str:
    if unit == "%":
        return f"{100 * value:.{digits}f}%"
    if abs(value) < _LARGE:
        return f"{value:.3g}{unit}"
    power, letter = next(one for one in _LETTERS if abs(value) >= one[0])
    return f"{value / power:.3g}{letter}{unit}"
