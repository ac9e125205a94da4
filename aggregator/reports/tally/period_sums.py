"""Integer counts by period and standing (proven or unproven), for any number of periods.

A chunk of records mostly holds long runs of records of one period and standing. Each such run is counted by itself.
Other chunks are sorted first. Many short runs are then counted together, and only counts that are not 0 are kept.
The cost grows with the number of records plus the number of counts, and not with their product.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from aggregator.reports.decoding.columns import Columns
from aggregator.reports.decoding.matrix import BLOCK_RECORDS
from aggregator.reports.storage.manifest import damaged
from aggregator.reports.tally.tally import TallyBuilder
from protocol.documents.campaign import Campaign
from protocol.errors import InputError

Rows = slice | NDArray[np.intp]


SCHEMA = pa.schema(
    [
        pa.field("period", pa.uint32(), nullable=False),
        pa.field("proven", pa.bool_(), nullable=False),
        pa.field("question", pa.uint16(), nullable=False),
        pa.field("cell", pa.int32(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""Columns of the counts. ``cell`` is -1 if ``count`` is the number of answers. Zeros are left out."""
ANSWERS = -1
_AT_ONCE = 1 << 16
"""Approximate number of counts, zeros included, that one step computes at a time."""
_LONG_RUN = 1 << 12
"""Mean number of records in a run from which a chunk is not sorted, and every run is counted by itself."""
_TOGETHER = 1 << 14
"""Approximate number of sorted records that are counted together. More have more counts than fit into a cache."""


class PeriodSums:
    """Counts de-duplicated records by period, standing (proven or unproven), question and cell.

    A cell is one possible answer, one bit, or one component of an answer. The key of a count is
    (2·period + proven)·W + place. W = Q + C is the number of counts of one period and standing: Q numbers of answers
    and the counts of all C cells. ``place`` is the index of the count among these W.

    Args:
        campaign: with Q questions and C cells.
    """

    def __init__(self, campaign: Campaign) -> None:
        sizes = [question.mechanism.answers for question in campaign.questions]
        self._question = np.repeat(np.arange(len(sizes)), [size + 1 for size in sizes])
        self._cell = np.concatenate([np.arange(ANSWERS, size) for size in sizes])
        self._groups = max(1, _AT_ONCE // len(self._cell))
        self._campaign = campaign
        self._counters: dict[int, TallyBuilder] = {}
        self._keys, self._counts = np.empty(0, np.int64), np.empty(0, np.int64)
        self._waiting: list[tuple[Integers, Integers]] = []

    def add(self, records: Columns) -> None:
        """Count some de-duplicated records. The caller gives at most one record of each id.

        Raises:
            StorageError: ``store_damaged``: a record's question or answer is none of the campaign's.
        """
        if not records.size:
            return
        group = 2 * records.period.astype(np.int64) + records.proven
        starts, order, together = _starts(group), None, 1
        if len(starts) * _LONG_RUN > len(group):
            order = _rising(group)
            group = group.take(order)
            starts = _starts(group)
            together = min(self._groups, -(-_TOGETHER * len(starts) // len(group)))
        ends = np.append(starts, len(group))
        for first in range(0, len(starts), together):
            own = starts[first : first + together]
            rows = slice(int(own[0]), int(ends[first + len(own)]))
            which = None if len(own) == 1 else np.searchsorted(group[own], group[rows])
            self._count(records, rows if order is None else order[rows], group[own], which)

    def add_group(self, records: Columns, group: int) -> None:
        """Count de-duplicated records as those of one group, whatever their period and standing are.

        Args:
            records: the caller gives at most one record of each id.
            group: 2·period + proven.

        Raises:
            StorageError: as :meth:`add`.
        """
        self._count(records, slice(None), np.array([group], np.int64), None)

    def _count(self, records: Columns, rows: Rows, groups: Integers, which: Integers | None) -> None:
        """Count some rows of the records.

        Args:
            records: all records.
            rows: the rows: a slice, or R indices.
            groups: (K,) int64, the different groups, rising.
            which: (R,) int64, the index in ``groups`` of each row's group; None if K is 1.
        """
        size = 1 << (len(groups) - 1).bit_length()
        counter = self._counters.get(size) or self._counters.setdefault(size, TallyBuilder(self._campaign, size))
        try:
            if isinstance(rows, slice):
                counter.add_answers(records.question[rows], records.answer[rows], which)
            else:
                for start in range(0, len(rows), BLOCK_RECORDS):  # Copies stay in the processor's cache.
                    block = slice(start, start + BLOCK_RECORDS)
                    part = rows[block]
                    groups_of = None if which is None else which[block]
                    counter.add_answers(records.question.take(part), records.answer.take(part, axis=0), groups_of)
        except InputError as error:
            raise damaged(error.detail) from None
        found = counter.drain()[: len(groups)]
        index, place = np.nonzero(found)
        self._waiting.append((groups[index] * len(self._cell) + place, found[index, place]))
        if sum(len(keys) for keys, _ in self._waiting) > max(len(self._keys), _AT_ONCE):
            self._merge()

    def _merge(self) -> None:
        """Add up the counts with equal keys."""
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._waiting)])
        counts = np.concatenate([self._counts, *(counts for _, counts in self._waiting)])
        self._waiting = []
        order = np.argsort(keys, kind="stable")
        keys = keys.take(order)
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else order
        sums = np.add.reduceat(counts.take(order), starts) if len(keys) else counts
        kept = sums != 0
        self._keys, self._counts = keys[starts][kept], sums[kept]

    def counts(self) -> tuple[Integers, Integers]:
        """All keys with a count that is not 0, rising, and these counts: (M,) int64 each."""
        self._merge()
        return self._keys, self._counts

    def table(self) -> pa.Table:
        """All counts that are not 0, as a table with the columns of :data:`SCHEMA`.

        The rows are sorted by period, then unproven before proven, then by question and cell.
        """
        keys, counts = self.counts()
        group, place = np.divmod(keys, len(self._cell))
        columns = [group >> 1, group & 1 == 1, self._question[place], self._cell[place], counts]
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _starts(group: Integers) -> NDArray[np.intp]:
    """Indices at which a run of equal numbers begins: (K,) intp. ``group`` is (N,) int64 with N > 0."""
    return np.concatenate([[0], np.flatnonzero(group[1:] != group[:-1]) + 1])


def _rising(group: Integers) -> NDArray[np.intp]:
    """Indices that sort ``group``, (N,) int64 with N > 0; equal numbers keep their order."""
    above = group - group.min()
    # numpy sorts numbers of sixteen bits by radix, which is several times faster.
    return np.argsort(above.astype(np.uint16) if int(above.max()) < 1 << 16 else above, kind="stable")
