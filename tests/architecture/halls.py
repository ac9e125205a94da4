"""The halls of the product and who imports whom, read by grimp from the source; and their picture.

A *hall* is a child of ``aggregator``, or one of the other packages as a whole. A *floor* is the length of the longest
chain of imports below a hall. Run this file to draw ``docs/plots/rooms.svg`` again.
"""

from __future__ import annotations

import ast
import re
import sys
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

import grimp

PACKAGES = ("protocol", "edge_sdk", "aggregator", "simulation", "research")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # also packages that an older installation of the tree does not know
PICTURE = ROOT / "docs" / "plots" / "rooms.svg"
_WIDTH, _HIGH, _GAP, _LEFT, _ROW = 760, 42, 16, 20, 58


def graph():
    """The import graph of all four packages."""
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def hall_of(module):
    """The hall of a module; None for the module of the public names, which imports each when it is first used."""
    package, _, rest = module.partition(".")
    if package != "aggregator":
        return package
    return rest.split(".")[0] or None


def needs(imports):
    """For every hall the halls that it imports, for types too."""
    below = {}
    for module in imports.modules:
        hall = hall_of(module)
        if hall is not None:
            found = {hall_of(target) for target in imports.find_modules_directly_imported_by(module)}
            below.setdefault(hall, set()).update(found - {hall, None})
    return below


def floors(below):
    """The halls in rows, the lowest first; each imports only halls of lower rows.

    Raises:
        graphlib.CycleError: halls import one another in a circle.
    """
    order = TopologicalSorter(below)
    order.prepare()
    rows = []
    while order.is_active():
        row = sorted(order.get_ready())
        rows.append(row)
        order.done(*row)
    return rows


def nearest(below):
    """For every hall those that it imports and that it does not reach through another of them, for the picture."""

    def reached(hall):
        return below[hall].union(*(reached(other) for other in below[hall]))

    return {
        hall: {other for other in found if not any(other in reached(third) for third in found - {other})}
        for hall, found in below.items()
    }


def purpose(hall):
    """What a hall is, in the first sentence of its first lines."""
    place = ROOT / hall if hall in PACKAGES else ROOT / "aggregator" / hall
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))).split("\n\n")[0].replace("\n", " ").replace("``", "")
    return re.split(r"[.](?: |$)", text)[0]


def picture(imports):
    """The halls as SVG text: a row per floor, halls of the aggregator in blue, a line to every nearest import."""
    below = needs(imports)
    rows = floors(below)
    high = 20 + len(rows) * _ROW
    places = {}
    for height, row in enumerate(reversed(rows)):
        wide = (_WIDTH - 2 * _LEFT - (len(row) - 1) * _GAP) / len(row)
        for column, hall in enumerate(row):
            places[hall] = (_LEFT + column * (wide + _GAP), 15 + height * _ROW, wide)
    lines, boxes = [], []
    for hall, (x, y, wide) in sorted(places.items()):
        for other in sorted(nearest(below)[hall]):
            to_x, to_y, to_wide = places[other]
            start, end = x + wide / 2, to_x + to_wide / 2
            lines.append(f'<line x1="{start:.0f}" y1="{y + _HIGH}" x2="{end:.0f}" y2="{to_y}"/>')
        colour = "#eeeeee" if hall in PACKAGES else "#cfe3f3"
        said = purpose(hall)
        said = said if len(said) * 6.2 < wide else said[: int(wide / 6.2) - 1].rsplit(" ", 1)[0] + " …"
        boxes.append(
            f'<rect x="{x:.0f}" y="{y}" width="{wide:.0f}" height="{_HIGH}" rx="5" fill="{colour}"/>'
            f'<text x="{x + 12:.0f}" y="{y + 18}" font-weight="bold">{escape(hall)}</text>'
            f'<text x="{x + 12:.0f}" y="{y + 34}" font-size="11" fill="#334">{escape(said)}</text>'
        )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{high}" '
        'font-family="sans-serif" font-size="13">'
        "<title>The halls: each imports only halls that stand below it. Lines that follow from others are left out."
        f'</title><rect width="{_WIDTH}" height="{high}" fill="white"/><g stroke="#88a" stroke-width="1.5">'
    )
    return head + "".join(lines) + "</g>" + "\n".join(boxes) + "</svg>\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(graph()), encoding="utf-8")
