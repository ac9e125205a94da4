"""Where a dealer may be: on a machine of its own, and never in one folder tree with a workspace or a store.

Whoever has the dealer's keys and the parties' ciphertexts can decrypt every party's numbers. That the dealer's folder
is apart from workspaces and stores is what software can check. That the machine is another one is up to people.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from aggregator.reports.storage.manifest import FILE_NAME as STORE_FILE
from aggregator.reports.storage.manifest import SUMMARIES_FILE
from protocol.database import machine_ids
from protocol.errors import InputError

_MACHINE_TAG = b"hearsay/1/dealer-machine"
_MOST_FOLDERS = 10_000


def machine_mark() -> bytes:
    """32 bytes that differ between machines and do not reveal the machine's ids; equal on all machines without ids."""
    return sha256(_MACHINE_TAG + machine_ids()).digest()


def check_place(folder: Path) -> None:
    """Refuse a dealer's folder that is a workspace or store, is inside of one, or contains one. Links are followed.

    The current folder of the process may not be, or be inside of, a workspace or store either.

    Raises:
        InputError: ``dealer_in_workspace``.
    """
    real, current = Path(os.path.realpath(folder)), Path.cwd()
    for place in (real, *real.parents, current, *current.parents, *_below(real)):
        kind = _kind(place)
        if kind:
            raise InputError(
                "dealer_in_workspace",
                f"'{place}' is {kind}, and whoever has that and the dealer's keys can decrypt every party's numbers; "
                "keep the dealer on another machine",
            )


def _below(folder: Path) -> Iterator[Path]:
    """Folders inside of a folder, at most :data:`_MOST_FOLDERS`."""
    for count, (place, _, _) in enumerate(os.walk(folder)):
        if count >= _MOST_FOLDERS:
            return
        yield Path(place)


def _kind(place: Path) -> str:
    """What a folder is, in words; empty if it is neither a workspace nor a store."""
    if (place / "root.hst").is_file() and (place / "keys").is_dir():
        return "a publisher's workspace"
    if (place / SUMMARIES_FILE).is_file() or ((place / STORE_FILE).is_file() and (place / "reports").is_dir()):
        return "an aggregator's store"
    return ""
