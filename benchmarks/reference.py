"""The sources' data sets and the accuracies measured on them by an independent simulation.

They lie beside the repository, in the folder that HEARSAY_REFERENCE names, by default ``../shared``;
the project stands alone without them.
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.tables import read_table, typed
from protocol.features import Categorical, Feature
from protocol.schema import Label, Schema, build_schema

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(os.environ.get("HEARSAY_REFERENCE", Path(__file__).parents[2] / "shared"))
LABEL = "label"


class Case(NamedTuple):
    """One row of the reference: a setting, and the accuracy that was measured for it."""

    data: str
    mechanism: str
    answers: str
    epsilon_total: str
    epsilon_per_answer: str
    accuracy: float
    sd: float
    runs: int

    @property
    def name(self) -> str:
        """For tables and test ids."""
        return f"{self.data}-{self.mechanism}-{self.answers}-{self.epsilon_per_answer}"


def available() -> bool:
    """Whether data sets and accuracies are there."""
    return (FOLDER / "datasets" / "schema.json").is_file() and (FOLDER / "reference" / "accuracy.csv").is_file()


def discrete_cases() -> list[Case]:
    """The rows of setting ``local``, form ``discrete``."""
    with (FOLDER / "reference" / "accuracy.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["setting"], row["form"]) == ("local", "discrete")]
    return [
        Case(
            row["data"],
            row["mechanism"],
            row["answers_or_parties"],
            row["epsilon_total"],
            row["epsilon_per_answer"],
            float(row["accuracy"]),
            float(row["sd_of_one_run"]),
            int(row["runs"]),
        )
        for row in rows
    ]


def categorical_data(name: str) -> tuple[pd.DataFrame, Schema]:
    """A data set of categories, every listed value one code and ``?`` a value of its own."""
    entry = json.loads((FOLDER / "datasets" / "schema.json").read_text("utf-8"))["datasets"][name]
    features: list[Feature] = []
    classes: list[str] = []
    for column in entry["columns"]:
        if column["name"] == LABEL:
            classes = _values(column)
        else:
            features.append(Categorical(column["name"], _values(column), substitute=0))
    schema = build_schema(Label(LABEL, classes or sorted(_class_counts(entry))), features)
    frame = read_table(FOLDER / "datasets" / f"{name}.csv.gz")
    return typed(frame, schema, missing=()), schema


def _values(column: dict[str, Any]) -> list[str]:
    listed = list(column["values"])
    token = column.get("missing_token")
    return [*listed, token] if token and token not in listed else listed


def _class_counts(entry: dict[str, Any]) -> list[str]:
    return list(next(iter(entry["files"].values()))["class_counts"])
