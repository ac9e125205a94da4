"""Making campaigns: from a schema and parameters, or from published models to be evaluated. Run by the analyst.

A device evaluates one model by the pair (true class, predicted class), perturbed by ``direct``; several models by one
bit: whether the model that its report id assigns is right. Source: docs/math.md, section 3 (outcome, right).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from aggregator.models.postprocess.methods import DEFAULT, NEED_CLASS_QUESTION, check_postprocess
from aggregator.publishing.ask_table import Ask, AskedSchema, ask_of, resolve
from aggregator.publishing.decisions import Decision
from aggregator.publishing.mechanisms.choice import AUTO, OR, form_of, is_numeric, mechanism_for, moment_mechanism
from aggregator.publishing.privacy import epsilon_warning
from aggregator.publishing.schemas.projection_file import load_pilots, load_projection
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from aggregator.publishing.series import SeriesShare, begin_of
from aggregator.publishing.signatures import MAX_DAYS, header_for, seconds_of
from aggregator.publishing.workspace import Workspace, latest_of_each
from protocol.documents import campaign, trust
from protocol.documents.asked import MAX_MODELS, NO_MODELS, NamedModels, plain
from protocol.documents.campaign import DISCRETE, GAUSSIAN, PilotCost
from protocol.documents.envelope import read_envelope
from protocol.documents.masked_terms import MAX_RECORDS, MaskedTerms, NodeTerms
from protocol.documents.memory_terms import KINDS, MOST_RENEWALS, Memory
from protocol.documents.model import UNDERSTOOD, Model, parse_model
from protocol.documents.payload import DAY_SECONDS, Header, is_printable, is_seen, is_text, quoted
from protocol.documents.shared_terms import SharedTerms
from protocol.epsilon import MICRO, check_answer_micro, micro_epsilon, millionths
from protocol.errors import DocumentError, InputError, StorageError
from protocol.features import Categorical, Feature
from protocol.mechanisms import Mechanism, from_micro
from protocol.questions import (
    CLASS,
    MOMENTS,
    Question,
    Subject,
    build_questions,
    discrete_subjects,
    gaussian_subjects,
    outcome_subjects,
    right_subjects,
)
from protocol.schema import Schema, build_schema

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": DAY_SECONDS, "w": 7 * DAY_SECONDS}


@dataclass(frozen=True, kw_only=True)
class StatedTerms:
    """What a publisher states of any campaign, for devices or for nodes, as options and arguments give it.

    The fields have the meaning that they have in :class:`CampaignParameters`, as text; ``name``: by default that in the
    schema file; ``projection``: a file; ``ask``: the argument ``given`` of
    :func:`aggregator.publishing.ask_table.ask_of`; ``period``: seconds, or text such as ``12h``.
    """

    epsilon: str | float
    name: str | None = None
    projection: str | Path | None = None
    ask: str | Sequence[str] | Ask | None = None
    variance_floor: str | None = None
    purpose: str = ""
    contact: str = "not stated"
    period: str | int = "1d"
    days: int = 30
    min_batch_size: int = 1
    postprocess: str = DEFAULT

    def subject(self, schema: SchemaFile | Schema | str | Path) -> CampaignSubject:
        """Return what the campaign is about, from a schema file, its path, or a schema, which needs a name."""
        file = load_schema(schema) if isinstance(schema, str | Path) else schema
        if isinstance(file, Schema):
            file = SchemaFile("", file)
        if self.name is None and not file.name:
            raise InputError("name_invalid", "a campaign of a schema without a file needs a name")
        described = file.schema if self.projection is None else load_projection(Path(self.projection), file.schema)
        ask = ask_of(self.ask, file.ask)
        return CampaignSubject(file, described, ask, resolve(described, ask))

    def parameters(self, subject: CampaignSubject, family: str, split: str | None = None) -> CampaignParameters:
        """Return the parameters that all campaigns have. ``split`` is that of :func:`gaussian_fields`."""
        pilots = subject.file.pilots + (() if self.projection is None else load_pilots(self.projection))
        return CampaignParameters(
            subject.file.name if self.name is None else self.name,
            micro_epsilon(self.epsilon),
            purpose=self.purpose,
            contact=self.contact,
            period_seconds=parse_duration(str(self.period)),
            lifetime_seconds=seconds_of(self.days),
            min_batch_size=self.min_batch_size,
            postprocess=self.postprocess,
            family=family,
            pilots=pilots,
            **gaussian_fields(family, self.variance_floor, split),
        )

    def decision(self, subject: CampaignSubject) -> Decision:
        """Return what ``hearsay design`` or ``refine`` wrote into the schema file; empty if ``ask`` replaces it."""
        return subject.file.decision if self.ask is None else {}


class CampaignSubject(NamedTuple):
    """What a campaign is about: the schema file, the schema with its projection, what is asked, the asked schema."""

    file: SchemaFile
    schema: Schema
    ask: Ask
    asked: AskedSchema


class CampaignParameters(NamedTuple):
    """The parameters of a campaign for devices or nodes, apart from its schema.

    Attributes:
        name: name of the campaign. A later campaign of the same name is its next version.
        epsilon_micro: total ε of a device in one period, in millionths; of a node ε of one summary for adding or
            removing one record.
        mechanism: name of the mechanism that perturbs answers, or ``auto``; not read in a campaign for nodes.
        answers: r, the number of answers per device and period. Each answer spends ⌊``epsilon_micro``/r⌋ millionths.
        purpose, contact: sentences for the owner of a device or node. An empty purpose becomes a standard sentence.
        period_seconds: length of a period. A device answers, and a node sends a summary, at most once per period.
        lifetime_seconds: time from signing to expiry.
        min_batch_size: fewest reports or nodes from which estimates or models are published.
        postprocess: name of the method that makes probabilities from estimates or sums.
        options: options of the mechanism, for example ``theta`` of ``the``.
        family: ``discrete`` or ``gaussian``.
        approach: only for ``laplace`` in a Gaussian campaign: 1 asks for all moments at once, 3 for one; None is 3.
        variance_floor_micro: smallest variance of a scaled number, in millionths.
        split: the argument of :func:`group_weights`; None gives every question the same weight.
        class_question: whether devices are also asked for the class alone. False only for a discrete campaign whose
            post-processing combines the classes' shares of all questions.
        series: the series in which a device answers once, with the share of devices that this campaign asks, or None.
        ask: what devices are asked about; empty for all features (:mod:`aggregator.publishing.ask_table`).
        pilots: private results of pilots that the schema holds, and what they cost.
        nodes: terms of a campaign for nodes, or None. The schema then has exactly the features that are summed.
        masked: the terms of encrypted sums of nodes; None for sums in the clear.
        shared: the terms of answers that two collectors share, or None. The schema has exactly the asked features.
        evaluated: the models that a shared campaign evaluates besides asking about features.
        memory: number of renewals of the answers that devices keep, and ε of one report in millionths; None if they
            keep none. ``epsilon_micro`` is then that of one kept answer.
    """

    name: str
    epsilon_micro: int
    mechanism: str = AUTO
    answers: int = 1
    purpose: str = ""
    contact: str = "not stated"
    period_seconds: int = DAY_SECONDS
    lifetime_seconds: int = 30 * DAY_SECONDS
    min_batch_size: int = 1
    postprocess: str = DEFAULT
    options: Mapping[str, Any] = MappingProxyType({})
    family: str = DISCRETE
    approach: int | None = None
    variance_floor_micro: int = 10_000
    split: tuple[int, int, int] | None = None
    class_question: bool = True
    series: SeriesShare | None = None
    ask: Ask = MappingProxyType({})
    pilots: tuple[PilotCost, ...] = ()
    nodes: NodeTerms | None = None
    masked: MaskedTerms | None = None
    shared: SharedTerms | None = None
    evaluated: NamedModels = NO_MODELS
    memory: tuple[int, int] | None = None

    @property
    def life_micro(self) -> int:
        """The ε that the first answer pays in a campaign with memory, else that of one period, in millionths."""
        return self.epsilon_micro * (1 if self.memory is None else 1 + self.memory[0])

    @property
    def warning(self) -> str:
        """A warning if the total ε is above :data:`.privacy.HIGH_EPSILON_MICRO`; otherwise empty."""
        return epsilon_warning(self.life_micro)


def publish_campaign(workspace: Workspace, schema: Schema, parameters: CampaignParameters, now: int) -> bytes:
    """Build the next version of a campaign, check it, sign it, record it, and return its file.

    If the workspace has fewer keys than are needed, the file is a draft (:meth:`Workspace.publish`). Raises the errors
    of :func:`build_campaign` and :meth:`Workspace.publish`; ``expired`` is also about the workspace's trust root.
    """

    def payload_for(version: int, _before: bytes | None) -> bytes:
        return build_campaign(schema, parameters, version, now, begin_of(workspace, parameters.series, now))

    return workspace.publish("campaign", parameters.name, now, payload_for)


def build_campaign(
    schema: Schema, parameters: CampaignParameters, version: int, now: int, begins: int | None = None
) -> bytes:
    """Make the payload of one version of a campaign: the bytes to be signed.

    ``begins``: when the campaign's series (campaigns in which a device answers once in all) began, in seconds since
    1970; None for ``now``. Not read without a series.

    Raises InputError: a parameter has no valid value, or parameters contradict each other; the reason names which
    (docs/reference/reasons.md). Raises DocumentError: devices would refuse the finished payload, which is parsed once.
    """
    _check(schema, parameters)
    stated, features, questions = schema, schema.features, tuple[Question, ...]()
    if parameters.nodes is not None:
        _check_for_nodes(schema, parameters, parameters.nodes)
    elif parameters.shared is not None:
        _check_class_question(parameters, is_asked=False)
    else:
        asked = resolve(schema, parameters.ask)
        stated, features, questions = asked.stated, asked.schema.features, _questions(parameters, asked)
    if stated.asked_as and not questions:
        raise InputError("ask_invalid", "only devices that answer with noise are asked about joined features")
    series = parameters.series
    header = header_for(parameters.name, version, now, parameters.lifetime_seconds)
    return campaign.build_payload(
        header,
        stated,
        questions,
        epsilon_micro=parameters.epsilon_micro,
        purpose=parameters.purpose or f"learn to predict '{schema.label.name}' from {len(features)} features",
        contact=parameters.contact,
        time_precision=parameters.period_seconds,
        min_batch_size=parameters.min_batch_size,
        fit=campaign.Fit(parameters.family, parameters.postprocess, parameters.variance_floor_micro),
        series=None if series is None else series.since(now if begins is None else begins),
        pilots=parameters.pilots,
        nodes=parameters.nodes,
        masked=parameters.masked,
        shared=parameters.shared,
        model=parameters.evaluated.model,
        models=dict(zip(parameters.evaluated.names, parameters.evaluated.models, strict=True)),
        memory=_memory(parameters, header),
    )


def _memory(parameters: CampaignParameters, header: Header) -> Memory | None:
    """Return the terms of a campaign with memory; its stretches divide its periods as evenly as possible.

    Raises InputError ``memory_invalid``: the campaign is of a kind that can have none, or too many renewals.
    """
    if parameters.memory is None:
        return None
    renewals, report_micro = parameters.memory
    others = parameters.series, parameters.nodes, parameters.shared
    if parameters.answers != 1 or parameters.family != DISCRETE or any(one is not None for one in others):
        raise InputError(
            "memory_invalid", "only a discrete campaign of one answer, in no series, lets devices keep their answers"
        )
    length = parameters.period_seconds
    lived = (header.expires - 1) // length - header.not_before // length + 1
    if not 0 <= renewals <= min(MOST_RENEWALS, lived - 1):
        most = min(MOST_RENEWALS, lived - 1)
        raise InputError("memory_invalid", f"a kept answer is renewed 0 to {most} times in {lived} periods")
    return Memory(renewals, -(-lived // (1 + renewals)), report_micro)


def _check(schema: Schema, parameters: CampaignParameters) -> None:
    check_postprocess(parameters.postprocess)
    check_seen(schema, parameters.name)
    if not 1 <= parameters.lifetime_seconds <= MAX_DAYS * DAY_SECONDS:
        raise InputError("terms_invalid", f"a campaign lives for at most {MAX_DAYS} days")
    if not 1 <= parameters.period_seconds <= campaign.MAX_PERIOD_SECONDS:
        raise InputError("terms_invalid", f"a period has 1 to {campaign.MAX_PERIOD_SECONDS} seconds")


def _check_for_nodes(schema: Schema, parameters: CampaignParameters, terms: NodeTerms) -> None:
    if parameters.family not in (DISCRETE, GAUSSIAN):
        raise InputError("family_unknown", "a family is discrete or gaussian")
    if parameters.family == GAUSSIAN:
        if not schema.numeric:
            raise InputError("no_numbers", "a Gaussian model needs a numeric feature; this schema has none")
        if any(schema.groups and schema.groups[place] is not None for place in schema.numeric):
            raise InputError("ask_invalid", "a Gaussian campaign sums numbers, not bins; leave bins out")
    if type(terms.max_records) is not int or not 1 <= terms.max_records <= MAX_RECORDS:
        raise InputError("terms_invalid", f"the most records of a node are a whole number from 1 to {MAX_RECORDS}")
    if not 1 <= terms.least_epsilon_micro <= parameters.epsilon_micro:
        raise InputError("terms_invalid", "the least ε of a summary is above 0 and at most the campaign's ε")


def _questions(parameters: CampaignParameters, asked: AskedSchema) -> tuple[Question, ...]:
    """Return the questions of a campaign for devices, divided into strata (groups of which a device answers one)."""
    if parameters.family == GAUSSIAN and parameters.options:
        raise InputError("option_unknown", f"a Gaussian campaign has no option '{min(parameters.options)}'")
    _check_class_question(parameters, is_asked=parameters.class_question)
    subjects = _stated(
        campaign_subjects(
            asked.schema,
            parameters.family,
            parameters.mechanism,
            parameters.approach,
            class_question=parameters.class_question,
        ),
        asked,
    )
    if type(parameters.answers) is not int or not 1 <= parameters.answers <= len(subjects):
        raise InputError("answers_invalid", f"a device gives 1 to {len(subjects)} answers, one per question at most")
    if parameters.series is not None and parameters.answers != 1:
        raise InputError("series_invalid", "in a series a device gives one answer; say --answers one")
    per_answer = parameters.epsilon_micro // parameters.answers
    check_answer_micro(per_answer)
    # Devices keep answers of some mechanisms only.
    has_choice = parameters.memory is not None and parameters.mechanism == AUTO
    name = OR.join(KINDS) if has_choice else parameters.mechanism

    def mechanism(subject: Subject) -> Mechanism:
        if parameters.family == GAUSSIAN:
            return moment_mechanism(parameters.mechanism, per_answer, subject, len(asked.schema.numeric))
        return mechanism_for(name, per_answer, subject.size, **parameters.options)

    return build_questions(subjects, parameters.answers, mechanism, _weights(subjects, parameters, asked))


def _check_class_question(parameters: CampaignParameters, *, is_asked: bool) -> None:
    if not is_asked and parameters.postprocess in NEED_CLASS_QUESTION:
        raise InputError("not_fittable", f"'{parameters.postprocess}' needs the question about the class alone")


def _weights(subjects: Sequence[Subject], parameters: CampaignParameters, asked: AskedSchema) -> list[int] | None:
    """Return every question's weight, from a split or from shares of features; None if all are equal."""
    shared = any(share != 1 for share in asked.shares.values())
    if parameters.split is None and not shared:
        return None
    if parameters.split is not None and shared:
        raise InputError("weights_invalid", "give a split or shares of features, not both")
    if parameters.answers == len(subjects):
        raise InputError("weights_invalid", "weights say which questions are asked more often, but all are asked")
    if parameters.split is not None:
        return group_weights(subjects, parameters.split)
    features = [subject.feature for subject in subjects]
    common = lcm(*(features.count(feature) for feature in asked.shares))
    return [
        common if feature is None else asked.shares[feature] * common // features.count(feature) for feature in features
    ]


def check_seen(schema: Schema, name: str) -> None:
    """Raise ``schema_invalid`` for invisible characters in names, classes and values: two texts would look the same."""
    texts = [name, schema.label.name, *schema.label.classes]
    for feature in schema.features:
        texts += [feature.name, *(feature.values if isinstance(feature, Categorical) else ())]
    for text in texts:
        if is_printable(text) and not is_seen(text):
            raise InputError("schema_invalid", f"{quoted(text)} holds characters that show nothing; leave these out")


def campaign_subjects(
    schema: Schema, family: str, mechanism: str, approach: int | None = None, *, class_question: bool = True
) -> list[Subject]:
    """Return what each question of a campaign is about (its subject: the class, a cell, a moment), in order.

    ``schema``: label and the asked features. ``approach``: only for ``laplace`` in a Gaussian campaign: 1 asks for all
    moments at once, 3 for one; None is 3. ``class_question``: whether the class alone is a subject.

    Raises InputError: ``family_unknown``; ``mechanism_unknown``: a mechanism of the other family; ``approach_invalid``;
    for a Gaussian campaign ``no_numbers``, ``ask_invalid`` (bins in groups), ``not_fittable`` (no question about the
    class).
    """
    if family == GAUSSIAN and not class_question:
        raise InputError("not_fittable", "a Gaussian campaign needs the question about the class alone")
    if family == GAUSSIAN:
        if schema.asked_as:
            raise InputError("ask_invalid", "a Gaussian campaign joins no features; ask about each alone")
        if any(schema.groups and schema.groups[place] is not None for place in schema.numeric):
            raise InputError("ask_invalid", "a Gaussian campaign asks about numbers, not about bins; leave bins out")
        return gaussian_subjects(schema, form_of(mechanism, approach))
    if approach is not None:
        raise InputError("approach_invalid", "only laplace in a Gaussian campaign has an approach")
    if family != DISCRETE:
        raise InputError("family_unknown", "a family is discrete or gaussian")
    if is_numeric(mechanism):
        raise InputError("mechanism_unknown", f"{mechanism} perturbs numbers: it needs --family gaussian")
    subjects = discrete_subjects(schema)
    return subjects if class_question else [subject for subject in subjects if subject.kind != CLASS]


def _stated(subjects: Sequence[Subject], asked: AskedSchema) -> list[Subject]:
    """Return the questions' subjects with the features' indices in ``asked.stated.observed``, not ``asked.schema``."""
    places = sorted(asked.shares)
    every = len(asked.schema.numeric) == len(asked.stated.numeric)
    if not every and any(subject.kind == MOMENTS for subject in subjects):
        raise InputError(
            "ask_invalid",
            "this mechanism asks about all numbers at once; ask about all, or take another mechanism (laplace: "
            "approach 3)",
        )
    return [
        subject if subject.feature is None else subject._replace(feature=places[subject.feature])
        for subject in subjects
    ]


def group_weights(subjects: Sequence[Subject], split: tuple[int, int, int]) -> list[int]:
    """Return the weights of questions with which three groups of questions are asked in the proportion of ``split``.

    The groups are: classes and categories (no power), first moments, second moments. All questions of one group have
    the same weight. ``split``: one whole number from 1 to 10⁶ per group, else InputError ``weights_invalid``.
    """
    if len(split) != 3 or not all(type(part) is int and 0 < part <= 10**6 for part in split):
        raise InputError("weights_invalid", "a split is three positive whole numbers, for example 1:2:2")
    groups = [subject.power or 0 for subject in subjects]
    sizes = [groups.count(group) for group in range(3)]
    common = lcm(*(size for size in sizes if size))
    return [split[group] * common // sizes[group] for group in groups]


def gaussian_fields(family: str, variance_floor: str | None, split: str | None) -> dict[str, Any]:
    """Return the fields of :class:`CampaignParameters` that only Gaussian campaigns have. None adds no field.

    ``variance_floor``: decimal text from 0.000001 to 1, in units of the squared scaled number. ``split``: weights as
    ``A:B:C``, three whole numbers of at most seven digits.

    Raises InputError: ``floor_invalid``; ``weights_invalid``; ``family_unknown``: one is given and the family is
    discrete.
    """
    if family != GAUSSIAN and (variance_floor is not None or split is not None):
        raise InputError("family_unknown", "--variance-floor and --split belong to the family gaussian")
    fields: dict[str, Any] = {}
    if variance_floor is not None:
        fields["variance_floor_micro"] = _floor_micro(variance_floor)
    if split is not None:
        parts = split.split(":")
        if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 7 for part in parts):
            raise InputError("weights_invalid", "a split is three positive whole numbers, for example 1:2:2")
        fields["split"] = tuple(map(int, parts))
    return fields


def _floor_micro(text: str) -> int:
    """Return a variance, given as decimal text, in millionths. Refuse a text that is not from 0.000001 to 1."""
    micro = millionths(text)
    if micro is None or micro > MICRO:
        raise InputError("floor_invalid", "a variance floor is from 0.000001 to 1, with at most six decimal places")
    return micro


def parse_answers(text: str, questions: int, epsilon_micro: int) -> int:
    """Return the number of answers r, from ``one``, ``all``, ``auto`` or a number from 1 to d = ``questions``.

    ``auto`` is r = max(1, min(d, ⌊ε/2.5⌋)) for a total of ε = ``epsilon_micro``/10⁶ (Wang et al., ICDE 2019, section
    IV-A). Raises InputError ``answers_invalid`` for another text.
    """
    if text in ("one", "all"):
        return 1 if text == "one" else questions
    if text == "auto":
        return max(1, min(questions, epsilon_micro * 2 // (5 * MICRO)))
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= questions):
        raise InputError(
            "answers_invalid", f"answers is one, all, auto, or a number from 1 to {questions}, the number of questions"
        )
    return int(text)


def parse_duration(text: str) -> int:
    """Return the seconds of a duration: ``3600``, ``90m``, ``12h``, ``1d``, ``2w``.

    >>> parse_duration("12h")
    43200

    Raises InputError ``period_invalid``: another text, a number of more than ten digits, or zero.
    """
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    if not (number.isascii() and number.isdecimal() and len(number) <= 10 and int(number) > 0):
        raise InputError("period_invalid", "a period is a number of seconds, or one with a unit: 90m, 12h, 1d, 2w")
    return int(number) * _UNITS[unit]


def publish_evaluation(
    workspace: Workspace,
    models: bytes | Sequence[bytes],
    parameters: CampaignParameters,
    now: int,
    weights: Sequence[int] | None = None,
) -> bytes:
    """Sign a campaign that evaluates one model, or compares several, record it, and return its file.

    ``models``: the model's file, or the files of 1 to 16 models, which the workspace's root in force must accept. For
    one model the confusion matrix is asked for. ``parameters``: an empty name stands for the (first) model's with
    ``-outcome`` or, for several, ``-comparison``. ``weights``: shares of the answers, a positive integer for each of
    several models; None: equal. Raises InputError: ``models_invalid``: none or more than 16 models, one
    twice, or two of one name; ``schemas_differ``: the models have different labels; ``weights_invalid``;
    ``epsilon_invalid``; ``terms_invalid``. Raises DocumentError: a model or the campaign is refused
    (:func:`protocol.documents.trust.verify`).
    """
    named, accepted = evaluated_in(workspace, [models] if isinstance(models, bytes) else models, now)
    first = accepted[0]
    if weights is not None and (len(accepted) == 1 or parameters.shared is not None):
        raise InputError("weights_invalid", "weights are for several models, of which a device tells about one")
    if len(accepted) == 1:
        suffix, schema, subjects = "outcome", plain(first.schema), outcome_subjects(first.schema)
        purpose = f"find out how often model '{first.header.name}', version {first.header.version}, is right"
    else:
        suffix, schema, subjects = "comparison", _schema_of(accepted), right_subjects(len(accepted))
        purpose = _purpose(accepted)
    name = parameters.name or f"{first.header.name}-{suffix}"
    series, micro = parameters.series, parameters.epsilon_micro
    questions = tuple[Question, ...]()
    if parameters.shared is None:
        check_answer_micro(micro)
        questions = build_questions(subjects, 1, lambda subject: from_micro("direct", micro, subject.size), weights)

    def payload_for(version: int, _before: bytes | None) -> bytes:
        return campaign.build_payload(
            header_for(name, version, now, parameters.lifetime_seconds),
            schema,
            questions,
            epsilon_micro=parameters.epsilon_micro,
            purpose=purpose,
            contact=parameters.contact,
            time_precision=parameters.period_seconds,
            min_batch_size=parameters.min_batch_size,
            fit=campaign.Fit(campaign.EVALUATION, "none"),
            series=series and series.since(begin_of(workspace, series, now)),
            shared=parameters.shared,
            model=named.model,
            models=dict(zip(named.names, named.models, strict=True)),
        )

    return workspace.publish("campaign", name, now, payload_for)


def evaluated_in(workspace: Workspace, models: Sequence[bytes], now: int) -> tuple[NamedModels, list[Model]]:
    """Return how a campaign names the models that it evaluates, and the models. Raise the errors of their checks."""
    verdicts = [trust.verify(trust.pin(workspace.root_bytes, now), each, "model", now, UNDERSTOOD) for each in models]
    digests, accepted = [each.digest for each in verdicts], [parse_model(each.payload) for each in verdicts]
    _check_comparable(accepted, digests)
    if len(accepted) == 1:
        return NamedModels(digests[0]), accepted
    return NamedModels(None, tuple(digests), tuple(each.header.name for each in accepted)), accepted


def _check_comparable(models: Sequence[Model], digests: Sequence[bytes]) -> None:
    if not 1 <= len(models) <= MAX_MODELS:
        raise InputError("models_invalid", f"an evaluation is about 1 to {MAX_MODELS} models, not {len(models)}")
    names = [each.header.name for each in models]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if len(set(digests)) < len(models):
        raise InputError("models_invalid", f"the model {quoted(twice[0])} is named twice; name each model once")
    if twice:
        raise InputError(
            "models_invalid",
            f"two of the models are called {quoted(twice[0])}; a device keeps one model of each name, so publish them "
            "under different names (hearsay publish --name)",
        )
    for each in models[1:]:
        if each.schema.label.to_dict() != models[0].schema.label.to_dict():
            raise InputError(
                "schemas_differ",
                f"the models {quoted(names[0])} and {quoted(each.header.name)} have different labels or classes; "
                "compare models of one label",
            )


def _schema_of(models: Sequence[Model]) -> Schema:
    """Return a schema with the label and every feature of any model; a feature is as the first model defines it."""
    features: dict[str, Feature] = {}
    for each in models:
        for feature in each.schema.features:
            features.setdefault(feature.name, feature)
    return build_schema(models[0].schema.label, list(features.values()))


def _purpose(models: Sequence[Model]) -> str:
    """Return the purpose of a comparison in words; without the models' names where these are too long for a text."""
    names = ", ".join(f"'{each.header.name}' version {each.header.version}" for each in models)
    text = f"find out which of these models is right most often: {names}"
    return text if is_text(text) else f"find out which of {len(models)} models is right most often"


def evaluations_ended(workspace: Workspace, name: str, now: int) -> list[str]:
    """Return the names of running campaigns that evaluate an earlier version of the model ``name``, sorted.

    A device keeps only the newest version of a model, and no longer answers these campaigns. A campaign whose copy in
    the workspace is lost or damaged is left out.
    """
    history = workspace.history()
    *earlier, _ = [item.digest for item in history if (item.role, item.name) == ("model", name)] or [b""]
    newest = [item for item in latest_of_each(history) if item.role == "campaign"] if earlier else []
    found = []
    for item in newest:
        with suppress(StorageError, DocumentError):
            asked = campaign.parse_campaign(read_envelope(workspace.copy(item), "campaign").payload)
            if not set(earlier).isdisjoint(asked.evaluated) and not asked.ended and now < asked.header.expires:
                found.append(item.name)
    return found
