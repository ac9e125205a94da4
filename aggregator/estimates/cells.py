"""Names of the numbers in an estimate: as columns for programs, as words for people."""

from __future__ import annotations

from typing import NamedTuple

from protocol.questions import CELL, MOMENT, MOMENTS, OUTCOME, RIGHT, Subject
from protocol.schema import Schema

_POWERS = {1: "", 2: "²"}
ABSENT, THERE = "absent", "present"
"""The two values of a question about the presence of a number."""
IS_WRONG, IS_RIGHT = "wrong", "right"
"""The two values of a question about one of several models."""


class Cell(NamedTuple):
    """Subject of one number of an estimate.

    Attributes:
        feature: name of the observed feature; None if the question has no feature.
        value: the feature's value, or :data:`ABSENT` or :data:`THERE`; for an outcome, the predicted class; for one of
            several models, :data:`IS_WRONG` or :data:`IS_RIGHT`; None if the question has no values.
        of_class: name of the class; for an outcome, the true class; None for one of several models.
    """

    feature: str | None
    value: str | None
    of_class: str | None


def question_name(subject: Subject, schema: Schema) -> str:
    """A question in words: its kind, with the name of the feature, the power and the class that it has.

    Examples: ``class``, ``cell odor``, ``moment 1 of width``, ``moment 1 of width, label=e``, ``moments 2``,
    ``right model 1``: models are counted from 1.
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
    """Subjects of all numbers of a question's estimate, in the order of the numbers."""
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
    """Names of all numbers of a question's estimate, in the order of the numbers; each name contains a class.

    Examples, for a label called ``label``: ``label=e``; for a cell question ``odor=n, label=e``; for moments
    ``width, label=e`` and ``width², label=e``; for presence ``no width, label=e``; for an outcome
    ``label=e, predicted label=p``; for one of several models ``model 1 is wrong``.
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
    """Names of a model's parameters that belong to the numbers of a question, in the order of the numbers.

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
