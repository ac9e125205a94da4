"""Ways to ask about one feature: its codes as they are, in groups of values, or with other bins.

Fewer values mean less noise per value. Values, sorted by a correspondence analysis of a pilot's records, are joined
into the groups that keep most mutual information with the class; numbers are divided at quantiles. Source: decision 66.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats, Integers
from aggregator.models.encoding import MISSING, NO_NUMBER
from protocol import SCALE
from protocol.features import Feature, Numeric
from protocol.schema import Component, Schema, may_be_missing

MOST_GROUPS = 3
BINS = (2, 3, 4, 8)
FINE_BINS = 16
"""Number of quantile bins that are joined to find the edges which keep most mutual information."""
AS_STATED, GROUPS, QUANTILES, EDGES = "as stated", "groups", "quantile bins", "chosen bins"
_SMOOTH = 0.5
"""Records that are added to each cell of a table, so that rare values do not look certain."""
_EQUAL = 1e-12
"""Information in nats that may come from rounding."""


class Way(NamedTuple):
    """A way to ask about the observed feature with index ``feature``.

    ``kind``: :data:`AS_STATED`, the codes of the schema; :data:`GROUPS`, groups of these codes; :data:`QUANTILES` and
    :data:`EDGES`, other bins of a number. ``parts``: number of groups or bins; 0 for :data:`AS_STATED`.
    """

    feature: int
    kind: str = AS_STATED
    parts: int = 0

    @property
    def shown(self) -> str:
        """The kind of the way and its number of groups or bins, as text."""
        return self.kind if self.kind == AS_STATED else f"{self.parts} {self.kind}"


class Cut(NamedTuple):
    """A way to ask about a feature, with the groups or the edges of bins that a pilot's records gave.

    ``size``: number of codes in a report; ``group_of``: group of each code of the schema, or None; ``edges``: scaled
    inner edges of bins of its own, or None; ``missing``: code of a missing number,
    :data:`aggregator.models.encoding.MISSING` without one.
    """

    way: Way
    size: int
    group_of: tuple[int, ...] | None = None
    edges: tuple[int, ...] | None = None
    missing: int = MISSING

    def codes(self, codes: Integers, numbers: Integers) -> Integers:
        """Return the feature's codes in these groups or bins, (rows,) int64, from its columns of an encoded frame."""
        if self.edges is not None:
            found = np.searchsorted(np.array(self.edges, np.int64), numbers, side="right")
            return np.where(numbers == NO_NUMBER, np.where(codes == MISSING, MISSING, self.missing), found)
        if self.group_of is not None:
            return np.where(codes == MISSING, MISSING, np.array(self.group_of, np.int64)[codes])
        return codes


def ways(schema: Schema, feature: int) -> list[Way]:
    """Return all ways to ask about an observed feature; with a projection no other bins."""
    found = [Way(feature)]
    one = schema.ungrouped[feature]
    if isinstance(one, Numeric):
        if schema.projection is None:
            found += [Way(feature, QUANTILES, bins) for bins in BINS]
            found += [Way(feature, EDGES, bins) for bins in (2, 3)]
        return found
    return found + [Way(feature, GROUPS, parts) for parts in range(2, min(MOST_GROUPS, one.size - 1) + 1)]


def cut(way: Way, schema: Schema, codes: Integers, numbers: Integers, labels: Integers) -> Cut | None:
    """Return a way's groups or edges from a pilot's records, columns of shape (rows,) int64; None if there are none."""
    feature, classes = schema.ungrouped[way.feature], len(schema.label.classes)
    if way.kind == AS_STATED:
        return Cut(way, feature.size)
    if way.kind == GROUPS:
        return in_groups(way, _table(codes, labels, feature.size, classes))
    there = numbers != NO_NUMBER
    edges = _quantiles(numbers[there], way.parts if way.kind == QUANTILES else FINE_BINS)
    if way.kind == EDGES and edges:
        fine = np.searchsorted(np.array(edges), numbers[there], side="right")
        edges = chosen_edges(edges, _table(fine, labels[there], len(edges) + 1, classes), way.parts)
    return cut_at(way, feature, edges) if edges else None


def in_groups(way: Way, table: Floats) -> Cut | None:
    """Return groups of the codes; None if ``table``, records by code and class, (codes, k), has too few codes."""
    groups = best_groups(table, way.parts)
    return None if groups is None else Cut(way, way.parts, group_of=groups)


def cut_at(way: Way, feature: Feature | Component, edges: Sequence[int]) -> Cut:
    """Return the bins between these inner edges, with a code for a missing number if the feature has one."""
    bins, has_code = len(edges) + 1, may_be_missing(feature)
    return Cut(way, bins + has_code, edges=tuple(edges), missing=bins if has_code else MISSING)


def chosen_edges(edges: Sequence[int], table: Floats, parts: int) -> list[int]:
    """Return the edges of the ``parts`` bins of most information; ``table``: (fine bins, k) numbers of records."""
    return [edges[place - 1] for place in best_cuts(table, parts) or ()]


def best_groups(table: Floats, parts: int) -> tuple[int, ...] | None:
    """Return the group of each value by ``table``, (values, k) numbers of records; None without more values."""
    if len(table) <= parts:
        return None
    order = np.argsort(_axis(table), kind="stable")
    cuts = best_cuts(table[order], parts)
    if cuts is None:
        return None
    group = np.zeros(len(table), np.int64)
    group[order] = np.searchsorted(np.array(cuts), np.arange(len(table)), side="right")
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(int(each), len(numbers)) for each in group)


def _table(codes: Integers, labels: Integers, size: int, classes: int) -> Floats:
    cells = np.bincount(codes * classes + labels, minlength=size * classes)
    return np.asarray(cells.reshape(size, classes), np.float64)


def _axis(table: Floats) -> Floats:
    """Return the values' scores on the first axis of a correspondence analysis: (values,) float64; 0 if never seen."""
    rows, columns = table.sum(axis=1, keepdims=True), table.sum(axis=0)
    expected = rows * (columns / table.sum())
    profile = (table - expected) / (rows + 2 * _SMOOTH)
    weighted = profile * np.sqrt(rows + _SMOOTH) / np.sqrt(columns + _SMOOTH)
    axis = np.linalg.svd(weighted, full_matrices=False)[2][0]
    return np.asarray(profile / np.sqrt(columns + _SMOOTH) @ axis)


def best_cuts(table: Floats, parts: int) -> list[int] | None:
    """Return the rows of ``table``, (values, k), that begin the ``parts`` most informative parts; None if too few.

    The information (:func:`mutual_information`) is a constant and a sum over the parts. So the best division of the
    rows from each one on follows from those of the rows behind it, in a time that is quadratic in the number of rows.
    Of equally good divisions the one with the earliest rows is taken.
    """
    rows, classes = table.shape
    if rows < parts:
        return None
    sums = np.vstack([np.zeros(classes), np.cumsum(table, axis=0)])
    total = sums[-1].sum() + _SMOOTH * parts * classes
    best, ends = np.full((parts + 1, rows + 1), -np.inf), np.zeros((parts + 1, rows + 1), np.int64)
    best[0, rows] = 0
    for start in range(rows - 1, -1, -1):
        joint = (sums[start + 1 :] - sums[start] + _SMOOTH) / total
        whole = joint.sum(axis=1)
        told = (joint * np.log(joint)).sum(axis=1) - whole * np.log(whole)
        kept = told + best[:-1, start + 1 :]
        best[1:, start] = kept.max(axis=1)
        ends[1:, start] = start + 1 + (kept > best[1:, start, None] - _EQUAL).argmax(axis=1)
    found = [0]
    for left in range(parts, 1, -1):
        found.append(int(ends[left, found[-1]]))
    return found[1:]


def mutual_information(table: Floats) -> float:
    """Return the mutual information of row and column in nats, with half a record added to each entry of ``table``."""
    joint = (table + _SMOOTH) / (table + _SMOOTH).sum()
    return float((joint * np.log(joint / np.outer(joint.sum(axis=1), joint.sum(axis=0)))).sum())


def _quantiles(numbers: Integers, bins: int) -> list[int]:
    if not len(numbers):
        return []
    ordered = np.sort(numbers)
    places = [ordered[min(len(ordered) - 1, -(-len(ordered) * each // bins))] for each in range(1, bins)]
    return sorted({int(each) for each in places if ordered[0] < each and -SCALE < each <= SCALE})
