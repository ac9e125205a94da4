"""The candidate models of a series: fitted once to the answers of the first rounds, signed, and kept.

A candidate that the workspace has signed before is taken from there. Its answers from several evaluations can only be
added up because it is the same model in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from aggregator.estimates.joining.fewer_features import of_features
from aggregator.estimates.source import newest_origin
from aggregator.planning.feature_selection.from_answers import Refined
from aggregator.publishing.history import latest_of_each
from aggregator.publishing.models import publish_model
from aggregator.publishing.workspace import Workspace
from protocol.documents.envelope import read_envelope
from protocol.documents.model import Model, parse_model
from protocol.errors import InputError
from protocol.shown import quoted


def sign_candidates(workspace: Workspace, refined: Refined, campaigns: Sequence[bytes], now: int) -> dict[str, bytes]:
    """The signed models of the candidates that ``refined`` wants evaluated.

    Args:
        workspace: the workspace that signed the campaigns. A model of a candidate's name that it holds is returned
            unchanged.
        refined: a step of the kind ``evaluate``.
        campaigns: the files of all campaigns that asked about features.
        now: seconds since 1970.

    Returns:
        Name of each candidate → the bytes of its ``.hsm`` file, in the order in which they are evaluated.

    Raises:
        InputError: ``refine_invalid``: the workspace has another model of a candidate's name.
        InputError, PolicyError, DocumentError, StorageError: a model can not be made or signed
            (:func:`aggregator.publishing.models.publish_model`).
    """
    assert refined.statistics is not None
    wanted = {source.origin.id for source in refined.statistics.sources}
    files = [file for file in campaigns if sha256(read_envelope(file, "campaign").payload).digest() in wanted]
    known = {item.name: item for item in latest_of_each(workspace.history()) if item.role == "model"}
    found: dict[str, bytes] = {}
    for name, features in refined.candidates.items():
        if name in known:
            found[name] = workspace.copy(known[name])
            _check_candidate(parse_model(read_envelope(found[name], "model").payload), refined, features)
        else:
            chosen = of_features(refined.statistics, features)
            found[name] = publish_model(workspace, chosen, files, now, name=name, foretell=None)
    return found


def _check_candidate(model: Model, refined: Refined, features: Sequence[str]) -> None:
    """Refuse a model that bears a candidate's name and was not made by :func:`sign_candidates` for this series.

    A second version is refused too: devices may have answered about the first.

    Raises:
        InputError: ``refine_invalid``.
    """
    assert refined.statistics is not None
    read = {feature.name for feature in model.schema.observed}
    origin = newest_origin(refined.statistics.sources).id
    if model.header.version != 1 or read != set(features) or model.campaign != origin:
        raise InputError(
            "refine_invalid",
            f"the workspace has another model named {quoted(model.header.name)}, so this candidate can not have that "
            "name; begin the series anew under another name",
        )
