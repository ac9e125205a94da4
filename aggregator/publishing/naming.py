"""Documents that a workspace signed, by name or id where a file would do.

A command takes a file; where it has a workspace, what is no file may be

    mushrooms          the newest version of that name that asks anything
    mushrooms@2        a version of it
    56475aa75463474c   an id in hexadecimal, 8 digits of it or more
    four-words-of-it   an id as ``to_words`` says it
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.files import read_file
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.errors import InputError
from protocol.words import to_words

if TYPE_CHECKING:
    from aggregator.publishing.history import Published
    from aggregator.publishing.workspace import Workspace

LEAST_DIGITS = 8
_HEXADECIMAL = frozenset("0123456789abcdef")


def document_bytes(role: str, given: str | Path, workspace: Workspace | None) -> bytes:
    """A signed file by its path or, of a workspace, by name or id. A path that is there comes first.

    Args:
        role: ``campaign`` or ``model``.
        given: what the user said.
        workspace: whose names and ids are known; None for files alone.

    Raises:
        InputError: ``file_not_found``, ``unreadable``, ``too_large``; ``campaign_unknown``, ``model_unknown``:
            the workspace has none of that name or id.
        StorageError: as :meth:`Workspace.history` and :meth:`Workspace.copy`.
    """
    if workspace is None or Path(given).exists():
        return read_file(given, SIZE_LIMITS[role])
    return workspace.copy(find_document(workspace, role, str(given)))


def find_document(workspace: Workspace, role: str, given: str) -> Published:
    """What the workspace signed under a name or id; of equals the first of the list above.

    Raises:
        InputError: ``campaign_unknown``, ``model_unknown``, also where an id's digits begin several ids.
    """
    signed = [item for item in workspace.history() if item.role == role]
    name, mark, version = given.rpartition("@")
    found = _asking(workspace, [item for item in signed if item.name == given])
    found = found or [item for item in signed if mark and item.name == name and str(item.version) == version]
    found = found or _by_id(signed, given)
    if found:
        return found[0]
    from aggregator.tables import shorten  # with pandas, which only a refusal may wait for

    names = shorten(sorted({item.name for item in signed})) or "none"
    problem = f"there is no file of that name, and the workspace signed no such {role}; it signed: {names}"
    if role == "campaign":
        raise InputError("campaign_unknown", problem)
    raise InputError("model_unknown", problem)


def _asking(workspace: Workspace, versions: list[Published]) -> list[Published]:
    """Versions of one name, the newest first; behind all others those that only end a campaign."""
    newest = sorted(versions, key=lambda item: item.version, reverse=True)
    if not newest or newest[0].role != "campaign":
        return newest
    for item in newest:
        if not parse_campaign(read_envelope(workspace.copy(item), "campaign").payload).ended:
            return [item]
    return newest


def _by_id(signed: list[Published], given: str) -> list[Published]:
    digits = given.lower()
    begun = (
        [item for item in signed if item.digest.hex().startswith(digits)]
        if len(digits) >= LEAST_DIGITS and _HEXADECIMAL.issuperset(digits)
        else [item for item in signed if to_words(item.digest) == given]
    )
    return begun if len(begun) == 1 else []
