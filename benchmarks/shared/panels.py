"""Several charts of :mod:`aggregator.common.plots` in one SVG, side by side and below each other."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.common.plots import HEIGHT, WIDTH


def panels(charts: Sequence[str], columns: int) -> str:
    """Join SVG charts to one SVG document, ``columns`` charts in a row."""
    rows = -(-len(charts) // columns)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * WIDTH} {rows * HEIGHT}">']
    for place, chart in enumerate(charts):
        row, column = divmod(place, columns)
        size = f'x="{column * WIDTH}" y="{row * HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        parts.append(chart.replace("<svg ", f"<svg {size} ", 1).rstrip())
    return "\n".join([*parts, "</svg>\n"])
