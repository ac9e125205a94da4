"""The population that a forecast is about: records of a pilot, or invented records with a stated effect."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from aggregator.models.encoding import MISSING, NO_NUMBER, EncodedFrame, in_groups, label_codes, observe, recognise
from protocol import SCALE
from protocol.features import Categorical
from protocol.schema import Schema

ASSUMED_RECORDS = 4000
"""Number of invented records."""
_DEVIATIONS = 3
"""A number's bounds are this many standard deviations from the middle, in invented records."""


class Population(NamedTuple):
    """N records, as devices report them and as a model reads them.

    Attributes:
        reported: codes and numbers in reports, with substitutes of missing values: (N, observed features) int64 each.
        labels: (N,) int64, classes in reports, with the label's substitute.
        scored: codes and numbers for scoring; missing values have no code: (N, observed features) int64 each.
        truth: (N,) int64, known classes; :data:`aggregator.models.encoding.MISSING` for a record without one.
    """

    reported: EncodedFrame
    labels: Integers
    scored: EncodedFrame
    truth: Integers

    @classmethod
    def of_frame(cls, frame: pd.DataFrame, schema: Schema) -> Population:
        """The records of a typed table (:func:`aggregator.common.tables.typed`), read by a schema.

        Raises:
            InputError: ``columns_missing``, ``label_missing``, ``duplicate_column``, ``digits_lost``,
                ``value_refused``: the table does not fit the schema.
        """
        return cls(
            observe(frame, schema),
            label_codes(frame, schema.label, substitute=True),
            recognise(frame, schema),
            label_codes(frame, schema.label),
        )

    @property
    def known(self) -> NDArray[np.bool_]:
        """(N,) bool: the records with a known class. Accuracies are about these."""
        return np.asarray(self.truth != MISSING)

    def take(self, rows: Integers) -> Population:
        """The records with these indices, (M,) int64."""
        reported, scored = (EncodedFrame(part.codes[rows], part.numbers[rows]) for part in (self.reported, self.scored))
        return Population(reported, self.labels[rows], scored, self.truth[rows])


def assumed(schema: Schema, effect: float, rng: np.random.Generator, records: int = ASSUMED_RECORDS) -> Population:
    """Invent records in which features tell classes apart by a stated effect.

    All classes have the same share. Behind feature i is a normal number with standard deviation 1 and mean d/2 in
    class i mod k, −d/2 in all other classes, where d is the effect and k the number of classes. Features are
    independent given the class. A numeric feature is that number: its bounds are 3 standard deviations from the
    middle. The values of a categorical feature divide the normal number into parts of equal probability. No value is
    missing.

    Args:
        schema: label and features.
        effect: d, the difference of the means of two classes in standard deviations (Cohen's d).
        rng: source of randomness.
        records: number of records.
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
    encoded = EncodedFrame(in_groups(codes, schema), numbers)
    return Population(encoded, labels, encoded, labels)
