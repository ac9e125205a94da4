"""Compare the parameters of two models, with intervals and p-values of their differences.

In: two models, and the statistics that each was made from (a model file has no variances). Out: one row per parameter.
Sources: Zou, Donner, Statistics in Medicine 27 (2008), 1693-1702 (intervals of differences); Holm 1979.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import isnan, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from aggregator.estimates.cells import parameter_names
from aggregator.estimates.conditional import PRIOR, conditionals
from aggregator.estimates.debias import Z95
from aggregator.estimates.ratios import Ratio
from aggregator.estimates.statistics import Statistics
from aggregator.models.scoring import Model
from protocol.documents.asked import groupings
from protocol.errors import InputError
from protocol.questions import CELL, MOMENT, Subject
from protocol.schema import Schema

SIGNIFICANT = 0.05
QUANTILES = (Z95, 2.5, 3.0, 3.6, 4.3, 5.2, 6.4, 8.0)
"""Normal quantiles of the levels at which intervals are compared."""


class Change(NamedTuple):
    """One parameter in two models, with the difference between them.

    ``low``, ``high``: 95 % interval of new − old of the raw estimates; ``p``: p-value of "no difference", adjusted for
    all rows; None if not determined.
    """

    parameter: str
    old: float
    new: float
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def significant(self) -> bool | None:
        """Whether the adjusted p-value is below 0.05; None if it is not determined."""
        return None if self.p is None else self.p < SIGNIFICANT

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return {**self._asdict(), "significant": self.significant}


def compare(
    old: Model, new: Model, old_statistics: Statistics | None = None, new_statistics: Statistics | None = None
) -> tuple[Change, ...]:
    """Compare two models by P(class), P(value | class), and means of numbers in [−1, 1] given the class.

    For raw estimates e₁, e₂ with 95 % intervals [l₁, u₁], [l₂, u₂], the interval of the difference d = e₂ − e₁ is

        d − √((u₁ − e₁)² + (e₂ − l₂)²)   to   d + √((e₁ − l₁)² + (u₂ − e₂)²)

    The p-value is 2(1 − Φ(z)), z the normal quantile at which that interval begins to contain 0, interpolated between
    :data:`QUANTILES`. Holm's method adjusts all p-values together; rows without an interval count as tests with p-value
    1, since whether a parameter is determined depends on the noise. The two samples are taken as independent. ``old``,
    ``new``: the models. Features that only one of them has are left out (:func:`unshared`). ``old_statistics``,
    ``new_statistics``: what the models were made from; without both there are no intervals. Raises InputError
    ``schemas_differ``: the labels differ, or features of one name; there is no common feature; statistics are not about
    the features of their model; or the models are of different kinds.

    Returns:
        One row per common parameter, in the order of the old model's schema. A feature whose values both campaigns
        asked about in the same groups has one row per group and class.
    """
    _check_same(old.schema, new.schema)
    for model, statistics in ((old, old_statistics), (new, new_statistics)):
        if statistics is not None and _described(model.schema) != _described(statistics.schema):
            raise InputError(
                "schemas_differ", "the reports are of another schema than the models; give their own store"
            )
    shared = {feature.name for feature in old.schema.observed} & {feature.name for feature in new.schema.observed}
    groups = _common_groups(old_statistics, new_statistics)
    values = [dict(_parameters(model, shared, groups)) for model in (old, new)]
    if values[0].keys() != values[1].keys():
        raise InputError("schemas_differ", "one model has tables and the other normal distributions")
    rows = [Change(name, value, values[1][name]) for name, value in values[0].items()]
    if old_statistics is None or new_statistics is None:
        return tuple(rows)
    known = [_intervals(statistics) for statistics in (old_statistics, new_statistics)]
    found = [_tested(row, known[0].get(row.parameter), known[1].get(row.parameter)) for row in rows]
    return tuple(_adjusted(found))


def unshared(one: Model, other: Model) -> list[str]:
    """Return the names of the observed features of ``one`` that ``other`` does not have."""
    names = {feature.name for feature in other.schema.observed}
    return [feature.name for feature in one.schema.observed if feature.name not in names]


def _check_same(old: Schema, new: Schema) -> None:
    """Raise an error if the models have different labels, no feature in common, or different features of one name."""
    (old_label, before), (new_label, after) = _described(old), _described(new)
    shared = before.keys() & after.keys()
    if old_label != new_label or not shared or any(before[name] != after[name] for name in shared):
        raise InputError(
            "schemas_differ",
            "the two models do not have the same label, or no feature in common, or different features of one name",
        )


def _described(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return the label, and every observed feature by name, as values that ``==`` compares."""
    found: list[Any] = [schema.features[index].to_dict() for index in schema.kept]
    projection = schema.projection
    if projection is not None:
        inputs = [schema.features[index].to_dict() for index in projection.inputs]
        for part, row, offset in zip(projection.components, projection.matrix, projection.offsets, strict=True):
            found.append((part.to_dict(), row, offset, projection.shift, inputs))
    observed = zip(schema.observed, schema.parts, strict=True)
    return schema.label.to_dict(), {feature.name: [found[index] for index in part] for feature, part in observed}


class _Coarse(NamedTuple):
    """The group of every code of a feature, and the names of the groups' parameters."""

    groups: tuple[int, ...]
    names: list[str]


def _common_groups(old: Statistics | None, new: Statistics | None) -> dict[str, _Coarse]:
    """Return feature → its groups, for observed features that both statistics have in the same groups."""
    if old is None or new is None:
        return {}
    (first, schema), (second, _) = ((dict(_grouped(one.schema)), one.schema) for one in (old, new))
    found = {}
    for place, feature in enumerate(schema.observed):
        groups = first[feature.name]
        if groups is not None and second.get(feature.name) == groups:
            subject = Subject(CELL, place, feature.size * len(schema.label.classes))
            found[feature.name] = _Coarse(groups, parameter_names(subject, schema))
    return found


def _grouped(schema: Schema) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    return zip((feature.name for feature in schema.observed), groupings(schema), strict=True)


def _parameters(model: Model, features: Collection[str], coarse: Mapping[str, _Coarse]) -> Iterator[tuple[str, float]]:
    """Yield name and value of every parameter. ``coarse``: feature → its groups, whose values are added."""
    classes, schema = len(model.classes), model.schema
    yield from _named(Subject(PRIOR, None, classes), np.exp(model.log_prior).tolist(), schema)
    for index, (term, feature) in enumerate(zip(model.terms, schema.observed, strict=True)):
        if feature.name not in features:
            continue
        if isinstance(term, tuple):
            yield from _named(Subject(MOMENT, index, classes, 1), term[0].tolist(), schema)
            continue
        table = np.exp(term)
        if feature.name in coarse:
            groups, names = coarse[feature.name]
            table = np.zeros((max(groups) + 1, classes))
            np.add.at(table, list(groups), np.exp(term))
            yield from zip(names, table.ravel().tolist(), strict=True)
        else:
            yield from _named(Subject(CELL, index, table.size), table.ravel().tolist(), schema)


def _named(subject: Subject, values: Sequence[float], schema: Schema) -> Iterator[tuple[str, float]]:
    return zip(parameter_names(subject, schema), values, strict=True)


class _Known(NamedTuple):
    """A parameter's raw estimate, and its interval at each of :data:`QUANTILES` (None if not determined)."""

    raw: float
    ends: tuple[tuple[float, float] | None, ...]


def _intervals(statistics: Statistics) -> dict[str, _Known]:
    levels = [conditionals(statistics.questions, statistics.schema, z) for z in QUANTILES]
    found = {}
    for same in zip(*levels, strict=True):
        names = parameter_names(same[0].subject, statistics.schema)
        columns = [_ends(one.population) for one in same]
        for name, raw, *ends in zip(names, same[0].raw.tolist(), *columns, strict=True):
            if ends[0] is not None and not isnan(raw):
                found[name] = _Known(min(max(raw, ends[0][0]), ends[0][1]), tuple(ends))
    return found


def _ends(found: Ratio) -> list[tuple[float, float] | None]:
    rows = zip(found.low.tolist(), found.high.tolist(), found.determined.tolist(), strict=True)
    return [(low, high) if known else None for low, high, known in rows]


def _tested(row: Change, old: _Known | None, new: _Known | None) -> Change:
    """Return the row with the interval and the unadjusted p-value of its difference, if both values are determined."""
    if old is None or new is None:
        return row
    difference = new.raw - old.raw
    # Pairs of half widths, below and above the difference, at rising quantiles; up to the first that is not determined.
    halves = []
    for first, second in zip(old.ends, new.ends, strict=True):
        if first is None or second is None:
            break
        below = sqrt((first[1] - old.raw) ** 2 + (new.raw - second[0]) ** 2)
        halves.append((below, sqrt((old.raw - first[0]) ** 2 + (second[1] - new.raw) ** 2)))
    (below, above), towards_zero = halves[0], [pair[0] if difference > 0 else pair[1] for pair in halves]
    p = 2 * NormalDist().cdf(-_quantile(abs(difference), towards_zero))
    return row._replace(low=difference - below, high=difference + above, p=p)


def _quantile(distance: float, halves: Sequence[float]) -> float:
    """Return the interpolated quantile at which an interval's half width is ``distance``; the last if never."""
    if not distance:
        return 0.0
    before, half = 0.0, 0.0
    for quantile, wider in zip(QUANTILES, halves, strict=False):
        if wider >= distance:
            return before + (quantile - before) * (distance - half) / (wider - half)
        before, half = quantile, wider
    return before


def _adjusted(rows: Sequence[Change]) -> list[Change]:
    """Return the rows with p-values adjusted by Holm's method: of m, the i-th smallest is multiplied by m − i + 1."""
    order = sorted((index for index, row in enumerate(rows) if row.p is not None), key=lambda index: rows[index].p or 0)
    found, largest = list(rows), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(rows) - place) * (rows[index].p or 0.0)))
        found[index] = rows[index]._replace(p=largest)
    return found


def agreement(old: Model, new: Model, old_records: Any, new_records: Any) -> float:
    """Return the share of records to which both models give the same class.

    ``old_records``, ``new_records``: the same records, in the types of each model's features. Raises the errors of
    :meth:`aggregator.models.scoring.Model.scores`.
    """
    return float((old.predict(old_records) == new.predict(new_records)).mean())


def largest(rows: Sequence[Change], number: int) -> list[Change]:
    """Return the first ``number`` rows by rising p-value; if equal, by falling change of the published values."""
    ordered = sorted(rows, key=lambda row: (1.0 if row.p is None else row.p, -abs(row.new - row.old)))
    return ordered[:number]


def counts(rows: Sequence[Change]) -> Mapping[str, int]:
    """Return the numbers of all parameters, of those with an interval of the difference, and of significant ones."""
    return {
        "parameters": len(rows),
        "tested": sum(row.p is not None for row in rows),
        "significant": sum(bool(row.significant) for row in rows),
    }
