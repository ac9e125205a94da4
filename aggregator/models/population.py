"""The population that a forecast is about: records of a pilot, or invented records with a stated effect."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from aggregator.common.tables import MISSING_TOKENS, is_absent, numbers_of, shorten, typed
from aggregator.models.encoding import MISSING, NO_NUMBER, EncodedFrame, combined, label_codes, observe, recognise
from protocol import SCALE
from protocol.errors import InputError
from protocol.features import Categorical, Numeric, as_number
from protocol.schema import Schema

ASSUMED_RECORDS = 4000
"""Number of invented records."""
_DEVIATIONS = 3
"""In invented records, a number's bounds are this many standard deviations from the middle."""


class Outside(NamedTuple):
    """How many numbers of a pilot lie ``below`` and ``above`` the bounds of a feature, or are ``missing``."""

    name: str
    below: int
    above: int
    missing: int


def check_columns(pilot: pd.DataFrame, schema: Schema) -> None:
    """Raise ``columns_missing`` (``InputError``) for a feature without a column."""
    absent = [feature.name for feature in schema.features if feature.name not in pilot.columns]
    if absent:
        raise InputError("columns_missing", f"the pilot has no column for the features {shorten(absent)}")


def check_pilot(table: pd.DataFrame, schema: Schema, missing: Collection[str] = MISSING_TOKENS) -> pd.DataFrame:
    """Check a pilot table of text, and return it with typed values (:func:`aggregator.common.tables.typed`).

    The checks are stricter than those of records on devices, because the analyst can correct the file. No error text
    contains a cell. ``missing``: texts of a missing value. Raises InputError: ``columns_missing``, ``label_missing``;
    ``value_invalid``: a cell of a numeric feature is neither a missing value nor a finite number by the devices' rules;
    ``value_refused``: a label is no class, and the schema refuses such labels; ``one_class``: all records have one
    class (or its substitute for other labels).
    """
    frame = read_pilot(table, schema, missing)
    if len(set(label_codes(frame, schema.label, substitute=True).tolist())) < 2:
        raise InputError("one_class", "the pilot has one class, so nothing tells classes apart")
    return frame


def read_pilot(table: pd.DataFrame, schema: Schema, missing: Collection[str] = MISSING_TOKENS) -> pd.DataFrame:
    """Check and convert as :func:`check_pilot`, but allow any number of classes, so that no error tells the classes."""
    names = [feature.name for feature in schema.features if isinstance(feature, Numeric)]
    absent = [name for name in names if name not in table.columns]
    if absent:
        raise InputError("columns_missing", f"the pilot has no column for the numeric features {shorten(absent)}")
    for name in names:
        _check_numbers(table[name], missing)
    return typed(table, schema, missing)


def _check_numbers(column: pd.Series, missing: Collection[str]) -> None:
    """Raise an error if a cell is neither a missing value nor a finite number by the devices' rules."""
    for line, cell in zip(column.index, column, strict=True):
        if not is_absent(cell, missing) and as_number(cell) is None:
            place = f"line {line}" if column.index.name == "line" else f"record {line}"
            raise InputError(
                "value_invalid",
                f"column '{column.name}', {place}: not a finite number, or spelled as devices do not read it (0.5 and "
                "not .5, 5 and not 5. or +5); if it means missing, say --missing TOKEN, or missing= in Python",
            )


def outside(frame: pd.DataFrame, schema: Schema) -> list[Outside]:
    """Return how many numbers of a pilot lie outside the bounds of every numeric feature; reports do not show that."""
    found = []
    for feature in schema.features:
        if isinstance(feature, Numeric):
            numbers = numbers_of(frame[feature.name]).to_numpy()
            below, above = (numbers < float(feature.low)).sum(), (numbers > float(feature.high)).sum()
            found.append(Outside(feature.name, int(below), int(above), int(pd.isna(numbers).sum())))
    return found


class Population(NamedTuple):
    """N records: their codes in reports, and their codes when a model scores them.

    ``reported`` (with substitutes of missing values) and ``scored``: codes and numbers, (N, observed features) int64
    each. ``labels``: (N,) int64, classes in reports. ``truth``: (N,) int64, :data:`aggregator.models.encoding.MISSING`
    for a record without class.
    """

    reported: EncodedFrame
    labels: Integers
    scored: EncodedFrame
    truth: Integers

    @classmethod
    def of_frame(cls, frame: pd.DataFrame, schema: Schema) -> Population:
        """Return the records of a typed table. Raises the errors of :func:`.observe` and :func:`.label_codes`."""
        return cls(
            observe(frame, schema),
            label_codes(frame, schema.label, substitute=True),
            recognise(frame, schema),
            label_codes(frame, schema.label),
        )

    @property
    def known(self) -> NDArray[np.bool_]:
        """(N,) bool: the records with a known class, on which accuracies are measured."""
        return np.asarray(self.truth != MISSING)

    def take(self, rows: Integers) -> Population:
        """Return the records with the indices ``rows``, (M,) int64."""
        reported, scored = (EncodedFrame(part.codes[rows], part.numbers[rows]) for part in (self.reported, self.scored))
        return Population(reported, self.labels[rows], scored, self.truth[rows])


def assumed(schema: Schema, effect: float, rng: np.random.Generator, records: int = ASSUMED_RECORDS) -> Population:
    """Return invented records in which features tell classes apart by a stated effect, independent given the class.

    All classes have the same share. Feature i is made from a normal number of standard deviation 1 and mean d/2 in
    class i mod k, −d/2 in the others: d is ``effect`` (Cohen's d). A numeric feature is that number, with bounds at ±3;
    the values of a category divide it into parts of equal probability. No value is missing.
    """
    classes = len(schema.label.classes)
    labels = np.arange(records) % classes
    shape = (records, len(schema.ungrouped))
    codes, numbers = np.zeros(shape, np.int64), np.full(shape, NO_NUMBER, np.int64)
    for index, feature in enumerate(schema.ungrouped):
        latent = rng.normal(np.where(labels == index % classes, effect / 2, -effect / 2))
        if isinstance(feature, Categorical):
            listed = len(feature.values)
            codes[:, index] = np.argsort(np.argsort(latent)) * listed // records
        else:
            numbers[:, index] = np.rint(np.clip(latent / _DEVIATIONS, -1, 1) * SCALE).astype(np.int64)
            codes[:, index] = np.searchsorted(np.array(feature.edges), numbers[:, index], side="right")
    encoded = combined(EncodedFrame(codes, numbers), schema)
    return Population(encoded, labels, encoded, labels)
