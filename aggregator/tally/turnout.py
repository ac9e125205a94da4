"""How many devices answered in each period: the answers to each stratum, period by period.

A device answers each stratum once in a period, so the answers to a stratum in one period are so many
devices. Which of them answered in other periods too, their ids do not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aggregator.decoding.columns import Columns
    from protocol.documents.campaign import Campaign

    Integers = NDArray[np.int64]

_MAX_SPAN = 1 << 16


@dataclass(frozen=True, eq=False)
class Turnout:
    """Answers by period and stratum.

    Attributes:
        strata: r, how many answers a device gives in a period.
        place: shape (P,), rising: period·r + stratum.
        answers: shape (P,), so many, none of them 0.
    """

    strata: int
    place: Integers
    answers: Integers

    @classmethod
    def none(cls, campaign: Campaign) -> Turnout:
        """Of no answers: the neutral element of :meth:`merge`."""
        return cls(campaign.answers, np.empty(0, np.int64), np.empty(0, np.int64))

    def merge(self, other: Turnout) -> Turnout:
        """Of both together. Associative and commutative."""
        return _summed(
            self.strata, np.concatenate([self.place, other.place]), np.concatenate([self.answers, other.answers])
        )

    def less(self, other: Turnout) -> Turnout:
        """Without some of the answers."""
        return self.merge(Turnout(other.strata, other.place, -other.answers))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Turnout):
            return NotImplemented
        return np.array_equal(self.place, other.place) and np.array_equal(self.answers, other.answers)

    def __hash__(self) -> int:
        return hash((self.place.tobytes(), self.answers.tobytes()))

    @property
    def period(self) -> Integers:
        """Shape (P,): of each place."""
        return np.asarray(self.place // self.strata)

    def of_stratum(self, stratum: int) -> Integers:
        """N_t: the answers to one stratum in every period that has any."""
        return np.asarray(self.answers[self.place % self.strata == stratum])

    def by_period(self) -> ByPeriod:
        """Reports and devices of every period.

        All answers of a device leave together, so the devices are those of the stratum with the most
        answers; more of them only if parts of their reports were lost.
        """
        period, row = np.unique(self.period, return_inverse=True)
        reports, devices = np.zeros(len(period), np.int64), np.zeros(len(period), np.int64)
        np.add.at(reports, row, self.answers)
        np.maximum.at(devices, row, self.answers)
        return ByPeriod(period, reports, devices)


class ByPeriod(NamedTuple):
    """Attributes: ``period``, rising; ``reports`` counted in each; ``devices``, so many answered at least."""

    period: Integers
    reports: Integers
    devices: Integers


class TurnoutCounter:
    """Adds up the turnout of records as they come."""

    def __init__(self, campaign: Campaign) -> None:
        self._stratum = np.array([question.stratum for question in campaign.questions], np.int64)
        self._total = Turnout.none(campaign)

    def add(self, records: Columns) -> None:
        """Count some records whose questions the campaign has."""
        if records.size:
            self._total = self._total.merge(self._of(records))

    def _of(self, records: Columns) -> Turnout:
        strata = self._total.strata
        first, last = int(records.period.min()), int(records.period.max())
        span = (last - first + 1) * strata
        if span == 1:  # the common case: files of one day
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
        """Of all records so far."""
        return self._total


def turnout_of(strata: int, period: Integers, stratum: Integers, answers: Integers) -> Turnout:
    """From columns in any order, equal places among them."""
    return _summed(strata, period.astype(np.int64) * strata + stratum, answers.astype(np.int64))


def _summed(strata: int, place: Integers, answers: Integers) -> Turnout:
    found, row = np.unique(place, return_inverse=True)
    total = np.zeros(len(found), np.int64)
    np.add.at(total, row, answers)
    return Turnout(strata, found[total != 0], total[total != 0])
