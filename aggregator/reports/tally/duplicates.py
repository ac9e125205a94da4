"""Find ids that occur more than once, and bring their records together, without sorting complete ids.

Ids are pseudo-random: dividing them by a few bits at a time leaves groups that mostly have one member. Ids that an
attacker chose to agree in these bits are sorted completely, more slowly.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import run_starts
from aggregator.common.files import storage_errors
from aggregator.reports.decoding.columns import Columns
from protocol.errors import StorageError

Ids = NDArray[np.uint64]

_SLAB = 1 << 16
_GROUP = 1 << 15
_MAX_GROUPS = 1 << 8
_LAGS = 12
_MANY = 1 / 8


class IdSet:
    """Collects ids, about ``expected`` of them, and finds the ids that were added more than once."""

    def __init__(self, expected: int, known_bits: int) -> None:
        groups = 1
        while groups < _MAX_GROUPS and groups * _GROUP < expected:
            groups *= 2
        self._shift = np.uint64(known_bits)
        self._mask = np.uint8(groups - 1)
        room = expected // groups + 4 * int((expected / groups) ** 0.5) + 64
        self._ids = [np.empty(room, np.uint64) for _ in range(groups)]
        self._used = [0] * groups

    def add(self, ids: Ids) -> None:
        """Add N ids, (N,) uint64."""
        for start in range(0, len(ids), _SLAB):  # the ids of one slab fit into the processor's cache
            self._add(ids[start : start + _SLAB])

    def _add(self, slab: Ids) -> None:
        if len(self._ids) == 1:
            self._append(0, slab)
            return
        key = (slab >> self._shift).astype(np.uint8) & self._mask
        moved = slab.take(np.argsort(key, kind="stable"))
        ends = np.cumsum(np.bincount(key, minlength=len(self._ids))).tolist()
        start = 0
        for group, end in enumerate(ends):
            self._append(group, moved[start:end])
            start = end

    def _append(self, group: int, ids: Ids) -> None:
        used = self._used[group]
        end = used + len(ids)
        if end > len(self._ids[group]):
            self._ids[group] = np.concatenate([self._ids[group][:used], np.empty(end, np.uint64)])
        self._ids[group][used:end] = ids
        self._used[group] = end

    def repeated(self) -> Ids:
        """Return the M ids that were added more than once: (M,) uint64, sorted and distinct."""
        found = [_repeated(ids[:used]) for ids, used in zip(self._ids, self._used, strict=True)]
        ids = np.sort(np.concatenate(found))  # numpy.unique uses a hash table, which is several times slower
        return ids[run_starts(ids)]

    def has_many(self) -> bool:
        """Return whether so many ids repeat that sorting all is faster than looking each up, judged by some ids."""
        return len(_repeated(self._ids[0][: self._used[0]])) > _MANY * self._used[0]


def _repeated(ids: Ids) -> Ids:
    """Return the ids that occur more than once in N ids, (N,) uint64, in any order, some perhaps several times."""
    key = (ids >> np.uint64(48)).astype(np.uint16)
    order = np.argsort(key, kind="stable")
    key, ids = key.take(order), ids.take(order)
    found = []
    for lag in range(1, _LAGS + 1):
        near = np.flatnonzero(key[lag:] == key[:-lag])
        if not len(near):
            break
        here = ids.take(near)
        found.append(here[here == ids.take(near + lag)])
    else:
        starts = run_starts(key)
        lengths = np.diff(np.append(starts, len(key)))
        crowd = np.sort(ids[np.repeat(lengths > _LAGS, lengths)])
        found.append(crowd[1:][crowd[1:] == crowd[:-1]])
    return np.concatenate([ids[:0], *found])


class Members:
    """Finds quickly which of many ids are in a small set of M ids: (M,) uint64, sorted and distinct."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        bits = min(24, max(10, len(ids).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._may_be = np.zeros(1 << bits, np.bool_)
        self._may_be[ids >> self._shift] = True

    def rows(self, ids: Ids) -> NDArray[np.intp]:
        """Return the indices of those R of N ``ids``, (N,) uint64, that are in the set: (R,) intp, rising."""
        rows = np.flatnonzero(self._may_be.take((ids >> self._shift).view(np.int64)))
        candidates = ids.take(rows)
        place = np.minimum(self._ids.searchsorted(candidates), max(0, len(self._ids) - 1))
        return rows[self._ids.take(place) == candidates] if len(self._ids) else rows


def repeated_rows(ids: Ids, known_bits: int) -> NDArray[np.intp]:
    """Return the indices of those R of N ids, (N,) uint64, that occur more than once: (R,) intp, rising."""
    gathered = IdSet(len(ids), known_bits)
    gathered.add(ids)
    return Members(gathered.repeated()).rows(ids)


class _Piece(NamedTuple):
    """Records of one division of the ids in the temporary file: ``records`` of them, by column, from ``start`` on."""

    start: int
    records: int


class Lots:
    """Records divided by bits of their ids in a temporary file. A context manager.

    All records of an id are in one of ``number`` divisions (lots), a power of two. The file is in the system's folder,
    which ``TMPDIR`` changes. It has no name, so the system removes it when the process ends.
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
        """Write each record to the file, as part of the division that its id chooses."""
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
        """Yield the records of each division, one division after another."""
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
