"""The campaign: a signed, immutable task for devices, and the checks of its values.

Source: docs/formats.md, section 5 (campaign; value limits). The checks do not trust the publisher: they recompute
every integer of the mechanisms, and the exact privacy loss, from the declared ε.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import canonical, mechanisms
from protocol.batches.report import Layout, layout_for
from protocol.digest import sha256
from protocol.document import HEADER_KEYS, Header, read_field, read_integer, read_payload, read_text
from protocol.documents.series import Series, parse_series
from protocol.epsilon import MAX_ANSWER_MICRO, MICRO, MIN_ANSWER_MICRO, PrivacyLoss, composed
from protocol.errors import DocumentError, InputError
from protocol.questions import CELL, CLASS, MOMENT, MOMENTS, OUTCOME, PRESENT, Assignment, Question, Subject, unfit
from protocol.schema import FROM_RECORD, Schema, parse_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.schema import Check

_REASON = "invalid_campaign"
DISCRETE, GAUSSIAN, EVALUATION = "discrete", "gaussian", "outcome"
_WORD = 1 << 32
MAX_PERIOD_SECONDS = 1 << 31
MAX_REPORT_BYTES = 18 << 16
"""Largest length of all answers of a device in one period: 65536 records of the smallest length, 18 bytes."""
_KINDS = {
    DISCRETE: (CLASS, CELL),
    GAUSSIAN: (CLASS, CELL, PRESENT, MOMENT, MOMENTS),
    EVALUATION: (OUTCOME,),
}
"""Family → the kinds of question that its campaigns may ask."""

UNDERSTOOD = frozenset(
    (
        *HEADER_KEYS,
        "answers",
        "contact",
        "epsilon_micro",
        "features",
        "fit",
        "label",
        "layout",
        "min_batch_size",
        "model",
        "projection",
        "purpose",
        "questions",
        "record_length",
        "series",
        "time_precision",
    )
)
"""Payload keys that this reader understands."""


class Fit(NamedTuple):
    """How the aggregator will make a model from the estimates.

    Attributes:
        family: ``discrete`` or ``gaussian``; ``outcome`` for an evaluation, which makes no model.
        postprocess: name of the method that turns estimates into probabilities; any text here.
        variance_floor_micro: smallest variance of a scaled number, in millionths; Gaussian only.
    """

    family: str
    postprocess: str
    variance_floor_micro: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The attributes as the dict that a campaign's payload contains."""
        entry: dict[str, Any] = {"family": self.family, "postprocess": self.postprocess}
        if self.family == GAUSSIAN:
            entry["variance_floor_micro"] = self.variance_floor_micro
        return entry


class Campaign(NamedTuple):
    """A campaign whose values were checked.

    Attributes:
        id: SHA-256 of the payload.
        header: name, version and dates.
        purpose, contact: why the data are collected, and by whom, in words.
        time_precision: length of a period in seconds; a device answers at most once per period.
        min_batch_size: smallest number of reports from which the aggregator publishes.
        schema: label and features.
        questions: all questions, in order of strata.
        assignment: which question a report id answers.
        layout: the shape of the reports.
        answers: r, answers per device and period; 0 if the campaign has ended.
        epsilon_micro: total ε per device and period, in millionths; 0 if the campaign has ended.
        fit: how the model will be made.
        model: digest of the model that an ``outcome`` campaign evaluates, else None.
        series: the series in which a device answers at most once, with this campaign's share; None if there is none.
    """

    id: bytes
    header: Header
    purpose: str
    contact: str
    time_precision: int
    min_batch_size: int
    schema: Schema
    questions: tuple[Question, ...]
    assignment: Assignment
    layout: Layout
    answers: int
    epsilon_micro: int
    fit: Fit
    model: bytes | None = None
    series: Series | None = None

    @property
    def ended(self) -> bool:
        """Whether this version only ends the versions before it: it asks no question and spends no ε."""
        return not self.questions

    @property
    def report_bytes(self) -> int:
        """Total length of the reports of one device in one period, in bytes."""
        return self.answers * self.layout.record_length

    @property
    def epsilon_per_answer_micro(self) -> int:
        """ε of one answer in millionths: ``epsilon_micro`` divided by ``answers``, rounded down; 0 if ended."""
        return self.epsilon_micro // self.answers if self.answers else 0

    def period_at(self, now: int) -> int:
        """Number of the period that contains the time ``now``: ⌊now / time_precision⌋."""
        return now // self.time_precision

    def check(self, record: Mapping[str, object], label: object = FROM_RECORD) -> Check:
        """Tell which features of a record, and perhaps the label, are missing or unlisted. Nothing is stored or spent.

        Missing: the record has no value. Unlisted: it has a value that the campaign's schema can not read.

        Args:
            record: feature name → value.
            label: the record's class; None if it is not known. By default the label in the record.

        Raises:
            InputError: ``record_invalid``: the record is not a mapping.
        """
        return self.schema.check(record, label)

    def privacy_loss(self) -> PrivacyLoss:
        """Exact worst privacy loss of one device in one period, in nats: of all its answers of the period together."""
        return privacy_loss(self.questions)


def privacy_loss(questions: tuple[Question, ...]) -> PrivacyLoss:
    """Exact worst privacy loss of all answers of a device in one period, in nats, for a campaign's ``questions``.

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


def build_payload(
    header: Header,
    schema: Schema,
    questions: tuple[Question, ...],
    *,
    epsilon_micro: int,
    purpose: str,
    contact: str,
    time_precision: int,
    min_batch_size: int,
    fit: Fit,
    model: bytes | None = None,
    series: Series | None = None,
) -> bytes:
    """Encode the payload of a new campaign and check it by :func:`parse_campaign`. Run by the aggregator.

    The arguments (``header`` … ``model``) are the attributes of :class:`Campaign` of the same names. The layout and the
    number of answers follow from the questions. A payload without questions and with an ε of 0 ends the versions before
    it.

    Raises:
        InputError: ``layout_invalid``: the answers do not fit into one report layout; ``not_canonical``: a value has no
            canonical bytes.
        DocumentError: ``malformed``, ``epsilon_understated``, ``invalid_campaign``: a value that
            :func:`parse_campaign` refuses.
    """
    layout = layout_for([question.mechanism for question in questions])
    evaluated = {} if model is None else {"model": model}
    critical = {} if series is None else {"series": series.to_dict()}
    header = header._replace(crit=(*header.crit, *critical))
    payload = canonical.pack(
        {
            **header.to_dict(),
            **evaluated,
            **critical,
            "purpose": purpose,
            "contact": contact,
            "time_precision": time_precision,
            "min_batch_size": min_batch_size,
            "label": schema.label.to_dict(),
            "features": [feature.to_dict() for feature in schema.features],
            "projection": None if schema.projection is None else schema.projection.to_dict(),
            "questions": [question.to_dict() for question in questions],
            "layout": layout.kind,
            "record_length": layout.record_length,
            "answers": questions[-1].stratum + 1 if questions else 0,
            "epsilon_micro": epsilon_micro,
            "fit": fit.to_dict(),
        }
    )
    parse_campaign(payload)
    return payload


@lru_cache(maxsize=8)
def parse_campaign(payload: bytes) -> Campaign:
    """Parse the payload of a campaign and check its values. Run by device and aggregator.

    Callers verify signatures, ``spec`` and ``crit`` first. The result is cached.

    Raises:
        DocumentError: ``malformed``: the payload or its header can not be read; ``epsilon_understated``: the exact
            privacy loss of the stated integers is infinite or above the declared ε; ``invalid_campaign``: any other
            wrong value.
    """
    body, header = read_payload(payload)
    schema = parse_schema(body, _REASON)
    fit = _parse_fit(body)
    answers = read_integer(body, "answers", 0, 65535, _REASON)
    epsilon_micro = read_integer(body, "epsilon_micro", 0, 65535 * MAX_ANSWER_MICRO, _REASON)
    questions = _parse_questions(body, schema, fit.family)
    if 0 in (len(questions), answers, epsilon_micro):
        _check_ended(questions, answers, epsilon_micro)
    else:
        _check_strata(questions, answers)
        _check_epsilon(questions, epsilon_micro, answers)
    layout = _check_layout(body, questions)
    if answers * layout.record_length > MAX_REPORT_BYTES:
        raise DocumentError(_REASON, f"one period's answers have more than {MAX_REPORT_BYTES} bytes")
    time_precision = read_integer(body, "time_precision", 1, MAX_PERIOD_SECONDS, _REASON)
    if header.expires // time_precision >= _WORD:
        raise DocumentError(_REASON, "its last period does not fit into a report")
    return Campaign(
        id=sha256(payload).digest(),
        header=header,
        purpose=read_text(body, "purpose", _REASON),
        contact=read_text(body, "contact", _REASON),
        time_precision=time_precision,
        min_batch_size=read_integer(body, "min_batch_size", 1, _WORD - 1, _REASON),
        schema=schema,
        questions=questions,
        assignment=Assignment(questions),
        layout=layout,
        answers=answers,
        epsilon_micro=epsilon_micro,
        fit=fit,
        model=_parse_evaluated(body, fit.family),
        series=parse_series(body, header, answers),
    )


def _parse_questions(body: dict[str, Any], schema: Schema, family: str) -> tuple[Question, ...]:
    entries = read_field(body, "questions", list, _REASON)
    if len(entries) > 65535 or not all(isinstance(entry, dict) for entry in entries):
        raise DocumentError(_REASON, "it has too many questions, or one that is not a map")
    return tuple(_parse_question(entry, schema, family) for entry in entries)


def _parse_question(entry: dict[str, Any], schema: Schema, family: str) -> Question:
    subject = _parse_subject(entry, schema, family)
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


def _parse_subject(entry: dict[str, Any], schema: Schema, family: str) -> Subject:
    kind = read_text(entry, "kind", _REASON)
    if kind not in _KINDS[family]:
        raise DocumentError(_REASON, "a question is of a kind that its family does not ask")
    classes = len(schema.label.classes)
    feature = power = of_class = None
    size = classes
    if kind in (CELL, PRESENT, MOMENT):
        feature = read_integer(entry, "feature", 0, len(schema.observed) - 1, _REASON)
        number = feature in schema.numeric
        if (kind != CELL and not number) or (kind == CELL and family == GAUSSIAN and number):
            raise DocumentError(_REASON, "a question is about a feature of another kind")
    if kind in (MOMENT, MOMENTS):
        power = read_integer(entry, "power", 1, 2, _REASON)
    if kind == CELL and feature is not None:
        size = classes * schema.observed[feature].size
    elif kind == PRESENT:
        size = 2 * classes
    elif kind == OUTCOME:
        size = classes**2
    elif kind == MOMENTS:
        size = classes * len(schema.numeric)
    elif kind == MOMENT and "class" in entry:
        of_class = read_integer(entry, "class", 0, classes - 1, _REASON)
        size = 1
    return Subject(kind, feature, read_integer(entry, "size", size, size, _REASON), power, of_class)


def _check_ended(questions: tuple[Question, ...], answers: int, epsilon_micro: int) -> None:
    """A campaign that has ended has no questions, no answers and an ε of 0."""
    if questions or answers or epsilon_micro:
        raise DocumentError(
            _REASON, "a campaign that has ended has no questions, 0 answers and an ε of 0; any other has all three"
        )


def _check_strata(questions: tuple[Question, ...], answers: int) -> None:
    """The strata are 0 … r − 1 in order. The bounds of a stratum increase strictly and end at 2^32."""
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


def _check_epsilon(questions: tuple[Question, ...], epsilon_micro: int, answers: int) -> None:
    """Compare each mechanism with the one that follows from ⌊ε/r⌋, and its exact loss with ⌊ε/r⌋.

    If all agree, r strata can not spend more than ε. Otherwise the composed loss of all strata decides the reason.
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
    """Whether a mechanism is the one that follows from ``per_answer``, with a loss of at most ``per_answer``."""
    try:
        derived = mechanisms.from_micro(stated.name, per_answer, stated.size, **stated.options())
    except InputError:
        return False
    return derived == stated and not _loss(stated).exceeds(per_answer)


def _check_layout(body: dict[str, Any], questions: tuple[Question, ...]) -> Layout:
    problem = ""
    try:
        layout = layout_for([question.mechanism for question in questions])
    except InputError as error:
        problem = error.detail
    if problem:
        raise DocumentError(_REASON, problem)
    read_integer(body, "layout", layout.kind, layout.kind, _REASON)
    read_integer(body, "record_length", layout.record_length, layout.record_length, _REASON)
    return layout


def _parse_fit(body: dict[str, Any]) -> Fit:
    entry = read_field(body, "fit", dict, _REASON)
    family = read_text(entry, "family", _REASON)
    if family not in _KINDS:
        raise DocumentError(_REASON, "its model family is not one that this software knows")
    floor = read_integer(entry, "variance_floor_micro", 1, MICRO, _REASON) if family == GAUSSIAN else 0
    return Fit(family, read_text(entry, "postprocess", _REASON), floor)


def _parse_evaluated(body: dict[str, Any], family: str) -> bytes | None:
    """Digest of the evaluated model; None for families that evaluate none."""
    if family != EVALUATION:
        if "model" in body:
            raise DocumentError(_REASON, "it names a model but does not evaluate one")
        return None
    digest: bytes = read_field(body, "model", bytes, _REASON)
    if len(digest) != 32:
        raise DocumentError(_REASON, "'model' is not a SHA-256 digest")
    return digest
