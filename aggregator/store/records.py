"""Read a store's records back, partition by partition: for exports, and to count how often a device answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggregator.decoding.columns import Columns
from aggregator.tally.counting import load, partitions, settle_partition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aggregator.storage.manifest import Manifest
    from aggregator.tally.counting import Scope
    from protocol.documents.campaign import Campaign


def stored_records(
    folder: Path, campaign: Campaign, manifest: Manifest, memory_bytes: int, scope: Scope, *, everything: bool
) -> Iterator[Columns]:
    """Yield the records of a store, partition by partition, sorted by id in each.

    Args:
        folder: of the store.
        campaign: of the store.
        manifest: of the store.
        memory_bytes: limit of the memory for one partition.
        scope: which records.
        everything: yield all records as stored, instead of the reports that a tally counts.

    Raises:
        StorageError: ``store_damaged``.
    """
    width = campaign.layout.answer_bytes
    scope = scope._replace(first=max(scope.first, manifest.first_period))
    for which in partitions(manifest, width, memory_bytes, 1):
        stored = load(folder, campaign, manifest, which)
        records = stored.records
        if not everything:  # before the scope is applied: it must not change which records count
            records = Columns.join(settle_partition(stored, manifest, which).kept(), width)
        chosen = scope.chosen(records)
        rows = np.arange(records.size) if chosen is None else np.flatnonzero(chosen)
        if len(rows):
            yield records.take(rows[np.argsort(records.id[rows], kind="stable")])
