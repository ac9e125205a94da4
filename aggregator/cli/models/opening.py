"""The model that a command's arguments name, with its signature checked where a trust root is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from protocol.errors import InputError

if TYPE_CHECKING:
    from aggregator.models.scoring import Model


def open_model(given: Path, trust: Path | None, workspace: Path | None) -> Model:
    """Load the model. Its signature is checked if a trust root or a workspace is given.

    Args:
        given: a model file or, with a workspace, also a name, NAME@VERSION or id.
        trust: a trust root file, or None.
        workspace: a workspace folder, or None.

    Raises:
        InputError: ``trust_ambiguous``: both are given; ``file_not_found``, ``unreadable``, ``too_large``;
            ``model_unknown``: the workspace has no model of that name or id.
        DocumentError: the file is no valid model, or the root does not accept it.
        StorageError: the workspace can not be opened or read.
    """
    from aggregator.common.files import read_file
    from aggregator.models.scoring import Model
    from aggregator.publishing.naming import document_bytes
    from aggregator.publishing.workspace import open_workspace
    from protocol.documents.envelope import SIZE_LIMITS, read_envelope
    from protocol.documents.model import parse_model

    if trust is not None and workspace is not None:
        raise InputError("trust_ambiguous", "give --trust or --workspace, not both")
    signer = None if workspace is None else open_workspace(workspace)
    raw = document_bytes("model", given, signer)
    if signer is not None:
        return Model.verified(raw, signer.root_bytes)
    if trust is not None:
        return Model.verified(raw, read_file(trust, SIZE_LIMITS["root"]))
    return Model.of(parse_model(read_envelope(raw, "model").payload))
