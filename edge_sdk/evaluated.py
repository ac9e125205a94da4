"""The model that an evaluation campaign names: what it reads of a record is what the campaign asks about.

The campaign's own list of features decides nothing there: the prediction is the answer, and it comes from
the features of the model. So whoever judges, explains or answers such a campaign parses the model first.
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
        campaign: accepted, or about to be.
        payload: of the model, verified; None if the device has not got it.

    Raises:
        InputError: ``model_unknown``, it is not there, or is another one than the campaign names;
        DocumentError: ``invalid_campaign``, its classes are not the model's; as ``parse_model``.
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
