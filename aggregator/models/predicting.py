"""Classification of the records of a CSV file, with cells read by the devices' rules. Run by the analyst.

Source: docs/formats.md, section 5 (values of a record). A cell is text. A numeric feature reads the text of a number
as a number. Scoring leaves cells with a missing value out.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from aggregator.common.notebooks import facts
from aggregator.common.tables import MISSING_TOKENS, read_table, typed, unlike_schema
from aggregator.models.encoding import MISSING, label_codes

if TYPE_CHECKING:
    from aggregator.models.scoring import Model


LINE, PREDICTED = "line", "predicted"


class Predictions(NamedTuple):
    """Predictions of a model for the records of a file.

    Attributes:
        frame: one row per record, with the columns ``line`` (of the file), ``predicted`` and, on request,
            ``p CLASS``, the probability of each class, sorted by class.
        labelled: number of records with one of the model's classes as label.
        accuracy: share of right predictions among the labelled records; None without labelled records.
        unread: a sentence for every absent column, and for every column with cells that are no value of the model's
            schema or numbers outside its bounds.
    """

    frame: pd.DataFrame
    labelled: int
    accuracy: float | None
    unread: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        about = {"records": len(self.frame), "with a label": self.labelled, "accuracy": self.accuracy}
        return facts("Predictions", about) + str(self.frame.head()._repr_html_())


def predict_file(
    model: Model, path: str | Path, *, proba: bool = False, missing: Collection[str] = MISSING_TOKENS
) -> Predictions:
    """Classify every record of a CSV file, plain or ``.gz``.

    Args:
        model: a model of any family.
        path: the CSV file, with at least one feature of the model as a column.
        proba: also return the probability of every class.
        missing: texts of a missing value.

    Raises:
        InputError: ``columns_missing``: no feature has a column; or the file can not be read as a table
            (:func:`aggregator.common.tables.read_table` lists the reasons).
    """
    table = read_table(path)
    records = typed(table, model.schema, missing)
    columns: dict[str, object] = {LINE: records.index.to_numpy(), PREDICTED: model.predict(records)}
    if proba:
        shares = model.predict_proba(records)
        columns |= {f"p {name}": shares[:, code] for code, name in enumerate(model.classes_)}
    labelled = 0
    if model.schema.label.name in records.columns:
        labelled = int((label_codes(records, model.schema.label) != MISSING).sum())
    return Predictions(
        pd.DataFrame(columns),
        labelled,
        model.accuracy(records) if labelled else None,
        tuple(unlike_schema(records, model.schema, table.columns)),
    )
