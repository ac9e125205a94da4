"""Counts that tell honest reports from lies: set bits per report, and counts by stretch of time.

A row of bits from an honest device has a number of set bits whose law does not depend on the record. A tally has no
such numbers. Counts by time show whether one period differs from the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from aggregator.reports.decoding.columns import Columns
from aggregator.reports.decoding.matrix import BLOCK_RECORDS
from aggregator.reports.tally.period_sums import PeriodSums
from aggregator.reports.tally.tally import Tally
from protocol.documents.campaign import Campaign
from protocol.mechanisms import BITS

MOST_COUNTS = 1 << 17
"""Largest number of counts by stretch, over all stretches. A longer campaign gets longer stretches."""
_SET_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Profile:
    """Counts of reports beside a tally. Q is the number of questions and A the largest number of bits of an answer.

    Attributes:
        set_bits: (Q, A + 1) int64, number of reports by question and number of set bits. Zeros for questions whose
            answers are no rows of bits.
        key: (M,) int64, rising: stretch·W + place, where W is the number of counts of a stretch.
        count: (M,) int64, the counts that are not 0. The W places of a stretch hold for each question the number of
            answers, then the question's counts as in a tally.
    """

    set_bits: Integers
    key: Integers
    count: Integers

    def merge(self, other: Profile) -> Profile:
        """Add the counts of ``other``, a profile of other reports to the same campaign."""
        key, row = np.unique(np.concatenate([self.key, other.key]), return_inverse=True)
        count = np.zeros(len(key), np.int64)
        np.add.at(count, row, np.concatenate([self.count, other.count]))
        return Profile(self.set_bits + other.set_bits, key[count != 0], count[count != 0])

    def less(self, other: Profile) -> Profile:
        """Subtract the counts of ``other``, whose reports must be part of this profile."""
        return self.merge(Profile(-other.set_bits, other.key, -other.count))

    def by_stretch(self, width: int) -> tuple[Integers, Integers]:
        """The stretches with reports, and their counts.

        Args:
            width: W.

        Returns:
            (P,) int64, rising, the numbers of the stretches; (P, W) int64, their counts.
        """
        stretch, row = np.unique(self.key // width, return_inverse=True)
        table = np.zeros((len(stretch), width), np.int64)
        table[row, self.key % width] = self.count
        return stretch, table


class Stretches:
    """Divides the periods of a campaign's life into stretches of equal length, few enough to count each apart.

    Attributes:
        first: the first period of the campaign's life.
        length: number of periods in a stretch; 1 for most campaigns.
        width: W, the number of counts of a stretch.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self.first = campaign.period_at(campaign.header.not_before)
        periods = campaign.period_at(campaign.header.expires - 1) - self.first + 1
        self.width = sum(question.mechanism.answers + 1 for question in campaign.questions)
        most = max(2, MOST_COUNTS // self.width)
        self.length = -(-periods // most)

    def of(self, period: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The stretch of each period: (N,) uint32 → (N,) uint32. Earlier periods are in stretch 0."""
        since = np.maximum(period, np.uint32(self.first)) - np.uint32(self.first)
        return since if self.length == 1 else since // np.uint32(self.length)

    def tally(self, counts: Integers) -> Tally:
        """The tally with these counts, (W,) int64, in the order of the places of a stretch (:class:`Profile`)."""
        sizes = [question.mechanism.answers + 1 for question in self._campaign.questions]
        own = np.split(counts, np.cumsum(sizes)[:-1])
        return Tally(
            self._campaign.id, tuple(int(some[0]) for some in own), tuple(tuple(some[1:].tolist()) for some in own)
        )

    def periods(self, stretch: int) -> tuple[int, int]:
        """The first and the last period of a stretch."""
        first = self.first + stretch * self.length
        return first, first + self.length - 1


class ProfileCounter:
    """Counts records. The result is a :class:`Profile`.

    Args:
        campaign: of the records.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._stretches = Stretches(campaign)
        self._sums = PeriodSums(campaign)
        is_row = [question.mechanism.layout == BITS for question in campaign.questions]
        self._is_row = np.array(is_row)
        most = max((question.mechanism.answers for question in campaign.questions if question.mechanism.layout == BITS),
                   default=0)  # fmt: skip
        self._set_bits = np.zeros((len(is_row), most + 1), np.int64)

    def add(self, records: Columns) -> None:
        """Add de-duplicated records. Their questions and answers must be possible ones of the campaign."""
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
        """Count N answers, (N,) uint16 and (N, A) uint8, by question and number of set bits."""
        questions, bins = self._set_bits.shape
        lot = question.astype(np.int64) * bins
        for column in range(answer.shape[1]):
            lot += _SET_BITS.take(answer[:, column])
        if not self._is_row.all():
            lot = lot[self._is_row[question]]
        self._set_bits += np.bincount(lot, minlength=questions * bins).reshape(questions, bins)

    def profile(self) -> Profile:
        """The profile of all added records."""
        group_key, count = self._sums.counts()
        width = self._stretches.width
        group, place = np.divmod(group_key, width)
        return Profile(self._set_bits.copy(), (group >> 1) * width + place, count)

    def tally(self) -> Tally:
        """The tally of all added records: the sums over all stretches."""
        key, count = self._sums.counts()
        total = np.zeros(self._stretches.width, np.int64)
        np.add.at(total, key % self._stretches.width, count)
        return self._stretches.tally(total)


def profile_of_counts(campaign: Campaign, period: Integers, place: Integers, count: Integers) -> Profile:
    """The profile of reports of which only counts by period are left. It has no set bits.

    Args:
        campaign: of the reports.
        period: (N,) integers.
        place: (N,) integers, the place of each count among the counts of a period (:class:`Profile`).
        count: (N,) integers.
    """
    stretches, empty = Stretches(campaign), ProfileCounter(campaign).profile()
    key = stretches.of(period.astype(np.uint32)).astype(np.int64) * stretches.width + place
    return empty.merge(Profile(empty.set_bits, key, count.astype(np.int64)))
