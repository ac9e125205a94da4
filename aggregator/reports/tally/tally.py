"""Exact de-duplication, and integer counts per question and answer. Source: docs/formats.md, sections 3 and 4.

Rows of bits are not unpacked: each byte is counted by its value, and a bit is the sum of 128 of these 256 counts.
Integers are summed in blocks, so that the sums stay below 2^53, where floats are exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Integers, run_starts
from aggregator.reports.decoding.columns import BLOCK_RECORDS, Columns, as_strings, big_endian
from aggregator.reports.tally.turnout import Turnout
from protocol import SPEC, canonical
from protocol.documents.campaign import Campaign
from protocol.errors import InputError
from protocol.mechanisms import BITS, INTEGERS, SINGLE, Mechanism

_MAX_BINS = 1 << 14
_MAX_ROWS = 1 << 20


class _Values:
    """A histogram of single-value answers. Few bins are spaced by a power of two per question, which is faster."""

    def __init__(self, mechanisms: Sequence[Mechanism]) -> None:
        self._limit = np.array([each.answers if each.layout == SINGLE else 0 for each in mechanisms], np.int64)
        self._shift = (int(self._limit.max()) - 1).bit_length()
        bins = len(mechanisms) << self._shift
        self._is_packed = bins <= _MAX_BINS
        lots = np.full(len(mechanisms), 1 << self._shift) if self._is_packed else self._limit
        self._base = np.cumsum(lots) - lots
        self._bins = int(lots.sum())
        place = np.arange(self._bins) - np.repeat(self._base, lots)
        self._spare = np.flatnonzero(place >= np.repeat(self._limit, lots))
        self.total = np.zeros(self._bins, np.int64)

    def place(self, question: int) -> slice:
        base = self._base[question]
        return slice(base, base + self._limit[question])

    def histogram(self, question: NDArray[np.int64], value: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Count N answers by question and value: (bins,) int64; None if a value is out of its question's domain."""
        if not len(question):
            return np.zeros(self._bins, np.int64)
        if not self._is_packed:
            if (value >= self._limit[question]).any():
                return None
            return np.bincount(self._base[question] + value, minlength=self._bins)
        if int(value.max()) >> self._shift:
            return None
        place = np.left_shift(question, self._shift)
        np.bitwise_or(place, value, out=place)
        found = np.bincount(place, minlength=self._bins)
        return None if found[self._spare].any() else found


class _Rows(ABC):
    """Sums of answers that are rows of bits or of integers, those of question q from element ``base[q]`` on."""

    per_single: int

    def __init__(self, mechanisms: Sequence[Mechanism]) -> None:
        self._questions = len(mechanisms)
        self._is_row = np.array([each.layout != SINGLE for each in mechanisms])
        self._own = np.array([each.answers for each in mechanisms], np.int64)
        self._used = np.where(self._is_row, self._own, self.per_single)
        self._own *= self._is_row
        self._base = np.cumsum(self._own) - self._own
        self.total = np.zeros(int(self._own.sum()), np.int64)

    def place(self, question: int) -> slice:
        base = self._base[question]
        return slice(base, base + self._own[question])

    def sums(self, question: NDArray[np.int64], answer: NDArray[np.uint8]) -> NDArray[np.int64] | None:
        """Add up N answers, (N, A) uint8, in the order of ``total``; None if an answer has a bit set in its padding."""
        total = np.zeros_like(self.total)
        step = min(max(BLOCK_RECORDS, self._questions << 8), _MAX_ROWS)  # a block has not fewer records than counts
        for start in range(0, len(question), step):
            rows = slice(start, start + step)
            if not self._add_block(total, question[rows], answer[rows]):
                return None
        return total

    @abstractmethod
    def _add_block(self, total: NDArray[np.int64], question: NDArray[np.int64], answer: NDArray[np.uint8]) -> bool:
        """Add a block of answers to ``total``. Return False if an answer has a bit set in its padding."""

    def _add_places(self, total: NDArray[np.int64], first: int, counts: NDArray[np.int64]) -> None:
        """Add counts, (Q, P) int64, to ``total``: row q to the elements ``first`` … ``first`` + P − 1 of question q."""
        place = first + np.arange(counts.shape[1])
        own = place < self._own[:, None]
        total[(self._base[:, None] + place)[own]] += counts[own]


class _Bits(_Rows):
    per_single = 16

    def _add_block(self, total: NDArray[np.int64], question: NDArray[np.int64], answer: NDArray[np.uint8]) -> bool:
        lot = question << 8
        for column in range(answer.shape[1]):
            byte = answer[:, column]
            counts = self._by_byte(lot, byte) if len(question) >= len(self._own) << 5 else self._by_bit(question, byte)
            beyond = 8 * column + np.arange(8) >= self._used[:, None]
            if counts[beyond].any():
                return False
            self._add_places(total, 8 * column, counts)
        return True

    def _by_byte(self, lot: NDArray[np.int64], byte: NDArray[np.uint8]) -> NDArray[np.int64]:
        found = np.bincount(lot | byte, minlength=self._questions << 8).reshape(self._questions, 256)
        counts = np.empty((self._questions, 8), np.int64)
        for bit, half in enumerate((128, 64, 32, 16, 8, 4, 2, 1)):
            # The counts of byte values with this bit are the upper half. Adding the halves up removes the bit.
            upper = found[:, half:]
            upper.sum(axis=1, out=counts[:, bit])
            found = found[:, :half] + upper
        return counts

    def _by_bit(self, question: NDArray[np.int64], byte: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Count set bits in one byte of each answer, by question and bit; faster for few records of many questions."""
        bits = np.unpackbits(byte[:, None], axis=1)
        found = [np.bincount(question[bits[:, bit] > 0], minlength=self._questions) for bit in range(8)]
        return np.stack(found, axis=1)


class _Integers(_Rows):
    per_single = 1

    def __init__(self, mechanisms: Sequence[Mechanism]) -> None:
        super().__init__(mechanisms)
        self._least, self._most = np.array([mechanism.counted for mechanism in mechanisms], np.int64).T

    def _add_block(self, total: NDArray[np.int64], question: NDArray[np.int64], answer: NDArray[np.uint8]) -> bool:
        least, most = self._least[question], self._most[question]
        for column in range(answer.shape[1] // 4):
            part = answer[:, 4 * column : 4 * column + 4].view(">i4")[:, 0].astype(np.int64)
            beyond = self._used <= column
            if beyond.any() and part[beyond[question]].any():
                return False
            np.clip(part, least, most, out=part)
            counts = np.rint(np.bincount(question, part, minlength=self._questions)).astype(np.int64)
            self._add_places(total, column, counts[:, None])
        return True


@dataclass(frozen=True)
class Tally:
    """Integer counts of answers to the questions of a campaign. Estimates are computed from these counts.

    ``campaign``: id of the campaign. ``n``: for each question the number of answers. ``counts``: for each question the
    number of each answer (single values), the number of each set bit (rows of bits), or the sum of each component (rows
    of integers).
    """

    campaign: bytes
    n: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]

    @classmethod
    def zero(cls, campaign: Campaign) -> Tally:
        """Return the tally of no reports: the neutral element of :meth:`merge`."""
        mechanisms = [question.mechanism for question in campaign.questions]
        return cls(campaign.id, (0,) * len(mechanisms), tuple((0,) * mechanism.answers for mechanism in mechanisms))

    def merge(self, other: Tally) -> Tally:
        """Return the sum with a tally of reports with other ids, in any order. Raises ``other_campaign``."""
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
        """Return this tally without ``other``, whose reports must be part of it. Raises the errors of :meth:`merge`."""
        return self.merge(
            Tally(other.campaign, tuple(-a for a in other.n), tuple(tuple(-a for a in cells) for cells in other.counts))
        )

    def to_bytes(self) -> bytes:
        """Return the tally bytes: a canonical msgpack map of ``campaign``, ``counts``, ``n`` and ``spec`` alone."""
        return canonical.pack({"campaign": self.campaign, "counts": self.counts, "n": self.n, "spec": SPEC})

    @cached_property
    def statistics_id(self) -> bytes:
        """Return the SHA-256 of the tally bytes. A model names its statistics by this id."""
        return sha256(self.to_bytes()).digest()


class TallyReport(NamedTuple):
    """A tally, and the numbers of records that are not in it.

    ``rejected``: records and byte ranges by reason, also ``report_replayed`` (surplus copies) and ``report_conflict``
    (different records with one id). ``unproven``: counted records of damaged batches; ``superseded``: uncounted ones,
    since a proven record has their id, or their batch is there complete. ``turnout``: answers by period and stratum.
    """

    tally: Tally
    reports: int
    rejected: Mapping[str, int]
    unproven: int
    superseded: int
    turnout: Turnout


class Settled(NamedTuple):
    """The records that :func:`settle` keeps, at most one per id, and the numbers of records that it drops.

    ``replayed``: number of copies of kept records. ``conflicting``: number of records, copies included, whose id has
    different records. ``superseded``: number of records of damaged batches whose id has a proven record (of a complete
    batch).
    """

    records: Columns
    replayed: int
    conflicting: int
    superseded: int


def settle(records: Columns) -> Settled:
    """Reduce records to at most one per id, whatever their order and repetition. Kept records stay in their order.

    A proven record supersedes the id's unproven ones. If all other records of the id are equal, one is kept and its
    copies are replays; if they differ, they are in conflict, and none is kept.
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
    doubtful, replayed, conflicting, superseded = _settle_uneven(records, order[np.repeat(uneven, lengths)])
    kept = np.zeros(len(ids), np.bool_)
    kept[unanimous] = True
    kept[doubtful] = True
    replayed += int(lengths[~uneven].sum()) - len(unanimous)
    return Settled(records.take(kept), replayed, conflicting, superseded)


def _rising(ids: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the order, (N,) intp, that sorts N ids, (N,) uint64, by sixteen bits at a time (numpy: by radix)."""
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    for shift in (16, 32, 48):
        order = order.take(np.argsort((ids >> np.uint64(shift)).astype(np.uint16).take(order), kind="stable"))
    return order


def _alike(records: Columns, left: NDArray[np.intp], right: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which of P pairs of rows, ``left`` and ``right``, with equal ids, are equal in all columns: (P,) bool."""
    found = np.ones(len(left), np.bool_)
    for column in (records.period, records.question, records.proven):
        found &= column.take(left) == column.take(right)
    fields = as_strings(records.answer)
    return np.asarray(found & (fields.take(left) == fields.take(right)), np.bool_)


def _settle_uneven(records: Columns, doubtful: NDArray[np.intp]) -> tuple[NDArray[np.intp], int, int, int]:
    """Apply :func:`settle` to rows sorted by id. Return kept rows; numbers replayed, conflicting and superseded."""
    if not len(doubtful):
        return doubtful, 0, 0, 0
    standing = doubtful[_best_standing(records.id[doubtful], records.proven[doubtful])]
    _, first = np.unique(row_bytes(records.take(standing)), return_index=True)
    distinct = standing[first]
    ids, times = np.unique(records.id[distinct], return_counts=True)
    torn = ids[times > 1]
    conflicting = int(np.count_nonzero(np.isin(records.id[standing], torn)))
    kept = distinct[~np.isin(records.id[distinct], torn)]
    return kept, len(standing) - conflicting - len(kept), conflicting, len(doubtful) - len(standing)


def _best_standing(ids: NDArray[np.uint64], proven: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of N records, sorted by id, are proven, or have no proven record with the same id: (N,) bool."""
    starts = run_starts(ids)
    lengths = np.diff(np.append(starts, len(ids)))
    any_proven = np.repeat(np.logical_or.reduceat(proven, starts), lengths)
    return np.asarray(proven == any_proven, np.bool_)


def row_bytes(records: Columns) -> NDArray[Any]:
    """Return all columns of each of N records but ``proven`` as one string of bytes: (N,) of dtype ``S``."""
    parts = [
        records.id[:, None].astype(">u8").view(np.uint8),
        records.period[:, None].astype(">u4").view(np.uint8),
        records.question[:, None].astype(">u2").view(np.uint8),
        records.answer,
    ]
    return as_strings(np.concatenate(parts, axis=1))


def count(campaign: Campaign, records: Columns) -> Tally:
    """Return the tally of records, at most one of each id. Raises the errors of :meth:`TallyBuilder.add_answers`."""
    counter = TallyBuilder(campaign)
    counter.add(records)
    return counter.tally()


class TallyBuilder:
    """Counts records in blocks that stay in the processor's cache.

    The records may belong to G = ``groups`` groups, which are counted apart. With Q questions in the campaign, question
    q of group g has the number g·Q + q.
    """

    def __init__(self, campaign: Campaign, groups: int = 1) -> None:
        mechanisms = [question.mechanism for question in campaign.questions] * groups
        self._campaign = campaign
        self._groups = groups
        self._n = np.zeros(len(mechanisms), np.int64)
        self._single = np.array([mechanism.layout == SINGLE for mechanism in mechanisms])
        self._values = _Values(mechanisms) if self._single.any() else None
        self._rows: _Rows | None = None
        if campaign.layout.kind != SINGLE:
            self._rows = _Bits(mechanisms) if campaign.layout.kind == BITS else _Integers(mechanisms)

    def add(self, records: Columns) -> None:
        """Count de-duplicated records: at most one record of each id."""
        self.add_answers(records.question, records.answer)

    def add_answers(
        self, question: NDArray[np.uint16], answer: NDArray[np.uint8], group: NDArray[np.int64] | None = None
    ) -> None:
        """Count N answers to ``question``, (N,) uint16, whose fields are ``answer``, (N, A) uint8.

        ``group``, (N,) int64: the group of each; None for group 0. Raises InputError ``question_unknown``,
        ``value_out_of_domain``; some answers may have been counted then.
        """
        questions, width = len(self._campaign.questions), 4 if self._campaign.layout.kind == INTEGERS else 2
        for start in range(0, len(question), BLOCK_RECORDS):
            block = slice(start, start + BLOCK_RECORDS)
            number = question[block].astype(np.int64)
            if int(number.max()) >= questions:
                raise InputError("question_unknown", "a record answers a question that the campaign does not have")
            if group is not None:
                number += questions * group[block]
            value = None
            if self._values is not None:
                value = big_endian(answer[block, :width], f">u{width}")[:, 0].astype(np.int64)
            if not self.count(number, answer[block], value):
                raise InputError("value_out_of_domain", "a record's answer is none of its question's")

    def count(self, number: Integers, answer: NDArray[np.uint8] | None = None, value: Integers | None = None) -> bool:
        """Count N records, and return True. If an answer is not possible for its question, count none: False.

        Args:
            number: (N,) int64, number of each record's question (see the class).
            answer: (N, A) uint8, the answer fields of A bytes. Needed unless the campaign's layout is ``SINGLE``.
            value: (N,) int64, the first 2 bytes of each answer field, or the first 4 if the layout is ``INTEGERS``, as
                an unsigned number. Needed if an answer to some question is one value.
        """
        found = sums = None
        if self._values is not None:
            assert value is not None
            chosen = slice(None) if self._single.all() else self._single[number]
            found = self._values.histogram(number[chosen], value[chosen])
            if found is None:
                return False
        if self._rows is not None:
            assert answer is not None
            sums = self._rows.sums(number, answer)
            if sums is None:
                return False
            self._rows.total += sums
            self._n += np.bincount(number, minlength=len(self._n))
        if self._values is not None and found is not None:
            self._values.total += found
        return True

    def _counts(self) -> Integers:
        """Return the counts of all groups, in the form that :meth:`drain` returns."""
        questions = len(self._campaign.questions)
        columns = []
        for question in range(questions):
            found = self._values if self._single[question] else self._rows
            assert found is not None
            sums = found.total.reshape(self._groups, -1)[:, found.place(question)]
            answers = sums.sum(axis=1) if self._rows is None else self._n[question::questions]
            columns += [answers[:, None], sums]
        return np.concatenate(columns, axis=1)

    def drain(self) -> Integers:
        """Return all counts, (G, Q + C) int64 for G groups, each as :func:`tally_of_counts` has it; set them to 0."""
        drained = self._counts()
        self._n[:] = 0
        for counts in (self._values, self._rows):
            if counts is not None:
                counts.total[:] = 0
        return drained

    def tally(self) -> Tally:
        """Return the tally of all records added since the last :meth:`drain`. The builder must have one group."""
        return tally_of_counts(self._campaign, self._counts()[0])


def tally_of_counts(campaign: Campaign, counts: Integers) -> Tally:
    """Return the tally of ``counts``, (Q + C,) int64: for each of Q questions the number of answers, then its own."""
    sizes = [1 + question.mechanism.answers for question in campaign.questions]
    own = [some.tolist() for some in np.split(counts, np.cumsum(sizes)[:-1])]
    return Tally(campaign.id, tuple(n for n, *_ in own), tuple(tuple(cells) for _, *cells in own))
