"""The fields of a campaign's payload that name the models to evaluate, and the checks of these fields.

The models themselves, as a device has them, are read in :mod:`protocol.documents.evaluation`.

Source: docs/formats.md, section 5 (evaluations).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.document import is_text, read_field
from protocol.errors import DocumentError
from protocol.questions import RIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.questions import Question

MAX_MODELS = 16
"""Most models that one campaign may compare."""
_REASON = "invalid_campaign"
_DIGEST_BYTES = 32


class NamedModels(NamedTuple):
    """The models that a campaign names. No model is read.

    Attributes:
        model: digest of the model whose confusion matrix is asked for; None if there is none.
        models: digests of the models that are compared, in the order of their indices; empty if there are none.
        names: names of the compared models, in the same order.
    """

    model: bytes | None = None
    models: tuple[bytes, ...] = ()
    names: tuple[str, ...] = ()


def named_fields(model: bytes | None, models: Mapping[str, bytes]) -> dict[str, Any]:
    """The fields of a payload that name the evaluated models; empty if no model is evaluated.

    Args:
        model: digest of the model whose confusion matrix is asked for; None if there is none.
        models: name of each compared model → its digest, in the order of the questions; empty if there are none.
    """
    fields: dict[str, Any] = {} if model is None else {"model": model}
    return fields | ({"models": list(models.values()), "model_names": list(models)} if models else {})


def read_named(body: dict[str, Any], crit: Sequence[str], *, evaluates: bool) -> NamedModels:
    """Read the fields of a campaign's payload ``body`` that name the evaluated models.

    Args:
        body: the payload.
        crit: the keys that a reader must understand.
        evaluates: whether the campaign's family is ``outcome``. Other campaigns name no model.

    Raises:
        DocumentError: ``invalid_campaign``: the family, ``crit`` and the fields do not fit together, or a digest or
            name is wrong or repeated.
    """
    several = "models" in body
    if several != ("models" in crit) or several != ("model_names" in body) or (several and "model" in body):
        raise DocumentError(_REASON, "'models', 'model_names' and the entry 'models' of 'crit' come together, or none")
    if not evaluates:
        if several or "model" in body:
            raise DocumentError(_REASON, "it names a model but does not evaluate one")
        return NamedModels()
    if not several:
        digest = read_field(body, "model", bytes, _REASON)
        _check_digest(digest)
        return NamedModels(digest)
    digests, names = (read_field(body, key, list, _REASON) for key in ("models", "model_names"))
    for digest in digests:
        _check_digest(digest)
    if not 2 <= len(set(digests)) == len(digests) <= MAX_MODELS:
        raise DocumentError(_REASON, f"it does not compare 2 to {MAX_MODELS} distinct models")
    if not all(map(is_text, names)) or not len(set(names)) == len(names) == len(digests):
        raise DocumentError(_REASON, "the models' names are no texts, not distinct, or not one for each model")
    return NamedModels(None, tuple(digests), tuple(names))


def _check_digest(digest: object) -> None:
    if not isinstance(digest, bytes) or len(digest) != _DIGEST_BYTES:
        raise DocumentError(_REASON, "an evaluated model is not named by a SHA-256 digest")


def check_compared(questions: Sequence[Question], models: int, answers: int) -> None:
    """Check the questions of a campaign that compares models, unless the campaign has ended.

    Args:
        questions: all questions of the campaign.
        models: number of compared models; 0 if the campaign compares none.
        answers: answers of a device in one period.

    Raises:
        DocumentError: ``invalid_campaign``: a question about the wrong number of models, a model without a question or
            with two, or more than one answer.
    """
    asked = [question.subject.model for question in questions]
    kinds = {question.kind == RIGHT for question in questions}
    if kinds - {models > 0}:
        raise DocumentError(_REASON, "a question compares models, or asks for one model's errors, where it may not")
    if models and questions and (answers != 1 or sorted(place or 0 for place in asked) != list(range(models))):
        raise DocumentError(_REASON, "it does not ask one question about each model, of which a device answers one")
