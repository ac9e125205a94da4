"""Records of decisions in a workspace: ``decisions/ID.toml``, where ID is the campaign's id in hexadecimal digits."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aggregator.common.files import read_file, storage_errors, write_output
from aggregator.estimates.source import Source
from aggregator.publishing.decisions.record import Decision, bounded, decision_text, parse_decision
from protocol.errors import InputError, StorageError

FOLDER = "decisions"
_MOST_FILE_BYTES = 1 << 17


def keep(workspace: Path, campaign: bytes, decision: Decision) -> None:
    """Write the record of a campaign that was made from a file with a decision. Without a record nothing is written.

    Args:
        workspace: the workspace's folder.
        campaign: id of the campaign, 32 bytes.
        decision: the record; may be empty.

    Raises:
        StorageError: ``disk_full``, ``io_failed``: the file can not be written.
    """
    if not decision:
        return
    with storage_errors(f"'{workspace / FOLDER}' could not be made"):
        (workspace / FOLDER).mkdir(exist_ok=True)
    write_output(_file(workspace, campaign), decision_text(decision).encode(), force=True)


def kept(workspace: Path, campaign: bytes) -> dict[str, Any]:
    """The record of a campaign; empty if there is none.

    Raises:
        StorageError: ``workspace_damaged``: the file of the record can not be read.
    """
    path = _file(workspace, campaign)
    if not path.is_file():
        return {}
    problem = ""
    try:
        return parse_decision(tomllib.loads(read_file(path, _MOST_FILE_BYTES).decode()).get("decision"))
    except InputError as error:
        problem = error.detail
    except (ValueError, RecursionError):  # UnicodeDecodeError and TOMLDecodeError are ValueErrors.
        problem = "it is not TOML"
    raise StorageError(
        "workspace_damaged",
        f"'{FOLDER}/{path.name}' can not be used: {problem}; restore or delete it",
    )


def kept_of(workspace: Path, sources: Sequence[Source]) -> dict[str, Any]:
    """The record of the campaign that was issued last, of those that have one; the table ``steps`` names the others.

    Args:
        workspace: the workspace's folder.
        sources: the sources of statistics; a curator's has no record.

    Raises:
        StorageError: ``workspace_damaged``: the file of a record can not be read.
    """
    origins = sorted((source.origin for source in sources), key=lambda origin: (origin.issued_at, origin.id))
    pairs = [(origin, kept(workspace, origin.id)) for origin in origins]
    found = [(origin, record) for origin, record in pairs if record]
    if not found:
        return {}
    earlier = [
        {"campaign": f"{origin.name}, version {origin.version}", "why": str(record.get("why", ""))}
        for origin, record in found[:-1]
    ]
    return bounded({**found[-1][1], **({"steps": earlier} if earlier else {})})


def _file(workspace: Path, campaign: bytes) -> Path:
    return workspace / FOLDER / f"{campaign.hex()}.toml"
