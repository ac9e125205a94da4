"""Estimates as text for people: one row per cell, an interval for each population, blank without answers."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, isnan
from typing import TYPE_CHECKING

from aggregator.estimates.cells import cell_names, parameter_names, question_name
from protocol.schema import Schema

if TYPE_CHECKING:
    from aggregator.estimates.conditional import Conditional, Published
    from aggregator.estimates.intervals import Interval
    from aggregator.estimates.question_estimate import QuestionEstimate
    from aggregator.estimates.ratios import Ratio


COLUMNS = ("question", "cell", "n", "estimate", "these devices", "population")
PARAMETER_COLUMNS = ("parameter", "raw", "published", "these devices", "population")
NOT_DETERMINED = "not determined"


def rows(questions: Iterable[QuestionEstimate], schema: Schema) -> list[tuple[object, ...]]:
    """Estimates as rows of a table, one per question and cell, with the columns :data:`COLUMNS`.

    Intervals are clipped to possible values, which a noisy number of records does not bound; without finite ends they
    are :data:`NOT_DETERMINED`. Cells of a question without answers are blank.
    """
    return [row for found in questions for row in _rows(found, schema)]


def parameter_rows(
    found: Iterable[Conditional], published: Published | None, schema: Schema
) -> list[tuple[object, ...]]:
    """One row per parameter of a model, with the columns :data:`PARAMETER_COLUMNS`.

    Raw ratios may lie outside the possible range. Without ``published`` the third column is blank.
    """
    table: list[tuple[object, ...]] = []
    for one in found:
        values = None if published is None else published.get(one.subject)
        numbers = [""] * len(one.raw) if values is None else [f"{value:z.3f}" for value in values.tolist()]
        raw = ["" if isnan(value) else f"{value:z.3f}" for value in one.raw.tolist()]
        names = parameter_names(one.subject, schema)
        ends = (clipped_ranges(one.devices, one.n), clipped_ranges(one.population, one.n))
        table += list(zip(names, raw, numbers, *ends, strict=True))
    return table


def clipped_ranges(found: Ratio, n: int) -> list[str]:
    """Intervals as text; blank without answers."""
    ends = zip(found.low.tolist(), found.high.tolist(), found.determined.tolist(), strict=True)
    return [(f"{low:z.3f} to {high:z.3f}" if known else NOT_DETERMINED) if n else "" for low, high, known in ends]


def as_share(share: float) -> str:
    """An unbiased share as a percentage, clipped to [0, 1]; noise can move an estimate out of this range."""
    return f"{min(max(share, 0.0), 1.0):z.1%}"


def as_range(low: float, high: float) -> str:
    """The interval from ``low`` to ``high`` of a share as text in percent, clipped to [0, 1]."""
    return f"{as_share(low)} to {as_share(high)}"


def _rows(found: QuestionEstimate, schema: Schema) -> list[tuple[object, ...]]:
    n = found.n
    intervals = (found.devices_interval, found.interval)
    ends = [_ranges(interval, *found.possible) if n else [""] * len(found.estimate) for interval in intervals]
    estimates = [f"{number:z.1f}" if n else "" for number in found.estimate.tolist()]
    name = question_name(found.subject, schema)
    named = zip(cell_names(found.subject, schema), estimates, *ends, strict=True)
    return [(name, cell, found.stated_n, estimate, *both) for cell, estimate, *both in named]


def _ranges(interval: Interval, least: float, most: float) -> list[str]:
    clipped = interval.between(least, most)
    pairs = zip(*(ends.tolist() for ends in (*interval, *clipped)), strict=True)
    return [
        f"{low:z.1f} to {high:z.1f}" if isfinite(first) or isfinite(last) else NOT_DETERMINED
        for first, last, low, high in pairs
    ]
