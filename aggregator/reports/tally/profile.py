"""Counts that tell honest reports from lies: set bits per report, and counts by stretch of time.

The number of set bits in an honest device's row of bits has a law that does not depend on the record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggregator.common.arrays import Integers, run_starts, sums_by_key
from aggregator.reports.decoding.columns import BLOCK_RECORDS, Columns
from aggregator.reports.storage.manifest import damaged
from aggregator.reports.tally.tally import Tally, TallyBuilder, tally_of_counts
from protocol.documents.campaign import Campaign
from protocol.errors import InputError
from protocol.mechanisms import BITS

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
"""Columns of the table of counts of forgotten periods. ``cell``, the index of a possible answer, is -1 if ``count`` is
the number of all answers.
"""
ANSWERS = -1
_AT_ONCE = 1 << 16
"""Approximate number of counts, zeros included, that one step computes at a time."""
_LONG_RUN = 1 << 12
"""If runs have this many records on average, a chunk is not sorted, and every run is counted by itself."""
_TOGETHER = 1 << 14
"""Approximate number of sorted records that are counted together. The counts of more records exceed a cache."""


class PeriodSums:
    """Counts de-duplicated records of any periods by period, standing (proven or unproven), question and cell.

    A cell is one possible answer, one bit, or one component of an answer. The key of a count is (2·period + proven)·W +
    place. W is the number of counts of one period and standing: for each question the number of answers, and its cells.
    ``place`` is the index of the count among these W. Short runs of one period are sorted and counted together.
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
        """Count records, at most one of each id. Raises ``store_damaged`` if one fits no question of the campaign."""
        if not records.size:
            return
        group = 2 * records.period.astype(np.int64) + records.proven
        starts, order, together = run_starts(group), None, 1
        if len(starts) * _LONG_RUN > len(group):
            order = _rising(group)
            group = group.take(order)
            starts = run_starts(group)
            together = min(self._groups, -(-_TOGETHER * len(starts) // len(group)))
        ends = np.append(starts, len(group))
        for first in range(0, len(starts), together):
            own = starts[first : first + together]
            rows = slice(int(own[0]), int(ends[first + len(own)]))
            which = None if len(own) == 1 else np.searchsorted(group[own], group[rows])
            self._count(records, rows if order is None else order[rows], group[own], which)

    def add_group(self, records: Columns, group: int) -> None:
        """Count records as those of one ``group``, 2·period + proven, whatever they state. Raises as :meth:`add`."""
        self._count(records, slice(None), np.array([group], np.int64), None)

    def _count(self, records: Columns, rows: Rows, groups: Integers, which: Integers | None) -> None:
        """Count some ``rows`` of the records.

        A group is the number 2·period + proven. ``groups``, (K,) int64, are the K groups, rising. ``which``, (R,)
        int64, is the index in ``groups`` of each of R rows; None if K is 1.
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
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._waiting)])
        counts = np.concatenate([self._counts, *(counts for _, counts in self._waiting)])
        self._waiting = []
        self._keys, self._counts = sums_by_key(keys, counts)

    def counts(self) -> tuple[Integers, Integers]:
        """Return the M keys with a count that is not 0, rising, and these counts: (M,) int64 each."""
        self._merge()
        return self._keys, self._counts

    def table(self) -> pa.Table:
        """Return all counts but zeros, with the columns of :data:`SCHEMA`, sorted by all columns but ``count``."""
        keys, counts = self.counts()
        group, place = np.divmod(keys, len(self._cell))
        columns = [group >> 1, group & 1 == 1, self._question[place], self._cell[place], counts]
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _rising(group: Integers) -> NDArray[np.intp]:
    """Return the indices that sort N numbers, ``group``, (N,) int64 with N > 0. Equal numbers keep their order."""
    above = group - group.min()
    # numpy sorts numbers of sixteen bits by radix, which is several times faster.
    return np.argsort(above.astype(np.uint16) if int(above.max()) < 1 << 16 else above, kind="stable")


MOST_COUNTS = 1 << 17
"""Largest number of counts in all stretches of time together. A longer campaign gets longer stretches."""
_SET_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Profile:
    """Counts of reports that a tally does not have: by number of set bits, and by stretch of time.

    Q is the number of questions, A the largest number of bits of an answer. ``set_bits``: (Q, A + 1) int64, reports by
    question and number of set bits. ``key``: (M,) int64, rising, stretch·W + place, where the W places of a stretch
    hold for each question the number of answers, then its counts as in a tally. ``count``: (M,) int64, the count of
    each key.
    """

    set_bits: Integers
    key: Integers
    count: Integers

    def merge(self, other: Profile) -> Profile:
        """Return the sum of this profile and ``other``, a profile of other reports to the same campaign."""
        counts = np.concatenate([self.key, other.key]), np.concatenate([self.count, other.count])
        return Profile(self.set_bits + other.set_bits, *sums_by_key(*counts))

    def less(self, other: Profile) -> Profile:
        """Return this profile without the counts of ``other``, whose reports must be part of this profile."""
        return self.merge(Profile(-other.set_bits, other.key, -other.count))

    def by_stretch(self, width: int) -> tuple[Integers, Integers]:
        """Return the P stretches with reports, (P,) int64, rising, and their counts, (P, W) int64, W = ``width``."""
        stretch, row = np.unique(self.key // width, return_inverse=True)
        table = np.zeros((len(stretch), width), np.int64)
        table[row, self.key % width] = self.count
        return stretch, table


class Stretches:
    """Divides the periods of a campaign's life into stretches of equal length, so few that each is counted apart.

    ``first``: the first period of the campaign's life. ``length``: number of periods in a stretch; 1 for most
    campaigns. ``width``: number of counts of a stretch: for each question the number of answers and its other counts.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self.first = campaign.period_at(campaign.header.not_before)
        periods = campaign.period_at(campaign.header.expires - 1) - self.first + 1
        self.width = sum(question.mechanism.answers + 1 for question in campaign.questions)
        most = max(2, MOST_COUNTS // self.width)
        self.length = -(-periods // most)

    def of(self, period: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the number of the stretch of each of N periods: (N,) uint32. Earlier periods are in stretch 0."""
        since = np.maximum(period, np.uint32(self.first)) - np.uint32(self.first)
        return since if self.length == 1 else since // np.uint32(self.length)

    def periods(self, stretch: int) -> tuple[int, int]:
        """Return the first and the last period of a stretch."""
        first = self.first + stretch * self.length
        return first, first + self.length - 1


class ProfileCounter:
    """Counts records into a :class:`Profile`."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._stretches = Stretches(campaign)
        self._sums = PeriodSums(campaign)
        is_row = [question.mechanism.layout == BITS for question in campaign.questions]
        self._is_row = np.array(is_row)
        most = max((question.mechanism.answers for question in campaign.questions if question.mechanism.layout == BITS),
                   default=0)  # fmt: skip
        self._set_bits = np.zeros((len(is_row), most + 1), np.int64)

    def add(self, records: Columns) -> None:
        """Add de-duplicated records. Their questions and answers must be possible in the campaign."""
        if not records.size:
            return
        first, last = self._stretches.of(np.array([records.period.min(), records.period.max()])).tolist()
        if first == last:
            self._sums.add_group(records, 2 * first + 1)
        else:
            proven = np.ones(records.size, np.bool_)
            stretch = self._stretches.of(records.period)
            self._sums.add(Columns(records.id, stretch, records.question, records.answer, proven))
        if self._is_row.any():
            for start in range(0, records.size, BLOCK_RECORDS):
                block = slice(start, start + BLOCK_RECORDS)
                self._add_set_bits(records.question[block], records.answer[block])

    def _add_set_bits(self, question: NDArray[np.uint16], answer: NDArray[np.uint8]) -> None:
        """Count N answers of A bytes, (N, A) uint8, by question, (N,) uint16, and number of set bits."""
        questions, bins = self._set_bits.shape
        lot = question.astype(np.int64) * bins
        for column in range(answer.shape[1]):
            lot += _SET_BITS.take(answer[:, column])
        if not self._is_row.all():
            lot = lot[self._is_row[question]]
        self._set_bits += np.bincount(lot, minlength=questions * bins).reshape(questions, bins)

    def profile(self) -> Profile:
        """Return the profile of all added records."""
        group_key, count = self._sums.counts()
        width = self._stretches.width
        group, place = np.divmod(group_key, width)
        return Profile(self._set_bits.copy(), (group >> 1) * width + place, count)

    def tally(self) -> Tally:
        """Return the tally of all added records: the sums over all stretches of time."""
        key, count = self._sums.counts()
        total = np.zeros(self._stretches.width, np.int64)
        np.add.at(total, key % self._stretches.width, count)
        return tally_of_counts(self._campaign, total)


def profile_of_counts(campaign: Campaign, period: Integers, place: Integers, count: Integers) -> Profile:
    """Return the profile, without set bits, of N counts of removed reports, each with its period and place."""
    stretches, empty = Stretches(campaign), ProfileCounter(campaign).profile()
    key = stretches.of(period.astype(np.uint32)).astype(np.int64) * stretches.width + place
    return empty.merge(Profile(empty.set_bits, key, count.astype(np.int64)))
