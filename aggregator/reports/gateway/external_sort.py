"""Sort more records by id than fit into memory. The records are divided into files by the first byte of the id.

Ids are pseudo-random, so the files have about equal sizes. If someone chose the ids, a file that is too large is
divided by the next byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


_TAG_BYTES = 4
_PARTS = 256
_ID_BYTES = 8


class Sorter:
    """Sorts tagged records of one length by id.

    Args:
        folder: for the files of records that do not fit into memory; made when it is needed.
        length: bytes of a record, L.
        id_at: offset of the id in a record.

    Attributes:
        held_bytes: bytes of the records in memory, with their tags.
    """

    def __init__(self, folder: Path, length: int, id_at: int) -> None:
        self._folder = folder
        self._length = length
        self._id_at = id_at
        self._held: list[Bytes] = []
        self._spilled = False
        self.held_bytes = 0

    def add(self, rows: Bytes, tag: int) -> None:
        """Add records.

        Args:
            rows: (N, L) uint8, the records.
            tag: a number below 2^32 for all of them, which :meth:`pieces` yields with each record.
        """
        tags = np.frombuffer(tag.to_bytes(_TAG_BYTES, "big"), np.uint8)
        tagged = np.concatenate([rows, np.broadcast_to(tags, (len(rows), _TAG_BYTES))], axis=1)
        self._held.append(tagged)
        self.held_bytes += tagged.nbytes

    def spill(self) -> None:
        """Move the records in memory to the disk.

        Raises:
            OSError: the files can not be written.
        """
        if self._held:
            self._divide(self._joined(), self._folder, 0)
            self._spilled = True

    def pieces(self, memory_bytes: int) -> Iterator[tuple[Bytes, NDArray[np.uint32]]]:
        """Yield all records in pieces, sorted by id. Every id of a piece is below every id of the next one.

        Call it only once, since it empties the sorter.

        Args:
            memory_bytes: size of a piece. A piece is larger only if its ids are all equal, or if :meth:`spill` was
                never called: then all records are one piece.

        Yields:
            (N, L) uint8, the records, sorted; and (N,) uint32, their tags.
        """
        if not self._spilled:
            yield self._untag(self._joined())
            return
        self.spill()
        yield from map(self._untag, self._read(self._folder, 0, memory_bytes))

    def _joined(self) -> Bytes:
        rows = np.concatenate(self._held) if self._held else np.empty((0, self._length + _TAG_BYTES), np.uint8)
        self._held, self.held_bytes = [], 0
        return rows

    def _divide(self, rows: Bytes, folder: Path, depth: int) -> None:
        """Append rows, (N, L + 4) uint8, to the files of byte number ``depth`` of their ids."""
        folder.mkdir(exist_ok=True)
        byte = rows[:, self._id_at + depth]
        order = np.argsort(byte, kind="stable")
        ends = np.cumsum(np.bincount(byte, minlength=_PARTS))
        for part, end in enumerate(ends.tolist()):
            start = int(ends[part - 1]) if part else 0
            if end > start:
                with (folder / f"{part:02x}").open("ab") as file:
                    file.write(rows[order[start:end]].tobytes())

    def _read(self, folder: Path, depth: int, memory_bytes: int) -> Iterator[Bytes]:
        width = self._length + _TAG_BYTES
        for path in sorted(folder.iterdir()):
            if path.stat().st_size <= max(memory_bytes, width) or depth + 1 == _ID_BYTES:
                yield np.fromfile(path, np.uint8).reshape(-1, width)
            else:
                deeper = folder / f"{path.name}-divided"
                with path.open("rb") as file:
                    while some := file.read(max(1, memory_bytes // width) * width):
                        self._divide(np.frombuffer(some, np.uint8).reshape(-1, width), deeper, depth + 1)
                path.unlink()
                yield from self._read(deeper, depth + 1, memory_bytes)
                deeper.rmdir()
                continue
            path.unlink()

    def _untag(self, tagged: Bytes) -> tuple[Bytes, NDArray[np.uint32]]:
        order = self._order(tagged)
        tagged = tagged[order]
        tags = np.ascontiguousarray(tagged[:, self._length :]).view(">u4")[:, 0].astype(np.uint32)
        return tagged[:, : self._length], tags

    def _order(self, tagged: Bytes) -> NDArray[np.intp]:
        """Sort by id, then by all other bytes, so that the order depends only on the records.

        Args:
            tagged: (N, L + 4) uint8.

        Returns:
            (N,) intp, the rows in order.
        """
        ids = np.ascontiguousarray(tagged[:, self._id_at : self._id_at + _ID_BYTES]).view(">u8")[:, 0]
        ids = ids.astype(np.uint64)
        order = np.argsort(ids, kind="stable")
        same = ids[order[1:]] == ids[order[:-1]]
        if same.any():
            repeated = np.zeros(len(ids), np.bool_)
            repeated[1:] |= same
            repeated[:-1] |= same
            doubtful = order[repeated]
            order[repeated] = doubtful[np.argsort(as_strings(tagged[doubtful]), kind="stable")]
        return order


def as_strings(rows: Bytes) -> NDArray[Any]:
    """View ``rows``, (N, L) uint8, as N strings of L bytes, which can be compared: (N,) of dtype ``S``.

    numpy ignores trailing zeros in comparisons, which does not change the order of strings of one length.
    """
    rows = np.ascontiguousarray(rows)
    return rows.view(f"S{rows.shape[1]}")[:, 0]


class ByStanding(NamedTuple):
    """Distinct records, divided by whether their batch is proven.

    Attributes:
        proven: (P, L) uint8, sorted.
        unproven: (U, L) uint8, sorted.
        repeated: number of identical copies that were left out.
    """

    proven: Bytes
    unproven: Bytes
    repeated: int


def split_standing(rows: Bytes, proven: NDArray[np.bool_]) -> ByStanding:
    """Keep one of each group of identical rows. The kept row counts as proven if any row of its group is proven.

    Args:
        rows: (N, L) uint8, sorted, so that identical rows are neighbours.
        proven: (N,) bool, for each row.

    Returns:
        The kept rows, proven and unproven rows in separate arrays, and the number of rows left out.
    """
    if not len(rows):
        return ByStanding(rows, rows, 0)
    first = np.ones(len(rows), np.bool_)
    first[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    starts = np.flatnonzero(first)
    best = np.logical_or.reduceat(proven, starts)
    return ByStanding(rows[starts[best]], rows[starts[~best]], len(rows) - len(starts))
