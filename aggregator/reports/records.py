"""Read a store's records back, partition by partition: for exports, and to count how often a device answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aggregator.reports.decoding.columns import Columns
from aggregator.reports.storage.manifest import Manifest
from aggregator.reports.tally.counting import load, partitions, settle_partition
from aggregator.reports.tally.scope import Scope
from protocol.documents.campaign import Campaign


def stored_records(
    folder: Path, campaign: Campaign, manifest: Manifest, memory_bytes: int, scope: Scope, *, everything: bool
) -> Iterator[Columns]:
    """Yield the records of a store, partition by partition, sorted by id in each.

    Args:
        folder, campaign, manifest: of the store.
        memory_bytes: limit of the memory for one partition.
        scope: yield only records of these periods, and only proven records if it says so.
        everything: yield all such records as stored, repeats and conflicts included. Otherwise yield the reports that a
            tally counts: at most one per id.

    Raises:
        StorageError: ``store_damaged``.
    """
    width = campaign.layout.answer_bytes
    scope = scope._replace(first=max(scope.first, manifest.first_period))
    for which in partitions(manifest, width, memory_bytes, 1):
        stored = load(folder, campaign, manifest, which)
        records = stored.records
        if not everything:
            # De-duplication sees all records of an id, also those out of scope: the scope must not change its choice.
            records = Columns.join(settle_partition(stored, manifest, which).kept(), width)
        chosen = scope.chosen(records)
        rows = np.arange(records.size) if chosen is None else np.flatnonzero(chosen)
        if len(rows):
            yield records.take(rows[np.argsort(records.id[rows], kind="stable")])
