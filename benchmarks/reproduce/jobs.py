"""A part of the reproduction: jobs that measure accuracies as rows of a CSV, and files that are made of the rows.

A part is a module with the functions of :class:`Part`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple, Protocol

from benchmarks.shared.reference import Case

Row = dict[str, str]
"""One row of a CSV: column → text."""
MEASURED = ("accuracy", "sd", "error", "n", "seconds")
"""The last columns of every CSV: mean accuracy, standard deviation of one repetition, standard error of the mean,
number of repetitions, and the seconds of the job that measured the row (rows of one job have equal seconds)."""


class Size(NamedTuple):
    """How much to measure: everything, or with ``quick`` few points and repetitions."""

    quick: bool


class Job(NamedTuple):
    """One or several rows that are measured together, for example two models of the same reports.

    Attributes:
        rows: the columns that name each row: column → text. No two rows of a part have equal names.
        measure: a function of a module (another process imports it), called as measure(*arguments, repeats, seed). It
            returns for each row ``repeats`` accuracies, equal ones for equal arguments.
    """

    rows: tuple[Mapping[str, str], ...]
    repeats: int
    measure: Callable[..., Sequence[Sequence[float]]]
    arguments: tuple[Any, ...] = ()

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """What identifies each row: its names and the number of repetitions."""
        return [(*map(str, names.values()), str(self.repeats)) for names in self.rows]

    def seed(self, base: int) -> int:
        """Return the job's seed: it depends on ``base`` and on the names of the rows only."""
        text = repr((base, [sorted(names.items()) for names in self.rows]))
        return int.from_bytes(sha256(text.encode()).digest()[:4], "big")

    def columns(self) -> list[str]:
        """Return the columns of the CSV."""
        return [*self.rows[0], *MEASURED]

    def results(self, found: Sequence[Sequence[float]], seconds: float) -> list[Row]:
        """Return the complete rows, from the accuracies of each."""
        rows = []
        for names, accuracies in zip(self.rows, found, strict=True):
            if len(accuracies) != self.repeats or not all(0 <= each <= 1 for each in accuracies):
                raise ValueError(f"{dict(names)}: {self.repeats} accuracies between 0 and 1 are needed")
            sd = stdev(accuracies) if self.repeats > 1 else float("nan")
            measured = {
                "accuracy": f"{fmean(accuracies):.5f}",
                "sd": f"{sd:.5f}",
                "error": f"{sd / sqrt(self.repeats):.5f}",
                "n": str(self.repeats),
                "seconds": f"{seconds:.1f}",
            }
            rows.append({**{name: str(value) for name, value in names.items()}, **measured})
        return rows


def agreement(case: Case, row: Row) -> Row:
    """Return the columns that compare a row with an independent simulation (``reference/accuracy.csv``)."""
    error = max(case.sd, float(row["sd"])) * sqrt(1 / case.runs + 1 / int(row["n"]))
    difference = float(row["accuracy"]) - case.accuracy
    return {
        "independent": f"{case.accuracy:.4f}",
        "here": row["accuracy"],
        "difference": f"{difference:+.4f}",
        "standard_errors": f"{difference / error:+.1f}",
    }


class Part(Protocol):
    """A module that measures one part."""

    def jobs(self, size: Size) -> list[Job]:
        """Return what to measure, in the order of the rows."""

    def files(self, rows: Sequence[Row], size: Size) -> Mapping[str, str]:
        """Return the plots and tables of complete rows: file name → text."""
