"""The history of a workspace: one entry per signed document. The next version of a name follows from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from aggregator.common.files import read_file
from protocol.errors import StorageError

HISTORY_FORMAT = 1
MAX_HISTORY_BYTES = 64 << 20


class Published(NamedTuple):
    """One entry of a workspace's history: a document that was signed.

    Attributes:
        role: campaign, model or nodes, a node list.
        name, version: name and version of the document.
        digest: SHA-256 of the payload; for a campaign that is its id.
        issued_at: seconds since 1970.
    """

    role: str
    name: str
    version: int
    digest: bytes
    issued_at: int


def history_bytes(items: list[Published]) -> bytes:
    """The content of a history file with the entries ``items``: JSON text as bytes."""
    documents = [{**item._asdict(), "digest": item.digest.hex()} for item in items]
    return json.dumps({"format": HISTORY_FORMAT, "documents": documents}, ensure_ascii=False, indent=1).encode()


def read_history(path: Path) -> list[Published]:
    """The entries of a history file, oldest first. A missing file is an error: an empty history would reuse versions.

    Raises:
        StorageError: ``workspace_damaged``: the file is missing, unreadable, above :data:`MAX_HISTORY_BYTES` or
            malformed; ``workspace_newer``: newer software wrote it.
    """
    items: list[Published] = []
    newer = False
    try:
        body = json.loads(read_file(path, MAX_HISTORY_BYTES))
        newer = body["format"] > HISTORY_FORMAT
        items = [
            Published(
                str(entry["role"]),
                str(entry["name"]),
                int(entry["version"]),
                bytes.fromhex(entry["digest"]),
                int(entry["issued_at"]),
            )
            for entry in body["documents"]
        ]
        if not newer:
            return items
    except (ValueError, KeyError, TypeError):
        pass
    if newer:
        raise StorageError("workspace_newer", "the history was written by newer software; update this one")
    raise StorageError("workspace_damaged", f"'{path.name}' is missing or can not be read; restore it from a backup")


def latest_of_each(items: list[Published]) -> list[Published]:
    """The newest of the documents ``items`` for every role and name, sorted by role, then by name."""
    newest: dict[tuple[str, str], Published] = {}
    for item in items:
        known = newest.get((item.role, item.name))
        if known is None or item.version > known.version:
            newest[item.role, item.name] = item
    return [newest[each] for each in sorted(newest)]
