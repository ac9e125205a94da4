"""The campaign: a signed, immutable task for devices, and the checks of its values, which do not trust the publisher.

A *series* is a name under which a device answers at most once. *Pilots* are what a campaign's maker learned privately
from a curator's records, whose people paid the cost; the entries are statements for readers, and no device checks them.
Source: docs/formats.md, sections 2 (series) and 5; docs/decisions/0060 and 0071.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import canonical
from protocol.batches.report import SHARED, Layout, checked_layout, layout_for, report_id
from protocol.documents.asked import (
    GROUPS,
    JOINS,
    NamedModels,
    asked_of,
    check_asked,
    check_compared,
    check_ended,
    check_epsilon,
    check_strata,
    groups_to_list,
    named_fields,
    parse_groups,
    parse_joins,
    parse_questions,
    privacy_loss,
    read_named,
)
from protocol.documents.masked_terms import KEY as MASKED_KEY
from protocol.documents.masked_terms import (
    NODES_KEY,
    MaskedTerms,
    NodeTerms,
    node_loss,
    parse_masked,
    parse_nodes,
)
from protocol.documents.payload import (
    HEADER_KEYS,
    MAX_TIME,
    Header,
    quoted,
    read_field,
    read_integer,
    read_payload,
    read_text,
)
from protocol.documents.shared_terms import (
    KEY,
    SharedTerms,
    parse_shared,
    shared_fields,
    shared_loss,
    shared_subjects,
)
from protocol.epsilon import MAX_ANSWER_MICRO, MICRO, PrivacyLoss, format_micro
from protocol.errors import DocumentError, InputError
from protocol.questions import CELL, CLASS, MOMENT, MOMENTS, OUTCOME, PRESENT, RIGHT, Assignment, Question, Subject
from protocol.schema import FROM_RECORD, Schema, parse_schema
from protocol.stream import hmac_sha256, sha256

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.documents.memory_terms import Memory
    from protocol.documents.payload import Header
    from protocol.schema import Check

PILOTS_KEY = "pilots"
MOST = 64


class PilotCost(NamedTuple):
    """One result that was learned privately from a pilot's records and is part of a campaign.

    Attributes:
        what: the result, in words.
        epsilon_micro: ε that the people in the records paid, in millionths.
        delta: δ, as decimal text.
        adjacency: which data sets are hard to tell apart (:data:`protocol.questions.ADJACENCIES`).
        budget: name of the budget that paid.
    """

    what: str
    epsilon_micro: int
    delta: str
    adjacency: str
    budget: str

    @property
    def shown(self) -> str:
        """The cost in words: ``projection: dca, 1 component, at ε = 1, δ = 0 (change), paid from 'ward 7'``."""
        cost = f"ε = {format_micro(self.epsilon_micro)}, δ = {self.delta}"
        return f"{self.what}, at {cost} ({self.adjacency}), paid from {quoted(self.budget)}"


def pilot_fields(pilots: Sequence[PilotCost]) -> dict[str, Any]:
    """Return the field of a campaign's payload that lists the pilots; empty if the campaign used none."""
    return {PILOTS_KEY: [one._asdict() for one in pilots]} if pilots else {}


def parse_pilots(body: dict[str, Any]) -> tuple[PilotCost, ...]:
    """Read the pilots of a campaign from the fields of its payload. The result is empty if there are none.

    Raises:
        DocumentError: ``invalid_campaign``: no list of 1 to :data:`MOST` maps of the right keys and values.
    """
    if PILOTS_KEY not in body:
        return ()
    entries = read_field(body, PILOTS_KEY, list, _REASON)
    if not 1 <= len(entries) <= MOST:
        raise DocumentError(_REASON, f"'{PILOTS_KEY}' has not 1 to {MOST} entries")
    return tuple(map(_parsed, entries))


def _parsed(entry: object) -> PilotCost:
    if not isinstance(entry, dict) or set(entry) != set(PilotCost._fields):
        raise DocumentError(_REASON, f"an entry of '{PILOTS_KEY}' has other keys than {', '.join(PilotCost._fields)}")
    return PilotCost(
        what=read_text(entry, "what", _REASON),
        epsilon_micro=read_integer(entry, "epsilon_micro", 1, MICRO * MICRO - 1, _REASON),
        delta=read_text(entry, "delta", _REASON),
        adjacency=read_text(entry, "adjacency", _REASON),
        budget=read_text(entry, "budget", _REASON),
    )


SERIES_KEY = "series"
"""Key of the series in a campaign's payload. It must be in ``crit`` too: an older reader then refuses the campaign."""
WHOLE = 1 << 32
"""Upper end of the share of all devices."""
_PREFIX = b"hearsay/1/series"


class Series(NamedTuple):
    """The series of a campaign, and the share of the devices that this campaign asks.

    A device answers at most once under one name: in one period of one version of one campaign of the series.

    Attributes:
        name: name of the series. Two series with the same name are the same.
        begins: seconds since 1970. No campaign of the series is valid earlier. A device that was reset at this time or
            later does not answer: it may have answered before the reset.
        low, high: the share, 0 ≤ low < high ≤ 2^32. A device takes part if low ≤ u < high, where u is its number in the
            series (:func:`place`).
    """

    name: str
    begins: int
    low: int = 0
    high: int = WHOLE

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as the map that a campaign's payload contains."""
        return {"name": self.name, "begins": self.begins, "from": self.low, "to": self.high}

    def has(self, secret: bytes) -> bool:
        """Return whether the device with the 32-byte ``secret`` takes part in this campaign, whatever its record is."""
        return self.low <= place(secret, self.name) < self.high

    @property
    def part(self) -> float:
        """The expected part of all devices that takes part: (high − low)/2^32."""
        return (self.high - self.low) / WHOLE


def place(secret: bytes, name: str) -> int:
    """Return the number u that places a device in a series, an integer of 0 … 2^32 − 1.

    u = HMAC-SHA256(secret, `hearsay/1/series` ‖ SHA-256(name))[:4], big-endian. It is the same for all campaigns of the
    series, and independent of the ids that assign questions.
    """
    return int.from_bytes(hmac_sha256(secret, _PREFIX + sha256(name.encode()).digest())[:4], "big")


def parse_series(body: dict[str, Any], header: Header, answers: int) -> Series | None:
    """Read the series of a campaign from its payload, or return None if the campaign belongs to none.

    Raises:
        DocumentError: ``invalid_campaign``: the map is wrong; ``series`` is a key without being in ``crit``, or the
            reverse; the campaign begins before its series, or has not one answer per period.
    """
    if (SERIES_KEY in body) != (SERIES_KEY in header.crit):
        raise DocumentError(_REASON, "'series' is a key that 'crit' does not name, or the other way round")
    if SERIES_KEY not in body:
        return None
    entry = read_field(body, SERIES_KEY, dict, _REASON)
    if set(entry) != {"name", "begins", "from", "to"}:
        raise DocumentError(_REASON, "'series' has other keys than name, begins, from and to")
    if answers != 1:
        raise DocumentError(
            _REASON, "a campaign of a series gives one answer per period; the end of a campaign is of no series"
        )
    begins = read_integer(entry, "begins", 0, MAX_TIME, _REASON)
    if begins > header.not_before:
        raise DocumentError(_REASON, "it is valid before its series begins")
    low = read_integer(entry, "from", 0, WHOLE - 1, _REASON)
    return Series(
        name=read_text(entry, "name", _REASON),
        begins=begins,
        low=low,
        high=read_integer(entry, "to", low + 1, WHOLE, _REASON),
    )


_REASON = "invalid_campaign"
DISCRETE, GAUSSIAN, EVALUATION = "discrete", "gaussian", "outcome"
_WORD = 1 << 32
MAX_PERIOD_SECONDS = 1 << 31
MAX_REPORT_BYTES = 18 << 16
"""Largest length in bytes of all answers of a device in one period: 65536 reports of the smallest length, 18 bytes."""
_KINDS = {
    DISCRETE: (CLASS, CELL),
    GAUSSIAN: (CLASS, CELL, PRESENT, MOMENT, MOMENTS),
    EVALUATION: (OUTCOME, RIGHT),
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
        GROUPS,
        JOINS,
        "label",
        "layout",
        "masked",
        "memory",
        "min_batch_size",
        "model",
        "model_names",
        "models",
        "nodes",
        "pilots",
        "projection",
        "purpose",
        "questions",
        "record_length",
        "series",
        "shared",
        "time_precision",
    )
)
"""Payload keys that this reader understands."""


class Fit(NamedTuple):
    """How the aggregator will make a model from the estimates.

    Attributes:
        family: ``discrete`` or ``gaussian``; ``outcome`` for an evaluation, which makes no model. A curator's fit may
            also say ``truncated-gaussian``.
        postprocess: name of the method that turns estimates into probabilities; any text here.
        variance_floor_micro: smallest variance of a scaled number, in millionths; Gaussian only.
    """

    family: str
    postprocess: str
    variance_floor_micro: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as the dict that a campaign's payload contains."""
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
        schema: label and the features that the questions are about, with the groups of their values and the
            joins.
        stated: label and all features that the document states, without groups and joins.
        questions: all questions, in order of strata. Their features are indices in ``schema.observed``.
        assignment, layout: which question each report id answers; the shape of the reports.
        answers, epsilon_micro: number of answers, and total ε in millionths, per device and period; 0 after its end.
        fit: how the model will be made.
        model: digest of the model whose confusion matrix is asked for, else None.
        models, model_names: digests and names of the models that are compared. A ``right`` question names a model by
            its index here.
        series: the series in which a device answers at most once, with this campaign's share, or None.
        pilots: what was learned from records of a curator, and what it cost the people in them.
        nodes: terms of a campaign for nodes, or None; ``epsilon_micro`` is then for adding or removing one record.
        masked: terms of a masked campaign, or None; ``epsilon_micro`` is then for one unit (its ``unit``) of a node.
        shared: terms of a campaign whose devices split an exact record for two collectors, or None;
            ``epsilon_micro`` is then for changing one record.
        memory: terms of a campaign whose devices keep their answers, or None; ``epsilon_micro`` is then that of one
            kept answer, of all its reports together.
    """

    id: bytes
    header: Header
    purpose: str
    contact: str
    time_precision: int
    min_batch_size: int
    schema: Schema
    stated: Schema
    questions: tuple[Question, ...]
    assignment: Assignment
    layout: Layout
    answers: int
    epsilon_micro: int
    fit: Fit
    model: bytes | None = None
    series: Series | None = None
    models: tuple[bytes, ...] = ()
    model_names: tuple[str, ...] = ()
    pilots: tuple[PilotCost, ...] = ()
    nodes: NodeTerms | None = None
    masked: MaskedTerms | None = None
    shared: SharedTerms | None = None
    memory: Memory | None = None

    @property
    def name(self) -> str:
        """The campaign's name, as signed."""
        return self.header.name

    @property
    def version(self) -> int:
        """The campaign's version, as signed."""
        return self.header.version

    @property
    def evaluated(self) -> tuple[bytes, ...]:
        """Digests of all models that the campaign evaluates, one or several; empty if it evaluates none."""
        return self.models if self.model is None else (self.model,)

    @property
    def blocks(self) -> list[Subject]:
        """What each block of a shared answer is about: features, then evaluated models; empty for other campaigns."""
        named = NamedModels(self.model, self.models, self.model_names)
        return [] if self.shared is None else shared_subjects(self.schema, self.fit.family, named)

    @property
    def ended(self) -> bool:
        """Whether this version only ends the campaign's earlier versions: it asks nobody and spends no ε."""
        return not self.questions and self.nodes is None and self.shared is None

    @property
    def report_bytes(self) -> int:
        """Total length of the reports of one device in one period, in bytes."""
        return self.answers * self.layout.record_length

    @property
    def epsilon_per_answer_micro(self) -> int:
        """ε of one answer in millionths: ``epsilon_micro`` divided by ``answers``, rounded down, or 0 if ended."""
        return self.epsilon_micro // self.answers if self.answers else 0

    def life_micro(self, periods: int) -> int:
        """Return the ε in millionths of a device that answers ``periods`` periods from the campaign's first on."""
        if self.memory is not None:
            return self.epsilon_micro * (periods and 1 + self.memory.renewals)
        return self.epsilon_micro * (periods if self.series is None else min(1, periods))

    def identify(self, secret: bytes, period: int, index: int) -> tuple[bytes, int]:
        """Return the id of answer number ``index`` of the device with the 32-byte ``secret``, and its question."""
        identifier = report_id(secret, self.id, period, index)
        if self.memory is None:
            return identifier, self.assignment.question_for(identifier, index)
        from protocol.documents.memory_terms import identify

        return identify(self.assignment, secret, self.id, identifier)

    def period_at(self, now: int) -> int:
        """Return the number of the period that contains the time ``now``: ⌊now / time_precision⌋."""
        return now // self.time_precision

    def check(self, record: Mapping[str, object], label: object = FROM_RECORD) -> Check:
        """Return which features of a record, and perhaps the label, are missing or unlisted. Nothing is spent.

        ``label`` is the record's class, None if it is not known; by default it is read from the record. Missing: the
        record has no value. Unlisted: it has a value that the campaign's schema can not read.

        Raises:
            InputError: ``record_invalid``: the record is not a mapping.
        """
        return self.schema.check(record, label)

    def privacy_loss(self) -> PrivacyLoss:
        """Return the exact worst privacy loss of one period (of a device's answers or a node's summary), in nats.

        A summary's loss is for adding or removing one record or, with the sensitivity ``smooth``, for changing its
        features.
        """
        if self.nodes is not None:
            return node_loss(self.schema, self.fit.family, self.epsilon_micro)
        if self.shared is not None:
            return shared_loss(len(self.blocks), self.epsilon_micro, self.shared.noise)
        return privacy_loss(self.questions)


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
    models: Mapping[str, bytes] = MappingProxyType({}),
    pilots: tuple[PilotCost, ...] = (),
    nodes: NodeTerms | None = None,
    masked: MaskedTerms | None = None,
    shared: SharedTerms | None = None,
    memory: Memory | None = None,
) -> bytes:
    """Encode the payload of a new campaign and check it by :func:`parse_campaign`. The aggregator runs this.

    The arguments are the attributes of :class:`Campaign` of the same names, with three exceptions. ``schema`` is all
    that the document states, with groups and joins. The features of ``questions`` are indices in ``schema.observed``.
    ``models`` maps the name of each compared model to its digest, in the order of the indices. With ``memory`` the
    questions have the mechanisms of the answers that are kept. The keys of models, groups, joins, series, nodes, masked
    sums and memory are added to ``crit``. A payload without questions and nodes and with an ε of 0 ends the versions
    before it.

    Raises:
        InputError: ``layout_invalid``: the answers do not fit into one report layout; ``not_canonical``: a value has no
            canonical bytes.
        DocumentError: as :func:`parse_campaign`.
    """
    named = NamedModels(model, tuple(models.values()), tuple(models))
    layout = _layout_of(questions, shared, shared_subjects(schema, fit.family, named))
    critical: dict[str, Any] = {} if series is None else {"series": series.to_dict()}
    critical |= {GROUPS: groups_to_list(schema)} if schema.groups else {}
    critical |= {JOINS: [list(join) for join in schema.joins]} if schema.joins else {}
    terms = {NODES_KEY: nodes, MASKED_KEY: masked}
    critical |= {key: stated.to_dict() for key, stated in terms.items() if stated is not None}
    critical |= shared_fields(shared)
    critical |= {} if memory is None else {"memory": memory.fields(questions)}
    header = header._replace(crit=(*header.crit, *critical, *(["models"] if models else [])))
    payload = canonical.pack(
        {
            **header.to_dict(),
            **named_fields(model, models),
            **critical,
            **pilot_fields(pilots),
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
            "answers": questions[-1].stratum + 1 if questions else int(shared is not None),
            "epsilon_micro": epsilon_micro,
            "fit": fit.to_dict(),
        }
    )
    parse_campaign(payload)
    return payload


@lru_cache(maxsize=8)
def parse_campaign(payload: bytes) -> Campaign:
    """Parse the payload of a campaign and check its values. Device and aggregator run this.

    The caller must have verified signatures, ``spec`` and ``crit``. The result is cached.

    Raises:
        DocumentError: ``malformed``: the payload or its header can not be read; ``epsilon_understated``: the exact
            privacy loss of the stated integers is infinite or above the declared ε; ``invalid_campaign``: any other
            wrong value.
    """
    body, header = read_payload(payload)
    schema = parse_schema(body, _REASON)
    grouped = parse_joins(body, header, parse_groups(body, header, schema, _REASON), _REASON)
    fit = _parse_fit(body)
    answers = read_integer(body, "answers", 0, 65535, _REASON)
    epsilon_micro = read_integer(body, "epsilon_micro", 0, 65535 * MAX_ANSWER_MICRO, _REASON)
    stated_questions = parse_questions(body, grouped, _KINDS[fit.family])
    nodes = parse_nodes(body, header, grouped, fit.family, epsilon_micro)
    named = read_named(body, header.crit, evaluates=fit.family == EVALUATION, is_shared=KEY in body)
    blocks = shared_subjects(grouped, fit.family, named)
    shared = parse_shared(body, header, blocks, fit.family, epsilon_micro)
    if nodes is None:
        asked_about = stated_questions if shared is None else blocks
        check_asked(grouped, asked_about, _REASON)
    if grouped.joins and (fit.family != DISCRETE or nodes is not None or shared is not None):
        raise DocumentError(_REASON, "it joins features, but is no discrete campaign whose devices answer with noise")
    whole = fit.family == EVALUATION or not stated_questions
    asked, questions = (schema, stated_questions) if whole else asked_of(grouped, stated_questions)
    if nodes is not None or shared is not None:
        asked = grouped
    elif 0 in (len(questions), answers, epsilon_micro):
        check_ended(questions, answers, epsilon_micro)
    else:
        check_strata(questions, answers)
        check_epsilon(questions, epsilon_micro, answers)
    check_compared(questions, len(named.models), answers)
    layout = _check_layout(body, questions, shared, blocks)
    if answers * layout.record_length > MAX_REPORT_BYTES:
        raise DocumentError(_REASON, f"one period's answers have more than {MAX_REPORT_BYTES} bytes")
    time_precision = read_integer(body, "time_precision", 1, MAX_PERIOD_SECONDS, _REASON)
    if header.expires // time_precision >= _WORD:
        raise DocumentError(_REASON, "its last period does not fit into a report")
    memory = None
    if "memory" in body or "memory" in header.crit:
        from protocol.documents.memory_terms import parse_memory  # imported here, since most devices never need it

        memory, questions = parse_memory(body, header, questions, time_precision)
    return Campaign(
        id=sha256(payload).digest(),
        header=header,
        purpose=read_text(body, "purpose", _REASON),
        contact=read_text(body, "contact", _REASON),
        time_precision=time_precision,
        min_batch_size=read_integer(body, "min_batch_size", 1, _WORD - 1, _REASON),
        schema=asked,
        stated=schema,
        questions=questions,
        assignment=Assignment(questions),
        layout=layout,
        answers=answers,
        epsilon_micro=epsilon_micro,
        fit=fit,
        model=named.model,
        models=named.models,
        model_names=named.names,
        series=parse_series(body, header, answers),
        pilots=parse_pilots(body),
        nodes=nodes,
        masked=parse_masked(body, header, nodes, grouped, fit.family, epsilon_micro),
        shared=shared,
        memory=memory,
    )


def _check_layout(
    body: dict[str, Any], questions: tuple[Question, ...], shared: SharedTerms | None, blocks: Sequence[Subject]
) -> Layout:
    problem = ""
    try:
        layout = _layout_of(questions, shared, blocks)
    except InputError as error:
        problem = error.detail
    if problem:
        raise DocumentError(_REASON, problem)
    read_integer(body, "layout", layout.kind, layout.kind, _REASON)
    read_integer(body, "record_length", layout.record_length, layout.record_length, _REASON)
    return layout


def _layout_of(questions: tuple[Question, ...], shared: SharedTerms | None, blocks: Sequence[Subject]) -> Layout:
    if shared is None:
        return layout_for([question.mechanism for question in questions])
    from protocol.shared.shape import field_bytes, variant  # imported here, since most devices never need it

    return checked_layout(SHARED, field_bytes(variant([block.size for block in blocks], shared.chunk)))


def _parse_fit(body: dict[str, Any]) -> Fit:
    entry = read_field(body, "fit", dict, _REASON)
    family = read_text(entry, "family", _REASON)
    if family not in _KINDS:
        raise DocumentError(_REASON, "its model family is not one that this software knows")
    floor = read_integer(entry, "variance_floor_micro", 1, MICRO, _REASON) if family == GAUSSIAN else 0
    return Fit(family, read_text(entry, "postprocess", _REASON), floor)
