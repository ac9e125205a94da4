"""Exact de-duplication, and integer counts per question.

Source: docs/formats.md, sections 3 (report ids) and 4 (standing; tally bytes). Equal ids are
neighbours once a bucket is sorted, so no index is needed and only those few rows are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.decoding.columns import Columns, big_endian
from aggregator.decoding.matrix import BLOCK_RECORDS
from aggregator.tally.sums import Sums
from protocol import SPEC, canonical
from protocol.errors import InputError
from protocol.mechanisms import INTEGERS, SINGLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from aggregator.tally.turnout import Turnout
    from protocol.documents.campaign import Campaign


@dataclass(frozen=True)
class Tally:
    """Integer counts per question: all that statistics ever see of the reports.

    Attributes:
        campaign: id of the campaign.
        n: shape (Q,), answers per question.
        counts: per question its sums: how often each answer was given (one small integer), how often
            each bit was set (rows of bits), or the sum of each component (rows of integers).
    """

    campaign: bytes
    n: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]

    @classmethod
    def zero(cls, campaign: Campaign) -> Tally:
        """No reports: the neutral element of :meth:`merge`."""
        mechanisms = [question.mechanism for question in campaign.questions]
        return cls(campaign.id, (0,) * len(mechanisms), tuple((0,) * mechanism.answers for mechanism in mechanisms))

    def merge(self, other: Tally) -> Tally:
        """The tally of both sets of reports, which must share no id. Associative and commutative.

        Raises:
            InputError: ``other_campaign``: the tallies count answers to different campaigns.
        """
        if self.campaign != other.campaign:
            raise InputError("other_campaign", "tallies of two campaigns do not add up")
        return Tally(
            self.campaign,
            tuple(a + b for a, b in zip(self.n, other.n, strict=True)),
            tuple(
                tuple(a + b for a, b in zip(mine, theirs, strict=True))
                for mine, theirs in zip(self.counts, other.counts, strict=True)
            ),
        )

    def less(self, other: Tally) -> Tally:
        """The tally without some of the reports it counts."""
        return self.merge(
            Tally(other.campaign, tuple(-a for a in other.n), tuple(tuple(-a for a in cells) for cells in other.counts))
        )

    def to_bytes(self) -> bytes:
        """Tally bytes: a canonical map of ``campaign``, ``counts``, ``n`` and ``spec``, nothing else."""
        return canonical.pack({"campaign": self.campaign, "counts": self.counts, "n": self.n, "spec": SPEC})

    @cached_property
    def statistics_id(self) -> bytes:
        """SHA-256 of the tally bytes; a model names its statistics by it."""
        return sha256(self.to_bytes()).digest()


class TallyReport(NamedTuple):
    """A tally, and what became of every record that is not in it.

    Attributes:
        tally: the counts.
        reports: records counted.
        rejected: records and stretches not counted, by reason; ``report_replayed`` (surplus copies of records that
            are counted) and ``report_conflict`` (different records with one id, and their copies) among them.
        unproven: records counted although their batch was damaged.
        superseded: unproven records not counted because a proven one has their id.
        turnout: the answers of each stratum and period.
    """

    tally: Tally
    reports: int
    rejected: Mapping[str, int]
    unproven: int
    superseded: int
    turnout: Turnout


class Settled(NamedTuple):
    """One record per id, and how many others there were."""

    records: Columns
    replayed: int
    conflicting: int
    superseded: int


def settle(records: Columns) -> Settled:
    """Reduce records to at most one per id, whatever their order and repetition.

    For each id: if any record is proven, the unproven ones are superseded. Of the rest, surplus copies
    of identical records are replays; if different records remain, all of them, copies too, are in conflict
    and none is kept.
    """
    order = _rising(records.id)
    ids = records.id.take(order)
    same = ids[1:] == ids[:-1]
    pairs = np.flatnonzero(same)
    if not len(pairs):
        return Settled(records, 0, 0, 0)

    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    lengths = np.diff(np.append(starts, len(ids)))
    differ = pairs[~_alike(records, order.take(pairs), order.take(pairs + 1))]
    uneven = np.zeros(len(starts), np.bool_)
    uneven[np.searchsorted(starts, differ, side="right") - 1] = True
    unanimous = order[starts[~uneven]]
    doubtful = _settle_uneven(records, order[np.repeat(uneven, lengths)])
    kept = np.zeros(len(ids), np.bool_)
    kept[unanimous] = True
    kept[doubtful.kept] = True
    return Settled(
        records.take(kept),
        replayed=int(lengths[~uneven].sum()) - len(unanimous) + doubtful.replayed,
        conflicting=doubtful.conflicting,
        superseded=doubtful.superseded,
    )


def _rising(ids: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The rows in the order of their ids, equal ids as they came.

    Sixteen bits at a time, from the lowest: numpy sorts such numbers by radix, whatever the processor.
    """
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    for shift in (16, 32, 48):
        order = order.take(np.argsort((ids >> np.uint64(shift)).astype(np.uint16).take(order), kind="stable"))
    return order


def _alike(records: Columns, left: NDArray[np.intp], right: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which pairs of rows agree in everything, their standing included; their ids are known to."""
    found = np.ones(len(left), np.bool_)
    for column in (records.period, records.question, records.proven):
        found &= column.take(left) == column.take(right)
    fields = _fields(records)
    return np.asarray(found & (fields.take(left) == fields.take(right)), np.bool_)


def _fields(records: Columns) -> NDArray[Any]:
    """Shape (N,): the answer fields as one string of bytes each, as :func:`row_bytes` has them."""
    answer = np.ascontiguousarray(records.answer)
    return answer.view(f"S{answer.shape[1]}")[:, 0]


class _Uneven(NamedTuple):
    """Of rows whose copies are not all alike: those kept, and how many others there were."""

    kept: NDArray[np.intp]
    replayed: int
    conflicting: int
    superseded: int


def _settle_uneven(records: Columns, doubtful: NDArray[np.intp]) -> _Uneven:
    """As :func:`settle`, of some rows with equal ids beside one another."""
    if not len(doubtful):
        return _Uneven(doubtful, 0, 0, 0)
    standing = doubtful[_best_standing(records.id[doubtful], records.proven[doubtful])]
    _, first = np.unique(row_bytes(records.take(standing)), return_index=True)
    distinct = standing[first]
    ids, times = np.unique(records.id[distinct], return_counts=True)
    torn = ids[times > 1]
    conflicting = int(np.count_nonzero(np.isin(records.id[standing], torn)))
    kept = distinct[~np.isin(records.id[distinct], torn)]
    return _Uneven(
        kept,
        replayed=len(standing) - conflicting - len(kept),
        conflicting=conflicting,
        superseded=len(doubtful) - len(standing),
    )


def _best_standing(ids: NDArray[np.uint64], proven: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of these rows, sorted by id, have the best standing that their id has."""
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    lengths = np.diff(np.append(starts, len(ids)))
    any_proven = np.repeat(np.logical_or.reduceat(proven, starts), lengths)
    return np.asarray(proven == any_proven, np.bool_)


def row_bytes(records: Columns) -> NDArray[Any]:
    """Shape (N,): all that a record says, as one string of bytes each.

    numpy compares such strings without their trailing zeros, which tells strings of one length apart
    just as well.
    """
    parts = [
        records.id[:, None].astype(">u8").view(np.uint8),
        records.period[:, None].astype(">u4").view(np.uint8),
        records.question[:, None].astype(">u2").view(np.uint8),
        records.answer,
    ]
    rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return rows.view(f"S{rows.shape[1]}")[:, 0]


def count(campaign: Campaign, records: Columns) -> Tally:
    """The tally of settled records.

    Raises:
        InputError: as :meth:`TallyBuilder.add`.
    """
    counter = TallyBuilder(campaign)
    counter.add(records)
    return counter.tally()


class TallyBuilder:
    """Counts records as they come, in blocks that stay in the cache; in groups, if there are several."""

    def __init__(self, campaign: Campaign, groups: int = 1) -> None:
        self._campaign = campaign
        self._sums = Sums(campaign, groups)
        self._has_values = any(question.mechanism.layout == SINGLE for question in campaign.questions)

    def add(self, records: Columns, group: NDArray[np.int64] | None = None) -> None:
        """Count some settled records.

        Args:
            records: N of them.
            group: shape (N,), the group of each; None where there is only one.

        Raises:
            InputError: ``question_unknown``, a record's question is not one of the campaign's;
                ``value_out_of_domain``, its answer is none of its question's.
        """
        for start in range(0, records.size, BLOCK_RECORDS):
            block = slice(start, start + BLOCK_RECORDS)
            self._add(records.take(block), None if group is None else group[block])

    def _add(self, records: Columns, group: NDArray[np.int64] | None) -> None:
        questions = len(self._campaign.questions)
        if int(records.question.max()) >= questions:
            raise InputError("question_unknown", "a record answers a question that the campaign does not have")
        question = records.question.astype(np.int64)
        if group is not None:
            question += questions * group
        width = 4 if self._campaign.layout.kind == INTEGERS else 2
        value = None
        if self._has_values:
            value = big_endian(records.answer[:, :width], f">u{width}")[:, 0].astype(np.int64)
        if not self._sums.add(question, records.answer, value):
            raise InputError("value_out_of_domain", "a record's answer is none of its question's")

    def drain(self) -> NDArray[np.int64]:
        """The counts so far by group, as :meth:`aggregator.tally.sums.Sums.drain` gives them."""
        return self._sums.drain()

    def tally(self) -> Tally:
        """The counts so far."""
        return Tally(self._campaign.id, self._sums.n, self._sums.counts)
