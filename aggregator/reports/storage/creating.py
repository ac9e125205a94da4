"""Make the folder of a new store: its campaign file and its first manifest."""

from __future__ import annotations

from pathlib import Path

from aggregator.common.files import storage_errors, sync_folder
from aggregator.reports.storage.locking import LOCK_FILE, LOCK_TIMEOUT_SECONDS, exclusive, write_durably
from aggregator.reports.storage.manifest import (
    FILE_NAME,
    MANIFEST_MISSING,
    Manifest,
    damaged,
    noted_generation,
    write_manifest,
)
from aggregator.reports.storage.opening import CAMPAIGN_FILE
from protocol.documents.campaign import Campaign
from protocol.errors import StorageError


def create_folder(folder: Path, campaign: Campaign, campaign_bytes: bytes, buckets: int) -> None:
    """Make the folder of a new store. If a manifest is there already, nothing is changed, and no campaign compared.

    Args:
        folder: a folder that is absent, empty, or a store. Missing folders above it are made, too.
        campaign: the campaign whose reports the store will hold.
        campaign_bytes: the signed file of ``campaign``.
        buckets: into how many buckets the store is divided.

    Raises:
        StorageError: ``not_a_store``: the path is a file, or a folder that holds something else; ``store_damaged``: a
            store without its manifest; ``store_busy``, ``disk_full``, ``io_failed``.
    """
    with storage_errors(f"the store at '{folder}' can not be made"):
        if folder.exists() and not folder.is_dir():
            raise StorageError("not_a_store", f"'{folder}' is a file")
        if (folder / FILE_NAME).exists():
            return
        _check_unused(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / LOCK_FILE, LOCK_TIMEOUT_SECONDS):
            if not (folder / FILE_NAME).exists():
                sync_folder(folder.parent)
                write_durably(folder / CAMPAIGN_FILE, campaign_bytes)
                write_manifest(folder, Manifest(campaign.id, buckets))


def _check_unused(folder: Path) -> None:
    """Refuse to make a store among other files, except for the files of an interrupted attempt."""
    names = {entry.name.removesuffix(".tmp") for entry in folder.iterdir()} if folder.is_dir() else set()
    if not names <= {LOCK_FILE, CAMPAIGN_FILE, FILE_NAME}:
        if noted_generation(folder):
            raise damaged(MANIFEST_MISSING)
        raise StorageError("not_a_store", f"'{folder}' holds other files; choose a new folder")
