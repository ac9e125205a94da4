"""The rooms of each package and who imports whom, read by grimp from the source; and their picture.

A *room* is a sub-package, or a single module at the top of a package. A *floor* is the length of the longest chain of
imports below a room. Run this file to draw ``docs/plots/rooms.svg`` again.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

import grimp

PACKAGES = ("protocol", "edge_sdk", "aggregator", "simulation")
ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "plots" / "rooms.svg"
_BOX, _HIGH, _GAP, _LEFT, _ROW = 118, 26, 10, 110, 58


def graph():
    """The import graph of all four packages."""
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def rooms(imports, package):
    """Every module of a package and the room that it is in."""
    return {
        module: room for room in imports.find_children(package) for module in {room, *imports.find_descendants(room)}
    }


def room_imports(imports, package):
    """Pairs (module, other room of the package) such that the module imports something of that room."""
    found = rooms(imports, package)
    return {
        (module, found[target])
        for module, room in found.items()
        for target in imports.find_modules_directly_imported_by(module)
        if target in found and found[target] != room
    }


def needs(imports, package):
    """For every room the rooms that it imports."""
    found = rooms(imports, package)
    below = {room: set() for room in found.values()}
    for module, target in room_imports(imports, package):
        below[found[module]].add(target)
    return below


def floors(below):
    """The rooms in rows, the lowest first; each imports only rooms of lower rows.

    Raises:
        graphlib.CycleError: rooms import one another in a circle.
    """
    order = TopologicalSorter(below)
    order.prepare()
    rows = []
    while order.is_active():
        row = sorted(order.get_ready())
        rows.append(row)
        order.done(*row)
    return rows


def picture(imports):
    """All packages as SVG text: a row per floor, sub-packages in colour, a line for every import between rooms."""
    parts, top, width = [], 20, 0
    for package in PACKAGES:
        below = needs(imports, package)
        rows = floors(below)
        places = {}
        lines, boxes = [], []
        for height, row in enumerate(reversed(rows)):
            for column, room in enumerate(row):
                places[room] = (_LEFT + column * (_BOX + _GAP), top + 24 + height * _ROW)
            width = max(width, _LEFT + len(row) * (_BOX + _GAP) + 10)
        for room, (x, y) in sorted(places.items()):
            for other in sorted(below[room]):
                to_x, to_y = places[other]
                lines.append(f'<line x1="{x + _BOX / 2:.0f}" y1="{y + _HIGH}" x2="{to_x + _BOX / 2:.0f}" y2="{to_y}"/>')
            colour = "#cfe3f3" if imports.find_children(room) else "#eeeeee"
            name = escape(room.split(".")[1])
            boxes.append(
                f'<rect x="{x}" y="{y}" width="{_BOX}" height="{_HIGH}" rx="4" fill="{colour}"/>'
                f'<text x="{x + _BOX / 2:.0f}" y="{y + 17}" text-anchor="middle">{name}</text>'
            )
        parts.append(f'<text x="10" y="{top + 42}" font-weight="bold">{package}</text>')
        parts.append('<g stroke="#88a" stroke-opacity="0.35">' + "".join(lines) + "</g>")
        parts += boxes
        top += 40 + len(rows) * _ROW
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" '
        'font-family="sans-serif" font-size="12">'
        "<title>Rooms of the packages; each imports only rooms that stand below it</title>"
        f'<rect width="{width}" height="{top}" fill="white"/>'
    )
    return head + "\n".join(parts) + "</svg>\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(graph()), encoding="utf-8")
