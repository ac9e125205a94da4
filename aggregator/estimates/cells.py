"""Name the numbers of an estimate, for programs and for people, and write estimates as rows of text."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, isnan
from typing import NamedTuple

from aggregator.estimates.conditional import Conditional, Published
from aggregator.estimates.intervals import Interval
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.ratios import Ratio
from protocol.questions import CELL, MOMENT, MOMENTS, OUTCOME, RIGHT, Subject
from protocol.schema import Schema

_POWERS = {1: "", 2: "²"}
ABSENT, THERE = "absent", "present"
"""The two values of a question whether the record has a number."""
IS_WRONG, IS_RIGHT = "wrong", "right"
"""The two values of a question whether one of several models predicts the record's class."""
COLUMNS = ("question", "cell", "n", "estimate", "these devices", "population")
PARAMETER_COLUMNS = ("parameter", "raw", "published", "these devices", "population")
NOT_DETERMINED = "not determined"


class Cell(NamedTuple):
    """What one number of an estimate is about: mostly one class and one value of a feature.

    ``feature`` and ``value`` are None without one; ``value`` may be :data:`ABSENT` or :data:`THERE`, the predicted
    class of an outcome question, or :data:`IS_WRONG` or :data:`IS_RIGHT`. ``of_class`` is the true class there; None
    for a ``right`` question (does one of several models predict the class).
    """

    feature: str | None
    value: str | None
    of_class: str | None


def question_name(subject: Subject, schema: Schema) -> str:
    """Return a question in words: its kind, then its feature, power and class where it has them.

    Examples: ``class``, ``cell odor``, ``moment 1 of width, label=e``, ``moments 2``, ``right model 1`` (the first).
    """
    kind, feature, _, power, of_class = subject[:5]
    if subject.model is not None:
        return f"{kind} model {subject.model + 1}"
    name = "" if feature is None else f" {schema.observed[feature].name}"
    if kind == MOMENT:
        where = "" if of_class is None else f", {schema.label.name}={schema.label.classes[of_class]}"
        return f"{kind} {power} of{name}{where}"
    return f"{kind}{name}" if power is None else f"{kind} {power}"


def cells_of(subject: Subject, schema: Schema) -> list[Cell]:
    """Return what each number of a question's estimate is about, in the order of the numbers."""
    classes = schema.label.classes
    kind, feature, _, _, of_class = subject[:5]
    if kind == RIGHT:
        return [Cell(None, IS_WRONG, None), Cell(None, IS_RIGHT, None)]
    if kind == OUTCOME:
        return [Cell(None, predicted, true) for true in classes for predicted in classes]
    if kind == MOMENTS:
        return [Cell(schema.observed[index].name, None, one) for index in schema.numeric for one in classes]
    if feature is None:
        return [Cell(None, None, one) for one in classes]
    observed = schema.observed[feature]
    if kind == MOMENT:
        asked = classes if of_class is None else classes[of_class : of_class + 1]
        return [Cell(observed.name, None, one) for one in asked]
    values = observed.labels() if kind == CELL else (ABSENT, THERE)
    return [Cell(observed.name, value, one) for value in values for one in classes]


def cell_names(subject: Subject, schema: Schema) -> list[str]:
    """Return the names of all numbers of a question's estimate, in the order of the numbers.

    Examples: ``label=e``, ``odor=n, label=e``, ``width², label=e``, ``no width, label=e``,
    ``label=e, predicted label=p``, ``model 1 is wrong``.
    """
    label, kind, power = schema.label.name, subject.kind, subject.power
    names = []
    for feature, value, of_class in cells_of(subject, schema):
        what = f"{label}={of_class}"
        if subject.model is not None:
            what = f"model {subject.model + 1} is {value}"
        elif kind == OUTCOME:
            what = f"{what}, predicted {label}={value}"
        elif kind in (MOMENT, MOMENTS):
            what = f"{feature}{_POWERS[power or 1]}, {what}"
        elif kind == CELL:
            what = f"{feature}={value}, {what}"
        elif feature is not None:
            what = f"{f'no {feature}' if value == ABSENT else f'{feature} is there'}, {what}"
        names.append(what)
    return names


def parameter_names(subject: Subject, schema: Schema) -> list[str]:
    """Return the name of the model's parameter that each number of a question estimates, in the order of the numbers.

    Examples: ``P(label=e)``, ``P(odor=n | label=e)``, ``P(width is there | label=e)``, ``mean of width² | label=e``.
    """
    label, kind, power = schema.label.name, subject.kind, subject.power
    names = []
    for feature, value, of_class in cells_of(subject, schema):
        given = f"{label}={of_class}"
        if kind in (MOMENT, MOMENTS):
            names.append(f"mean of {feature}{_POWERS[power or 1]} | {given}")
        elif feature is None:
            names.append(f"P({given})")
        elif kind == CELL:
            names.append(f"P({feature}={value} | {given})")
        else:
            names.append(f"P({f'no {feature}' if value == ABSENT else f'{feature} is there'} | {given})")
    return names


def rows(questions: Iterable[QuestionEstimate], schema: Schema) -> list[tuple[object, ...]]:
    """Return estimates as rows of a table, one row per number of each question, with the columns :data:`COLUMNS`.

    Intervals are cut to the possible values; a noisy number of records sets no largest value. A question without
    answers has a blank estimate and blank intervals.
    """
    return [row for found in questions for row in _rows(found, schema)]


def parameter_rows(
    found: Iterable[Conditional], published: Published | None, schema: Schema
) -> list[tuple[object, ...]]:
    """Return one row per parameter of a model, with the columns :data:`PARAMETER_COLUMNS`.

    Column ``raw`` may lie outside the possible range. If ``published`` is None, the column of that name is blank.
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
    """Return each interval as text; blank if ``n``, the number of answers, is 0."""
    ends = zip(found.low.tolist(), found.high.tolist(), found.determined.tolist(), strict=True)
    return [(f"{low:z.3f} to {high:z.3f}" if known else NOT_DETERMINED) if n else "" for low, high, known in ends]


def as_share(share: float) -> str:
    """Return an estimated share as a percentage, clipped to [0, 1]; noise can move an estimate out of this range."""
    return f"{min(max(share, 0.0), 1.0):z.1%}"


def as_range(low: float, high: float) -> str:
    """Return the interval from ``low`` to ``high`` of a share as text in percent, clipped to [0, 1]."""
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
