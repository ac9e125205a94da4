"""Making and opening stores of nodes' envelopes (signed summaries or masked messages, as the campaign says)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from aggregator.common.files import storage_errors, sync_folder
from aggregator.nodes.store.database import Database
from aggregator.nodes.store.envelope_store import EnvelopeStore
from aggregator.nodes.store.masked import MaskedStore
from aggregator.nodes.store.node_list import needed, newer_list
from aggregator.nodes.store.summaries import NodeStore
from aggregator.reports.intake.remote import all_unreadable
from aggregator.reports.intake.sources import check_folder, expand
from aggregator.reports.storage.manifest import SUMMARIES_FILE, read_campaign
from protocol.documents.campaign import Campaign
from protocol.errors import InputError, StorageError

Kind = TypeVar("Kind", bound=EnvelopeStore)
_FILES = {SUMMARIES_FILE, f"{SUMMARIES_FILE}-journal"}
"""Names of the files that a store's folder may hold."""


def is_node_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder is a store of nodes' envelopes, and not one of reports."""
    return (Path(path) / SUMMARIES_FILE).exists()


def kind_of(campaign: Campaign) -> type[NodeStore | MaskedStore]:
    """Return the class of store for a campaign for nodes: of masked messages if it is masked, else of summaries."""
    return NodeStore if campaign.masked is None else MaskedStore


def make_envelope_store(kind: type[Kind], path: str | os.PathLike[str], campaign_bytes: bytes) -> Kind:
    """Make a store for a campaign, or open the existing store of the same campaign.

    ``path`` is a folder that is absent, empty, or a store of this campaign; missing folders above it are made, too. The
    caller must have verified the signatures of ``campaign_bytes``. An existing store keeps its own file of the
    campaign. Raises InputError: ``campaign_for_devices``; ``store_not_folder``: the path is a URL; ``campaign_masked``,
    ``campaign_not_masked``: the campaign belongs to another kind. Raises DocumentError: the campaign is not acceptable.
    Raises StorageError: ``other_campaign``; ``not_a_store``: the path is a file, or a folder with other files; also the
    reasons of :func:`open_envelope_store`.
    """
    check_folder(path)
    folder = Path(path)
    campaign = read_campaign(campaign_bytes)
    if campaign.nodes is None:
        raise InputError("campaign_for_devices", "the campaign asks devices; its reports go into a store of reports")
    kind.check(campaign)
    with storage_errors(f"the store at '{folder}' can not be made"):
        if folder.exists() and not folder.is_dir():
            raise StorageError("not_a_store", f"'{folder}' is a file")
        if folder.is_dir() and not {entry.name for entry in folder.iterdir()} <= _FILES:
            raise StorageError("not_a_store", f"'{folder}' holds other files; choose a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    with closing(Database(folder, make=True)) as database, database.transaction():
        if database.document("campaign") is None:
            database.put_document("campaign", campaign_bytes)
    store = open_envelope_store(kind, folder)
    if store.campaign.id != campaign.id:
        raise StorageError("other_campaign", f"the store at '{folder}' is of another campaign")
    return store


def open_envelope_store(kind: type[Kind], path: str | os.PathLike[str]) -> Kind:
    """Open an existing store of one kind. Nothing is locked, and no file stays open.

    Raises InputError ``campaign_masked``, ``campaign_not_masked``: the store is of another kind. Raises StorageError
    ``not_a_store``, ``store_busy``, ``store_newer``, ``store_damaged``.
    """
    raw = _campaign_in(path)
    campaign = read_campaign(raw)
    kind.check(campaign)
    return kind(Path(path), campaign, raw)


def open_node_store(path: str | os.PathLike[str]) -> EnvelopeStore:
    """Open an existing store of summaries or of masked messages. Raises the errors of :func:`open_envelope_store`."""
    return open_envelope_store(kind_of(read_campaign(_campaign_in(path))), path)


def open_masked_store(path: str | os.PathLike[str]) -> MaskedStore:
    """Open an existing store of masked messages. Raises the errors of :func:`open_envelope_store`."""
    return open_envelope_store(MaskedStore, path)


def new_or_open(
    path: str | os.PathLike[str],
    campaign_bytes: bytes,
    list_bytes: bytes | None,
    files: Sequence[str | os.PathLike[str]],
    book_bytes: bytes | None = None,
) -> EnvelopeStore:
    """Open a store and give it a list of nodes and a key book. A new store is made only if files can be read into it.

    The caller must have verified campaign, list and book; None for a list or book means those that the store has.
    Raises InputError: ``nodes_unknown``, ``keys_unknown``: a new store is given no list or no key book; ``unreadable``:
    none of the files can be read; ``campaign_not_masked``: a key book for a campaign that is not masked. Raises
    InputError, DocumentError, StorageError: as of :func:`make_envelope_store`, or the list or the book is refused.
    """
    campaign = read_campaign(campaign_bytes)
    if book_bytes is not None:
        MaskedStore.check(campaign)
    if not is_node_store(path):
        newer_list(None, needed(list_bytes), campaign)
        if not files or all_unreadable(expand(files)):
            why = f"none of the {len(files)} files can be read" if files else "there is no file of nodes"
            raise InputError("unreadable", f"{why}; no store was made")
    store = make_envelope_store(kind_of(campaign), path, campaign_bytes)
    if list_bytes is not None:
        store.give_list(list_bytes)
    if isinstance(store, MaskedStore):
        if book_bytes is not None:
            store.give_book(book_bytes)
        store.books()
    return store


def _campaign_in(path: str | os.PathLike[str]) -> bytes:
    check_folder(path)
    folder = Path(path)
    with closing(Database(folder)) as database:
        raw = database.document("campaign")
    if raw is None:
        raise StorageError("not_a_store", f"'{folder}' is a store whose making was interrupted; ingest into it again")
    return raw
