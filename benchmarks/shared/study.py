"""One runner of studies: rows are measured one by one, kept as CSV, and drawn as charts of one SVG.

A study says what names a row, how the rest of it is measured, and what is drawn of all rows. :func:`run` does the rest:
``--quick`` writes to ``--folder`` (default: the working folder), ``--draw`` draws the rows that are there.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from aggregator.common.plots import HEIGHT, WIDTH, Line, line_chart
from benchmarks.shared.harness import machine
from benchmarks.shared.reference import require

TableRow = dict[str, Any]
"""One row of a table: column → value; text in rows that were read."""
ROOT = Path(__file__).parents[2]
RESULTS, PLOTS = ROOT / "benchmarks" / "results", ROOT / "docs" / "plots"


class Job(NamedTuple):
    """One row, or several measured together: ``names`` (column → value) of each; ``measure`` gives the others."""

    names: Sequence[TableRow]
    measure: Callable[..., Sequence[TableRow]]
    arguments: tuple[Any, ...] = ()


def single(names: TableRow, measure: Callable[..., TableRow], *arguments: Any) -> Job:
    """Return a job of one row. ``measure`` gives the row's other columns."""
    return Job([names], lambda *given: [measure(*given)], arguments)


class Study(NamedTuple):
    """A table ``NAME.csv`` of jobs for given options, and the drawing ``NAME.svg`` of all rows; None for none."""

    name: str
    jobs: Callable[[argparse.Namespace], Iterator[Job]]
    draw: Callable[[list[TableRow]], str] | None = None


def spread(found: Sequence[float]) -> TableRow:
    """Return the mean and standard error of accuracies, and their number."""
    error = stdev(found) / sqrt(len(found)) if len(found) > 1 else 0.0
    return {"accuracy": round(fmean(found), 5), "error": round(error, 5), "runs": len(found)}


def arguments(description: str, names: Sequence[str] = (), *, repeats: str = "") -> argparse.ArgumentParser:
    """Make a parser with the options of every study.

    ``names``: names of data sets; empty for any name.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", nargs="+", choices=names or None, default=[])
    parser.add_argument("--epsilons", nargs="+", default=[])
    parser.add_argument("--repeats", type=int, default=0, help=repeats)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a minute or two")
    parser.add_argument("--draw", action="store_true", help="draw the rows that are there")
    parser.add_argument("--folder", type=Path, help="of table and drawing")
    return parser


def run(
    study: Study,
    options: argparse.Namespace,
    after: Callable[[list[TableRow], Path], bool] | None = None,
    *,
    needs_data: bool = True,
) -> int:
    """Measure or read all rows of a study, and draw them. Return the exit status.

    ``after``: called with all rows and the table's folder. It returns whether a target is reached, which decides the
    status.
    """
    if needs_data and not options.draw:
        require()
    folder = options.folder or (Path() if options.quick else None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    table, began = (folder or RESULTS) / f"{study.name}.csv", time.perf_counter()
    if not options.draw:
        measure(study.jobs(options), table)
    rows = read_rows(table)
    if not rows:
        raise SystemExit(f"{table} has no rows")
    if study.draw is not None:
        (folder or PLOTS).joinpath(f"{study.name}.svg").write_text(study.draw(rows), encoding="utf-8")
    good = after is None or after(rows, table.parent)
    print(f"{len(rows)} rows, {time.perf_counter() - began:.0f} s; {machine()}")
    return 0 if good else 1


def measure(jobs: Iterable[Job], file: Path) -> None:
    """Measure all rows, and write each to ``file`` as soon as it is known."""
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = None
        for job in jobs:
            for names, found in zip(job.names, job.measure(*job.arguments), strict=True):
                row = {**names, **found}
                if writer is None:
                    writer = csv.DictWriter(out, list(row), lineterminator="\n")
                    writer.writeheader()
                writer.writerow(row)
                out.flush()
                print("  ".join(f"{value}" for name, value in row.items() if name != "machine"), flush=True)


def read_rows(file: Path) -> list[TableRow]:
    """Return the rows of a table; none if there is no file. An incomplete last line, of a killed run, is dropped."""
    if not file.exists():
        return []
    lines = file.read_text("utf-8").splitlines(keepends=True)
    return list(csv.DictReader([line for line in lines if line.endswith("\n")]))


def csv_text(rows: Sequence[TableRow], columns: Sequence[str] = ()) -> str:
    """Return rows as the text of a CSV file. ``columns``: their columns, needed only without rows."""
    out = StringIO()
    writer = csv.DictWriter(out, columns or list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def grouped(rows: Iterable[TableRow], *columns: str) -> dict[tuple[str, ...], list[TableRow]]:
    """Return rows by the values of some columns, in the order in which the values first appear."""
    found: dict[tuple[str, ...], list[TableRow]] = {}
    for row in rows:
        found.setdefault(tuple(row[column] for column in columns), []).append(row)
    return found


def line(name: str, rows: Sequence[TableRow], x: str, y: str = "accuracy", factor: float = 100.0) -> Line:
    """Return a line of one column against another. ``factor``: of the heights; 100 for accuracies in per cent."""
    return Line(name, [float(row[x]) for row in rows], [factor * float(row[y]) for row in rows])


def level(name: str, height: float, lines: Sequence[Line]) -> Line:
    """Return a level line from the least to the largest x of other lines."""
    ends = [x for other in lines for x in other.xs]
    return Line(name, [min(ends), max(ends)], [height, height])


def accuracies(title: str, lines: Sequence[Line], x_label: str) -> str:
    """Return a chart of accuracies in per cent over a logarithmic axis."""
    return line_chart(title, lines, x_label=x_label, y_label="accuracy, %", log_x=True, from_zero=False)


def panels(charts: Sequence[str], columns: int) -> str:
    """Join SVG charts to one SVG document, ``columns`` charts in a row."""
    rows = -(-len(charts) // columns)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * WIDTH} {rows * HEIGHT}">']
    for place, chart in enumerate(charts):
        row, column = divmod(place, columns)
        size = f'x="{column * WIDTH}" y="{row * HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        parts.append(chart.replace("<svg ", f"<svg {size} ", 1).rstrip())
    return "\n".join([*parts, "</svg>\n"])
