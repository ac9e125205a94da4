"""Common parts of the benchmarks: options, medians, a description of the machine, output as a table or JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from math import nan, sqrt
from pathlib import Path
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One figure, and its baseline from the same run."""

    name: str
    value: float
    unit: str
    baseline: str = ""
    ratio: float | None = None


def machine() -> str:
    """Return processor, cores, operating system and Python version, to be printed with every figure."""
    model = platform.processor() or "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )


def median_seconds(action: Callable[[], object], *, number: int, repeats: int = 7) -> float:
    """Return the median, over ``repeats`` repetitions of ``number`` calls, of the mean time of one call."""
    action()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(number):
            action()
        times.append((time.perf_counter() - began) / number)
    return statistics.median(times)


def interleaved_seconds(
    actions: Sequence[Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the median time of each action. The actions take turns, so a slow moment of the machine affects all."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(repeats):
        for action, taken in zip(actions, times, strict=True):
            began = clock()
            action()
            taken.append(clock() - began)
    return [statistics.median(taken) for taken in times]


def mean_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of values and its standard error, which is NaN for a single value."""
    return statistics.fmean(values), statistics.stdev(values) / sqrt(len(values)) if len(values) > 1 else nan


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--json``, described by the first line of a module's docstring."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def print_json(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a benchmark's title, the machine and all rows as one JSON object."""
    print(json.dumps({"title": title, "machine": machine(), "rows": rows}, indent=1))


class Table:
    """A table that is printed row by row while a benchmark measures, or with ``--json`` as one object at the end.

    Args:
        columns: a word per column, of heading (``_`` for a space), alignment, width and format: ``data<14 mean>8.1f``.
    """

    def __init__(self, title: str, columns: str, *, as_json: bool = False) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self._title, self._json = title, as_json
        self._columns = []
        for word in columns.split():
            name, side, sign, width, form = re.fullmatch("(.+?)([<>])([+]?)([0-9]+)(.*)", word).groups()
            self._columns.append((name, side + width, side + sign + width + form))
        heads = "".join(f"{name.replace('_', ' '):{width}}" for name, width, _ in self._columns)
        self.note(f"{title}\n{machine()}\n\n{heads.rstrip()}")

    def add(self, row: Mapping[str, Any], mark: str = "") -> None:
        """Print a row: heading → cell. An absent cell is left empty; values without a column are for JSON alone."""
        self.rows.append(row)
        cells = [format(row.get(name, ""), form if name in row else width) for name, width, form in self._columns]
        self.note(("".join(cells) + mark).rstrip())

    def note(self, text: str) -> None:
        """Print a line of text, but not with ``--json``."""
        if not self._json:
            print(text, flush=True)

    def end(self, text: str = "") -> None:
        """Print a last line of text, or with ``--json`` the object."""
        self.note(text)
        if self._json:
            print_json(self._title, self.rows)


def show(title: str, rows: Sequence[Row], *, as_json: bool, file: Path | None = None) -> None:
    """Print all figures. ``file``: gets the table, too."""
    if file is not None:
        with StringIO() as text, redirect_stdout(text):
            show(title, rows, as_json=False)
            file.write_text(text.getvalue(), encoding="utf-8")
    if as_json:
        print_json(title, [row._asdict() for row in rows])
        return
    print(f"{title}\n{machine()}\n")
    width = max(len(row.name) for row in rows)
    for row in rows:
        versus = f"   {row.ratio:6.2f} x {row.baseline}" if row.ratio is not None else ""
        print(f"{row.name:<{width}}  {row.value:12,.2f} {row.unit:<18}{versus}".rstrip())
