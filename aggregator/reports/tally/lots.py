"""Divide the records of a partition into lots that fit into memory, in a temporary file without a name.

If very many ids repeat, all records of a partition are de-duplicated, but the memory was planned for their ids only.
Without the file, the parts would be read and their digests verified once for every lot.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from aggregator.common.files import storage_errors
from aggregator.reports.decoding.columns import Columns
from protocol.errors import StorageError


class _Piece(NamedTuple):
    """Some records of one lot in the file: ``records`` of them, column by column, from offset ``start``."""

    start: int
    records: int


class Lots:
    """Records divided by bits of their ids, so that all records of an id are in one lot. A context manager.

    The file is in the system's folder for temporary files, which ``TMPDIR`` changes. It has no name, so the system
    removes it when the process ends, also by a crash.

    Args:
        number: number of lots, a power of two.
        known_bits: number of lowest bits that are the same in all ids. The bits above them choose the lot.
        answer_bytes: width of the campaign's answer field.

    Raises:
        StorageError: ``disk_full``, ``io_failed``. :meth:`add` and the iteration raise it, too.
    """

    def __init__(self, number: int, known_bits: int, answer_bytes: int) -> None:
        self._shift = np.uint64(known_bits)
        self._mask = np.uint64(number - 1)
        self._answer_bytes = answer_bytes
        self._pieces: list[list[_Piece]] = [[] for _ in range(number)]
        self._written = 0
        with _errors():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, records: Columns) -> None:
        """Write each record to the file, as part of the lot that its id chooses."""
        lot = ((records.id >> self._shift) & self._mask).astype(np.uint16)
        moved = records.take(np.argsort(lot, kind="stable"))
        ends = np.cumsum(np.bincount(lot, minlength=len(self._pieces))).tolist()
        for pieces, start, end in zip(self._pieces, [0, *ends], ends, strict=False):
            if end > start:
                pieces.append(_Piece(self._written, end - start))
                self._write(moved.take(slice(start, end)))

    def _write(self, records: Columns) -> None:
        columns = (records.id, records.period, records.question, records.answer, records.proven)
        with _errors():
            for column in columns:
                self._written += self._file.write(np.ascontiguousarray(column).data)

    def __iter__(self) -> Iterator[Columns]:
        """Yield the records of one lot after another."""
        for pieces in self._pieces:
            yield Columns.join([self._read(*piece) for piece in pieces], self._answer_bytes)

    def _read(self, start: int, records: int) -> Columns:
        widths = (8, 4, 2, self._answer_bytes, 1)
        with _errors():
            self._file.seek(start)
            raw = np.frombuffer(self._file.read(records * sum(widths)), np.uint8)
        if len(raw) != records * sum(widths):
            raise StorageError("io_failed", "a temporary file is shorter than what was written into it")
        ends = (records * np.cumsum(widths)).tolist()
        fields: list[NDArray[np.uint8]] = [raw[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        ids, period, question, answer, proven = fields
        return Columns(
            ids.view(np.uint64),
            period.view(np.uint32),
            question.view(np.uint16),
            answer.reshape(records, self._answer_bytes),
            proven.view(np.bool_),
        )


def _errors() -> AbstractContextManager[None]:
    return storage_errors("records that repeat can not be sorted in the temporary folder (TMPDIR)")
