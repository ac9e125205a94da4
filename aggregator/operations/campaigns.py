"""Make campaigns in Python: the work of the commands between reading options and printing.

A command and its function write the same bytes. ``now`` is seconds since 1970 (None: the present), ``workspace`` an
open workspace or its folder, and a document the bytes of a file, its path, or a name or id that the workspace knows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from aggregator.cards.guarantee import GuaranteeSheet
from aggregator.cards.guarantee import guarantee_sheet as sheet_of
from aggregator.collectors.campaigns import shared_evaluation
from aggregator.collectors.pair import Pair
from aggregator.collectors.sheet import shared_guarantee
from aggregator.common.files import read_file
from aggregator.planning.power_analysis.families import FamilyChoice, choose_family, reason_of
from aggregator.planning.power_analysis.plan import Plan
from aggregator.publishing import endings
from aggregator.publishing.campaigns import (
    CampaignParameters,
    StatedTerms,
    campaign_subjects,
    parse_answers,
    parse_duration,
    publish_campaign,
    publish_evaluation,
)
from aggregator.publishing.decisions import Decision, keep
from aggregator.publishing.mechanisms.choice import Candidate, candidates, choose
from aggregator.publishing.naming import Document, SignedCampaign, document_bytes, opened
from aggregator.publishing.privacy import epsilon_warning, first_cost_warning, pace_warning, refusal_warning
from aggregator.publishing.schemas.schema_doubts import alike_in
from aggregator.publishing.schemas.schema_file import SchemaFile
from aggregator.publishing.series import overlap_warning, series_share
from aggregator.publishing.signatures import DOCUMENTS, Verified, follow_roots, seconds_of, verify_signed
from aggregator.publishing.workspace import Workspace
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope, role_of
from protocol.epsilon import micro_epsilon
from protocol.errors import InputError
from protocol.schema import Schema


class Planned(NamedTuple):
    """A campaign that can be signed.

    ``why``: the mechanisms that ``auto`` compared, the chosen one first. ``warnings``, ``notes``: sentences for the
    signer. ``forecast``: the plan by which ``auto`` chose the family, or None. ``decision``: what ``hearsay design`` or
    ``refine`` wrote into the schema file; empty if the campaign asks about other features.
    """

    schema: Schema
    terms: CampaignParameters
    why: tuple[Candidate, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    forecast: Plan | None = None
    decision: Decision = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class CampaignTerms(StatedTerms):
    """What the publisher of a campaign for devices states. ``hearsay campaign --help`` says more of each field.

    Attributes:
        mechanism: name of the mechanism, or ``auto``.
        answers: how many answers a device gives in one period: ``one``, ``all``, ``auto`` or a number.
        family: ``discrete``, ``gaussian``, or ``auto``
            (:func:`aggregator.planning.power_analysis.families.choose_family`).
        pilot, devices: only where ``auto`` chooses the family: records with their label, as a CSV file or a table of
            text (None assumes an effect); and the number of devices.
        approach: 1 or 3, only for ``laplace`` in a Gaussian campaign.
        theta: threshold of the mechanism ``the``, as decimal text.
        split: only for a Gaussian campaign (:func:`aggregator.publishing.campaigns.gaussian_fields`).
        class_question: whether devices are also asked for the class alone (:class:`.CampaignParameters`).
        series: name of the series in which a device answers once, in all its campaigns, versions and periods.
        share: share of the devices in the series that this campaign asks, ``FROM:TO`` (:func:`series_share`).
        memory: how often a device renews the answer that it keeps, or None for devices that keep none.
        report_epsilon: ε of one report of a kept answer by itself; None for half of ``epsilon``.
    """

    mechanism: str
    answers: str | int = "one"
    family: str = "discrete"
    pilot: str | Path | pd.DataFrame | None = None
    devices: int | None = None
    approach: int | None = None
    theta: str | None = None
    split: str | None = None
    class_question: bool = True
    series: str | None = None
    share: str | None = None
    memory: int | None = None
    report_epsilon: str | float | None = None

    def kept(self, micro: int) -> tuple[int, int] | None:
        """Return renewals and ε of one report in millionths; ``micro``: the ε of one kept answer."""
        if self.memory is None:
            if self.report_epsilon is not None:
                raise InputError("memory_invalid", "the ε of one report is for devices that keep their answers")
            return None
        return self.memory, micro // 2 if self.report_epsilon is None else micro_epsilon(self.report_epsilon)


def plan_campaign(schema: SchemaFile | Schema | str | Path, **stated: Any) -> Planned:
    """Decide the whole content of a campaign without signing it.

    ``schema``: a schema file, its path, or a schema, which needs a ``name``. ``stated``: the fields of
    :class:`CampaignTerms`, else TypeError. Raises InputError: a file can not be read, there is no name, a term is out
    of its range, or ``auto`` can not choose.
    """
    terms = CampaignTerms(**stated)
    subject = terms.subject(schema)
    asked = subject.asked.schema
    joint = len(asked.numeric) == len(subject.schema.numeric)
    micro = micro_epsilon(terms.epsilon)
    family, mechanism, approach, answers, found = choose_family(
        asked,
        FamilyChoice(terms.family, terms.mechanism, terms.approach, terms.answers),
        epsilon=terms.epsilon,
        devices=terms.devices,
        pilot=terms.pilot,
        postprocess=terms.postprocess,
        fixed=(terms.theta, terms.approach, terms.variance_floor, terms.split),
        class_question=terms.class_question,
        ask=subject.ask,
    )
    chosen = choose(asked, family, mechanism, approach, micro, joint=joint)
    why = () if chosen is None else tuple(candidates(asked, micro, joint=joint))
    if chosen is not None:
        family, mechanism, approach = chosen.family, chosen.mechanism, chosen.approach
    questions = len(campaign_subjects(asked, family, mechanism, approach, class_question=terms.class_question))
    parameters = terms.parameters(subject, family, terms.split)._replace(
        mechanism=mechanism,
        answers=parse_answers(str(answers), questions, micro),
        class_question=terms.class_question,
        options={} if terms.theta is None else {"theta": terms.theta},
        approach=approach,
        series=series_share(terms.series, terms.share),
        ask=subject.ask,
        memory=terms.kept(micro),
    )
    notes = () if found is None else (reason_of(found),)
    warnings = (parameters.warning, _pace(parameters), refusal_warning(asked), alike_in(asked))
    shown = tuple(filter(None, warnings))
    return Planned(subject.schema, parameters, why, shown, notes, found, terms.decision(subject))


def sign_campaign(workspace: Workspace | str | Path, planned: Planned, *, now: int | None = None) -> SignedCampaign:
    """Sign a planned campaign as the next version of its name, and record it in the workspace.

    What ``hearsay design`` or ``refine`` decided is kept beside it, for the cards of its models. Raises InputError,
    DocumentError, StorageError: as of :func:`aggregator.publishing.campaigns.publish_campaign`.
    """
    signer = opened(workspace)
    made = _signed(signer, publish_campaign(signer, planned.schema, planned.terms, present(now)), now)
    keep(signer.path, made.campaign.id, planned.decision)
    return replace(made, why=planned.why, warnings=(*planned.warnings, *made.warnings))


def make_campaign(
    workspace: Workspace | str | Path,
    schema: SchemaFile | Schema | str | Path,
    *,
    now: int | None = None,
    **stated: Any,
) -> SignedCampaign:
    """``hearsay campaign``: plan a campaign (:func:`plan_campaign`), sign it as the next version, and record it."""
    return sign_campaign(workspace, plan_campaign(schema, **stated), now=now)


def end_campaign(workspace: Workspace | str | Path, name: str, *, now: int | None = None) -> SignedCampaign:
    """``hearsay campaign --end``: sign the last version of the campaign with this name or id, which ends it.

    Raises InputError: ``campaign_unknown``: there is no such campaign; ``campaign_ended``: it has ended already. Raises
    InputError, DocumentError, StorageError: the version can not be signed or recorded.
    """
    signer = opened(workspace)
    return _signed(signer, endings.end_campaign(signer, name, present(now)), now)


def make_evaluation(
    workspace: Workspace | str | Path,
    model: Document | Sequence[Document],
    *,
    epsilon: str | float,
    name: str | None = None,
    contact: str = "not stated",
    period: str | int = "1d",
    days: int = 30,
    min_batch_size: int = 1,
    series: str | None = None,
    share: str | None = None,
    weights: Sequence[int] | None = None,
    pair: Pair | str | Path | None = None,
    delta: str | float = "0",
    noise: str | None = None,
    now: int | None = None,
) -> SignedCampaign:
    """``hearsay evaluate ask``: sign the campaign that asks devices how often a model, or each of several, is right.

    Raises InputError: a term is out of its range; ``models_invalid``, ``schemas_differ``, ``weights_invalid``: models
    that can not be compared, or wrong weights. Raises InputError, DocumentError, StorageError: a model can not be read
    or is not accepted, or the campaign can not be signed (:func:`aggregator.publishing.campaigns.publish_evaluation`).

    Args:
        workspace: the workspace that signed the models.
        model: the signed model, or a list of 1 to 16. For one model the campaign asks for the confusion matrix. For
            several, each device tells of one of them whether it is right.
        epsilon: ε of the answer of a device in one period.
        name: name of the campaign; by default the (first) model's with ``-outcome``, for several ``-comparison``.
        contact, period, days, min_batch_size, series, share: arguments of :func:`plan_campaign`.
        weights: shares of the answers, a positive integer for each of several models; equal by default.
        pair, delta, noise: of two collectors (:class:`aggregator.collectors.campaigns.SharedCampaignTerms`), to whom
            each device tells about all models; None for answers with noise of their own.
    """
    signer = opened(workspace)
    micro = micro_epsilon(epsilon)
    parameters = CampaignParameters(
        name or "",
        micro,
        contact=contact,
        period_seconds=parse_duration(str(period)),
        lifetime_seconds=seconds_of(days),
        min_batch_size=min_batch_size,
        series=series_share(series, share),
    )
    documents = [model] if isinstance(model, bytes | str | Path) else model
    models = [document_bytes("model", each, signer) for each in documents]
    if pair is not None:
        parameters = parameters._replace(shared=shared_evaluation(pair, delta, noise, models, micro))
    elif (delta, noise) != ("0", None):
        raise InputError("argument_invalid", "delta and noise are of two collectors; give their pair")
    raw = publish_evaluation(signer, models, parameters, present(now), weights)
    made = _signed(signer, raw, now)
    return replace(made, warnings=tuple(filter(None, (epsilon_warning(micro), _pace(parameters), *made.warnings))))


def guarantee_sheet(
    campaign: Document,
    *,
    workspace: Workspace | str | Path | None = None,
    devices: int | None = None,
    records: float | None = None,
    delta: float = 1e-6,
    shuffled: bool = False,
    liars: Sequence[float] = (0.01, 0.05),
) -> GuaranteeSheet:
    """``hearsay guarantee``: return what a campaign promises, and what lies can do. Signatures are not checked.

    ``to_json()`` of the sheet is what the command prints with ``--json``. ``workspace``: the one that knows the
    campaign's name; None if ``campaign`` is a file. The other arguments, and ``argument_invalid``, are those of
    :func:`aggregator.cards.guarantee.guarantee_sheet`; a shared campaign has ``devices`` alone. Raises InputError,
    DocumentError, StorageError: the campaign or the workspace can not be read.
    """
    raw = document_bytes("campaign", campaign, None if workspace is None else opened(workspace))
    payload = read_envelope(raw, "campaign").payload
    found = parse_campaign(payload)
    if found.shared is not None:
        if shuffled or records is not None:
            raise InputError("argument_invalid", "shuffled and records are not about shared campaigns")
        return shared_guarantee(found, devices=devices)
    return sheet_of(payload, devices=devices, records=records, delta=delta, shuffled=shuffled, liars=liars)


def verify(document: Document, trust: Document, *, newer: Sequence[Document] = (), now: int | None = None) -> Verified:
    """``hearsay verify``: check a trust root, campaign, model or node list as a device does.

    Signatures, dates and every value are checked. Only the command checks summaries of nodes and files of dealers.
    ``trust``: bytes or path of the trust root, which is trusted without a check. ``newer``: newer roots, in any order,
    followed one by one from ``trust``; the last root that is reached decides. Raises InputError ``unknown_file``: it is
    no such document; or a file can not be read. Raises DocumentError: devices would refuse it
    (:func:`aggregator.publishing.signatures.verify_signed`), or the roots do not follow from one another
    (:func:`aggregator.publishing.signatures.follow_roots`).
    """
    raw = document if isinstance(document, bytes) else read_file(document, max(SIZE_LIMITS.values()))
    role = role_of(raw)
    if role not in DOCUMENTS:
        raise InputError("unknown_file", "it is no trust root, campaign, model or node list")
    first, *rest = (document_bytes("root", each, None) for each in (trust, *newer))
    moment = present(now)
    return verify_signed(follow_roots(first, rest, moment), raw, role, moment)


def present(now: int | None) -> int:
    """Return the time ``now`` in seconds since 1970; the clock's time if ``now`` is None."""
    return int(time.time()) if now is None else now


def _pace(parameters: CampaignParameters) -> str:
    """Return a warning if devices skip periods under their default limits; empty if not, and for a series."""
    if parameters.memory is not None:
        return first_cost_warning(parameters.life_micro)
    if parameters.series is not None:
        return ""
    return pace_warning(parameters.epsilon_micro, parameters.period_seconds, parameters.lifetime_seconds)


def _signed(signer: Workspace, raw: bytes, now: int | None) -> SignedCampaign:
    """Return the signed campaign ``raw``, with a warning if other campaigns of its series ask the same devices."""
    parsed = parse_campaign(read_envelope(raw, "campaign").payload)
    overlap = overlap_warning(signer, parsed, present(now))
    return SignedCampaign(raw, parsed, signer.standing("campaign", raw), warnings=(overlap,) if overlap else ())
