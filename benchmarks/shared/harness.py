"""Common parts of the benchmarks: medians, a description of the machine, output as a table or JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple


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


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with ``--json``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def show(title: str, rows: Sequence[Row], *, as_json: bool, file: Path | None = None) -> None:
    """Print all figures. ``file``: gets the table, too."""
    if file is not None:
        with StringIO() as text, redirect_stdout(text):
            show(title, rows, as_json=False)
            file.write_text(text.getvalue(), encoding="utf-8")
    if as_json:
        json.dump({"title": title, "machine": machine(), "rows": [row._asdict() for row in rows]}, sys.stdout, indent=1)
        print()
        return
    print(f"{title}\n{machine()}\n")
    width = max(len(row.name) for row in rows)
    for row in rows:
        versus = f"   {row.ratio:6.2f} x {row.baseline}" if row.ratio is not None else ""
        print(f"{row.name:<{width}}  {row.value:12,.2f} {row.unit:<18}{versus}".rstrip())
