"""Count the records of a store, partition by partition, each id once.

All records of one id are in one bucket, so the counts of buckets add up. A bucket that needs too much memory is divided
into partitions by further bits of the ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.reports.decoding.columns import Columns
from aggregator.reports.storage.manifest import Manifest, damaged
from aggregator.reports.storage.parts import PART_BYTES, Stored, bucket_of, read_part, reuse_freed_memory, without
from aggregator.reports.tally.duplicates import IdSet, Lots, Members, repeated_rows
from aggregator.reports.tally.profile import Profile, ProfileCounter
from aggregator.reports.tally.scope import Scope
from aggregator.reports.tally.tally import Tally, TallyBuilder, TallyReport, settle
from aggregator.reports.tally.turnout import Turnout, TurnoutCounter
from protocol.documents.campaign import Campaign
from protocol.errors import InputError

_ROW_BYTES = 36
"""Bytes of memory per record that finding repeated ids needs, besides twice the record's columns."""
_ID_BYTES = 10
"""Bytes of memory per record that :func:`count_partition` needs: its id, in arrays with some unused room."""
_MAX_DIVISIONS = 1 << 12


class Partition(NamedTuple):
    """The records of one bucket whose ids agree in some further bits: part ``number`` of ``divisions``.

    ``most``: number of complete records that fit into memory.
    """

    bucket: int
    divisions: int = 1
    number: int = 0
    most: int = 1 << 20


class Counted(NamedTuple):
    """The counts of some partitions of a store.

    ``unproven``: number of counted records of damaged batches. ``superseded``, ``replayed``, ``conflicting``: numbers
    of records that do not count, as in :class:`Settled`; of superseded ones also those whose complete batch is in the
    store. ``profile``: counts that tell honest reports from lies; None if not asked for, or if all records were
    forgotten.
    """

    tally: Tally
    turnout: Turnout
    unproven: int = 0
    superseded: int = 0
    replayed: int = 0
    conflicting: int = 0
    profile: Profile | None = None

    def merge(self, other: Counted) -> Counted:
        """Return the sum of these counts and ``other``, the counts of other partitions. Associative and commutative."""
        profile = self.profile or other.profile
        if self.profile and other.profile:
            profile = self.profile.merge(other.profile)
        return Counted(
            self.tally.merge(other.tally),
            self.turnout.merge(other.turnout),
            self.unproven + other.unproven,
            self.superseded + other.superseded,
            self.replayed + other.replayed,
            self.conflicting + other.conflicting,
            profile,
        )

    def less(self, other: Counted) -> Counted:
        """Return these counts without those of ``other``, whose answers must be part of these."""
        profile = self.profile.less(other.profile) if self.profile and other.profile else None
        tally, turnout = self.tally.less(other.tally), self.turnout.less(other.turnout)
        return self._replace(tally=tally, turnout=turnout, unproven=self.unproven - other.unproven, profile=profile)

    def report(self, refused: Mapping[str, int]) -> TallyReport:
        """Return the tally of the whole store. ``refused``: numbers of records that ingests refused, by reason."""
        rejected = Counter(refused)
        rejected["report_replayed"] += self.replayed
        rejected["report_conflict"] += self.conflicting
        found = {reason: number for reason, number in sorted(rejected.items()) if number}
        return TallyReport(self.tally, sum(self.tally.n), found, self.unproven, self.superseded, self.turnout)

    @classmethod
    def zero(cls, campaign: Campaign) -> Counted:
        """Return the counts of no records: the neutral element of :meth:`merge`."""
        return cls(Tally.zero(campaign), Turnout.none(campaign))


class Deduplicated(NamedTuple):
    """The records of a partition, divided so that every id counts at most once.

    ``stored``: the N records but for those of damaged batches whose complete batch is in the store; ``repeated``: (R,)
    intp, rows whose id is in another row; ``alone``: (N,) bool, rows of unique ids, None if all are; ``settled``: what
    :func:`aggregator.reports.tally.tally.settle` keeps of ``repeated``; the others: numbers of records that do not
    count (:class:`Counted`).
    """

    stored: Stored
    repeated: NDArray[np.intp]
    alone: NDArray[np.bool_] | None
    settled: Columns
    superseded: int
    replayed: int
    conflicting: int

    @property
    def uncounted(self) -> tuple[int, int, int]:
        """Return the numbers of replayed, conflicting and superseded records."""
        return self.replayed, self.conflicting, self.superseded

    def kept(self) -> list[Columns]:
        """Return the records that count: first all records with a unique id, then the kept records of repeated ids."""
        records = self.stored.records
        return [records if self.alone is None else records.take(self.alone), self.settled]


def partitions(
    manifest: Manifest, answer_bytes: int, memory_bytes: int, workers: int, *, ids_only: bool = False
) -> list[Partition]:
    """Divide a store into partitions, so that ``workers`` of them fit into ``memory_bytes`` at a time.

    A bucket without records gives no partition. A partition gets at least 24 MiB, and a bucket at most 4096 partitions.
    With ``ids_only`` only the ids of a partition are in memory.
    """
    room = max(PART_BYTES // 4, memory_bytes // workers - PART_BYTES)
    whole = 2 * (15 + answer_bytes) + _ROW_BYTES
    found = []
    for bucket in range(manifest.buckets):
        records = sum(part.records for part in manifest.bucket_parts(bucket))
        need = records * (_ID_BYTES if ids_only else whole)
        parts = 1
        while parts < _MAX_DIVISIONS and need > room * parts:
            parts *= 2
        found += [Partition(bucket, parts, number, room // whole) for number in range(parts)] if records else []
    return found


def load(folder: Path, campaign: Campaign, manifest: Manifest, which: Partition) -> Stored:
    """Read all records of a partition of a store into memory, repeated records included. Raises ``store_damaged``."""
    pieces = list(_row_groups(folder, campaign, manifest, which))
    return Stored.join(pieces, campaign.layout.answer_bytes)


def _row_groups(folder: Path, campaign: Campaign, manifest: Manifest, which: Partition) -> Iterator[Stored]:
    shift = manifest.buckets.bit_length() - 1
    for part in manifest.bucket_parts(which.bucket):
        for stored in read_part(folder / part.path, part, campaign.layout, manifest.buckets):
            if which.divisions == 1:
                yield stored
            else:
                yield stored.take(bucket_of(stored.records.id, shift, which.divisions) == which.number)


def _expected(manifest: Manifest, which: Partition) -> int:
    return sum(part.records for part in manifest.bucket_parts(which.bucket)) // which.divisions


def _known_bits(manifest: Manifest, which: Partition) -> int:
    """Return how many of the lowest bits are the same in all ids of a partition."""
    return (manifest.buckets * which.divisions).bit_length() - 1


def settle_partition(everything: Stored, manifest: Manifest, which: Partition) -> Deduplicated:
    """Decide which records of a partition count: at most one of each id. ``everything`` is from :func:`load`."""
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


def count_partition(
    folder: Path,
    campaign: Campaign,
    manifest: Manifest,
    which: Partition,
    scope: Scope,
    profiled: bool = False,  # noqa: FBT001, FBT002 - engines pass positional arguments only
) -> Counted:
    """Read the records of a partition, and count each id in scope once; with a :class:`.Profile` if ``profiled``.

    The first reading counts all records and keeps only their ids. The second takes the records of repeated ids: their
    counts are subtracted, and those that :func:`settle` keeps are added. If very many ids repeat, it takes all records.
    Records that do not fit into memory are divided in a temporary file. Raises StorageError ``store_damaged``.
    """
    reuse_freed_memory()
    whole, ids = _Count(campaign, scope, profiled), IdSet(_expected(manifest, which), _known_bits(manifest, which))
    superseded = 0
    for everything in _row_groups(folder, campaign, manifest, which):
        stored = without(everything, manifest.superseded)
        superseded += everything.records.size - stored.records.size
        ids.add(stored.records.id)
        whole.add(stored.records)
    repeated = None if ids.has_many() else ids.repeated()
    del ids
    if repeated is not None and not len(repeated):
        return whole.counted()._replace(superseded=superseded)
    less, more = _Count(campaign, scope, profiled), _Count(campaign, scope, profiled)
    if repeated is None:  # Very many ids repeat: only the second reading counts, and it reads all records.
        whole = _Count(campaign, scope, profiled)
    replayed = conflicting = 0
    for doubtful in _records_of(folder, campaign, manifest, which, repeated):
        settled = settle(doubtful)
        if repeated is not None:
            less.add(doubtful)
        more.add(settled.records)
        superseded += settled.superseded
        replayed += settled.replayed
        conflicting += settled.conflicting
    counted = whole.counted().less(less.counted()).merge(more.counted())
    return counted._replace(superseded=superseded, replayed=replayed, conflicting=conflicting)


def _records_of(
    folder: Path, campaign: Campaign, manifest: Manifest, which: Partition, ids: NDArray[np.uint64] | None
) -> Iterator[Columns]:
    """Yield the records of a partition with the sorted ``ids``; None for all. Records of one id come together."""
    number = 1
    while number < _MAX_DIVISIONS and _expected(manifest, which) > which.most * number:
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
    """Counts the records that are in scope, with or without a profile."""

    def __init__(self, campaign: Campaign, scope: Scope, profiled: bool) -> None:  # noqa: FBT001 (private)
        self._scope = scope
        self._counter = ProfileCounter(campaign) if profiled else TallyBuilder(campaign)
        self._turnout = TurnoutCounter(campaign)
        self._unproven = 0

    def add(self, records: Columns) -> None:
        chosen = self._scope.chosen(records)
        counted = records if chosen is None else records.take(chosen)
        try:
            self._counter.add(counted)
        except InputError as error:
            raise damaged(error.detail) from None
        self._turnout.add(counted)
        self._unproven += counted.size - int(np.count_nonzero(counted.proven))

    def counted(self) -> Counted:
        profile = self._counter.profile() if isinstance(self._counter, ProfileCounter) else None
        return Counted(self._counter.tally(), self._turnout.turnout(), self._unproven, profile=profile)


def stored_records(
    folder: Path, campaign: Campaign, manifest: Manifest, memory_bytes: int, scope: Scope, *, everything: bool
) -> Iterator[Columns]:
    """Yield the records in scope, partition by partition, sorted by id in each, for exports and sums over devices.

    ``memory_bytes`` is for one partition. With ``everything`` they come as stored, else as a tally counts them: at most
    one per id. Raises StorageError ``store_damaged``.
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
