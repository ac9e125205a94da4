"""The schema of a simulation: bounds and projection are fitted on a pilot or, as in the papers, on all people."""

from __future__ import annotations

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

PILOT_SHARE = 0.1


class Design(NamedTuple):
    """How to make the schema for one split, a division of the people into a learning part and a test part.

    Attributes:
        schema: the schema to start from, drafted from the records or given by the user.
        bins: number of bins of a numeric feature or component.
        fit_bounds: whether the bounds of numeric features come from the pilot instead of the schema.
        method: of the projection: ``none``, ``pca`` or ``dca``.
        components: K, number of components of the projection.
        ridge: ρ of DCA.
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
        """A substitute schema that does not depend on records, to check the settings before any record is read.

        It has as many questions as the schema of any split.

        Questions have the same names and sizes too, except that no component of the projection can be missing here.
        """
        if self.method == "none":
            return self.schema
        kept = [feature for feature in self.schema.features if not isinstance(feature, Numeric)]
        edges = equal_width_edges("component", "-1", "1", self.bins)
        parts = [Numeric(f"{self.method}{index + 1}", "-1", "1", edges) for index in range(self.components)]
        return build_schema(self.schema.label, [*kept, *parts])

    def for_people(self, people: pd.DataFrame, rng: np.random.Generator) -> tuple[Schema, pd.DataFrame]:
        """Make the schema for one split. Returns it with the records of the people whose devices report.

        Args:
            people: records of the learning part.
            rng: chooses the pilot; it is read only if ``fit_on`` is ``pilot`` and :attr:`needs_pilot` holds.

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

    Raises:
        InputError: ``reduce_invalid``: another text, or a number of components outside 1 … 100000.
    """
    method, _, count = text.partition(":")
    if text == "none":
        return text, 0
    if method not in METHODS or not (count.isascii() and count.isdecimal() and 1 <= int(count[:6]) <= 10**5):
        raise InputError("reduce_invalid", "a reduction is none, pca:K or dca:K with K components")
    return method, int(count)


def _with_bounds(schema: Schema, pilot: pd.DataFrame, bins: int) -> Schema:
    """The schema with new bounds and bins of equal width: the smallest and largest number of the pilot's records.

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
