"""Stores of nodes' envelopes by the campaign that they belong to: summaries in the clear, or masked messages."""

from __future__ import annotations

import os
from collections.abc import Sequence

from aggregator.nodes.masked.store import MaskedStore
from aggregator.nodes.summaries.envelope_store import (
    EnvelopeStore,
    campaign_in,
    check_new,
    make_envelope_store,
    open_envelope_store,
)
from aggregator.nodes.summaries.store import NodeStore
from aggregator.reports.storage.manifest import read_campaign
from protocol.documents.campaign import Campaign


def kind_of(campaign: Campaign) -> type[NodeStore | MaskedStore]:
    """The kind of store for a campaign for nodes."""
    return NodeStore if campaign.masked is None else MaskedStore


def open_node_store(path: str | os.PathLike[str]) -> EnvelopeStore:
    """Open an existing store of summaries or of masked messages.

    Raises:
        StorageError: ``not_a_store``, ``store_busy``, ``store_newer``, ``store_damaged``, ``io_failed``.
    """
    return open_envelope_store(kind_of(read_campaign(campaign_in(path))), path)


def open_masked_store(path: str | os.PathLike[str]) -> MaskedStore:
    """Open an existing store of masked messages.

    Raises:
        InputError: ``campaign_not_masked``: the store is of summaries.
        StorageError: the reasons of :func:`open_node_store`.
    """
    return open_envelope_store(MaskedStore, path)


def new_or_open(
    path: str | os.PathLike[str],
    campaign_bytes: bytes,
    list_bytes: bytes | None,
    files: Sequence[str | os.PathLike[str]],
    book_bytes: bytes | None = None,
) -> EnvelopeStore:
    """Open a store and give it a list of nodes and a key book. A new store is made only if files can be read into it.

    Args:
        path: folder of the store.
        campaign_bytes, list_bytes: the campaign and the list of nodes, whose signatures the caller has checked; None
            for the list that the store has.
        files: the files that will be ingested.
        book_bytes: a version of the dealer's key book, for a masked campaign; None for those that the store has.

    Raises:
        InputError: ``nodes_unknown``: a new store needs a list; ``unreadable``: none of the files can be read;
            ``keys_unknown``: a new masked store needs a key book; ``campaign_not_masked``: a key book is given for a
            campaign without masked sums.
        InputError, DocumentError, StorageError: the store can not be made
            (:func:`aggregator.nodes.summaries.envelope_store.make_envelope_store`), or the list or the book is refused.
    """
    campaign = read_campaign(campaign_bytes)
    kind = kind_of(campaign)
    if book_bytes is not None:
        MaskedStore.check(campaign)
    check_new(path, campaign_bytes, list_bytes, files)
    store = make_envelope_store(kind, path, campaign_bytes)
    if list_bytes is not None:
        store.give_list(list_bytes)
    if isinstance(store, MaskedStore):
        if book_bytes is not None:
            store.give_book(book_bytes)
        store.books()
    return store
