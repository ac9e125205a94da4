"""The questions of a campaign, as its payload states them.

Source: docs/formats.md, section 5 (map: a question; kinds of questions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import mechanisms
from protocol.document import read_field, read_integer, read_text
from protocol.documents.named_models import MAX_MODELS
from protocol.errors import DocumentError, InputError
from protocol.questions import CELL, MOMENT, MOMENTS, OUTCOME, PRESENT, RIGHT, Question, Subject, unfit

if TYPE_CHECKING:
    from collections.abc import Collection

    from protocol.features import Feature, Grouped
    from protocol.projection import Component
    from protocol.schema import Schema

_REASON = "invalid_campaign"
_WORD = 1 << 32


def parse_questions(body: dict[str, Any], schema: Schema, kinds: Collection[str]) -> tuple[Question, ...]:
    """Read the questions of a campaign's payload; empty if the payload states none.

    Args:
        body: the payload's fields.
        schema: all features that the payload states, with their groups.
        kinds: the kinds of question that the campaign's family may ask.

    Raises:
        DocumentError: ``epsilon_understated``: a mechanism's loss is infinite; ``invalid_campaign``: a question is not
            as docs/formats.md states.
    """
    entries = read_field(body, "questions", list, _REASON)
    if len(entries) > 65535 or not all(isinstance(entry, dict) for entry in entries):
        raise DocumentError(_REASON, "it has too many questions, or one that is not a map")
    parts = _Parts(len(schema.label.classes), schema.observed, frozenset(schema.numeric))
    return tuple(_parse_question(entry, parts, kinds) for entry in entries)


class _Parts(NamedTuple):
    """Number of classes, the observed features and the indices of the numbers: computed once for all questions."""

    classes: int
    observed: tuple[Feature | Component | Grouped, ...]
    numeric: frozenset[int]


def _parse_question(entry: dict[str, Any], schema: _Parts, kinds: Collection[str]) -> Question:
    subject = _parse_subject(entry, schema, kinds)
    stratum = read_integer(entry, "stratum", 0, 65534, _REASON)
    bound = read_integer(entry, "bound", 1, _WORD, _REASON)
    reason, problem = _REASON, ""
    try:
        mechanism = mechanisms.from_dict(entry.get("mechanism"))
        problem = unfit(subject, mechanism, len(schema.numeric))
        if not problem:
            return Question(subject, stratum, bound, mechanism)
    except InputError as error:
        reason = "epsilon_understated" if error.reason == "loss_unbounded" else _REASON
        problem = error.detail
    raise DocumentError(reason, problem)


def _parse_subject(entry: dict[str, Any], schema: _Parts, kinds: Collection[str]) -> Subject:
    kind = read_text(entry, "kind", _REASON)
    if kind not in kinds:
        raise DocumentError(_REASON, "a question is of a kind that its family does not ask")
    classes = schema.classes
    if kind in (OUTCOME, RIGHT):
        return _parse_evaluating(entry, kind, classes)
    feature = power = of_class = None
    size = classes
    if kind in (CELL, PRESENT, MOMENT):
        feature = read_integer(entry, "feature", 0, len(schema.observed) - 1, _REASON)
        number = feature in schema.numeric
        if (kind != CELL and not number) or (kind == CELL and MOMENT in kinds and number):
            raise DocumentError(_REASON, "a question is about a feature of another kind")
    if kind in (MOMENT, MOMENTS):
        power = read_integer(entry, "power", 1, 2, _REASON)
    if kind == CELL and feature is not None:
        size = classes * schema.observed[feature].size
    elif kind == PRESENT:
        size = 2 * classes
    elif kind == MOMENTS:
        size = classes * len(schema.numeric)
    elif kind == MOMENT and "class" in entry:
        of_class = read_integer(entry, "class", 0, classes - 1, _REASON)
        size = 1
    return Subject(kind, feature, read_integer(entry, "size", size, size, _REASON), power, of_class)


def _parse_evaluating(entry: dict[str, Any], kind: str, classes: int) -> Subject:
    """Subject of an evaluation's question: true and predicted class, or whether one of several models is right."""
    size, model = classes**2, None
    if kind == RIGHT:
        size, model = 2, read_integer(entry, "model", 0, MAX_MODELS - 1, _REASON)
    return Subject(kind, None, read_integer(entry, "size", size, size, _REASON), model=model)
