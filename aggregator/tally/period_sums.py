"""Integer counts by period and standing (proven or unproven), for any number of periods.

Records are grouped once, by a sort. Many groups are then counted together, and only counts that are not 0 are kept.
The cost grows with the number of records plus the number of counts, and not with their product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from aggregator.decoding.matrix import BLOCK_RECORDS
from aggregator.storage.manifest import damaged
from aggregator.tally.tally import TallyBuilder
from protocol.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aggregator.decoding.columns import Columns
    from protocol.documents.campaign import Campaign

    Numbers = NDArray[np.int64]

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
        self._counter = TallyBuilder(campaign, self._groups)
        self._keys, self._counts = np.empty(0, np.int64), np.empty(0, np.int64)
        self._waiting: list[tuple[Numbers, Numbers]] = []

    def add(self, records: Columns) -> None:
        """Count some de-duplicated records. The caller gives at most one record of each id.

        Raises:
            StorageError: ``store_damaged``: a record's question or answer is none of the campaign's.
        """
        group = 2 * records.period.astype(np.int64) + records.proven
        order = np.argsort(group, kind="stable")
        group = group.take(order)
        starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]])) if len(group) else order
        for first in range(0, len(starts), self._groups):
            own = starts[first : first + self._groups + 1]
            end = int(own[-1]) if len(own) > self._groups else len(group)
            self._count(records, order[own[0] : end], group[own[0] : end], group[own[: self._groups]])

    def _count(self, records: Columns, rows: NDArray[np.intp], group: Numbers, groups: Numbers) -> None:
        """Count some rows of the records.

        Args:
            records: all records.
            rows: (R,) intp, the rows.
            group: (R,) int64, the group of each row, rising.
            groups: (K,) int64, the different groups, rising.
        """
        for start in range(0, len(rows), BLOCK_RECORDS):
            block = slice(start, start + BLOCK_RECORDS)
            try:
                self._counter.add(records.take(rows[block]), np.searchsorted(groups, group[block]))
            except InputError as error:
                raise damaged(error.detail) from None
        found = self._counter.drain()
        which, place = np.nonzero(found)
        self._waiting.append((groups[which] * len(self._cell) + place, found[which, place]))
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

    def counts(self) -> tuple[Numbers, Numbers]:
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
