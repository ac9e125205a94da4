"""The numbers of docs/explanation/choosing.md are those that were measured."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from benchmarks.models.choosing import needed, reached

TREE = Path(__file__).parents[1]
PAGE = (TREE / "docs" / "explanation" / "choosing.md").read_text("utf-8")
RESULTS = TREE / "benchmarks" / "results"
DATA, EPSILONS = ("mushroom", "car", "chess"), ("0.1", "1", "4")
KINDS = {"one table, no privacy": ("no privacy", "1"), "central": ("central", "1"), "local": ("local", "1")}
KINDS |= {"shared": ("shared", "1"), "shared, δ = 10⁻⁶": ("shared-δ", "1")}


def rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def as_shown(records: str) -> str:
    """``>948683`` as ``> 950,000``, ``54000`` as ``54,000``."""
    sign = re.match(r"[<>]?=?", records)[0]
    return f"{sign} {float(f'{int(records.removeprefix(sign)):.2g}'):,.0f}".strip()


def test_both_tables_are_the_measured_ones():
    found = {
        (row["points_below"], row["data"], row["epsilon"], row["kind"], row["nodes"]): as_shown(row["records"])
        for row in rows("choosing-needed.csv")
    }
    compared = 0
    for below in ("5", "2"):
        table = PAGE.split(f"| within {below} points |")[1].split("\n\n")[0]
        for line in table.splitlines()[2:]:
            name, *cells = (cell.strip() for cell in line.strip("| ").split("|"))
            trust, _, nodes = name.partition(", ")
            kind = KINDS.get(name) or (trust, nodes.split()[0])
            for place, cell in enumerate(cells):
                budget = "" if kind[0] == "no privacy" else EPSILONS[place % 3]
                assert cell == found[below, DATA[place // 3], budget, *kind], (name, place)
                compared += 1
    assert compared == 2 * 9 * 9


def test_what_is_needed_follows_from_the_curves():
    followed = [{name: str(value) for name, value in row.items()} for row in needed(rows("choosing.csv"))]
    assert followed == rows("choosing-needed.csv")


def curve(**points):
    """Points of a curve: number of records → accuracy that is lacking."""
    return [
        {"records": records[1:], "lacking": str(value), "lacking_error": "0.01"} for records, value in points.items()
    ]


def test_the_number_of_records_is_between_the_points_around_the_target():
    three = curve(n100=0.3, n1000=0.1, n10000=0.0)
    assert reached(three, 0.2, 0) == "320"
    assert int(reached(three, 0.2, 2)) < 320 < int(reached(three, 0.2, -2))
    assert (reached(three, 0.4, 0), reached(three, 0.05, -20)) == ("<=100", ">10000")
    lucky = curve(n100=0.3, n300=0.0, n1000=0.2, n3000=0.1, n10000=0.0)
    assert int(reached(lucky, 0.05, 0)) > 1000  # a point that is better than all later ones is averaged with them
