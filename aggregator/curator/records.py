"""A curator's records as integers, read with the schema's public bounds and rules for missing values.

Nothing of a :class:`Records` may leave the curator: its counts are exact. Its bounds and value lists are public.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from aggregator.common.tables import numbers_of
from aggregator.models.encoding import label_codes, observe
from aggregator.models.population import outside
from protocol.documents.payload import quoted
from protocol.errors import InputError
from protocol.features import Numeric
from protocol.schema import Schema


class Records(NamedTuple):
    """Records of a curator as integers.

    Shapes: ``labels`` (n,), ``codes`` and ``numbers`` (n, observed features), int64, as in reports; numbers are scaled
    to [−S, S] (S: 65536) and clipped, :data:`aggregator.models.encoding.NO_NUMBER` where there is none. ``clipped``:
    feature → number of values outside its bounds; ``at_bounds``: features whose bounds are the records' extremes.
    """

    schema: Schema
    labels: Integers
    codes: Integers
    numbers: Integers
    clipped: dict[str, int]
    at_bounds: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of records."""
        return len(self.labels)

    @property
    def columns(self) -> tuple[Integers, ...]:
        """Per observed feature shape (n,) int64: scaled numbers of a numeric feature, value codes of a category."""
        numeric = self.schema.numeric
        return tuple(
            self.numbers[:, index] if index in numeric else self.codes[:, index]
            for index in range(len(self.schema.observed))
        )

    def part(self, rows: NDArray[np.bool_] | Integers) -> Records:
        """Return the records of ``rows``, a mask (n,) or indices; ``clipped`` and ``at_bounds`` remain those of all."""
        return self._replace(labels=self.labels[rows], codes=self.codes[rows], numbers=self.numbers[rows])


def read_records(frame: pd.DataFrame, schema: Schema, *, strict: bool = False) -> Records:
    """Read a frame of records with the schema's public bounds. Run by the curator.

    Numbers outside the bounds are clipped and counted; with ``strict`` they raise ``outside_bounds``. Raises InputError
    also ``empty_file``, and as :func:`.observe` and :func:`.label_codes`.
    """
    if frame.empty:
        raise InputError("empty_file", "there is no record")
    labels = label_codes(frame, schema.label, substitute=True)
    encoded = observe(frame, schema)
    numeric = [one for one in schema.features if isinstance(one, Numeric) and one.name in frame.columns]
    bounded = schema._replace(features=tuple(numeric), projection=None, groups=())
    found = outside(frame[[one.name for one in numeric]], bounded)
    clipped = {one.name: one.below + one.above for one in found}
    if strict and any(clipped.values()):
        names = ", ".join(quoted(name) for name, count in clipped.items() if count)
        raise InputError(
            "outside_bounds", f"numbers of {names} are outside the schema's bounds, and strict refuses them"
        )
    at_bounds = tuple(one.name for one in numeric if not clipped.get(one.name) and _fills(one, frame[one.name]))
    return Records(schema, labels, encoded.codes, encoded.numbers, clipped, at_bounds)


def _fills(feature: Numeric, column: pd.Series[Any]) -> bool:
    """Return whether the bounds of a feature are the smallest and the largest number of its column."""
    numbers = numbers_of(column)  # Not the scaled numbers, which are rounded.
    return bool(numbers.min() == float(feature.low) and numbers.max() == float(feature.high))
