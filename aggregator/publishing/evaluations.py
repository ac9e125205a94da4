"""Making a campaign that evaluates published models, and finding those that a newer model ends. Run by the analyst.

One model: a device that has a labelled record and the model answers with the pair (true class, predicted class),
perturbed by ``direct`` (GRR, k-ary randomised response). Several models: a device that has all of them answers with one
bit, perturbed likewise: whether the model that its id assigns is right. The record and the true label do not leave the
device. Source: docs/math.md, section 3 (outcome, right).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.publishing.history import latest_of_each
from aggregator.publishing.lifetimes import header_for
from aggregator.publishing.series import SeriesShare, begin_of
from protocol.document import DAY_SECONDS, Header, is_text
from protocol.documents import campaign, trust
from protocol.documents.envelope import read_envelope
from protocol.documents.model import UNDERSTOOD, parse_model
from protocol.documents.named_models import MAX_MODELS
from protocol.epsilon import check_answer_micro
from protocol.errors import DocumentError, InputError, StorageError
from protocol.features import Feature
from protocol.mechanisms import from_micro
from protocol.questions import build_questions, outcome_subjects, right_subjects
from protocol.schema import Schema, build_schema
from protocol.shown import quoted

if TYPE_CHECKING:
    from aggregator.publishing.workspace import Workspace


class EvaluationParameters(NamedTuple):
    """The parameters of an evaluation campaign.

    All fields but the first two have the meaning that they have in
    :class:`aggregator.publishing.campaigns.CampaignParameters`.

    Attributes:
        epsilon_micro: ε of the one answer that a device gives in a period, in millionths.
        name: name of the campaign; by default the model's name with ``-outcome``, of several models the first one's
            with ``-comparison``.
        weights: positive integers, one for each of several models; equal by default. A model's weight is its share of
            the answers.
    """

    epsilon_micro: int
    name: str | None = None
    contact: str = "not stated"
    period_seconds: int = DAY_SECONDS
    lifetime_seconds: int = 30 * DAY_SECONDS
    min_batch_size: int = 1
    series: SeriesShare | None = None
    weights: tuple[int, ...] | None = None


class _Accepted(NamedTuple):
    """A model that the workspace's keys signed."""

    digest: bytes
    header: Header
    schema: Schema


def publish_evaluation(
    workspace: Workspace, models: bytes | Sequence[bytes], parameters: EvaluationParameters, now: int
) -> bytes:
    """Sign a campaign that evaluates one model, or compares several, and record it.

    Args:
        workspace: the workspace that signs. Its root in force must accept the models.
        models: the model's file, or the files of 1 to 16 models. Of one model the confusion matrix is asked for.
        parameters: the other parameters.
        now: seconds since 1970, the time of issue.

    Returns:
        The bytes of the ``.hsc`` file.

    Raises:
        DocumentError: a model lacks signatures of the workspace's model keys, or is out of date
            (:func:`protocol.documents.trust.verify`); ``invalid_model``; the campaign can not be signed.
        InputError: ``models_invalid``: none or more than 16 models, one twice, or two of one name; ``schemas_differ``:
            the models have different labels; ``weights_invalid``; ``epsilon_invalid``, ``size_invalid``;
            ``terms_invalid``: the lifetime is less than a day; and as :meth:`Workspace.publish`.
        StorageError: the workspace can not be read or written (:meth:`Workspace.publish`).
    """
    check_answer_micro(parameters.epsilon_micro)
    files = [models] if isinstance(models, bytes) else list(models)
    accepted = [_accepted(workspace, file, now) for file in files]
    _check_comparable(accepted)
    first = accepted[0]
    if len(accepted) == 1:
        if parameters.weights is not None:
            raise InputError("weights_invalid", "weights are for several models")
        suffix, schema, subjects = "outcome", first.schema, outcome_subjects(first.schema)
        asked: dict[str, Any] = {"model": first.digest}
        purpose = f"find out how often model '{first.header.name}', version {first.header.version}, is right"
    else:
        suffix, schema, subjects = "comparison", _schema_of(accepted), right_subjects(len(accepted))
        asked = {"models": {each.header.name: each.digest for each in accepted}}
        purpose = _purpose(accepted)
    name = f"{first.header.name}-{suffix}" if parameters.name is None else parameters.name
    series = parameters.series
    questions = build_questions(
        subjects, 1, lambda subject: from_micro("direct", parameters.epsilon_micro, subject.size), parameters.weights
    )

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
            **asked,
        )

    return workspace.publish("campaign", name, now, payload_for)


def _accepted(workspace: Workspace, file: bytes, now: int) -> _Accepted:
    verdict = trust.verify(trust.pin(workspace.root_bytes, now), file, "model", now, UNDERSTOOD)
    model = parse_model(verdict.payload)
    return _Accepted(verdict.digest, model.header, model.schema)


def _check_comparable(models: Sequence[_Accepted]) -> None:
    """Refuse models that no device could compare, before a campaign uses up a version."""
    if not 1 <= len(models) <= MAX_MODELS:
        raise InputError("models_invalid", f"an evaluation is about 1 to {MAX_MODELS} models, not {len(models)}")
    names = [each.header.name for each in models]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if len({each.digest for each in models}) < len(models):
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


def _schema_of(models: Sequence[_Accepted]) -> Schema:
    """The label, and every feature that one of the models reads, as the first model that reads it defines it."""
    features: dict[str, Feature] = {}
    for each in models:
        for feature in each.schema.features:
            features.setdefault(feature.name, feature)
    return build_schema(models[0].schema.label, list(features.values()))


def _purpose(models: Sequence[_Accepted]) -> str:
    """The purpose of a comparison in words; without the models' names where these are too long for a text."""
    names = ", ".join(f"'{each.header.name}' version {each.header.version}" for each in models)
    text = f"find out which of these models is right most often: {names}"
    return text if is_text(text) else f"find out which of {len(models)} models is right most often"


def evaluations_ended(workspace: Workspace, name: str, now: int) -> list[str]:
    """Names of running campaigns that evaluate an earlier version of a model, alone or among others, sorted.

    A device keeps only the newest version of a model. With a newer version it no longer answers these campaigns. A
    campaign whose copy in the workspace is lost or damaged is left out.

    Args:
        workspace: the workspace that signed the model and the campaigns.
        name: name of the model.
        now: seconds since 1970.

    Raises:
        StorageError: ``workspace_damaged``, ``workspace_newer``: the history can not be read.
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
