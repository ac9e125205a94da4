"""Making a model file: fit the store's statistics, write down how it was made, sign.

Source: docs/formats.md, section 5 (model); docs/math.md, section 4.
"""

from __future__ import annotations

from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Any

from aggregator.models.discrete import fit
from protocol.document import DAY_SECONDS, Header
from protocol.epsilon import format_micro
from protocol.model import DiscreteModel, build_payload

if TYPE_CHECKING:
    from aggregator.publishing.workspace import Workspace
    from aggregator.statistics import Statistics
    from protocol.campaign import Campaign

DEFAULT_LIFETIME_SECONDS = 365 * DAY_SECONDS
THREATS = (
    "Each answer is ε-locally private by itself, whoever reads it. The numbers are only as good as the devices: "
    "whoever controls many devices, or sends invented reports, can move them."
)
INTERVALS = "95 % intervals cover noise and sampling; see hearsay estimate. The model's own probabilities carry none."


def publish_model(
    workspace: Workspace,
    statistics: Statistics,
    campaign_bytes: bytes,
    now: int,
    *,
    postprocess: str | None = None,
    name: str | None = None,
    lifetime_seconds: int = DEFAULT_LIFETIME_SECONDS,
) -> bytes:
    """Fit, sign and record the next version of a model. Run by the operator.

    Args:
        statistics: of a store.
        campaign_bytes: the store's signed campaign, which this workspace must have signed.
        now: seconds since 1970.
        postprocess: how estimates become probabilities; the campaign's own choice by default.
        name: the campaign's by default.
        lifetime_seconds: after it the model still classifies, and says that it is old.

    Returns:
        The bytes of the ``.hsm`` file.

    Raises:
        PolicyError, InputError: ``batch_too_small``; ``postprocess_unknown``, ``not_fittable``.
        DocumentError: ``bad_signature``, the campaign is not of this workspace; ``too_large``.
        StorageError: as :meth:`Workspace.publish`.
    """
    workspace.check_signed(campaign_bytes)
    statistics.check_publishable()
    campaign = statistics.campaign
    postprocess = postprocess or campaign.fit.get("postprocess", "simplex")
    log_prior, log_likelihood = fit(statistics, postprocess)
    name = name or campaign.header.name

    def payload_for(version: int, before: bytes | None) -> bytes:
        return build_payload(
            DiscreteModel(
                header=Header(name, version, now, now, now + lifetime_seconds),
                campaign=campaign.id,
                schema=campaign.schema,
                log_prior=tuple(log_prior.tolist()),
                log_likelihood=tuple(tuple(map(tuple, table.tolist())) for table in log_likelihood),
                statistics_id=statistics.tally.statistics_id,
                previous=before,
                card=model_card(statistics, postprocess),
            )
        )

    return workspace.publish("model", name, now, payload_for)


def model_card(statistics: Statistics, postprocess: str) -> dict[str, Any]:
    """Facts about how a model was made: integers and text only, since payloads carry no floats."""
    campaign = statistics.campaign
    return {
        "answers_per_device": campaign.answers,
        "campaign_name": campaign.header.name,
        "epsilon_per_answer": format_micro(campaign.epsilon_per_answer_micro),
        "epsilon_total": format_micro(campaign.epsilon_micro),
        "estimator": "unbiased counts from the campaign's integer probabilities",
        "intervals": INTERVALS,
        "mechanisms": mechanism_names(campaign),
        "postprocess": postprocess,
        "purpose": campaign.purpose,
        "rejected": {reason: int(count) for reason, count in sorted(statistics.rejected.items()) if count},
        "reports": int(statistics.reports),
        "software": f"hearsay {installed_version('hearsay')}",
        "threats": THREATS,
    }


def mechanism_names(campaign: Campaign) -> list[str]:
    """The mechanisms that a campaign's questions use, sorted."""
    return sorted({question.mechanism.name for question in campaign.questions})
