"""Records into parts: divided by the low bits of their ids, gathered, and written as they become many.

Nothing names a part before the manifest does, so it is written under its final name and only flushed;
what a crash leaves is removed by the next ingest. Threads share a writer: each bucket has a lock of its own.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from aggregator.decoding.columns import Columns
from aggregator.files import sync_folder
from aggregator.storage.allocation import reuse_freed_memory
from aggregator.storage.manifest import REPORTS, Part
from aggregator.storage.parts import Stored, parquet_writer, to_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from types import TracebackType

    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from protocol.batches.report import Layout

ROW_GROUP = 1 << 17
"""Records of a row group: what is held back per bucket, and what a reader has in memory at a time."""
PART_BYTES = 96 << 20
"""A part ends when its columns would take about so much memory; the next one of its bucket is begun."""
_WAITING_BYTES = 64 << 20
_LEAST_ROWS = 1 << 10
_FLUSH_BYTES = 16 << 20
_FLUSHERS = 8
_ENDING = 2  # threads that write what waits at the end: more would each have to ask for memory of their own
_FIELDS = ("id", "period", "question", "answer", "proven")
_MOSTLY_SAME = ("period", "proven")


def _varying(records: Columns) -> list[str]:
    """The columns that are not the same in all records."""
    same = [
        name for name in _MOSTLY_SAME if records.size and getattr(records, name).min() == getattr(records, name).max()
    ]
    return [name for name in _FIELDS if name not in same]


def bucket_of(ids: NDArray[np.uint64], shift: int, buckets: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """``buckets``, a power of two, by the bits of the id from bit ``shift`` on."""
    low = (ids >> np.uint64(shift)) & np.uint64(buckets - 1)
    return low.astype(np.uint8) if buckets <= 1 << 8 else low.astype(np.uint16)


def by_bucket(ids: NDArray[np.uint64], buckets: int) -> tuple[NDArray[np.intp], list[int]]:
    """The rows in order of their bucket, and where in this order each bucket ends.

    A radix sort of one byte takes four times as long if it has few different values: it then often adds to the
    counter that it has just added to. So the rest of the byte is filled with further bits of the id.
    """
    bits = buckets.bit_length() - 1
    if bits >= 8:
        key: NDArray[np.uint8] | NDArray[np.uint16] = bucket_of(ids, 0, buckets)
        counts = np.bincount(key, minlength=buckets)
    else:
        low = ids.astype(np.uint8)
        key = (low << np.uint8(8 - bits)) | (low >> np.uint8(bits))
        counts = np.bincount(key, minlength=1 << 8).reshape(buckets, -1).sum(axis=1)
    return np.argsort(key, kind="stable"), np.cumsum(counts).tolist()


class PartWriter:
    """Gathers records per bucket and writes them. Used in a ``with``: left by an error, it removes its parts.

    Args:
        folder: the store's.
        layout: of the campaign.
        buckets: into how many the store is divided.
        name: what the names of the parts begin with; no part of this beginning exists.
    """

    def __init__(self, folder: Path, layout: Layout, buckets: int, name: str) -> None:
        reuse_freed_memory()
        self._folder = folder
        self._layout = layout
        self._buckets = buckets
        self._name = name
        self._rows = min(ROW_GROUP, max(_LEAST_ROWS, _WAITING_BYTES // (buckets * (15 + layout.answer_bytes))))
        self._most = max(ROW_GROUP, PART_BYTES // (15 + layout.answer_bytes))
        self._gathered = [_Bucket(number) for number in range(buckets)]
        self._next = 0
        self._begun: list[_OpenPart] = []
        self._parts: list[Part] = []
        self._flusher = ThreadPoolExecutor(_FLUSHERS)
        self._flushes: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._flusher.shutdown(cancel_futures=True)
        for part in self._begun:
            part.release()
        if error is not None:
            for part in self._begun:
                with suppress(OSError):  # whoever comes next removes it
                    part.path.unlink()

    def add(self, stored: Stored) -> None:
        """Keep records; they are in a part for certain after :meth:`finish`."""
        order, ends = by_bucket(stored.records.id, self._buckets)
        fields = _varying(stored.records)
        starts = [0, *ends]
        busy = []
        self._next += 1  # threads begin at different buckets; two that do not are only slower
        for place in range(self._next, self._next + self._buckets):
            number = place % self._buckets
            rows = order[starts[number] : ends[number]]
            if not len(rows):
                continue
            if self._gathered[number].lock.acquire(blocking=False):
                self._add(self._gathered[number], stored, fields, rows)
            else:
                busy.append((number, rows))
        for number, rows in busy:
            self._gathered[number].lock.acquire()
            self._add(self._gathered[number], stored, fields, rows)

    def _add(self, bucket: _Bucket, stored: Stored, fields: Sequence[str], rows: NDArray[np.intp]) -> None:
        """Add rows to a bucket whose lock is held, and release it."""
        try:
            if bucket.waiting is None:
                bucket.waiting = _Waiting(self._rows, self._layout.answer_bytes)
            while len(rows):
                rows = bucket.waiting.take(stored, fields, rows)
                if bucket.waiting.size == self._rows:
                    self._write(bucket, bucket.waiting.empty())
        finally:
            bucket.lock.release()

    def finish(self) -> list[Part]:
        """Write what waits and flush everything to the disk; the parts, in order of bucket. No thread adds any more."""
        with ThreadPoolExecutor(_ENDING) as pool:
            for sink in pool.map(self._finish, self._gathered):
                if sink is not None:
                    self._flushes.append(self._flusher.submit(sink.sync_and_release))
        for flush in self._flushes:
            flush.result()
        folders = {(self._folder / part.path).parent for part in self._parts}
        if folders:
            folders |= {self._folder / REPORTS, self._folder}  # the former may be new in the latter
        list(self._flusher.map(sync_folder, sorted(folders)))
        return sorted(self._parts)

    def _finish(self, bucket: _Bucket) -> _Sink | None:
        """Write what waits in a bucket; what is left to flush of its last part, if it has one."""
        if bucket.waiting is not None and bucket.waiting.size:
            self._write(bucket, bucket.waiting.empty())
        bucket.waiting = None
        return None if bucket.part is None else self._end(bucket, bucket.part)

    def _write(self, bucket: _Bucket, stored: Stored) -> None:
        """Write records of a bucket as a row group."""
        if bucket.part is None:
            bucket.part = self._begin(bucket)
        part = bucket.part
        part.write(to_table(stored, self._layout))
        if part.records + self._rows > self._most:
            self._flushes.append(self._flusher.submit(self._end(bucket, part).sync_and_release))
        elif part.sink.unflushed >= _FLUSH_BYTES:  # early, so that the disk writes while the rest is read
            part.sink.unflushed = 0
            self._flushes.append(self._flusher.submit(part.sink.sync))

    def _begin(self, bucket: _Bucket) -> _OpenPart:
        part = Part(bucket.number, f"{self._name}-{bucket.begun:04d}.parquet", 0, "")
        bucket.begun += 1
        path = self._folder / part.path
        path.parent.mkdir(parents=True, exist_ok=True)  # its entry in the folder above is flushed at the end
        begun = _OpenPart(path, part)
        self._begun.append(begun)  # before anything is written, for which there may be no space
        begun.open(self._layout)
        return begun

    def _end(self, bucket: _Bucket, part: _OpenPart) -> _Sink:
        """End the part of a bucket; what is left to flush."""
        bucket.part = None
        self._parts.append(part.end())
        return part.sink


class _Bucket:
    """Where one bucket's records gather. Attribute ``begun``: how many parts it has had so far."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock = Lock()
        self.waiting: _Waiting | None = None
        self.part: _OpenPart | None = None
        self.begun = 0


class _Waiting:
    """Records of one bucket until they are a row group. The memory is used again and again."""

    def __init__(self, rows: int, answer_bytes: int) -> None:
        self.size = 0
        self._rows = rows
        self._columns = Columns(
            np.empty(rows, np.uint64),
            np.empty(rows, np.uint32),
            np.empty(rows, np.uint16),
            np.empty((rows, answer_bytes), np.uint8),
            np.empty(rows, np.bool_),
        )
        self._claim: NDArray[np.uint64] | None = None

    def take(self, stored: Stored, fields: Sequence[str], rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Copy as many of these rows as there is room for; the rest. Only ``fields`` differ from row to row."""
        now = rows[: self._rows - self.size]
        place = slice(self.size, self.size + len(now))
        self.size = place.stop
        ours, theirs = self._columns, stored.records
        for field in _FIELDS:
            source, target = getattr(theirs, field), getattr(ours, field)[place]
            if field in fields:
                source.take(now, axis=0, out=target, mode="clip")  # else numpy copies, to be safe from wrong rows
            else:
                target[:] = source[0]
        if stored.claim is not None and self._claim is None:
            self._claim = np.zeros(self._rows, np.uint64)
        if self._claim is not None:
            self._claim[place] = 0 if stored.claim is None else stored.claim[now]
        return rows[len(now) :]

    def empty(self) -> Stored:
        """The records, valid until the next :meth:`take`."""
        used, self.size = slice(0, self.size), 0
        claim, self._claim = self._claim, None
        return Stored(self._columns.take(used), None if claim is None else claim[used])


class _OpenPart:
    """A part that is being written."""

    _parquet: pq.ParquetWriter = None

    def __init__(self, path: Path, part: Part) -> None:
        self.path = path
        self.records = 0
        self.sink = _Sink(path)
        self._part = part

    def open(self, layout: Layout) -> None:
        """Begin to write."""
        self._parquet = parquet_writer(self.sink, layout)

    def write(self, table: pa.Table) -> None:
        """One row group."""
        self._parquet.write_table(table, row_group_size=ROW_GROUP)
        self.records += table.num_rows

    def release(self) -> None:
        """Close the file, if that was not done. What Parquet's writer has left to write goes nowhere."""
        self.sink.release()
        if self._parquet is not None:
            with suppress(OSError, pa.ArrowException):
                self._parquet.close()

    def end(self) -> Part:
        """Write the footer; the part as the manifest names it."""
        self._parquet.close()
        return self._part._replace(records=self.records, sha256=self.sink.digest.hexdigest())


class _Sink:
    """A new file as Parquet's writer wants it; a digest is taken of the bytes as they go by."""

    def __init__(self, path: Path) -> None:
        self.digest = sha256()
        self.unflushed = 0
        self.closed = False
        self._written = 0
        self._flushing = Lock()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, data: bytes) -> int:
        """All of the bytes; none of a part that was given up, whose descriptor may be another file's by now."""
        if self.closed:
            return len(data)
        self.digest.update(data)
        view, done = memoryview(data).cast("B"), 0
        while done < len(view):
            done += os.write(self._descriptor, view[done:])
        self._written += done
        self.unflushed += done
        return done

    def tell(self) -> int:
        """How many bytes were written."""
        return self._written

    def flush(self) -> None:
        """Nothing waits here; :meth:`sync` is what puts the bytes on the disk."""

    def close(self) -> None:
        """The file stays open until :meth:`release`."""

    def sync(self) -> None:
        """Put what was written on the disk, unless the file was closed meanwhile, which is after its last flush."""
        with self._flushing:
            if not self.closed:
                os.fsync(self._descriptor)

    def release(self) -> None:
        """Close the file."""
        with self._flushing:
            if not self.closed:
                self.closed = True
                os.close(self._descriptor)

    def sync_and_release(self) -> None:
        """Put all of it on the disk, and close the file."""
        try:
            self.sync()
        finally:
            self.release()
