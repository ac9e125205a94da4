"""Classifying the records of a CSV file, cells read as a device would take them. Run by the analyst.

Source: docs/formats.md, section 5 (values of a record): a cell is text, and text that is a number counts as
one for a numeric feature; a cell that stands for a missing value is left out of the sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from aggregator.models.encoding import MISSING, label_codes
from aggregator.notebooks import facts
from aggregator.tables import MISSING_TOKENS, read_table, typed, without_meaning

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from aggregator.models.scoring import Model

LINE, PREDICTED = "line", "predicted"


class Predictions(NamedTuple):
    """What a model says of a file's records.

    Attributes:
        frame: one row per record: ``line`` of the file, ``predicted``, and ``p CLASS`` for every class, sorted, if
            probabilities were asked for.
        labelled: how many records have one of the model's classes as their label.
        accuracy: share of right predictions among these; None if there is none.
        unread: a line for every column in which cells are no value of the model's schema.
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
        model: of whatever family.
        path: of the file; it needs one column at least that is a feature of the model.
        proba: give the probability of every class too.
        missing: cells that stand for a missing value.

    Raises:
        InputError: as :func:`aggregator.tables.read_table`; ``columns_missing``.
    """
    records = typed(read_table(path), model.schema, missing)
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
        tuple(without_meaning(records, model.schema)),
    )
