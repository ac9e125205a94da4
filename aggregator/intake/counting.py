"""A bucket into its counts: a pure function of a store's files, for a thread, a process or a cluster's worker.

Every id is in one bucket, so buckets are counted apart and their counts add up. A bucket that would take
too much memory is read several times, each time for the ids that agree in some further bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.intake.manifest import damaged
from aggregator.intake.parts import Stored, read_part, without
from aggregator.intake.repeats import repeated_rows
from aggregator.intake.tally import Tally, count, settle
from aggregator.intake.writing import PART_BYTES, bucket_of
from protocol.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from aggregator.intake.columns import Columns
    from aggregator.intake.manifest import Manifest
    from protocol.campaign import Campaign

_ROW_BYTES = 36
"""What finding repeated ids takes for each record, beside twice its columns."""
_MAX_SLICES = 1 << 12


class Scope(NamedTuple):
    """Which of the settled records are counted. Which records are repeats or in conflict does not depend on it.

    Attributes:
        first: earlier periods are not.
        last: nor are later ones.
        proven_only: nor are those of damaged batches.
    """

    first: int = 0
    last: int = (1 << 32) - 1
    proven_only: bool = False

    def chosen(self, records: Columns) -> NDArray[np.bool_] | None:
        """Which records; None for all of them."""
        if not records.size:
            return None
        mask = None
        if records.period.min() < self.first or records.period.max() > self.last:
            mask = (records.period >= self.first) & (records.period <= self.last)
        if self.proven_only and not records.proven.all():
            mask = records.proven if mask is None else mask & records.proven
        return mask


class Slice(NamedTuple):
    """Some of the records of a store, so that equal ids are in one slice: the ids of a bucket with the same
    further bits.

    Attributes:
        bucket: which one.
        slices: into how many it is divided, a power of two.
        number: which of them.
    """

    bucket: int
    slices: int = 1
    number: int = 0


class Counted(NamedTuple):
    """The counts of some slices. Attributes as in ``TallyReport``, besides ``replayed`` and ``conflicting``."""

    tally: Tally
    unproven: int = 0
    superseded: int = 0
    replayed: int = 0
    conflicting: int = 0

    def merge(self, other: Counted) -> Counted:
        """The counts of both. Associative and commutative."""
        return Counted(self.tally.merge(other.tally), *(a + b for a, b in zip(self[1:], other[1:], strict=True)))


class Settling(NamedTuple):
    """A slice's records, of which every id is counted once.

    Attributes:
        stored: all of them but those superseded by a whole batch.
        repeated: rows of those whose id stands in another row too.
        alone: which of them are none of these; None for all.
        settled: the repeated ones, as :func:`aggregator.intake.tally.settle` leaves them.
        superseded, replayed, conflicting: how many are neither, and why.
    """

    stored: Stored
    repeated: NDArray[np.intp]
    alone: NDArray[np.bool_] | None
    settled: Columns
    superseded: int
    replayed: int
    conflicting: int

    def kept(self) -> list[Columns]:
        """The records that count."""
        records = self.stored.records
        return [records if self.alone is None else records.take(self.alone), self.settled]


def slices(manifest: Manifest, answer_bytes: int, memory_bytes: int, workers: int) -> list[Slice]:
    """The whole store in slices that so many workers can work on at a time within the memory.

    Args:
        manifest: of the store.
        answer_bytes: width of the campaign's answer field.
        memory_bytes: for the data; the program itself takes some hundred megabytes more.
        workers: how many slices are in memory at a time.
    """
    room = max(PART_BYTES // 4, memory_bytes // workers - PART_BYTES)
    found = []
    for bucket in range(manifest.buckets):
        records = sum(part.records for part in manifest.bucket_parts(bucket))
        need = records * (2 * (15 + answer_bytes) + _ROW_BYTES)
        parts = 1
        while parts < _MAX_SLICES and need > room * parts:
            parts *= 2
        found += [Slice(bucket, parts, number) for number in range(parts)] if records else []
    return found


def load(folder: Path, campaign: Campaign, manifest: Manifest, which: Slice) -> Stored:
    """The records of a slice, repeats included.

    Raises:
        StorageError: ``store_damaged``.
    """
    pieces = []
    shift = manifest.buckets.bit_length() - 1
    for part in manifest.bucket_parts(which.bucket):
        for stored in read_part(folder / part.path, part, campaign.layout, manifest.buckets):
            if which.slices == 1:
                pieces.append(stored)
            else:
                pieces.append(stored.take(bucket_of(stored.records.id, shift, which.slices) == which.number))
    return Stored.join(pieces, campaign.layout.answer_bytes)


def settle_slice(everything: Stored, manifest: Manifest, which: Slice) -> Settling:
    """Find the records of a slice that count."""
    stored = without(everything, manifest.superseded)
    records = stored.records
    superseded = everything.records.size - records.size
    known_bits = (manifest.buckets * which.slices).bit_length() - 1
    rows = repeated_rows(records.id, known_bits)
    settled = settle(records.take(rows))
    alone = None
    if len(rows):
        alone = np.ones(records.size, np.bool_)
        alone[rows] = False
    superseded += settled.superseded
    return Settling(stored, rows, alone, settled.records, superseded, settled.replayed, settled.conflicting)


def count_slice(folder: Path, campaign: Campaign, manifest: Manifest, which: Slice, scope: Scope) -> Counted:
    """The counts of a slice: read, de-duplicated, counted.

    Raises:
        StorageError: ``store_damaged``.
    """
    settling = settle_slice(load(folder, campaign, manifest, which), manifest, which)
    tally, unproven = Tally.zero(campaign), 0
    for records in settling.kept():
        chosen = scope.chosen(records)
        counted = records if chosen is None else records.take(chosen)
        tally = tally.merge(checked_count(campaign, counted))
        unproven += counted.size - int(np.count_nonzero(counted.proven))
    return Counted(tally, unproven, settling.superseded, settling.replayed, settling.conflicting)


def checked_count(campaign: Campaign, records: Columns) -> Tally:
    """As :func:`aggregator.intake.tally.count`, of records from a store.

    Raises:
        StorageError: ``store_damaged``: a record is none of the campaign's.
    """
    try:
        return count(campaign, records)
    except InputError as error:
        raise damaged(error.detail) from None
