"""Open a store's folder: read its manifest and campaign, and remove files that a crash left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from aggregator.reports.storage.locking import TEMPORARY
from aggregator.reports.storage.manifest import FORGOTTEN, INPUTS, QUARANTINE, REPORTS, Manifest, damaged, read_manifest
from protocol.document import check_understood
from protocol.documents.campaign import UNDERSTOOD, Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.errors import DocumentError

CAMPAIGN_FILE = "campaign.hsc"


class Opened(NamedTuple):
    """A store's documents.

    Attributes:
        manifest: what the store consists of.
        campaign: the campaign whose reports the store holds.
        campaign_bytes: the signed campaign file.
    """

    manifest: Manifest
    campaign: Campaign
    campaign_bytes: bytes


def read_documents(folder: Path) -> Opened:
    """Read a store's manifest and campaign. Run by a store's operator and by a cluster's worker.

    Raises:
        StorageError: ``not_a_store``, ``store_newer``, ``store_older``, ``io_failed``; ``store_damaged``: the manifest
            was changed, or the campaign file is missing, not acceptable, or of another campaign.
    """
    manifest = read_manifest(folder)
    problem = ""
    try:
        raw = (folder / CAMPAIGN_FILE).read_bytes()
        campaign = read_campaign(raw)
    except OSError:
        problem = "its campaign file can not be read"
    except DocumentError as error:
        problem = f"its campaign file is not acceptable ({error.reason})"
    if problem:
        raise damaged(problem)
    if campaign.id != manifest.campaign:
        raise damaged("its campaign file is that of another campaign")
    return Opened(manifest, campaign, raw)


def read_campaign(raw: bytes) -> Campaign:
    """Parse the bytes of a signed campaign file. Signatures are not verified here: the caller has done so.

    Raises:
        DocumentError: ``malformed``, ``too_large``, ``wrong_role``, ``unsupported_version``, ``unknown_crit``,
            ``invalid_campaign``, ``epsilon_understated``.
    """
    campaign = parse_campaign(read_envelope(raw, "campaign").payload)
    check_understood(campaign.header, UNDERSTOOD)
    return campaign


def remove_orphans(folder: Path, manifest: Manifest) -> None:
    """Delete parts, side files and temporary files that the manifest does not name, for example after a crash.

    Folders, links and files of other kinds stay, since no store makes them. Nothing is deleted if a named file is
    missing: the manifest may then be an old copy, and the unnamed files may be the newer ones.

    Raises:
        StorageError: ``store_damaged``: a file that the manifest names is missing, or a folder of the store is a link.
        OSError: a folder can not be listed, or a file not deleted.
    """
    named = manifest.paths()
    found: set[str] = set()
    orphans: list[str] = []
    places = [f"{REPORTS}/bucket={bucket:02d}" for bucket in range(manifest.buckets)]
    for place in ("", REPORTS, *places, INPUTS, FORGOTTEN, QUARANTINE):
        endings = (".parquet", TEMPORARY) if place not in ("", QUARANTINE) else TEMPORARY
        for entry in _entries(folder, place):
            path = f"{place}/{entry.name}" if place else entry.name
            found.add(path)
            if path not in named and entry.name.endswith(endings) and entry.is_file(follow_symlinks=False):
                orphans.append(path)
    missing = named - found
    if missing:
        raise damaged(f"'{min(missing)}' is missing")
    for path in orphans:
        (folder / path).unlink()


def _entries(folder: Path, place: str) -> list[os.DirEntry[str]]:
    """The entries of a folder of the store; empty if the folder does not exist."""
    path = folder / place
    if place and path.is_symlink():
        # Files behind a link may belong to another program, and must not be deleted.
        raise damaged(f"'{place}' is a link in place of a folder")
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
