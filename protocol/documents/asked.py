"""The part of a schema that a campaign asks about, and groups of codes that are asked about as one.

A campaign states all features that a device observes. Its questions may be about some of them. A device reads only
these, and statistics and models are of these alone.

Source: docs/formats.md, section 5 (groups; features that are asked about).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.document import read_field, read_integer
from protocol.errors import DocumentError
from protocol.projection import Projection
from protocol.questions import CELL, MOMENTS
from protocol.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from protocol.document import Header
    from protocol.features import Feature, Grouped
    from protocol.projection import Component
    from protocol.questions import Question, Subject

GROUPS = "groups"
"""Key of a campaign's payload, and the entry of ``crit`` that belongs to it."""


def restricted(schema: Schema, places: Collection[int]) -> Schema:
    """The schema of some observed features, in their order.

    All inputs of the projection are kept if a component is, and none otherwise.

    Args:
        schema: with or without groups.
        places: indices in ``schema.observed`` of the features to keep; possibly none.
    """
    count = len(schema.observed)
    if len(places) == count:
        return schema
    wanted, unprojected = frozenset(places), schema.kept
    kept = [index for place, index in enumerate(unprojected) if place in wanted]
    rows = [place - len(unprojected) for place in range(len(unprojected), count) if place in wanted]
    whole = schema.projection
    inputs = () if whole is None or not rows else whole.inputs
    features = sorted((*kept, *inputs))
    moved = {index: place for place, index in enumerate(features)}
    projection = None
    if whole is not None and rows:
        projection = Projection(
            [moved[index] for index in inputs],
            [whole.matrix[row] for row in rows],
            [whole.offsets[row] for row in rows],
            whole.shift,
            [whole.components[row] for row in rows],
        )
    groups = tuple(group for place, group in enumerate(schema.groups) if place in wanted)
    groups = groups if any(group is not None for group in groups) else ()
    return Schema(schema.label, tuple(schema.features[index] for index in features), projection, groups)


def asked_of(stated: Schema, questions: Sequence[Question]) -> tuple[Schema, tuple[Question, ...]]:
    """What a campaign asks about: the schema of the asked features, and the questions with indices in that schema.

    A question about the moments of all numbers asks about all of them.

    Args:
        stated: the schema that the campaign states, with its groups.
        questions: questions with indices in ``stated.observed``; not those of an evaluation.
    """
    places = {question.feature for question in questions if question.feature is not None}
    if any(question.kind == MOMENTS for question in questions):
        places |= set(stated.numeric)
    schema = restricted(stated, places)
    if schema is stated:
        return stated, tuple(questions)
    moved = {place: index for index, place in enumerate(sorted(places))}
    return schema, tuple(
        question
        if question.feature is None
        else question._replace(subject=question.subject._replace(feature=moved[question.feature]))
        for question in questions
    )


def groups_to_list(schema: Schema) -> list[dict[str, Any]]:
    """The value of a payload's key ``groups``: one map for each observed feature with groups."""
    return [
        {"feature": place, "group_of": list(groups)} for place, groups in enumerate(schema.groups) if groups is not None
    ]


def parse_groups(body: dict[str, Any], header: Header, stated: Schema, reason: str) -> Schema:
    """The stated schema with the groups of a campaign's payload.

    Args:
        body, header: of the payload.
        stated: the payload's schema, without groups.
        reason: of the errors.

    Raises:
        DocumentError: with ``reason``: ``groups`` is a key without being in ``crit``, or the reverse; or its entries
            are not as docs/formats.md states.
    """
    if (GROUPS in body) != (GROUPS in header.crit):
        raise DocumentError(reason, "'groups' must be a key and in 'crit', or neither")
    if GROUPS not in body:
        return stated
    entries = read_field(body, GROUPS, list, reason)
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise DocumentError(reason, "'groups' is empty, or one of its entries is not a map")
    observed = stated.observed
    found: list[tuple[int, ...] | None] = [None] * len(observed)
    previous = -1
    for entry in entries:
        place = read_integer(entry, "feature", previous + 1, len(observed) - 1, reason)
        groups = read_field(entry, "group_of", list, reason)
        problem = ungroupable(observed[place], groups)
        if problem:
            raise DocumentError(reason, problem)
        found[place] = tuple(groups)
        previous = place
    return stated._replace(groups=tuple(found))


def check_groups_asked(stated: Schema, questions: Sequence[Question | Subject], reason: str) -> None:
    """Refuse groups of a feature whose values no question, and no released vector of a node, is about.

    Raises:
        DocumentError: with ``reason``.
    """
    if stated.groups:
        asked = {question.feature for question in questions if question.kind == CELL}
        if any(groups is not None and place not in asked for place, groups in enumerate(stated.groups)):
            raise DocumentError(reason, "it groups the values of a feature whose values it does not ask about")


def ungroupable(feature: Feature | Component | Grouped, groups: Sequence[object]) -> str:
    """Why these are no groups of the feature's codes, as a sentence for people; the empty text if they are.

    The groups are numbered in the order of their first codes, so that the same groups have one form. There are at least
    two, and fewer than codes.
    """
    if len(groups) != feature.size:
        return f"feature '{feature.name}' has not one group per code"
    highest = -1
    for group in groups:
        if type(group) is not int or not 0 <= group <= highest + 1:
            return f"the groups of feature '{feature.name}' are not numbered in the order of their first codes"
        highest = max(highest, group)
    if not 1 <= highest < feature.size - 1:
        return f"feature '{feature.name}' has only one group, or each code is a group of its own"
    return ""


def canonical_groups(groups: Sequence[int]) -> tuple[int, ...]:
    """The same groups, numbered 0, 1, 2, … in the order of their first codes. ``groups``: any number per code."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(group, len(numbers)) for group in groups)
