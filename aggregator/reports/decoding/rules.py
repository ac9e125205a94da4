"""A campaign's rules for single reports, as array operations. Source: docs/formats.md, sections 2 to 4."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.reports.decoding.columns import Matrix
from protocol.batches.report import FIXED_BYTES
from protocol.documents.campaign import Campaign
from protocol.mechanisms import BITS, INTEGERS, SINGLE, Mechanism

FAULTS = ("question_unknown", "question_not_assigned", "value_out_of_domain", "report_too_late", "report_too_early")
"""The reasons to reject a record, in the order in which they apply. :meth:`Rules.faults` numbers them from 1."""

_WORD = 8
_AT_ONCE = 1 << 22
"""Most integers of answers that are unpacked at once: 32 MiB."""


class Fields(NamedTuple):
    """The fields of N records, ``rows``, that the rules check.

    ``first``: (N,) uint64, the first eight bytes of each record: the bytes that all share, and the begin of the id.
    ``head``: (N,) uint64, period·2^32 + question·2^16 + value (:meth:`Matrix.head`). ``question``: (N,) int64, index in
    the campaign's questions.
    """

    rows: Matrix
    first: NDArray[np.uint64]
    head: NDArray[np.uint64]
    question: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Matrix) -> Fields:
        """Copy the fields of every row. The caller keeps the matrix within the processor's cache."""
        head = rows.head()
        question = head >> 16
        np.bitwise_and(question, 0xFFFF, out=question)
        return cls(rows, rows.first(), head, question.view(np.int64))

    def values(self) -> NDArray[np.int64]:
        """Return each of N answer fields, of questions with a single value, read as one number: (N,) int64."""
        if self.rows.layout.kind == SINGLE:
            return (self.head & 0xFFFF).view(np.int64)
        return self.rows.values()


class Rules:
    """The rules of one campaign as arrays over its questions. Picklable. ``now`` is in seconds since 1970."""

    def __init__(self, campaign: Campaign) -> None:
        layout, questions = campaign.layout, campaign.questions
        intervals = [campaign.assignment.interval(i, question.stratum) for i, question in enumerate(questions)]
        mechanisms = [question.mechanism for question in questions]
        self._campaign = campaign
        self._questions = len(questions)
        # The bytes that all records share and the first four bytes of the id are read as one number. The number of a
        # good record is in the interval of its question.
        spare = 8 * (_WORD - len(layout.prefix) - 4)
        fixed = int.from_bytes(layout.prefix, "big") << (32 + spare)
        self._low = np.array([fixed + (low << spare) for low, _ in intervals], np.uint64)
        self._width = np.array([(high - low) << spare for low, high in intervals], np.uint64)
        self._limit = np.array([_limit(mechanism, layout.kind) for mechanism in mechanisms], np.int64)
        self._singles = any(mechanism.layout == SINGLE for mechanism in mechanisms)
        self._zero = _zero_words(mechanisms, layout.kind, layout.record_length, layout.answer_bytes)
        self._integers = range(0)
        if layout.kind == INTEGERS:
            self._integers = range(layout.record_length - layout.answer_bytes, layout.record_length, 4)
        # Most mechanisms can give every answer that the field can hold. Only the other mechanisms are asked.
        self._asked = [(place, each) for place, each in enumerate(mechanisms) if _excludes(each)]
        self._least, self._most = np.array([mechanism.bounds for mechanism in mechanisms] or [(0, 0)], np.int64).T
        # A report is too early if (period + 1)·precision ≤ not_before, and too late if period·precision ≥ expires.
        # Both limits are stored as numbers of periods, because these products could overflow.
        self._first_period = campaign.header.not_before // campaign.time_precision
        self._end_period = -(-campaign.header.expires // campaign.time_precision)

    def is_sound(self, fields: Fields, now: int) -> bool:
        """Return whether all records have the right first bytes and pass every rule but those about answers."""
        head, question = fields.head, fields.question
        if not len(question):
            return True
        stop = min(self._end_period, self._campaign.period_at(now) + 1)
        if int(head.min()) >> 32 < self._first_period or int(head.max()) >> 32 >= stop:
            return False
        if int(question.max()) >= self._questions:
            return False
        return bool(self._assigned(fields.first, question).all())

    def in_domain(self, fields: Fields) -> bool:
        """Return whether every question allows its answer. The records must have passed :meth:`is_sound`."""
        return not any(wrong.any() for wrong in self._wrong_answers(fields, fields.question))

    def faults(self, fields: Fields, now: int) -> NDArray[np.uint8]:
        """Return the first rule that each of N records breaks: (N,) uint8, 0 for none, k for ``FAULTS[k - 1]``."""
        known = fields.question < self._questions
        question = np.where(known, fields.question, 0)
        period = (fields.head >> 32).view(np.int64)
        domain = np.zeros(len(question), np.bool_)
        for wrong in self._wrong_answers(fields, question):
            domain |= wrong
        faults = np.stack(
            [
                ~known,
                ~self._assigned(fields.first, question),
                domain,
                period >= self._end_period,
                (period < self._first_period) | (period > self._campaign.period_at(now)),
            ]
        )
        return np.where(faults.any(axis=0), 1 + faults.argmax(axis=0), 0).astype(np.uint8)

    def _assigned(self, first: NDArray[np.uint64], question: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of N records have an id in the interval of their question: (N,) bool."""
        above = np.take(self._low, question, mode="clip")
        np.subtract(first, above, out=above)
        return np.less(above, np.take(self._width, question, mode="clip"))

    def _wrong_answers(self, fields: Fields, question: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
        """Return (N,) masks of wrong answers: with bits set in the padding, beyond a limit, or given by no device."""
        wrong = []
        for offset, zero in self._zero:
            word = fields.rows.field(offset, ">u8") & np.take(zero, question, mode="clip")
            wrong.append(word != 0)
        if self._singles:
            wrong.append(fields.values() >= np.take(self._limit, question, mode="clip"))
        if self._integers:
            wrong.append(self._out_of_bounds(fields, question))
        if self._asked:
            wrong.append(self._impossible(fields, question, wrong))
        return wrong

    def _impossible(
        self, fields: Fields, question: NDArray[np.int64], wrong: list[NDArray[np.bool_]]
    ) -> NDArray[np.bool_]:
        """Return which of N answers no device can give: (N,) bool. Answers in a mask of ``wrong`` are not tested."""
        found = np.zeros(len(question), np.bool_)
        left = ~np.any(wrong, axis=0) if wrong else ~found
        for place, mechanism in self._asked:
            rows, most = np.flatnonzero(left & (question == place)), max(1, _AT_ONCE // max(1, mechanism.answers))
            for first in range(0, len(rows), most):
                part = rows[first : first + most]
                found[part] = mechanism.impossible(_answers(fields, part, mechanism))
        return found

    def _out_of_bounds(self, fields: Fields, question: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of N answers hold an integer outside of its mechanism's bounds: (N,) bool."""
        least = np.take(self._least, question, mode="clip")
        most = np.take(self._most, question, mode="clip")
        wrong = np.zeros(len(question), np.bool_)
        for offset in self._integers:
            part = fields.rows.field(offset, ">i4").astype(np.int64)
            wrong |= (part < least) | (part > most)
        return wrong


def _excludes(mechanism: Mechanism) -> bool:
    """Return whether the answer field can hold answers that no device with this mechanism gives."""
    shape = (0,) if mechanism.layout == SINGLE else (0, mechanism.answers)
    return mechanism.impossible(np.empty(shape, np.int64)) is not None


def _answers(fields: Fields, rows: NDArray[np.intp], mechanism: Mechanism) -> NDArray[np.int64]:
    """Return the answers in some ``rows`` of N records as :meth:`Mechanism.impossible` takes them."""
    if mechanism.layout == SINGLE:
        return fields.values()[rows]
    answers = fields.rows.answers()[rows]
    if mechanism.layout == BITS:
        return np.unpackbits(answers, axis=1, count=mechanism.answers).astype(np.int64)
    return answers.view(">i4")[:, : mechanism.answers].astype(np.int64)


def _limit(mechanism: Mechanism, kind: int) -> int:
    """Return the number below which a single value must be; for other layouts 1 + the largest that fits the field."""
    if mechanism.layout == SINGLE:
        return mechanism.answers
    return 1 << (32 if kind == INTEGERS else 16)


def _zero_words(
    mechanisms: list[Mechanism], kind: int, record_length: int, width: int
) -> list[tuple[int, NDArray[np.uint64]]]:
    """Return (offset, (questions,) uint64 masks) of the words of eight bytes whose masked bits must be zero."""
    single = 32 if kind == INTEGERS else 16
    used = np.array(
        [single if each.layout == SINGLE else each.answers * (1 if each.layout == BITS else 32) for each in mechanisms],
        np.int64,
    )
    words = []
    for end in range(record_length, record_length - width, -_WORD):
        begin = 8 * (end - _WORD - (record_length - width))  # first bit of the word, counted from the answer field
        free = np.clip(begin + 64 - np.maximum(used, 0), 0, 64)
        zero = np.array([(1 << int(bits)) - 1 for bits in free], np.uint64)
        if zero.any():
            words.append((end - _WORD, zero))
    return words


assert FIXED_BYTES >= _WORD  # so a word that ends in the answer field never begins before the record
