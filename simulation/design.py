"""What a trial learns from and is tested on, and the schema of its records.

People are divided at random, by folds, or by a test file. Bounds and projection are fitted on a pilot or, as in the
papers, on all people.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.tables import numbers_of
from aggregator.models.reduction import DEFAULT_RIDGE, METHODS, fit_projection
from aggregator.publishing.schemas.schema_file import equal_width_edges
from protocol.errors import InputError
from protocol.features import Feature, Numeric
from protocol.schema import Schema, build_schema


class Split(NamedTuple):
    """Two sets of people: ``people``, who answer, and ``test``, on whose records the model is tested.

    The sets are disjoint, unless the test records were given and repeat some records of ``people``.
    """

    people: pd.DataFrame
    test: pd.DataFrame


class Division(NamedTuple):
    """How to divide the records. The first attribute below that is not None applies.

    Attributes:
        test: a frame of separate test records. The model then learns from all people of the data.
        folds: K, the number of splits. Each split tests on another one of K disjoint parts of the people.
        test_share: share of the people in one random test part.
    """

    test: pd.DataFrame | None = None
    folds: int | None = None
    test_share: float = 0.2

    def learners(self, records: int) -> int:
        """Return the number of people, at least 1, that one split of ``records`` people learns from."""
        if self.test is not None:
            return records
        tested = 1 / self.folds if self.folds else self.test_share
        return max(1, records - round(tested * records)) if 0 < tested < 1 else records

    def splits(self, frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[Split]:
        """Yield the splits of one repetition: one split, or K with folds.

        Raises InputError ``split_invalid``: a part would be empty, or the number of folds or the share is out of range.
        """
        if self.test is not None:
            yield Split(frame, self.test)
            return
        order = rng.permutation(len(frame))
        if self.folds is not None:
            if not 2 <= self.folds <= len(frame):
                raise InputError(
                    "split_invalid", f"the number of folds is from 2 to {len(frame)}, the records there are"
                )
            for fold in range(self.folds):
                chosen = order[fold :: self.folds]
                yield Split(frame.drop(frame.index[chosen]), frame.iloc[chosen])
            return
        if not 0 < self.test_share < 1:
            raise InputError("split_invalid", "the test share lies between 0 and 1")
        count = round(self.test_share * len(frame))
        if not 0 < count < len(frame):
            raise InputError("split_invalid", "the test share leaves nobody to test on, or nobody to learn from")
        yield Split(frame.iloc[order[count:]], frame.iloc[order[:count]])


def resample(people: pd.DataFrame, devices: int | None, rng: np.random.Generator) -> pd.DataFrame:
    """Choose and return the records on the fleet's devices.

    ``devices``: number of devices, whose records are drawn from ``people`` with replacement; None gives every person
    one device.
    """
    return people if devices is None else people.iloc[rng.integers(0, len(people), devices)]


PILOT_SHARE = 0.1


class Design(NamedTuple):
    """How to make the schema for one split, a division of the people into a learning part and a test part.

    Attributes:
        schema: the schema to start from, drafted from the records or given by the user.
        fit_bounds: whether the bounds of numeric features come from the pilot instead of the schema.
        method, components, ridge: of the projection: ``none``, ``pca`` or ``dca``; number of components; ρ of DCA.
        fit_on: the people on whose records bounds and projection are fitted. ``pilot``: 10 % of the people, whose
            devices then do not report. ``train``: all people; the privacy guarantee does not cover this.
    """

    schema: Schema
    bins: int = 4
    fit_bounds: bool = False
    method: str = "none"
    components: int = 0
    ridge: float = DEFAULT_RIDGE
    fit_on: str = "pilot"

    @property
    def needs_pilot(self) -> bool:
        """Whether bounds or a projection are fitted on records, so that each split gets a schema of its own."""
        numbers = any(isinstance(feature, Numeric) for feature in self.schema.features)
        return self.method != "none" or (self.fit_bounds and numbers)

    def template_schema(self) -> Schema:
        """Return a schema that does not depend on records, to check the settings before any record is read.

        It has as many questions as the schema of any split, with the same names and sizes, except that no component of
        the projection can be missing.
        """
        if self.method == "none":
            return self.schema
        kept = [feature for feature in self.schema.features if not isinstance(feature, Numeric)]
        edges = equal_width_edges("component", "-1", "1", self.bins)
        parts = [Numeric(f"{self.method}{index + 1}", "-1", "1", edges) for index in range(self.components)]
        return build_schema(self.schema.label, [*kept, *parts])

    def for_people(self, people: pd.DataFrame, rng: np.random.Generator) -> tuple[Schema, pd.DataFrame]:
        """Return the schema for one split, and the records of the people whose devices report.

        ``rng``: chooses the pilot; it is read only if ``fit_on`` is ``pilot`` and :attr:`needs_pilot` holds.

        Raises:
            InputError: no projection can be fitted (:func:`aggregator.models.reduction.fit_projection`), or its
                components make no valid schema (:func:`protocol.schema.build_schema`).
        """
        if not self.needs_pilot:
            return self.schema, people
        pilot, fleet = people, people
        if self.fit_on == "pilot":
            order = rng.permutation(len(people))
            count = max(1, round(PILOT_SHARE * len(people)))
            pilot, fleet = people.iloc[order[:count]], people.iloc[order[count:]]
        schema = _with_bounds(self.schema, pilot, self.bins) if self.fit_bounds else self.schema
        if self.method != "none":
            schema = fit_projection(
                pilot, schema, self.method, self.components, bins=self.bins, ridge=self.ridge
            ).schema
        return schema, fleet


def parse_reduction(text: str) -> tuple[str, int]:
    """Parse an option such as ``none``, ``pca:6`` or ``dca:1`` into its method and number of components.

    ``none`` gives ``("none", 0)``. ``pca`` is principal component analysis, ``dca`` discriminant component analysis.

    Raises InputError ``reduce_invalid``: another text, or a number of components outside 1 … 100000.
    """
    method, _, count = text.partition(":")
    if text == "none":
        return text, 0
    if method not in METHODS or not (count.isascii() and count.isdecimal() and 1 <= int(count[:6]) <= 10**5):
        raise InputError("reduce_invalid", "a reduction is none, pca:K or dca:K with K components")
    return method, int(count)


def _with_bounds(schema: Schema, pilot: pd.DataFrame, bins: int) -> Schema:
    """Return the schema with new bounds, the smallest and largest number of the pilot, and bins of equal width.

    Equal bounds become [x, x + 1]; a feature without a finite number gets [0, 1].
    """
    features: list[Feature] = []
    for feature in schema.features:
        if not isinstance(feature, Numeric):
            features.append(feature)
            continue
        numbers = numbers_of(pilot[feature.name]).to_numpy()
        numbers = numbers[np.isfinite(numbers)]
        low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
        if low == high:
            high = low + 1.0
        bounds = str(Decimal(repr(low))), str(Decimal(repr(high)))
        edges = equal_width_edges(feature.name, *bounds, bins)
        features.append(Numeric(feature.name, *bounds, edges, feature.unlisted, feature.substitute))
    return build_schema(schema.label, features)
