"""Integer sums by question and answer.

Single values are counted by a histogram of question and value. Rows of bits are not unpacked: each byte is counted by
question and byte value, and the count of a bit is the sum of 128 of these 256 counts. Rows of integers are summed by
question in blocks, so that the sums stay below 2^53, where floats are exact. Each integer is first clamped to the
bounds of its mechanism (docs/formats.md, section 4).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from aggregator.reports.decoding.matrix import BLOCK_RECORDS
from protocol.documents.campaign import Campaign
from protocol.mechanisms import BITS, SINGLE, Mechanism

_MAX_BINS = 1 << 14
_MAX_ROWS = 1 << 20


class Sums:
    """Counts by question and answer, block by block.

    Records can be counted in G separate groups at once. Question q of group g has the number g·Q + q.

    Args:
        campaign: with Q questions.
        groups: G, the number of groups.
    """

    def __init__(self, campaign: Campaign, groups: int = 1) -> None:
        mechanisms = [question.mechanism for question in campaign.questions] * groups
        self._groups = groups
        single = np.array([mechanism.layout == SINGLE for mechanism in mechanisms])
        self._n = np.zeros(len(mechanisms), np.int64)
        self._single = single
        self._values = _Values(mechanisms) if single.any() else None
        self._rows: _Rows | None = None
        if campaign.layout.kind != SINGLE:
            self._rows = _Bits(mechanisms) if campaign.layout.kind == BITS else _Integers(mechanisms)

    @property
    def n(self) -> tuple[int, ...]:
        """The number of answers to each question, in the order of the questions' numbers."""
        if self._rows is None:  # Every answer is a single value, counted once in its question's histogram.
            return tuple(map(sum, self.counts))
        return tuple(self._n.tolist())

    @property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """For each question: the number of each answer, the number of each set bit, or the sum of each component."""
        return tuple(tuple(self._of(question).tolist()) for question in range(len(self._single)))

    def drain(self) -> NDArray[np.int64]:
        """Take out all counts, and set them to 0.

        Returns:
            (G, Q + C) int64, C being the number of all counts of a group: for each question the number of answers,
            then its counts.
        """
        questions = len(self._single) // self._groups
        columns = []
        for question in range(questions):
            found = self._source(question)
            sums = found.total.reshape(self._groups, -1)[:, found.place(question)]
            answers = sums.sum(axis=1) if self._rows is None else self._n[question::questions]
            columns += [answers[:, None], sums]
        drained = np.concatenate(columns, axis=1)
        self._n[:] = 0
        for counts in (self._values, self._rows):
            if counts is not None:
                counts.total[:] = 0
        return drained

    def _of(self, question: int) -> NDArray[np.int64]:
        """The counts of one question: (its answers,) int64."""
        found = self._source(question)
        return found.total[found.place(question)]

    def _source(self, question: int) -> _Values | _Rows:
        """The object that counts a question: the histogram of single values, or the sums of rows."""
        found = self._values if self._single[question] else self._rows
        assert found is not None
        return found

    def add(
        self,
        question: NDArray[np.int64],
        answer: NDArray[np.uint8] | None = None,
        value: NDArray[np.int64] | None = None,
    ) -> bool:
        """Count N records. If one of them is no answer to its question, count none.

        Args:
            question: (N,) int64, number of each record's question: g·Q + q for question q of group g, with Q
                questions in the campaign.
            answer: (N, A) uint8, the answer fields. Needed unless the campaign's layout is ``SINGLE``.
            value: (N,) int64, the first 2 bytes of each answer field as an unsigned number, or the first 4 bytes as a
                signed one if the layout is ``INTEGERS``. Needed if an answer to some question is one value.

        Returns:
            True if the records were counted; False if one of them is no answer to its question.
        """
        values, rows = self._values, self._rows
        found = sums = None
        if values is not None:
            assert value is not None
            found = values.histogram(*self._only_single(question, value))
            if found is None:
                return False
        if rows is not None:
            assert answer is not None
            sums = rows.sums(question, answer)
            if sums is None:
                return False
            rows.total += sums
            self._n += np.bincount(question, minlength=len(self._n))
        if values is not None and found is not None:
            values.total += found
        return True

    def _only_single(
        self, question: NDArray[np.int64], value: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Question and value, (M,) int64 each, of the M records whose question has single values."""
        if self._single.all():
            return question, value
        chosen = self._single[question]
        return question[chosen], value[chosen]


class _Values:
    """A histogram of single values. Each question has a block of adjacent bins.

    If there are few bins, the length of a block is a power of two, so that two operations give the number of a bin.
    """

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
        """The places of a question in ``total``."""
        base = self._base[question]
        return slice(base, base + self._limit[question])

    def histogram(self, question: NDArray[np.int64], value: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Count N records.

        Args:
            question, value: (N,) int64 each.

        Returns:
            (bins,) int64; None if a value is no answer to its question.
        """
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
    """Sums of rows of bits or integers. Question q has ``own[q]`` places in ``total``, from ``base[q]`` on.

    A question with single values has no places here, although a single value takes some places of the answer field.
    """

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
        """The places of a question in ``total``."""
        base = self._base[question]
        return slice(base, base + self._own[question])

    def sums(self, question: NDArray[np.int64], answer: NDArray[np.uint8]) -> NDArray[np.int64] | None:
        """The sums of N records, in the order of ``total``.

        Args:
            question: (N,) int64.
            answer: (N, A) uint8.

        Returns:
            (places,) int64; None if a bit or integer after a question's own places is not 0.
        """
        total = np.zeros_like(self.total)
        for rows in self._blocks(len(question)):
            if not self._add_block(total, question[rows], answer[rows]):
                return None
        return total

    def _blocks(self, count: int) -> Iterator[slice]:
        """Blocks of rows, large enough that a block has not fewer records than counts."""
        step = min(max(BLOCK_RECORDS, self._questions << 8), _MAX_ROWS)
        return (slice(start, start + step) for start in range(0, count, step))

    @abstractmethod
    def _add_block(self, total: NDArray[np.int64], question: NDArray[np.int64], answer: NDArray[np.uint8]) -> bool:
        """Add a block of answers to ``total``. Returns False if something after a question's own places is not 0."""

    def _add_places(self, total: NDArray[np.int64], first: int, counts: NDArray[np.int64]) -> None:
        """Add counts, (Q, P) int64, to the P places from ``first`` on."""
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
            # Bytes with this bit are the upper half. The halves are then added up, and the bit is gone.
            upper = found[:, half:]
            upper.sum(axis=1, out=counts[:, bit])
            found = found[:, :half] + upper
        return counts

    def _by_bit(self, question: NDArray[np.int64], byte: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Count the bits of one byte of each answer, bit by bit.

        For few records of many questions: :meth:`_by_byte` would use more bins (256 for each question) than records.
        """
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
