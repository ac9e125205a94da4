"""Data sets of the papers, and accuracies that an independent simulation measured on them.

They are in the folder that HEARSAY_REFERENCE names, by default ``../shared``, outside the repository. The project
does not need them.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import pandas as pd

from aggregator.common.tables import read_table, typed
from benchmarks.shared.harness import machine, print_json
from protocol.features import Categorical, Numeric
from protocol.schema import Label, Schema, build_schema

FOLDER = Path(os.environ.get("HEARSAY_REFERENCE", Path(__file__).parents[3] / "shared"))
NOT_HERE = "the reference data sets are not here; set HEARSAY_REFERENCE to their folder"
"""What a benchmark prints that needs the data sets and does not find them."""
LABEL = "label"
BINS = {"australian": 2, "pima": 4}
REDUCTIONS = {"none": ("none", 0), "pca1": ("pca", 1), "pca6": ("pca", 6), "dca": ("dca", 1)}


class Case(NamedTuple):
    """One row of the reference's results: a setting and its measured accuracy."""

    data: str
    mechanism: str
    answers: str
    epsilon_total: str
    epsilon_per_answer: str
    accuracy: float
    sd: float
    runs: int
    form: str = "discrete"
    note: str = ""

    @property
    def name(self) -> str:
        """A name for tables and test ids."""
        parts = [self.data, self.mechanism, self.answers, self.epsilon_per_answer]
        if self.form != "discrete":
            parts.append(self.form.replace(" ", "-").replace("=", "-"))
        return "-".join(parts)

    @property
    def is_private(self) -> bool:
        """Whether noise was added; False for rows of mechanism ``none``."""
        return self.mechanism != "none"

    @property
    def family(self) -> str:
        """``discrete`` or ``gaussian``."""
        return self.form.split()[0]

    @property
    def reduction(self) -> tuple[str, int]:
        """Method and number of components; the reference's ``dca`` is one component."""
        return REDUCTIONS[self.form.split()[-2]]

    @property
    def fit_on(self) -> str:
        """The records on which bounds and projection are fitted: ``pilot`` or ``train``."""
        return self.form.partition("fit=")[2]

    @property
    def bins(self) -> int:
        """Number of bins of a numeric feature: from the row's note, else that of the data set's other rows."""
        return int(self.note.removeprefix("bins ")) if self.note.startswith("bins ") else BINS[self.data]


TOLERANCE, STANDARD_ERRORS = 0.02, 3


@dataclass(frozen=True)
class Comparison:
    """Measured accuracies of one row of the reference.

    ``between``: variance of the accuracy between random splits, of which the reference has one. ``may_be_better``:
    whether the row also holds if the measured accuracy is higher.
    """

    case: Case
    accuracies: list[float]
    between: float = 0.0
    may_be_better: bool = False

    @property
    def accuracy(self) -> float:
        """Mean over all runs."""
        return fmean(self.accuracies)

    @property
    def error(self) -> float:
        """Standard error of the mean, with the standard deviation of one run or, if that is larger, the reference's."""
        spread = stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0
        return max(spread, self.case.sd) / sqrt(len(self.accuracies))

    @property
    def difference(self) -> float:
        """Measured minus the reference's accuracy."""
        return self.accuracy - self.case.accuracy

    def allowed(self, between: float = 0.0) -> float:
        """Return 2 points plus three standard errors of two means' difference, ``between`` added to its variance."""
        return TOLERANCE + STANDARD_ERRORS * sqrt(self.case.sd**2 / self.case.runs + self.error**2 + between)

    @property
    def verdict(self) -> str:
        """``=``, ``above`` or ``below``; ``(=)`` if the row holds only with the variance between splits."""
        if abs(self.difference) <= self.allowed():
            return "="
        if abs(self.difference) <= self.allowed(self.between):
            return "(=)"
        return "above" if self.difference > 0 else "below"

    @property
    def holds(self) -> bool:
        """Whether the verdict is one of those that the row allows."""
        return self.verdict in ("=", "(=)") or (self.may_be_better and self.verdict == "above")

    @property
    def text(self) -> str:
        """Both accuracies, their difference and the verdict, for a line of a table."""
        case = self.case
        return (
            f"{100 * self.accuracy:5.1f} ± {100 * self.error:3.1f}   reference {100 * case.accuracy:5.1f} ± "
            f"{100 * case.sd / sqrt(case.runs):3.1f}   {100 * self.difference:+5.1f} "
            f"(allowed {100 * self.allowed():4.1f})  {self.verdict}"
        )


def compare(found: Iterable[tuple[str, Comparison]], *, as_json: bool = False) -> int:
    """Print rows as soon as they are measured, each with a text about its setting. Return 1 if a row does not hold."""
    rows = []
    for about, row in found:
        rows.append(row)
        if not as_json:
            print(f"{about} {row.text}", flush=True)
    holding = sum(row.holds for row in rows)
    if as_json:
        measured = [{**row.case._asdict(), "measured": row.accuracy, "verdict": row.verdict} for row in rows]
        print_json("comparison with the reference", measured)
    else:
        print(f"{holding} of {len(rows)} rows hold; {machine()}")
    return int(holding < len(rows))


def available() -> bool:
    """Return whether the folder with data sets and accuracies exists."""
    return (FOLDER / "datasets" / "schema.json").is_file() and (FOLDER / "reference" / "accuracy.csv").is_file()


def require() -> None:
    """End the program with status 2 unless the folder with data sets and accuracies exists."""
    if not available():
        print(NOT_HERE, file=sys.stderr)
        raise SystemExit(2)


def discrete_cases() -> list[Case]:
    """Return the rows of setting ``local``, form ``discrete``."""
    return [case for case in cases("local") if case.form == "discrete"]


def numeric_cases() -> list[Case]:
    """Return the rows of setting ``local`` on numeric features, including rows without privacy."""
    return [case for case in cases("local") if "fit=" in case.form]


def cases(setting: str) -> list[Case]:
    """Return the rows of a setting: ``local``, ``central``, ``federated`` or ``distributed``.

    In ``central``, ``mechanism`` is the reference's name of a curator's method. With nodes, ``answers`` is their number
    in words, such as ``10 nodes``, ``500 parties``.
    """
    with (FOLDER / "reference" / "accuracy.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["setting"] == setting]
    return [
        Case(
            row["data"],
            row["mechanism"],
            row["answers_or_parties"],
            row["epsilon_total"],
            row["epsilon_per_answer"],
            float(row["accuracy"]),
            float(row["sd_of_one_run"] or 0),
            int(row["runs"]),
            row["form"],
            row["note"],
        )
        for row in rows
    ]


def entry(name: str) -> dict[str, Any]:
    """Return what is known of a data set: its columns, files, numbers of records in each class."""
    return json.loads((FOLDER / "datasets" / "schema.json").read_text("utf-8"))["datasets"][name]


def numeric_data(name: str) -> tuple[pd.DataFrame, Schema]:
    """Read a data set with all columns as numeric features, as in the reference.

    The bounds contain all data. :class:`simulation.design.Design` replaces them by bounds fitted on the allowed
    records.
    """
    frame = read_table(FOLDER / "datasets" / f"{name}.csv.gz")
    features = [Numeric(column, "-1e6", "1e6", [0]) for column in map(str, frame.columns) if column != LABEL]
    schema = build_schema(Label(LABEL, sorted(_class_counts(entry(name)))), features)
    return typed(frame, schema, missing=()), schema


def categorical_data(name: str) -> tuple[pd.DataFrame, Schema]:
    """Read a data set with all columns as categorical features. Each value has a code, ``?`` too."""
    about = entry(name)
    values = {column["name"]: _values(column) for column in about["columns"]}
    classes = values.pop(LABEL, None) or sorted(_class_counts(about))
    features = [Categorical(column, own, substitute=0) for column, own in values.items()]
    schema = build_schema(Label(LABEL, classes), features)
    return typed(read_table(FOLDER / "datasets" / f"{name}.csv.gz"), schema, missing=()), schema


def mixed_data(name: str) -> tuple[pd.DataFrame, Schema]:
    """Read a data set with numeric and categorical features, all parts together, with the published bounds.

    A missing value counts as the first listed value, or as the middle of the bounds.
    """
    about, features = entry(name), []
    for column in about["columns"]:
        if column["kind"] == "numeric":
            features.append(Numeric(column["name"], str(column["min"]), str(column["max"]), [0], substitute=0))
        elif column["name"] != LABEL:
            features.append(Categorical(column["name"], _values(column), substitute=0))
    schema = build_schema(Label(LABEL, sorted(_class_counts(about))), features)
    parts = [read_table(FOLDER / "datasets" / part["file"]) for part in about["files"].values()]
    return typed(pd.concat(parts, ignore_index=True), schema, missing=()), schema


def training_rows(name: str) -> int | None:
    """Return the size of the predefined training part, the first rows of :func:`mixed_data`; None if there is none."""
    files = entry(name)["files"]
    return None if "train" not in files else len(read_table(FOLDER / "datasets" / files["train"]["file"]))


def _values(column: dict[str, Any]) -> list[str]:
    listed = list(column["values"])
    token = column.get("missing_token")
    return [*listed, token] if token and token not in listed else listed


def _class_counts(about: dict[str, Any]) -> list[str]:
    return list(next(iter(about["files"].values()))["class_counts"])
