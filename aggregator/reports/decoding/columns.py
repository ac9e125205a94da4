"""Records of reports as rows of bytes and as columns, which ``decoding`` makes, ``storage`` keeps and ``tally`` counts.

N records of L bytes are an N × L matrix of bytes, and each field is a view of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from mmap import mmap
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from aggregator.reports.decoding.content import Content, LargeFile, give_back
from protocol.batches.report import FIXED_BYTES, ID_BYTES, Layout
from protocol.mechanisms import INTEGERS, SINGLE


class Columns(NamedTuple):
    """N records of one campaign, column by column.

    (N,) each: ``id`` uint64, the report's id as a big-endian number; ``period`` uint32; ``question`` uint16, an index;
    ``proven`` bool, whether the batch had the right digest and number of records. ``answer``: (N, A) uint8, the answer
    field.
    """

    id: NDArray[np.uint64]
    period: NDArray[np.uint32]
    question: NDArray[np.uint16]
    answer: NDArray[np.uint8]
    proven: NDArray[np.bool_]

    @classmethod
    def empty(cls, answer_bytes: int) -> Self:
        """Return columns of no records, whose answer fields have ``answer_bytes`` bytes."""
        return cls(
            np.empty(0, np.uint64),
            np.empty(0, np.uint32),
            np.empty(0, np.uint16),
            np.empty((0, answer_bytes), np.uint8),
            np.empty(0, np.bool_),
        )

    @classmethod
    def join(cls, pieces: Sequence[Columns], answer_bytes: int) -> Self:
        """Concatenate all ``pieces`` in their order. ``answer_bytes`` is used only if there are none."""
        columns = zip(*(pieces or [cls.empty(answer_bytes)]), strict=True)
        return cls._make(map(np.concatenate, columns))

    @property
    def size(self) -> int:
        """Return the number of records, N."""
        return len(self.id)

    def take(self, rows: NDArray[Any] | slice) -> Columns:
        """Return the records that ``rows`` selects: an index array, a mask with one value per record, or a slice."""
        return Columns._make(column[rows] for column in self)


def as_strings(rows: NDArray[np.uint8]) -> NDArray[Any]:
    """View N rows of L bytes, (N, L) uint8, as N strings that can be compared: (N,) of dtype ``S``."""
    rows = np.ascontiguousarray(rows)
    return rows.view(f"S{rows.shape[1]}")[:, 0]


def big_endian(field: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """Read c numbers of w bytes in N rows, (N, c·w) uint8, as (N, c) of the dtype ``kind``, for example ``">u4"``."""
    return np.ascontiguousarray(field).view(np.dtype(kind))


BLOCK_RECORDS = 1 << 16
"""Number of records in one array operation. Their fields, eight bytes each, fit into a second-level cache."""
SHORT = 256
"""Runs of fewer adjacent records are joined, so that one array operation covers many of them."""
_FEW, _MANY = 8, 1 << 16
_MANY_BYTES = 1 << 23


class Matrix(NamedTuple):
    """N adjacent records of one layout in a file: ``rows`` = N, and the first is at position ``start`` of ``data``."""

    data: Content
    start: int
    rows: int
    layout: Layout

    def part(self, first: int, stop: int) -> Matrix:
        """Return the rows from ``first`` to before ``stop``; ``stop`` may be larger than the number of rows."""
        length = self.layout.record_length
        return self._replace(start=self.start + first * length, rows=min(stop, self.rows) - first)

    def field(self, offset: int, kind: str) -> NDArray[Any]:
        """Return the number at one ``offset`` of each of the N records: (N,) of dtype ``kind``, a view of the file."""
        if not self.rows:
            return np.empty(0, kind)
        length = self.layout.record_length
        data, start = _in_memory(self.data, self.start, self.rows * length)
        return np.ndarray((self.rows,), kind, data, start + offset, (length,))

    def first(self) -> NDArray[np.uint64]:
        """Return the first eight bytes of each of N records, the shared ones and the id's start: (N,) uint64."""
        return self.field(0, ">u8").astype(np.uint64)

    def head(self) -> NDArray[np.uint64]:
        """Return period·2^32 + question·2^16 + value of N records: (N,) uint64; the value is 0 but in ``SINGLE``."""
        place = len(self.layout.prefix) + ID_BYTES
        if self.layout.kind == SINGLE:
            return self.field(place, ">u8").astype(np.uint64)
        # The answer may have only one byte. The word therefore ends before the answer, and not after two bytes of it.
        head = self.field(place - 2, ">u8").astype(np.uint64)
        np.left_shift(head, 16, out=head)
        return head

    def ids(self) -> NDArray[np.uint64]:
        """Return the report's id of each of the N records: (N,) uint64."""
        return self.field(len(self.layout.prefix), ">u8").astype(np.uint64)

    def values(self) -> NDArray[np.int64]:
        """Return each of N answer fields, of questions with a single value, read as one number: (N,) int64."""
        width = 4 if self.layout.kind == INTEGERS else 2
        return self.field(len(self.layout.prefix) + FIXED_BYTES, f">u{width}").astype(np.int64)

    def answers(self) -> NDArray[np.uint8]:
        """Return the N answer fields of A bytes, a view of the file: (N, A) uint8."""
        width, length = self.layout.answer_bytes, self.layout.record_length
        if not self.rows:
            return np.empty((0, width), np.uint8)
        data, start = _in_memory(self.data, self.start, self.rows * length)
        return np.ndarray((self.rows, width), np.uint8, data, start + length - width, (length, 1))

    def positions(self) -> NDArray[np.int64]:
        """Return the position of each of the N records in ``data``: (N,) int64."""
        length = self.layout.record_length
        return np.arange(self.start, self.start + self.rows * length, length, dtype=np.int64)


def matrices(data: Content, runs: Iterable[tuple[int, int]], layout: Layout) -> Iterator[tuple[Matrix, list[Matrix]]]:
    """Cut runs of adjacent records, each a (position, number of records), into matrices of about 65536 rows.

    Long runs are cut without a copy, unless the file is read piece by piece; short runs are copied into one matrix.
    Each matrix comes with views of the file where its rows are.
    """
    waiting: list[Matrix] = []
    records = 0
    for start, count in runs:
        rows = Matrix(data, start, count, layout)
        if count < SHORT:
            waiting.append(rows)
            records += count
        if waiting and (count >= SHORT or records >= BLOCK_RECORDS):
            yield _joined(waiting), waiting
            waiting, records = [], 0
        if count >= SHORT:
            for first in range(0, count, BLOCK_RECORDS):
                part = rows.part(first, first + BLOCK_RECORDS)
                yield (_joined([part]) if isinstance(data, LargeFile) else part), [part]
    if waiting:
        yield _joined(waiting), waiting


def _joined(runs: list[Matrix]) -> Matrix:
    layout = runs[0].layout
    data = b"".join(rows.data[rows.start : rows.start + rows.rows * layout.record_length] for rows in runs)
    return Matrix(data, 0, sum(rows.rows for rows in runs), layout)


def copied(answers: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Copy N answer fields of A adjacent bytes, (N, A) uint8, row by row, which is faster than byte by byte."""
    width = answers.shape[1]
    rows: NDArray[Any] = answers.view(f"V{width}")[:, 0].copy()
    return rows.view(np.uint8).reshape(-1, width)


def count_adjacent(data: Content, position: int, length: int, prefix: bytes) -> int:
    """Count the records of ``length`` bytes that follow one another from ``position`` on and begin with ``prefix``."""
    most = (len(data) - position) // length
    count = 0
    while count < min(_FEW, most):
        place = position + count * length
        if data[place : place + len(prefix)] != prefix:
            return count
        count += 1
    step, many = _FEW, max(_FEW, min(_MANY, _MANY_BYTES // length))
    while count < most:
        rows = min(step, most - count)
        wrong = _differ(data, position + count * length, rows, length, prefix)
        place = int(wrong.argmax())
        if wrong[place]:
            return count + place
        if rows == many:
            give_back(data, position + count * length, position + (count + rows) * length)
        count += rows
        step = min(4 * step, many)
    return count


def _in_memory(data: Content, start: int, size: int) -> tuple[bytes | mmap, int]:
    """Return a buffer with ``size`` bytes of ``data`` from ``start`` on, and their position in it."""
    return (data[start : start + size], 0) if isinstance(data, LargeFile) else (data, start)


def other_prefix(rows: Matrix) -> NDArray[np.bool_]:
    """Return a mask of the N records in ``rows`` that do not begin with their layout's prefix: (N,) bool."""
    return _differ(rows.data, rows.start, rows.rows, rows.layout.record_length, rows.layout.prefix)


def _differ(data: Content, position: int, rows: int, length: int, prefix: bytes) -> NDArray[np.bool_]:
    """Return which of N rows of ``length`` bytes from ``position`` on do not begin with ``prefix``: (N,) bool."""
    wrong = np.zeros(rows, np.bool_)
    data, position = _in_memory(data, position, rows * length)
    for place in range(0, len(prefix), 2):
        piece = prefix[place : place + 2]
        kind = f"u{len(piece)}"
        found: NDArray[Any] = np.ndarray((rows,), kind, data, position + place, (length,))
        wrong |= found != np.frombuffer(piece, kind)[0]
    return wrong
