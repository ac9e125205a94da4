"""What every number of an estimate is about: in columns for programs, in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.questions import CELL, MOMENT, MOMENTS, OUTCOME

if TYPE_CHECKING:
    from protocol.questions import Subject
    from protocol.schema import Schema

_POWERS = {1: "", 2: "²"}
ABSENT, THERE = "absent", "present"
"""The two values of a question whether a number is there."""


class Cell(NamedTuple):
    """What one number of an estimate is about; None where the question does not tell.

    Attributes:
        feature: name of the observed feature.
        value: of it, or whether a number is there; the predicted class of an outcome.
        of_class: name of the class; of an outcome the true one.
    """

    feature: str | None
    value: str | None
    of_class: str


def question_name(subject: Subject, schema: Schema) -> str:
    """A question in words: ``class``, ``cell odor``, ``moment 1 of width`` or ``moments 2``."""
    kind, feature, _, power, of_class = subject
    name = "" if feature is None else f" {schema.observed[feature].name}"
    if kind == MOMENT:
        where = "" if of_class is None else f", {schema.label.name}={schema.label.classes[of_class]}"
        return f"{kind} {power} of{name}{where}"
    return f"{kind}{name}" if power is None else f"{kind} {power}"


def cells_of(subject: Subject, schema: Schema) -> list[Cell]:
    """Every number of an estimate, in its order."""
    classes = schema.label.classes
    kind, feature, _, _, of_class = subject
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
    """A name for every number of an estimate: ``label=e``, ``odor=n, label=e``, ``width, label=e``."""
    label, kind, power = schema.label.name, subject.kind, subject.power
    names = []
    for feature, value, of_class in cells_of(subject, schema):
        what = f"{label}={of_class}"
        if kind == OUTCOME:
            what = f"{what}, predicted {label}={value}"
        elif kind in (MOMENT, MOMENTS):
            what = f"{feature}{_POWERS[power or 1]}, {what}"
        elif kind == CELL:
            what = f"{feature}={value}, {what}"
        elif feature is not None:
            what = f"{f'no {feature}' if value == ABSENT else f'{feature} is there'}, {what}"
        names.append(what)
    return names
