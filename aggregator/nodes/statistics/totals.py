"""Totals of nodes' summaries: exact sums, kept by period, to which one or many summaries are added at a time.

Summaries one by one, all at once, or from a union of sets give equal totals, byte for byte (Marchioro et al. 2022).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Integers
from protocol import canonical
from protocol.documents.campaign import Campaign
from protocol.errors import InputError
from protocol.nodes.summary import Summary
from protocol.nodes.terms import released_vectors

TOTAL_ID = b"hearsay total of nodes' summaries v1"
_HALF = 32
_LOW = (1 << _HALF) - 1
_BATCH_NUMBERS = 1 << 22
"""Most numbers of summaries that are added at a time."""


class Total(NamedTuple):
    """The sum of the summaries of some periods of a campaign.

    ``nodes``: number of nodes. ``summaries``: ε in millionths → number of summaries that state it. ``records``: period
    → number of records, the sum of the noisy class counts; may be negative. ``numbers``: the sums, M integers.
    """

    campaign: bytes
    nodes: int
    summaries: Mapping[int, int]
    records: Mapping[int, int]
    numbers: tuple[int, ...]

    @property
    def statistics_id(self) -> bytes:
        """32 bytes, a digest of all attributes: equal totals, equal ids."""
        entry = [
            self.campaign,
            self.nodes,
            [list(pair) for pair in sorted(self.summaries.items())],
            [[period, str(count)] for period, count in sorted(self.records.items())],
            [str(number) for number in self.numbers],
        ]
        return sha256(TOTAL_ID + canonical.pack(entry)).digest()


class _Period:
    """The sums of one period. High and low 32 bits are summed apart, so that no sum overflows 64 bits."""

    __slots__ = ("epsilons", "high", "low", "nodes")

    def __init__(self, size: int) -> None:
        self.nodes: set[bytes] = set()
        self.epsilons: Counter[int] = Counter()
        self.high = np.zeros(size, np.int64)
        self.low = np.zeros(size, np.int64)

    def add(self, values: Integers) -> None:
        self.high += (values >> _HALF).sum(axis=0)
        self.low += (values & _LOW).sum(axis=0)


class Totals:
    """Running totals of one campaign's summaries. Made by :meth:`of`, or empty and then filled by :meth:`add`."""

    def __init__(self, campaign: Campaign) -> None:
        sizes = [subject.size for subject in released_vectors(campaign)]
        self.campaign = campaign
        self._size, self._classes = sum(sizes), sizes[0]
        self._periods: dict[int, _Period] = {}

    @classmethod
    def of(cls, campaign: Campaign, summaries: Iterable[Summary]) -> Totals:
        """Return the totals of many summaries at once. Raises the errors of :meth:`add`."""
        made = cls(campaign)
        waiting: dict[int, list[tuple[int, ...]]] = {}
        most = max(1, _BATCH_NUMBERS // made._size)
        for summary in summaries:
            made._enter(summary)
            rows = waiting.setdefault(summary.period, [])
            rows.append(summary.sums)
            if len(rows) >= most:
                made._periods[summary.period].add(np.array(rows, np.int64))
                rows.clear()
        for period, rows in waiting.items():
            if rows:
                made._periods[period].add(np.array(rows, np.int64))
        return made

    def add(self, summary: Summary) -> None:
        """Add one checked summary. Raises ``other_campaign``, or ``summary_repeated`` for a second one of a period."""
        self._enter(summary)
        self._periods[summary.period].add(np.array([summary.sums], np.int64))

    def _enter(self, summary: Summary) -> None:
        """Record node and ε of a summary, whose numbers the caller then adds. Refuse a second summary of a period."""
        if summary.campaign != self.campaign.id:
            raise InputError("other_campaign", "the summary answers another campaign than these totals")
        period = self._periods.get(summary.period)
        if period is None:
            period = self._periods[summary.period] = _Period(self._size)
        if summary.node in period.nodes:
            raise InputError("summary_repeated", "the totals hold a summary of that node and period already")
        period.nodes.add(summary.node)
        period.epsilons[summary.epsilon_micro] += 1

    @property
    def periods(self) -> tuple[int, ...]:
        """The periods that have summaries, rising."""
        return tuple(sorted(self._periods))

    def total(self, periods: range | None = None) -> Total:
        """Return the sum of the summaries of some periods, or of all periods (None)."""
        nodes: set[bytes] = set()
        epsilons: Counter[int] = Counter()
        records: dict[int, int] = {}
        numbers = [0] * self._size
        for number in self.periods:
            if periods is not None and number not in periods:
                continue
            period = self._periods[number]
            nodes |= period.nodes
            epsilons.update(period.epsilons)
            own = _joined(period.high, period.low)
            records[number] = sum(own[: self._classes])
            numbers = [sum(pair) for pair in zip(numbers, own, strict=True)]
        return Total(self.campaign.id, len(nodes), dict(epsilons), records, tuple(numbers))


def column_sums(values: Integers) -> list[int]:
    """Return the exact sums of the columns of an array of shape (N, M) int64, N below 2^31: M integers of any size."""
    return _joined((values >> _HALF).sum(axis=0), (values & _LOW).sum(axis=0))


def _joined(high: Integers, low: Integers) -> list[int]:
    """Return the integers high·2^32 + low of two arrays of shape (M,) int64."""
    return [(above << _HALF) + below for above, below in zip(high.tolist(), low.tolist(), strict=True)]
