"""What a campaign asks: its questions, the features that they are about, groups, joins, models, and limits of ε.

A campaign states all features that a device observes. Its questions may be about some of them, about *groups* of value
codes that count as one, and about *joins*: combinations of two or three features. A device reads no others. The checks
of ε do not trust the publisher: they recompute every integer of the mechanisms, and the exact privacy loss.
Source: docs/formats.md, section 5.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import mechanisms
from protocol.documents.payload import is_text, read_field, read_integer, read_text
from protocol.epsilon import MAX_ANSWER_MICRO, MIN_ANSWER_MICRO, PrivacyLoss, composed
from protocol.errors import DocumentError, InputError
from protocol.features import MAX_VALUES, Joined
from protocol.questions import CELL, MAX_QUESTIONS, MOMENT, MOMENTS, OUTCOME, PRESENT, RIGHT, Question, Subject, unfit
from protocol.schema import Projection, Schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from protocol.documents.payload import Header
    from protocol.features import Feature, Grouped
    from protocol.schema import Component

GROUPS = "groups"
JOINS = "joins"
"""Keys of a campaign's payload, and the entries of ``crit`` that belong to them. A model has :data:`JOINS` too."""
MOST_JOINED = 3
"""Most features of one join."""


_REASON = "invalid_campaign"


def restricted(schema: Schema, places: Collection[int]) -> Schema:
    """Return the schema of the observed features at ``places`` (indices in ``schema.observed``), in their order.

    All inputs of the projection are kept if one of its components is, and none otherwise.
    """
    parts, count = schema.parts, len(schema.ungrouped)
    if len(places) == len(parts):
        return schema
    wanted, unprojected = frozenset(index for place in places for index in parts[place]), schema.kept
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
    order = {index: place for place, index in enumerate(sorted(wanted))}
    made = tuple(tuple(order[index] for index in parts[place]) for place in sorted(places))
    asked_as = made if any(len(part) > 1 for part in made) else ()
    return Schema(schema.label, tuple(schema.features[index] for index in features), projection, groups, asked_as)


def asked_of(stated: Schema, questions: Sequence[Question]) -> tuple[Schema, tuple[Question, ...]]:
    """Return the schema of the features that ``questions`` are about, and the questions with indices in that schema.

    A question about the moments of all numbers is about all numeric features. ``stated`` is the schema that the
    campaign states, with its groups and joins; the questions are not those of an evaluation.
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
    """Return the value of a payload's key ``groups``: one map for each observed feature with groups."""
    return [
        {"feature": place, "group_of": list(groups)} for place, groups in enumerate(schema.groups) if groups is not None
    ]


def parse_groups(body: dict[str, Any], header: Header, stated: Schema, reason: str) -> Schema:
    """Return the stated schema with the groups of a campaign's payload.

    Raises:
        DocumentError: with ``reason``: ``groups`` is a key without being in ``crit``, or the reverse; or its entries
            are not as docs/formats.md states.
    """
    entries = _critical_list(body, GROUPS, header, reason)
    if entries is None:
        return stated
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


def _critical_list(body: dict[str, Any], key: str, header: Header, reason: str) -> list[Any] | None:
    """Return the list under ``key``, or None. Raise ``reason`` if only one of ``body`` and ``crit`` has ``key``."""
    if (key in body) != (key in header.crit):
        raise DocumentError(reason, f"'{key}' must be a key and in 'crit', or neither")
    return read_field(body, key, list, reason) if key in body else None


def with_joins(schema: Schema, joins: Iterable[tuple[int, ...]]) -> Schema:
    """Return a schema, perhaps with groups, in which all features of ``ungrouped`` and these joins are observed."""
    found = tuple(joins)
    if not found and not schema.asked_as:
        return schema
    return schema._replace(asked_as=(*((index,) for index in range(len(schema.ungrouped))), *found) if found else ())


def without_members(schema: Schema) -> Schema:
    """Return a schema in which the features that are joined are not observed alone, as a model reads them."""
    members = frozenset(chain.from_iterable(schema.joins))
    return restricted(
        schema, [place for place, part in enumerate(schema.parts) if len(part) > 1 or part[0] not in members]
    )


def parse_joins(body: dict[str, Any], header: Header, stated: Schema, reason: str) -> Schema:
    """Return the stated schema, perhaps with groups, with the joins of a campaign's or model's payload.

    Raises:
        DocumentError: with ``reason``: ``joins`` is a key without being in ``crit``, or the reverse; or its entries
            are not as docs/formats.md states.
    """
    entries = _critical_list(body, JOINS, header, reason)
    if entries is None:
        return stated
    if not 1 <= len(entries) <= MAX_QUESTIONS or not all(isinstance(entry, list) for entry in entries):
        raise DocumentError(reason, f"'joins' has not 1 to {MAX_QUESTIONS} entries, or one of them is no list")
    problem = unjoinable(stated, entries)
    if problem:
        raise DocumentError(reason, problem)
    return with_joins(stated, map(tuple, entries))


def unjoinable(stated: Schema, joins: Sequence[Sequence[object]]) -> str:
    """Return why ``joins`` can not be the joins of a schema, as a sentence, or the empty text if they can.

    Each has two or three rising indices in ``Schema.ungrouped``; the joins are distinct and in rising order; the
    combinations of all values (without groups, as a model has them), times the classes, are at most 65536; and no name
    of an observed feature is that of another.
    """
    single, classes = stated.ungrouped, len(stated.label.classes)
    found: list[tuple[int, ...]] = []
    for join in joins:
        indices = tuple(index for index in join if type(index) is int and 0 <= index < len(single))
        if not 2 <= len(indices) == len(join) <= MOST_JOINED or any(a >= b for a, b in pairwise(indices)):
            return f"a join is not of two to {MOST_JOINED} of the features, in their order"
        if found and indices <= found[-1]:
            return "its joins are not in rising order, or one is there twice"
        if classes * prod(single[index].size for index in indices) > MAX_VALUES:
            return "a join has too many combinations of values for one question"
        found.append(indices)
    names = [feature.name for feature in with_joins(stated, found).observed]
    return "" if len(set(names)) == len(names) else "a join has the name of another feature"


def check_asked(stated: Schema, questions: Sequence[Question | Subject], reason: str) -> None:
    """Refuse, with ``reason``, groups of a feature, or a join, that no question and no released vector is about."""
    if stated.groups or stated.asked_as:
        places = {question.feature for question in questions if question.kind == CELL}
        asked = [part for place, part in enumerate(stated.parts) if place in places]
        read = frozenset(chain.from_iterable(asked))
        if any(groups is not None and index not in read for index, groups in enumerate(stated.groups)):
            raise DocumentError(reason, "it groups the values of a feature whose values it does not ask about")
        if not set(stated.joins).issubset(asked):
            raise DocumentError(reason, "it joins features that it does not ask about together")


def ungroupable(feature: Feature | Component | Grouped | Joined, groups: Sequence[object]) -> str:
    """Return why ``groups`` are no groups of the feature's codes, as a sentence, or the empty text if they are.

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


def plain(schema: Schema) -> Schema:
    """Return a schema with its features as they are stated, without groups and joins."""
    return schema._replace(groups=(), asked_as=())


def groupings(schema: Schema) -> tuple[tuple[int, ...] | None, ...]:
    """Return, per observed feature, its code for each code without groups; None where no values are in groups."""
    found: list[tuple[int, ...] | None] = []
    groups, single = schema.groups or (None,) * len(schema.ungrouped), schema.ungrouped
    for part, feature in zip(schema.parts, schema.observed, strict=True):
        own = [groups[index] or range(single[index].size) for index in part]
        if all(groups[index] is None for index in part):
            found.append(None)
        elif isinstance(feature, Joined):
            found.append(tuple(code for each in product(*own) if (code := feature.code(each)) is not None))
        else:
            found.append(tuple(own[0]))
    return tuple(found)


def canonical_groups(groups: Sequence[int]) -> tuple[int, ...]:
    """Return the groups of a feature's codes, numbered again 0, 1, 2, … in the order of their first codes."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(group, len(numbers)) for group in groups)


MAX_MODELS = 16
"""Most models that one campaign may compare."""

_DIGEST_BYTES = 32


class NamedModels(NamedTuple):
    """The models that a campaign names. No model is read.

    Attributes:
        model: digest of the model whose confusion matrix is asked for; None if there is none.
        models: digests of the models that are compared, in the order of their indices; empty if there are none.
        names: names of the compared models, in the same order.
    """

    model: bytes | None = None
    models: tuple[bytes, ...] = ()
    names: tuple[str, ...] = ()


NO_MODELS = NamedModels()


def named_fields(model: bytes | None, models: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the fields of a payload that name the evaluated models. The result is empty if no model is evaluated.

    The arguments are digests: of the model whose confusion matrix is asked for, and of each compared model by its name.
    """
    fields: dict[str, Any] = {} if model is None else {"model": model}
    return fields | ({"models": list(models.values()), "model_names": list(models)} if models else {})


def read_named(body: dict[str, Any], crit: Sequence[str], *, evaluates: bool, is_shared: bool) -> NamedModels:
    """Read the fields of a campaign's payload that name the evaluated models.

    ``evaluates`` says whether the campaign's family is ``outcome``. Other campaigns name no model, unless
    ``is_shared``: devices that share their records may tell about features and models at once.

    Raises DocumentError ``invalid_campaign``: the family, ``crit`` and the fields do not fit together, or a digest or
    name is wrong or repeated.
    """
    several = "models" in body
    if several != ("models" in crit) or several != ("model_names" in body) or (several and "model" in body):
        raise DocumentError(_REASON, "'models', 'model_names' and the entry 'models' of 'crit' come together, or none")
    names_one = several or "model" in body
    if not evaluates and not (is_shared and names_one):
        if names_one:
            raise DocumentError(_REASON, "it names a model but does not evaluate one")
        return NO_MODELS
    if not several:
        digest = read_field(body, "model", bytes, _REASON)
        _check_digest(digest)
        return NamedModels(digest)
    digests, names = (read_field(body, key, list, _REASON) for key in ("models", "model_names"))
    for digest in digests:
        _check_digest(digest)
    if not 2 <= len(set(digests)) == len(digests) <= MAX_MODELS:
        raise DocumentError(_REASON, f"it does not compare 2 to {MAX_MODELS} distinct models")
    if not all(map(is_text, names)) or not len(set(names)) == len(names) == len(digests):
        raise DocumentError(_REASON, "the models' names are no texts, not distinct, or not one for each model")
    return NamedModels(None, tuple(digests), tuple(names))


def _check_digest(digest: object) -> None:
    if not isinstance(digest, bytes) or len(digest) != _DIGEST_BYTES:
        raise DocumentError(_REASON, "an evaluated model is not named by a SHA-256 digest")


def check_compared(questions: Sequence[Question], models: int, answers: int) -> None:
    """Check the questions of a campaign that compares ``models`` models, unless the campaign has ended.

    Raises DocumentError ``invalid_campaign``: a question about the wrong number of models, a model without a question
    or with two, or more than one answer of a device in one period.
    """
    asked = [question.subject.model for question in questions]
    kinds = {question.kind == RIGHT for question in questions}
    if kinds - {models > 0}:
        raise DocumentError(_REASON, "a question compares models, or asks for one model's errors, where it may not")
    if models and questions and (answers != 1 or sorted(place or 0 for place in asked) != list(range(models))):
        raise DocumentError(_REASON, "it does not ask one question about each model, of which a device answers one")


_WORD = 1 << 32


def privacy_loss(questions: tuple[Question, ...]) -> PrivacyLoss:
    """Return the exact worst privacy loss of all answers of a device to ``questions`` in one period, in nats.

    A device answers one question of each stratum, so the result adds the largest loss of each stratum.
    """
    worst: dict[int, PrivacyLoss] = {}
    for question in questions:
        loss = _loss(question.mechanism)
        if question.stratum not in worst or loss.above(worst[question.stratum]):
            worst[question.stratum] = loss
    return composed(worst.values())


@lru_cache(maxsize=4096)
def _loss(mechanism: mechanisms.Mechanism) -> PrivacyLoss:
    return mechanism.privacy_loss()


def check_ended(questions: tuple[Question, ...], answers: int, epsilon_micro: int) -> None:
    """Refuse a campaign without questions, answers or ε, unless it lacks all three, as one that has ended does."""
    if questions or answers or epsilon_micro:
        raise DocumentError(
            _REASON, "a campaign that has ended has no questions, 0 answers and an ε of 0; any other has all three"
        )


def check_strata(questions: tuple[Question, ...], answers: int) -> None:
    """Refuse questions unless the strata are 0 … r − 1, r = ``answers``, with bounds that rise and end at 2^32."""
    previous_stratum, previous_bound = -1, _WORD
    for question in questions:
        if question.stratum == previous_stratum + 1 and previous_bound == _WORD:
            previous_bound = 0
        elif question.stratum != previous_stratum:
            raise DocumentError(_REASON, "its strata are not in order, or one does not end at 2^32")
        if question.bound <= previous_bound:
            raise DocumentError(_REASON, "a question would never be asked: its interval is empty")
        previous_stratum, previous_bound = question.stratum, question.bound
    if previous_bound != _WORD or previous_stratum + 1 != answers:
        raise DocumentError(
            _REASON, "its number of answers is not its number of strata, or the last does not end at 2^32"
        )


def check_epsilon(questions: tuple[Question, ...], epsilon_micro: int, answers: int) -> None:
    """Refuse a campaign whose mechanisms do not follow from its declared ε, or reveal more.

    Each mechanism is compared with the one that follows from ⌊ε/r⌋ for r = ``answers`` strata, and its exact loss with
    ⌊ε/r⌋. If all agree, r answers can not spend more than ε. Otherwise the composed loss of all strata decides the
    reason. Raises DocumentError ``epsilon_understated``: the loss is above ε; ``invalid_campaign``: ε per answer is not
    allowed, or a mechanism does not follow from it.
    """
    per_answer = epsilon_micro // answers
    problem = ""
    if not MIN_ANSWER_MICRO <= per_answer <= MAX_ANSWER_MICRO:
        problem = "its ε per answer is not between 0.001 and 16"
    elif not all(_follows(stated, per_answer) for stated in {question.mechanism for question in questions}):
        problem = "a mechanism's integers are not those that follow from its ε"
    if not problem:
        return
    if privacy_loss(questions).exceeds(epsilon_micro):
        raise DocumentError("epsilon_understated", "its questions reveal more than the ε it declares")
    raise DocumentError(_REASON, problem)


def _follows(stated: mechanisms.Mechanism, per_answer: int) -> bool:
    """Return whether a mechanism is the one made from ε = ``per_answer`` (in millionths), and spends at most this ε."""
    try:
        derived = mechanisms.from_micro(stated.name, per_answer, stated.size, **stated.options())
    except InputError:
        return False
    return derived == stated and not _loss(stated).exceeds(per_answer)


def parse_questions(body: dict[str, Any], schema: Schema, kinds: Collection[str]) -> tuple[Question, ...]:
    """Read the questions of a campaign's payload. The result is empty if the payload states none.

    ``schema`` has all stated features with their groups; ``kinds`` are those that the campaign's family may ask.

    Raises DocumentError ``epsilon_understated``: a mechanism's loss is infinite; ``invalid_campaign``: a question is
    not as docs/formats.md states.
    """
    entries = read_field(body, "questions", list, _REASON)
    if len(entries) > 65535 or not all(isinstance(entry, dict) for entry in entries):
        raise DocumentError(_REASON, "it has too many questions, or one that is not a map")
    parts = _Parts(len(schema.label.classes), schema.observed, frozenset(schema.numeric))
    return tuple(_parse_question(entry, parts, kinds) for entry in entries)


class _Parts(NamedTuple):
    """What readers of questions must know: number of classes, observed features, indices of numeric features."""

    classes: int
    observed: tuple[Feature | Component | Grouped | Joined, ...]
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
    """Return what a question of an evaluation, the map ``entry``, is about. ``kind``: ``outcome`` or ``right``."""
    size, model = classes**2, None
    if kind == RIGHT:
        size, model = 2, read_integer(entry, "model", 0, MAX_MODELS - 1, _REASON)
    return Subject(kind, None, read_integer(entry, "size", size, size, _REASON), model=model)
