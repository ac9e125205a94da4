"""The models that campaigns evaluate, taken from the installed documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.documents.evaluation import evaluated_models, payloads_given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from edge_sdk.storage.documents import Documents
    from protocol.documents.campaign import Campaign
    from protocol.documents.evaluation import Evaluated


class Models:
    """Finds and runs the evaluated models of campaigns. ``now`` returns seconds since 1970."""

    def __init__(self, documents: Documents, now: Callable[[], int]) -> None:
        self._documents = documents
        self._now = now
        self._evaluated: dict[bytes, Evaluated] = {}

    def evaluated(self, campaign: Campaign, given: Iterable[bytes] = ()) -> tuple[Evaluated, ...]:
        """The models that ``campaign`` evaluates; empty if the campaign evaluates none, or has ended.

        A model is taken from ``given``, verified payloads of models, or else from the installed models.

        Raises:
            InputError: ``model_unknown``: a model is neither given nor installed, or another model is given.
            DocumentError: ``invalid_campaign``: campaign and model have different classes or names; ``malformed``,
                ``invalid_model``: a payload is no valid model.
        """
        if not campaign.evaluated:
            return ()
        payloads = payloads_given(campaign, given)
        return evaluated_models(campaign, lambda digest: payloads.get(digest) or self._payload(digest), self._evaluated)

    def _payload(self, digest: bytes) -> bytes | None:
        """The verified payload of the installed model with this digest; None if that model is not installed."""
        return self._documents.payload("model", digest)

    def predictor(self, campaign: Campaign, record: Mapping[str, object]) -> Callable[[int], int]:
        """A function: index of an evaluated, installed model → code of the class that it predicts for a record."""
        from edge_sdk.classifier import Classifier
        from protocol.documents.model import parse_model

        def predict(index: int) -> int:
            payload = self._payload(campaign.evaluated[index])
            assert payload is not None
            classifier = Classifier(parse_model(payload), self._now)
            return classifier.classes.index(classifier.predict(record))

        return predict
