"""Shared campaigns: signed orders by which devices split an exact record for two collectors. Run by the publisher.

Source: docs/formats.md, section 5 (map ``shared``); docs/math.md, section 9.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from aggregator.collectors.noise import better_noise
from aggregator.collectors.pair import MAX_BYTES, Pair, read_pair
from aggregator.common.files import read_file
from aggregator.estimates.sums import OF_SUMS
from aggregator.publishing.campaigns import StatedTerms, evaluated_in, publish_campaign
from aggregator.publishing.decisions import keep
from aggregator.publishing.naming import Document, SignedCampaign, document_bytes, opened
from aggregator.publishing.privacy import refusal_warning
from aggregator.publishing.schemas.schema_doubts import alike_in
from aggregator.publishing.schemas.schema_file import SchemaFile
from aggregator.publishing.series import overlap_warning, series_share
from aggregator.publishing.workspace import Workspace
from protocol.documents.asked import NO_MODELS, NamedModels
from protocol.documents.campaign import DISCRETE, EVALUATION, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.documents.shared_terms import (
    GAUSSIAN,
    MAX_CELLS,
    MAX_DELTA_PICO,
    NOISES,
    SharedTerms,
    best_chunk,
    shared_subjects,
)
from protocol.epsilon import pico_delta
from protocol.errors import InputError
from protocol.questions import Subject
from protocol.schema import Schema

SMALLEST_BATCH = 100
"""Default of the fewest accepted reports of a total. In an open fleet it protects nobody: made-up devices fill it."""


@dataclass(frozen=True, kw_only=True)
class SharedCampaignTerms(StatedTerms):
    """What the publisher of a shared campaign states. ``hearsay collector campaign --help`` says more of each field.

    Further fields are those of every campaign (:class:`aggregator.publishing.campaigns.StatedTerms`).

    Attributes:
        epsilon: ε of one report, for changing the device's record.
        pair: the file of the two collectors, or what was read from it.
        delta: δ for changing the record, at most 0.001; 0 means Laplace noise.
        noise: ``laplace`` or ``gaussian``; None means the kind with the smaller variance at ε and δ.
        evaluate: signed models that devices also tell about: one for its confusion matrix, or up to 16.
        series: name of the series in which a device answers once, in all its campaigns, versions and periods.
        share: share of the devices in the series that this campaign asks, ``FROM:TO``.
    """

    pair: Pair | str | Path
    delta: str | float = "0"
    noise: str | None = None
    min_batch_size: int = SMALLEST_BATCH
    postprocess: str = OF_SUMS
    evaluate: Document | Sequence[Document] = ()
    series: str | None = None
    share: str | None = None


def make_shared_campaign(
    workspace: Workspace | str | Path,
    schema: SchemaFile | Schema | str | Path,
    *,
    now: int | None = None,
    **stated: Any,
) -> SignedCampaign:
    """``hearsay collector campaign``: sign the next version of a shared campaign, and record it in the workspace.

    Args:
        schema: a schema file, its path, or a schema, which then needs a ``name``.
        now: the time of issue in seconds since 1970; None means the present time.
        stated: the fields of :class:`SharedCampaignTerms`; ``epsilon`` and ``pair`` are required.

    Raises:
        InputError: a file can not be read; ``collectors_invalid``, ``name_invalid``, ``epsilon_invalid``,
            ``delta_invalid``, ``ask_invalid``, ``period_invalid``, ``terms_invalid``, ``postprocess_unknown``.
        InputError, DocumentError, StorageError: the campaign can not be signed or recorded (:meth:`Workspace.publish`).
    """
    terms = SharedCampaignTerms(**stated)
    subject = terms.subject(schema)
    if any(share != 1 for share in subject.asked.shares.values()):
        raise InputError("ask_invalid", "a shared answer is about every feature, so shares make no difference")
    asked = subject.asked.schema
    parameters = terms.parameters(subject, DISCRETE)._replace(series=series_share(terms.series, terms.share))
    signer = opened(workspace)
    moment = int(time.time()) if now is None else now
    documents = [terms.evaluate] if isinstance(terms.evaluate, bytes | str | Path) else terms.evaluate
    named = NO_MODELS
    if documents:
        named, models = evaluated_in(signer, [document_bytes("model", each, signer) for each in documents], moment)
        if models[0].schema.label.to_dict() != asked.label.to_dict():
            raise InputError("schemas_differ", "the evaluated models have another label than the schema")
    blocks = shared_subjects(asked, DISCRETE, named)
    shared = shared_terms(terms.pair, blocks, parameters.epsilon_micro, delta=terms.delta, noise=terms.noise)
    raw = publish_campaign(signer, asked, parameters._replace(shared=shared, evaluated=named), moment)
    made = parse_campaign(read_envelope(raw, "campaign").payload)
    keep(signer.path, made.id, terms.decision(subject))
    warnings = tuple(filter(None, (refusal_warning(asked), alike_in(asked), overlap_warning(signer, made, moment))))
    return SignedCampaign(raw, made, signer.standing("campaign", raw), warnings=warnings)


def shared_evaluation(
    pair: Pair | str | Path, delta: str | float, noise: str | None, models: Sequence[bytes], epsilon_micro: int
) -> SharedTerms:
    """Return the terms of a campaign in which devices only tell about these signed models, each about all of them.

    The other arguments are fields of :class:`SharedCampaignTerms`. Raises the errors of :func:`shared_terms`.
    """
    digests = tuple(sha256(each).digest() for each in models)
    named = NamedModels(digests[0]) if len(models) == 1 else NamedModels(None, digests)
    schema = parse_model(read_envelope(models[0], "model").payload).schema
    blocks = shared_subjects(schema, EVALUATION, named)
    return shared_terms(pair, blocks, epsilon_micro, delta=delta, noise=noise)


def checked_delta(delta_pico: int) -> int:
    """Return δ in 10^−12 if two collectors may state it; else raise InputError ``delta_invalid``."""
    if not 0 <= delta_pico <= MAX_DELTA_PICO:
        raise InputError("delta_invalid", "δ is 0, or from 1e-12 to 0.001")
    return delta_pico


def shared_terms(
    pair: Pair | str | Path,
    blocks: Sequence[Subject],
    epsilon_micro: int,
    *,
    delta: str | float = "0",
    noise: str | None = None,
) -> SharedTerms:
    """Return the terms of a shared campaign with these blocks; the other arguments are as of a campaign's terms.

    Raises:
        InputError: ``collectors_invalid``, or the file can not be read; ``delta_invalid``; ``terms_invalid``: no such
            noise, or more than :data:`MAX_CELLS` cells; ``epsilon_invalid``: ε is below two millionths for each block.
    """
    two = pair if isinstance(pair, Pair) else read_pair(read_file(pair, MAX_BYTES))
    cells = sum(subject.size for subject in blocks)
    if not 1 <= cells <= MAX_CELLS:
        raise InputError(
            "terms_invalid",
            f"a record has {cells} cells (pairs of a value and a class); 1 to {MAX_CELLS} can be shared",
        )
    if epsilon_micro < 2 * len(blocks):
        raise InputError("epsilon_invalid", "ε is below two millionths for each feature and evaluated model")
    delta_pico = checked_delta(pico_delta(delta))
    kind = better_noise(len(blocks), epsilon_micro, delta_pico) if noise is None else noise
    if kind not in NOISES or ((kind == GAUSSIAN) != bool(delta_pico) and noise is not None):
        raise InputError("terms_invalid", "noise is laplace, without δ, or gaussian, with a δ")
    stated = delta_pico if kind == GAUSSIAN else 0
    return SharedTerms(two.collectors, two.salt, two.verify_key, best_chunk(cells), kind, stated)
