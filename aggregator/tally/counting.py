"""A bucket into its counts: a pure function of a store's files, for a thread, a process or a cluster's worker.

Every id is in one bucket, so buckets are counted apart and their counts add up. A bucket that would take
too much memory is read several times, each time for the ids that agree in some further bits.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.decoding.columns import Columns
from aggregator.periods import LAST_PERIOD
from aggregator.storage.allocation import reuse_freed_memory
from aggregator.storage.manifest import damaged
from aggregator.storage.part_writer import PART_BYTES, bucket_of
from aggregator.storage.parts import Stored, read_part, without
from aggregator.tally.duplicates import IdSet, Members, repeated_rows
from aggregator.tally.lots import Lots
from aggregator.tally.tally import Tally, TallyBuilder, settle
from aggregator.tally.turnout import Turnout, TurnoutCounter
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from aggregator.storage.manifest import Manifest
    from protocol.documents.campaign import Campaign

_ROW_BYTES = 36
"""What finding repeated ids takes for each record, beside twice its columns."""
_ID_BYTES = 10
"""What :func:`count_slice` takes for each record: its id, in groups with some room to spare."""
_MAX_SLICES = 1 << 12


class Scope(NamedTuple):
    """Which of the settled records are counted. Which records are repeats or in conflict does not depend on it.

    Attributes:
        first: earlier periods are not.
        last: nor are later ones.
        proven_only: nor are those of damaged batches.
    """

    first: int = 0
    last: int = LAST_PERIOD
    proven_only: bool = False

    @property
    def periods(self) -> str:
        """In words: ``all``, or as the option ``--periods`` has them."""
        ends = (str(self.first) if self.first else "", str(self.last) if self.last < LAST_PERIOD else "")
        return "..".join(ends) if any(ends) else "all"

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


EVERYTHING = Scope()


def scope_of(periods: range | None, *, proven_only: bool = False) -> Scope:
    """What the options of a command say: a range of periods, or all of them, and a standing."""
    return Scope(proven_only=proven_only) if periods is None else Scope(periods[0], periods[-1], proven_only)


class Partition(NamedTuple):
    """Some of the records of a store, such that equal ids are in one slice.

    They are those of a bucket whose ids agree in some further bits.

    Attributes:
        bucket: which one.
        slices: into how many it is divided, a power of two.
        number: which of them.
        most: so many records fit into memory in whole.
    """

    bucket: int
    slices: int = 1
    number: int = 0
    most: int = 1 << 20


class Counted(NamedTuple):
    """The counts of some slices. Attributes as in ``TallyReport``, besides ``replayed`` and ``conflicting``."""

    tally: Tally
    turnout: Turnout
    unproven: int = 0
    superseded: int = 0
    replayed: int = 0
    conflicting: int = 0

    def merge(self, other: Counted) -> Counted:
        """The counts of both. Associative and commutative."""
        return Counted(
            self.tally.merge(other.tally),
            self.turnout.merge(other.turnout),
            self.unproven + other.unproven,
            self.superseded + other.superseded,
            self.replayed + other.replayed,
            self.conflicting + other.conflicting,
        )

    @classmethod
    def zero(cls, campaign: Campaign) -> Counted:
        """Of no slices: the neutral element of :meth:`merge`."""
        return cls(Tally.zero(campaign), Turnout.none(campaign))


class Deduplicated(NamedTuple):
    """A slice's records, of which every id is counted once.

    Attributes:
        stored: all of them but those superseded by a whole batch.
        repeated: rows of those whose id stands in another row too.
        alone: which of them are none of these; None for all.
        settled: the repeated ones, as :func:`aggregator.tally.tally.settle` leaves them.
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


def slices(
    manifest: Manifest, answer_bytes: int, memory_bytes: int, workers: int, *, ids_only: bool = False
) -> list[Partition]:
    """The whole store in slices that so many workers can work on at a time within the memory.

    Args:
        manifest: of the store.
        answer_bytes: width of the campaign's answer field.
        memory_bytes: for the data; the program itself takes some hundred megabytes more.
        workers: how many slices are in memory at a time.
        ids_only: of the records of a slice only the ids need fit.
    """
    room = max(PART_BYTES // 4, memory_bytes // workers - PART_BYTES)
    whole = 2 * (15 + answer_bytes) + _ROW_BYTES
    found = []
    for bucket in range(manifest.buckets):
        records = sum(part.records for part in manifest.bucket_parts(bucket))
        need = records * (_ID_BYTES if ids_only else whole)
        parts = 1
        while parts < _MAX_SLICES and need > room * parts:
            parts *= 2
        found += [Partition(bucket, parts, number, room // whole) for number in range(parts)] if records else []
    return found


def load(folder: Path, campaign: Campaign, manifest: Manifest, which: Partition) -> Stored:
    """The records of a slice, repeats included.

    Raises:
        StorageError: ``store_damaged``.
    """
    pieces = list(_row_groups(folder, campaign, manifest, which))
    return Stored.join(pieces, campaign.layout.answer_bytes)


def _row_groups(folder: Path, campaign: Campaign, manifest: Manifest, which: Partition) -> Iterator[Stored]:
    shift = manifest.buckets.bit_length() - 1
    for part in manifest.bucket_parts(which.bucket):
        for stored in read_part(folder / part.path, part, campaign.layout, manifest.buckets):
            if which.slices == 1:
                yield stored
            else:
                yield stored.take(bucket_of(stored.records.id, shift, which.slices) == which.number)


def _expected(manifest: Manifest, which: Partition) -> int:
    return sum(part.records for part in manifest.bucket_parts(which.bucket)) // which.slices


def _known_bits(manifest: Manifest, which: Partition) -> int:
    """Of the ids of a slice, how many low bits are the same."""
    return (manifest.buckets * which.slices).bit_length() - 1


def settle_slice(everything: Stored, manifest: Manifest, which: Partition) -> Deduplicated:
    """Find the records of a slice that count."""
    stored = without(everything, manifest.superseded)
    records = stored.records
    superseded = everything.records.size - records.size
    rows = repeated_rows(records.id, _known_bits(manifest, which))
    settled = settle(records.take(rows))
    alone = None
    if len(rows):
        alone = np.ones(records.size, np.bool_)
        alone[rows] = False
    superseded += settled.superseded
    return Deduplicated(stored, rows, alone, settled.records, superseded, settled.replayed, settled.conflicting)


def count_slice(folder: Path, campaign: Campaign, manifest: Manifest, which: Partition, scope: Scope) -> Counted:
    """The counts of a slice: read, de-duplicated, counted.

    Everything is counted as it is read, and only ids are kept. If some of them stand more than once, their
    records are read again: what they added is taken back, and what is settled of them is added. If they are
    very many, as after a merged file beside the files it was made of, this is done with all records. What does not
    fit into memory is divided in a temporary file.

    Raises:
        StorageError: ``store_damaged``; ``disk_full``, ``io_failed``: of the temporary file.
    """
    reuse_freed_memory()
    whole, ids = _Count(campaign, scope), IdSet(_expected(manifest, which), _known_bits(manifest, which))
    superseded = 0
    for everything in _row_groups(folder, campaign, manifest, which):
        stored = without(everything, manifest.superseded)
        superseded += everything.records.size - stored.records.size
        ids.add(stored.records.id)
        whole.add(stored.records)
    repeated = None if ids.has_many() else ids.repeated()
    del ids
    if repeated is not None and not len(repeated):
        return Counted(whole.tally(), whole.turnout(), whole.unproven, superseded)
    less, more = _Count(campaign, scope), _Count(campaign, scope)
    if repeated is None:  # all of them are taken back
        whole = _Count(campaign, scope)
    replayed = conflicting = 0
    for doubtful in _again(folder, campaign, manifest, which, repeated):
        settled = settle(doubtful)
        if repeated is not None:
            less.add(doubtful)
        more.add(settled.records)
        superseded += settled.superseded
        replayed += settled.replayed
        conflicting += settled.conflicting
    return Counted(
        whole.tally().less(less.tally()).merge(more.tally()),
        whole.turnout().less(less.turnout()).merge(more.turnout()),
        whole.unproven - less.unproven + more.unproven,
        superseded,
        replayed,
        conflicting,
    )


def _again(
    folder: Path, campaign: Campaign, manifest: Manifest, which: Partition, ids: NDArray[np.uint64] | None
) -> Iterator[Columns]:
    """The records of a slice with one of these ids, or all of them; those of one id together. The parts are read once.

    If they are more than fit into memory, they come in lots, by way of a temporary file.
    """
    number = 1
    while number < _MAX_SLICES and _expected(manifest, which) > which.most * number:
        number *= 2
    members = None if ids is None else Members(ids)
    held: list[Columns] = []
    with ExitStack() as stack:
        lots = None
        for everything in _row_groups(folder, campaign, manifest, which):
            records = without(everything, manifest.superseded).records
            held.append(records if members is None else records.take(members.rows(records.id)))
            if lots is None and number > 1 and sum(piece.size for piece in held) > which.most:
                known_bits = _known_bits(manifest, which)
                lots = stack.enter_context(Lots(number, known_bits, campaign.layout.answer_bytes))
            if lots is not None:
                for piece in held:
                    lots.add(piece)
                held.clear()
        if lots is None:
            yield Columns.join(held, campaign.layout.answer_bytes)
        else:
            yield from lots


class _Count:
    """The records in scope, as they come. Attribute ``unproven``: how many of them come from damaged batches."""

    def __init__(self, campaign: Campaign, scope: Scope) -> None:
        self._campaign = campaign
        self._scope = scope
        self._counter = TallyBuilder(campaign)
        self._turnout = TurnoutCounter(campaign)
        self.unproven = 0

    def add(self, records: Columns) -> None:
        chosen = self._scope.chosen(records)
        counted = records if chosen is None else records.take(chosen)
        try:
            self._counter.add(counted)
        except InputError as error:
            raise damaged(error.detail) from None
        self._turnout.add(counted)
        self.unproven += counted.size - int(np.count_nonzero(counted.proven))

    def tally(self) -> Tally:
        return self._counter.tally()

    def turnout(self) -> Turnout:
        return self._turnout.turnout()


def checked_count(campaign: Campaign, records: Columns) -> Tally:
    """As :func:`aggregator.tally.tally.count`, of records from a store.

    Raises:
        StorageError: ``store_damaged``: a record is none of the campaign's.
    """
    counter = _Count(campaign, Scope())
    counter.add(records)
    return counter.tally()
