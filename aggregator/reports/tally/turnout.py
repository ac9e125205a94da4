"""Numbers of answers by period and stratum, from which the number of devices that answered follows.

A device answers one question of each stratum (group of questions) once in a period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Integers, sums_by_key
from aggregator.reports.decoding.columns import Columns
from protocol.documents.campaign import Campaign

_MAX_SPAN = 1 << 16


@dataclass(frozen=True, eq=False)
class Turnout:
    """Numbers of answers by period and stratum (a group of questions of which a device answers one).

    P pairs (period, stratum) have an answer. Pairs without an answer are left out. ``strata``: r, the number of strata:
    a device gives one answer to each in a period. ``place``: (P,) int64, rising: period·r + stratum, the key of each
    pair. ``answers``: (P,) int64, number of answers of each pair, never 0.
    """

    strata: int
    place: Integers
    answers: Integers

    @classmethod
    def none(cls, campaign: Campaign) -> Turnout:
        """Return the turnout of no answers: the neutral element of :meth:`merge`."""
        return cls(campaign.answers, np.empty(0, np.int64), np.empty(0, np.int64))

    def merge(self, other: Turnout) -> Turnout:
        """Return the sum of this turnout and ``other``, which has as many strata. Associative and commutative."""
        pairs = np.concatenate([self.place, other.place]), np.concatenate([self.answers, other.answers])
        return Turnout(self.strata, *sums_by_key(*pairs))

    def less(self, other: Turnout) -> Turnout:
        """Return this turnout without the answers of ``other``, which must be part of it."""
        return self.merge(Turnout(other.strata, other.place, -other.answers))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Turnout):
            return NotImplemented
        return np.array_equal(self.place, other.place) and np.array_equal(self.answers, other.answers)

    def __hash__(self) -> int:
        return hash((self.place.tobytes(), self.answers.tobytes()))

    @property
    def period(self) -> Integers:
        """Return the period of each of the P pairs (period, stratum) with an answer: (P,) int64."""
        return np.asarray(self.place // self.strata)

    def of_stratum(self, stratum: int) -> Integers:
        """Return the numbers of answers to one stratum in the T periods with an answer to it: (T,) int64."""
        return np.asarray(self.answers[self.place % self.strata == stratum])

    def by_period(self) -> ByPeriod:
        """Return the numbers of reports and of devices in every period with a report.

        A device sends its answers to all strata together. The number of devices is therefore the number of answers to
        the stratum with the most answers. This number is too low only if a device's reports were lost in part.
        """
        period, row = np.unique(self.period, return_inverse=True)
        reports, devices = np.zeros(len(period), np.int64), np.zeros(len(period), np.int64)
        np.add.at(reports, row, self.answers)
        np.maximum.at(devices, row, self.answers)
        return ByPeriod(period, reports, devices)


class ByPeriod(NamedTuple):
    """Periods with reports, rising, their reports, and lower bounds of their devices: (T,) int64 each."""

    period: Integers
    reports: Integers
    devices: Integers


class TurnoutCounter:
    """Counts records by period and stratum (group of questions of which a device answers one)."""

    def __init__(self, campaign: Campaign) -> None:
        self._stratum = np.array([question.stratum for question in campaign.questions], np.int64)
        self._total = Turnout.none(campaign)

    def add(self, records: Columns) -> None:
        """Add records, whose questions must be questions of the campaign."""
        if records.size:
            self._total = self._total.merge(self._of(records))

    def _of(self, records: Columns) -> Turnout:
        strata = self._total.strata
        first, last = int(records.period.min()), int(records.period.max())
        span = (last - first + 1) * strata
        if span == 1:  # the common case: records of one period, and a campaign with one stratum
            return Turnout(1, np.array([first]), np.array([records.size]))
        place = (records.period - np.uint32(first)).astype(np.int64)
        if strata > 1:
            place = place * strata + self._stratum[records.question]
        if span > max(_MAX_SPAN, records.size):
            found, answers = np.unique(place, return_counts=True)
        else:
            counts = np.bincount(place, minlength=span)
            found = np.flatnonzero(counts)
            answers = counts[found]
        return Turnout(strata, found + first * strata, answers.astype(np.int64))

    def turnout(self) -> Turnout:
        """Return the turnout of all added records."""
        return self._total


def turnout_of(strata: int, period: Integers, stratum: Integers, answers: Integers) -> Turnout:
    """Make a turnout from N numbers of answers, their periods and strata, (N,) int64 each. Equal pairs add up."""
    return Turnout(strata, *sums_by_key(period.astype(np.int64) * strata + stratum, answers.astype(np.int64)))
