"""Charts as SVG text: bars over names, and lines over numbers. No dependency; equal data give equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

from protocol.errors import InputError

WIDTH, HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 170, 44, 64
_PLOT_WIDTH, _PLOT_HEIGHT = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#edae49", "#6a4c93", "#555555", "#00a6a6", "#b56576")
_MOST_NAMES = 24
_STEPS = 5
"""Largest number of steps between the ticks of an axis."""


class Line(NamedTuple):
    """A curve, with its name for the legend. Points that are not finite leave a gap."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


class Bars(NamedTuple):
    """Bars of one colour, with a name for the legend: one value for each name on the horizontal axis."""

    name: str
    values: Sequence[float]


class Axis(NamedTuple):
    """The numbers from ``low`` to ``high`` > ``low`` along one side of a chart. Both are > 0 if ``logarithmic``."""

    low: float
    high: float
    logarithmic: bool

    def rounded(self) -> Axis:
        """Return the smallest axis that includes this one and has ticks at its ends."""
        step = _step(self.low, self.high)
        low, high = floor(self.low / step + 1e-9) * step, ceil(self.high / step - 1e-9) * step
        return self._replace(low=low, high=high)

    def share(self, value: float) -> float:
        """Return the position of a value between the ends of the axis: 0 … 1."""
        if self.logarithmic:
            return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return round numbers on the axis: at most five steps, or all powers of ten on a logarithmic axis."""
        if self.logarithmic:
            return [10.0**power for power in range(ceil(log10(self.low) - 1e-9), floor(log10(self.high) + 1e-9) + 1)]
        step = _step(self.low, self.high)
        return [step * place for place in range(ceil(self.low / step - 1e-9), floor(self.high / step + 1e-9) + 1)]


def bar_chart(title: str, names: Sequence[str], series: Sequence[Bars], *, y_label: str = "", x_label: str = "") -> str:
    """Draw a bar chart, and return SVG text: over each of ``names`` a bar of each of ``series``, in its colour.

    Raises ``plot_invalid`` if there are no values, a series does not have one for each name, or one is negative or not
    finite.
    """
    values = [value for bars in series for value in bars.values]
    if not values or any(len(bars.values) != len(names) for bars in series):
        raise InputError("plot_invalid", "a chart needs one value for each name")
    if not all(isfinite(value) and value >= 0 for value in values):
        raise InputError("plot_invalid", "bars are finite numbers that are not negative")
    axis = Axis(0.0, _round_up(max(values)), logarithmic=False)
    parts = _frame(title, x_label, y_label, axis)
    slot = _PLOT_WIDTH / len(names)
    width = 0.8 * slot / len(series)
    for place, bars in enumerate(series):
        for index, value in enumerate(bars.values):
            height = axis.share(value) * _PLOT_HEIGHT
            x = _LEFT + index * slot + 0.1 * slot + place * width
            parts.append(
                f'<rect x="{x:.2f}" y="{_TOP + _PLOT_HEIGHT - height:.2f}" width="{width:.2f}" '
                f'height="{height:.2f}" fill="{_colour(place)}"/>'
            )
    shown = max(1, ceil(len(names) / _MOST_NAMES))
    for index in range(0, len(names), shown):
        x = _LEFT + (index + 0.5) * slot
        parts.append(svg_text(x, _TOP + _PLOT_HEIGHT + 18, names[index], "middle"))
    return _document([*parts, *_legend([bars.name for bars in series])])


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str = "",
    y_label: str = "",
    log_x: bool = False,
    log_y: bool = False,
    from_zero: bool = True,
    marks: Sequence[tuple[float, float, str]] = (),
) -> str:
    """Draw curves over a common axis, and return the text of an SVG file.

    Raises InputError ``plot_invalid``: no line has a finite point, or a logarithmic axis has a number ≤ 0. Raises
    ValueError: a line does not have one y for each x, or a mark is not > 0 on a logarithmic axis.

    Args:
        title: text above the chart.
        lines: the curves; at least one must have a finite point.
        x_label, y_label: texts at the axes.
        log_x, log_y: whether an axis is logarithmic; all its numbers must then be > 0, also those of ``marks``.
        from_zero: whether the vertical axis includes 0.
        marks: (x, y, text) of points, for example where two lines cross.
    """
    points = [(x, y) for line in lines for x, y in zip(line.xs, line.ys, strict=True) if isfinite(x) and isfinite(y)]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_axis = _axis(xs, logarithmic=log_x)
    y_axis = _axis(ys if log_y or not from_zero else [*ys, 0.0], logarithmic=log_y)
    y_axis = y_axis if log_y else y_axis.rounded()
    parts = _frame(title, x_label, y_label, y_axis)
    for tick in x_axis.ticks():
        x = _LEFT + x_axis.share(tick) * _PLOT_WIDTH
        parts.append(svg_text(x, _TOP + _PLOT_HEIGHT + 18, f"{tick:.4g}", "middle"))

    def at(x: float, y: float) -> tuple[float, float]:
        return _LEFT + x_axis.share(x) * _PLOT_WIDTH, _TOP + (1 - y_axis.share(y)) * _PLOT_HEIGHT

    for place, line in enumerate(lines):
        parts += [
            f'<polyline points="{piece}" fill="none" stroke="{_colour(place)}" stroke-width="2"/>'
            for piece in _pieces(line, at)
        ]
    for x, y, text in marks:
        left, top = at(x, y)
        parts.append(f'<circle cx="{left:.2f}" cy="{top:.2f}" r="4" fill="none" stroke="#000"/>')
        parts.append(svg_text(left + 7, top - 5, text, "start"))
    return _document([*parts, *_legend([line.name for line in lines])])


def _pieces(line: Line, at: Callable[[float, float], tuple[float, float]]) -> list[str]:
    """Return the connected pieces of a curve as SVG points. Gaps separate them."""
    pieces: list[list[str]] = [[]]
    for x, y in zip(line.xs, line.ys, strict=True):
        if isfinite(x) and isfinite(y):
            left, top = at(x, y)
            pieces[-1].append(f"{left:.2f},{top:.2f}")
        else:
            pieces.append([])
    return [" ".join(piece) for piece in pieces if piece]


def _axis(values: Sequence[float], *, logarithmic: bool) -> Axis:
    if not values or (logarithmic and min(values) <= 0):
        raise InputError("plot_invalid", "a chart needs finite numbers, and positive ones on a logarithmic axis")
    low, high = min(values), max(values)
    if logarithmic:
        return Axis(low, high if high > low else low * 10, logarithmic=True)
    return Axis(low, high if high > low else low + 1, logarithmic=False)


def _step(low: float, high: float) -> float:
    """Return the distance between the ticks of an axis from ``low`` to ``high``."""
    return _round_up((high - low) / _STEPS)


def _round_up(value: float) -> float:
    """Return the smallest number ≥ ``value`` that is 1, 2 or 5 times a power of ten; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if value <= step * power * (1 + 1e-9))


def _frame(title: str, x_label: str, y_label: str, axis: Axis) -> list[str]:
    bottom = _TOP + _PLOT_HEIGHT
    middle = _TOP + _PLOT_HEIGHT / 2
    parts = [
        svg_text(_LEFT, 24, title, "start", 'font-size="15" font-weight="bold"'),
        svg_text(_LEFT + _PLOT_WIDTH / 2, bottom + 46, x_label, "middle"),
        svg_text(16, middle, y_label, "middle", f'transform="rotate(-90 16 {middle:.2f})"'),
    ]
    for tick in axis.ticks():
        y = bottom - axis.share(tick) * _PLOT_HEIGHT
        parts.append(f'<path d="M{_LEFT} {y:.2f}H{_LEFT + _PLOT_WIDTH}" stroke="#ddd"/>')
        parts.append(svg_text(_LEFT - 8, y + 4, f"{tick:.4g}", "end"))
    parts.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{_LEFT + _PLOT_WIDTH}" stroke="#000" fill="none"/>')
    return parts


def _legend(names: Sequence[str]) -> list[str]:
    parts = []
    for place, name in enumerate(names):
        y = _TOP + 8 + 20 * place
        parts.append(f'<rect x="{WIDTH - _RIGHT + 16}" y="{y}" width="12" height="12" fill="{_colour(place)}"/>')
        parts.append(svg_text(WIDTH - _RIGHT + 34, y + 10, name, "start"))
    return parts


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def svg_text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    """Return the SVG element of a text; ``anchor`` is start, middle or end, and ``more`` holds further attributes."""
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _document(parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    )
    return "\n".join([head, *parts, "</svg>\n"])
