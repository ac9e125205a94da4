"""The model that an evaluation campaign names.

An evaluation asks whether a model's prediction is right. The prediction depends on the model's features, so the
campaign asks about these, and not about the features that it lists itself. The model is therefore parsed before such a
campaign is judged, explained or answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.digest import sha256
from protocol.documents.model import parse_model
from protocol.errors import DocumentError, InputError

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.documents.model import Model


def evaluated_model(campaign: Campaign, payload: bytes | None) -> Model | None:
    """The model that a campaign evaluates; None if the campaign asks for no prediction.

    Args:
        campaign: a verified campaign.
        payload: the verified payload of the model; None if the device has no such model.

    Raises:
        InputError: ``model_unknown``, there is no payload, or the campaign names another model;
        DocumentError: ``invalid_campaign``, the campaign and the model have different classes; as ``parse_model``.
    """
    if campaign.model is None or campaign.ended:
        return None
    if payload is None:
        raise InputError(
            "model_unknown",
            "the campaign evaluates a model that is not installed here, and what it asks about is what that model "
            "reads; install the model first, or to explain the campaign give the model with it",
        )
    if sha256(payload).digest() != campaign.model:
        raise InputError("model_unknown", "the campaign evaluates another model than the one that was given")
    model = parse_model(payload)
    if model.schema.label.classes != campaign.schema.label.classes:
        raise DocumentError("invalid_campaign", "its classes are not those of the model that it evaluates")
    return model
