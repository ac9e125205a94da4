"""Estimates as text for people: one row per cell, an interval for each population, blank without answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.estimates.cells import cell_names, question_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator.estimates.intervals import Interval
    from aggregator.estimates.question_estimate import QuestionEstimate
    from protocol.schema import Schema

COLUMNS = ("question", "cell", "n", "estimate", "these devices", "population")


def rows(questions: Iterable[QuestionEstimate], schema: Schema) -> list[tuple[object, ...]]:
    """Estimates as rows of a table, one per question and cell, with the columns :data:`COLUMNS`.

    Intervals are clipped to possible values. Cells of a question without answers are blank.
    """
    return [row for found in questions for row in _rows(found, schema)]


def as_share(share: float) -> str:
    """An unbiased share as a percentage, clipped to [0, 1]; noise can move an estimate out of this range."""
    return f"{min(max(share, 0.0), 1.0):.1%}"


def as_range(low: float, high: float) -> str:
    """The interval from ``low`` to ``high`` of a share as text in percent, clipped to [0, 1]."""
    return f"{as_share(low)} to {as_share(high)}"


def _rows(found: QuestionEstimate, schema: Schema) -> list[tuple[object, ...]]:
    n = found.n
    least = 0 if found.is_share else -n
    intervals = [interval.between(least, n) for interval in (found.devices_interval, found.interval)]
    ends = [_ranges(interval) if n else [""] * len(found.estimate) for interval in intervals]
    estimates = [f"{number:.1f}" if n else "" for number in found.estimate.tolist()]
    name = question_name(found.subject, schema)
    named = zip(cell_names(found.subject, schema), estimates, *ends, strict=True)
    return [(name, cell, n, estimate, *both) for cell, estimate, *both in named]


def _ranges(interval: Interval) -> list[str]:
    return [f"{low:.1f} to {high:.1f}" for low, high in zip(*(ends.tolist() for ends in interval), strict=True)]
