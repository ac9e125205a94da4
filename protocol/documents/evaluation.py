"""The models of an evaluation campaign, as a device has them: which are missing, and what the others read.

An evaluation asks whether models' predictions are right. A prediction depends on the model's features, so the campaign
asks about these, and not about the features that it lists itself. The models are therefore read before such a campaign
is judged, explained or answered. Source: docs/formats.md, section 5 (evaluations).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.digest import sha256
from protocol.documents.model import parse_model
from protocol.documents.named_models import MAX_MODELS
from protocol.errors import DocumentError, InputError
from protocol.shown import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from protocol.document import Header
    from protocol.documents.campaign import Campaign
    from protocol.schema import Check, Schema


class Evaluated(NamedTuple):
    """A model that a campaign evaluates, without its parameters: a device may have 16 models of 4 MiB each.

    Attributes:
        header: name, version and dates of the model.
        schema: label and features that the model reads.
    """

    header: Header
    schema: Schema


def missing_models(campaign: Campaign, payload_of: Callable[[bytes], bytes | None]) -> tuple[str, ...]:
    """The models that a campaign evaluates and a device does not have, as texts; empty for a campaign that has ended.

    Args:
        campaign: a verified campaign.
        payload_of: digest of a model → its verified payload; None if the device has no such model.

    Returns:
        The name of each missing model, or the first 16 hexadecimal digits of its digest where the campaign states no
        name.
    """
    if campaign.ended:
        return ()
    names = campaign.model_names or tuple(digest.hex()[:16] for digest in campaign.evaluated)
    return tuple(name for name, digest in zip(names, campaign.evaluated, strict=True) if payload_of(digest) is None)


def evaluated_models(
    campaign: Campaign, payload_of: Callable[[bytes], bytes | None], read: dict[bytes, Evaluated]
) -> tuple[Evaluated, ...]:
    """The models that a campaign evaluates, in the order of their indices; empty if there are none, or it has ended.

    Args:
        campaign: a verified campaign.
        payload_of: digest of a model → its verified payload; None if the device has no such model.
        read: digest → model, of models that were read before. Models that are read now are added; at most
            ``MAX_MODELS`` are kept. Reading a model takes longer than all the rest of a report.

    Raises:
        InputError: ``model_unknown``: the device lacks one of the models.
        DocumentError: ``invalid_campaign``: a model has other classes than the campaign, or another name than the
            campaign states; ``malformed``, ``invalid_model``: a payload is no valid model.
    """
    if campaign.ended:
        return ()
    missing = missing_models(campaign, payload_of)
    if missing:
        raise InputError("model_unknown", _missing_text(campaign, missing))
    found = []
    for place, digest in enumerate(campaign.evaluated):
        model = read.get(digest)
        if model is None:
            parsed = parse_model(payload_of(digest) or b"")
            model = read[digest] = Evaluated(parsed.header, parsed.schema)
        if model.schema.label.classes != campaign.schema.label.classes:
            raise DocumentError("invalid_campaign", "its classes are not those of the model that it evaluates")
        if campaign.model_names and campaign.model_names[place] != model.header.name:
            raise DocumentError("invalid_campaign", "it evaluates a model under another name than the model's own")
        found.append(model)
    while len(read) > MAX_MODELS:
        del read[next(iter(read))]
    return tuple(found)


def _missing_text(campaign: Campaign, missing: Sequence[str]) -> str:
    """Why nobody can say what the campaign asks, and what to do."""
    ended = "this campaign is over here: its publisher can ask about the newer version"
    if not campaign.models:
        return (
            "the campaign evaluates a model that is not installed here, and what it asks about is what that model "
            "reads; install that very model first (to explain, give it by --model). If a newer version of it is "
            f"installed, {ended}"
        )
    return (
        f"the campaign compares {len(campaign.models)} models, and these are not installed here in the version that it "
        f"names: {', '.join(map(quoted, missing))}; only a device that has all of them takes part. Install them first "
        f"(to explain, give each by --model). If a newer version of one is installed, {ended}"
    )


def payloads_given(campaign: Campaign, given: Iterable[bytes]) -> dict[bytes, bytes]:
    """Digest → payload of models that are given to explain a campaign.

    Args:
        campaign: a verified campaign.
        given: verified payloads of models.

    Raises:
        InputError: ``model_unknown``: the campaign evaluates models, but not one of those given.
    """
    found = {sha256(payload).digest(): payload for payload in given}
    if campaign.evaluated and not campaign.ended and not found.keys() <= set(campaign.evaluated):
        raise InputError("model_unknown", "the campaign evaluates another model than the one that was given")
    return found


def schema_read(campaign: Campaign, evaluated: Sequence[Evaluated]) -> Schema:
    """The label and features that are read of a record. In an evaluation the features are those of all its models.

    A feature that several models read is there once for each of them: models may define it differently.
    """
    if not evaluated:
        return campaign.schema
    return campaign.schema._replace(features=tuple(feature for model in evaluated for feature in model.schema.features))


def named_once(check: Check) -> Check:
    """The check of a record with every name and hint once: models may define one feature differently."""
    missing, unlisted, hints = (tuple(dict.fromkeys(names)) for names in (check.missing, check.unlisted, check.hints))
    return check._replace(missing=missing, unlisted=unlisted, hints=hints)
