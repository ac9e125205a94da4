"""Making a campaign that evaluates a published model, and finding those that a newer model ends. Run by the analyst.

A device that has a labelled record and the model answers with the pair (true class, predicted class), perturbed by
``direct`` (GRR, k-ary randomised response). The record and the true label do not leave the device.
Source: docs/math.md, section 3 (outcome).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from aggregator.publishing.history import latest_of_each
from aggregator.publishing.lifetimes import header_for
from aggregator.publishing.series import begin_of
from protocol.document import DAY_SECONDS
from protocol.documents import campaign, trust
from protocol.documents.envelope import read_envelope
from protocol.documents.model import UNDERSTOOD, parse_model
from protocol.epsilon import check_answer_micro
from protocol.errors import DocumentError, StorageError
from protocol.mechanisms import from_micro
from protocol.questions import build_questions, outcome_subjects

if TYPE_CHECKING:
    from aggregator.publishing.series import SeriesShare
    from aggregator.publishing.workspace import Workspace


class EvaluationParameters(NamedTuple):
    """The parameters of an evaluation campaign.

    All fields but the first two have the meaning that they have in
    :class:`aggregator.publishing.campaigns.CampaignParameters`.

    Attributes:
        epsilon_micro: ε of the one answer that a device gives in a period, in millionths.
        name: name of the campaign; by default the model's name with ``-outcome``.
    """

    epsilon_micro: int
    name: str | None = None
    contact: str = "not stated"
    period_seconds: int = DAY_SECONDS
    lifetime_seconds: int = 30 * DAY_SECONDS
    min_batch_size: int = 1
    series: SeriesShare | None = None


def publish_evaluation(workspace: Workspace, model_bytes: bytes, parameters: EvaluationParameters, now: int) -> bytes:
    """Sign a campaign that evaluates a model, and record it.

    Args:
        workspace: the workspace that signs. Its root in force must accept the model.
        model_bytes: the model's file.
        parameters: the other parameters.
        now: seconds since 1970, the time of issue.

    Returns:
        The bytes of the ``.hsc`` file.

    Raises:
        DocumentError: the model lacks signatures of the workspace's model keys, or is out of date
            (:func:`protocol.documents.trust.verify`); ``invalid_model``; the campaign can not be signed.
        InputError: ``epsilon_invalid``, ``size_invalid``; ``terms_invalid``: the lifetime is less than a day; and as
            :meth:`Workspace.publish`.
        StorageError: the workspace can not be read or written (:meth:`Workspace.publish`).
    """
    check_answer_micro(parameters.epsilon_micro)
    verdict = trust.verify(trust.pin(workspace.root_bytes, now), model_bytes, "model", now, UNDERSTOOD)
    model = parse_model(verdict.payload)
    name = parameters.name or f"{model.header.name}-outcome"
    series = parameters.series
    subjects = outcome_subjects(model.schema)
    questions = build_questions(
        subjects, 1, lambda subject: from_micro("direct", parameters.epsilon_micro, subject.size)
    )

    def payload_for(version: int, _before: bytes | None) -> bytes:
        return campaign.build_payload(
            header_for(name, version, now, parameters.lifetime_seconds),
            model.schema,
            questions,
            epsilon_micro=parameters.epsilon_micro,
            purpose=f"find out how often model '{model.header.name}', version {model.header.version}, is right",
            contact=parameters.contact,
            time_precision=parameters.period_seconds,
            min_batch_size=parameters.min_batch_size,
            fit=campaign.Fit(campaign.EVALUATION, "none"),
            model=verdict.digest,
            series=series and series.since(begin_of(workspace, series, now)),
        )

    return workspace.publish("campaign", name, now, payload_for)


def evaluations_ended(workspace: Workspace, name: str, now: int) -> list[str]:
    """Names of running campaigns that evaluate an earlier version of a model, sorted.

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
            if asked.model in earlier and not asked.ended and now < asked.header.expires:
                found.append(item.name)
    return found
