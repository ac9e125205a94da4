"""Read, write and join parts: Parquet files of records, which pandas, DuckDB, Spark and Dask can read directly.

Columns: ``id`` uint64, ``period`` uint32, ``question`` uint16, ``answer``, ``proven`` bool, and ``claim`` uint64: the
first eight bytes of the digest that a damaged batch states, else null. docs/reference/store.md; decision 24.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from aggregator.common.files import read_regular, sync_folder
from aggregator.reports.decoding.columns import Columns, big_endian
from aggregator.reports.storage.manifest import REPORTS, Manifest, Part, damaged
from protocol.batches.report import Layout
from protocol.mechanisms import INTEGERS, SINGLE

_PACKED = "DELTA_BINARY_PACKED"
_CONSTANT = ["proven", "claim"]
"""Columns that mostly have one value. If the statistics of a row group show that, such a column is not read."""


class Stored(NamedTuple):
    """N records with the column ``claim``, which only parts have.

    ``records``: the other columns. ``claim``: (N,) uint64, the first eight bytes of the digest that the trailer of a
    record's damaged batch states; 0 for a record without such a trailer. None if all are 0.
    """

    records: Columns
    claim: NDArray[np.uint64] | None

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Stored:
        """Return the records that ``rows`` selects: an index array, a mask with one value per record, or a slice."""
        return Stored(self.records.take(rows), None if self.claim is None else self.claim[rows])

    @classmethod
    def join(cls, pieces: list[Stored], answer_bytes: int) -> Stored:
        """Concatenate all ``pieces`` in their order. ``answer_bytes`` is used only if there are none."""
        records = Columns.join([piece.records for piece in pieces], answer_bytes)
        if all(piece.claim is None for piece in pieces):
            return cls(records, None)
        claims = [np.zeros(piece.records.size, np.uint64) if piece.claim is None else piece.claim for piece in pieces]
        return cls(records, np.concatenate(claims))


def part_schema(layout: Layout) -> pa.Schema:
    """Return the names and types of the columns of a part, a Parquet file of records with the given layout."""
    answer = pa.uint16() if layout.kind == SINGLE else pa.binary(layout.answer_bytes)
    return pa.schema(
        [
            pa.field("id", pa.uint64(), nullable=False),
            pa.field("period", pa.uint32(), nullable=False),
            pa.field("question", pa.uint16(), nullable=False),
            pa.field("answer", answer, nullable=False),
            pa.field("proven", pa.bool_(), nullable=False),
            pa.field("claim", pa.uint64()),
        ]
    )


def parquet_writer(sink: object, layout: Layout) -> pq.ParquetWriter:
    """Return a Parquet writer with the encodings of a part. The caller closes ``sink``, an open file object.

    Ids and bits are practically random: compression and statistics would gain nothing. Small numbers are packed by
    their differences, in half the time of a dictionary; periods and noisy sums are compressed.
    """
    encodings = dict.fromkeys(["id", "answer", "period", "proven", "claim"], "PLAIN")
    compression = {**dict.fromkeys(encodings, "none"), "question": "none", "period": "snappy"}
    if layout.kind == SINGLE:
        encodings["answer"] = _PACKED
    elif layout.kind == INTEGERS:
        compression["answer"] = "zstd"
    return pq.ParquetWriter(
        sink,
        part_schema(layout),
        compression=compression,
        use_dictionary=False,
        column_encoding={**encodings, "question": _PACKED},
        write_statistics=_CONSTANT,
    )


def to_table(stored: Stored, layout: Layout) -> pa.Table:
    """Turn the records ``stored`` into an Arrow table with the columns of :func:`part_schema` for ``layout``."""
    records = stored.records
    if layout.kind == SINGLE:
        answer = pa.array(big_endian(records.answer, ">u2")[:, 0].astype(np.uint16))
    else:
        kind = pa.binary(layout.answer_bytes)
        field = pa.py_buffer(np.ascontiguousarray(records.answer))
        answer = pa.FixedSizeBinaryArray.from_buffers(kind, records.size, [None, field])
    if stored.claim is None:
        claim = pa.nulls(records.size, pa.uint64())
    else:
        claim = pa.array(stored.claim, mask=stored.claim == 0)
    columns = [pa.array(records.id), pa.array(records.period), pa.array(records.question), answer]
    return pa.Table.from_arrays([*columns, pa.array(records.proven), claim], schema=part_schema(layout))


def read_part(path: Path, part: Part, layout: Layout, buckets: int) -> Iterator[Stored]:
    """Yield the records of a part by row groups, after a check of its digest. Raises ``store_damaged``."""
    try:
        raw = read_regular(path)
    except OSError:
        raise damaged(f"part '{part.path}' is missing or can not be read") from None
    if sha256(raw).hexdigest() != part.sha256:
        raise damaged(f"part '{part.path}' is not as it was written")
    try:
        with pq.ParquetFile(pa.BufferReader(raw)) as file:
            if not file.schema_arrow.equals(part_schema(layout)) or file.metadata.num_rows != part.records:
                raise damaged(f"part '{part.path}' does not hold what the manifest says")
            for group in range(file.num_row_groups):
                stored = _read_group(file, group, layout)
                if (stored.records.id & np.uint64(buckets - 1) != part.bucket).any():
                    # Buckets are counted apart. Records of one id in two buckets would both count.
                    raise damaged(f"part '{part.path}' holds records of another bucket")
                yield stored
    except (OSError, pa.ArrowException):
        raise damaged(f"part '{part.path}' is no Parquet file") from None


def without(stored: Stored, superseded: Collection[int]) -> Stored:
    """Leave out records whose ``claim`` is ``superseded``: the store has their batch, complete, from another file."""
    if stored.claim is None or not superseded:
        return stored
    return stored.take(~np.isin(stored.claim, np.array(sorted(superseded), np.uint64)))


def _read_group(file: pq.ParquetFile, group: int, layout: Layout) -> Stored:
    """Read a row group of a part. The columns ``proven`` and ``claim`` are read only if they have several values."""
    metadata = file.metadata.row_group(group)
    proven, claim = (metadata.column(column).statistics for column in (4, 5))
    is_constant = proven is not None and proven.has_min_max and proven.min == proven.max
    has_claims = claim is None or not claim.has_null_count or claim.null_count < metadata.num_rows
    columns = ["id", "period", "question", "answer"] + ["proven"] * (not is_constant) + ["claim"] * has_claims
    table = file.read_row_group(group, columns=columns, use_threads=False).combine_chunks()
    records = Columns(
        table["id"].to_numpy(),
        table["period"].to_numpy(),
        table["question"].to_numpy(),
        _answer_field(table["answer"], layout),
        np.full(metadata.num_rows, proven.min) if is_constant else table["proven"].to_numpy(),
    )
    return Stored(records, table["claim"].fill_null(0).to_numpy() if has_claims else None)


def _answer_field(column: pa.ChunkedArray, layout: Layout) -> NDArray[np.uint8]:
    """Return the N answer fields of A bytes in a column of a Parquet file: (N, A) uint8."""
    if layout.kind == SINGLE:
        values: NDArray[np.uint16] = column.to_numpy()
        return values.astype(">u2").view(np.uint8).reshape(-1, 2)
    width = layout.answer_bytes
    chunks = [
        np.frombuffer(chunk.buffers()[1], np.uint8)[chunk.offset * width : (chunk.offset + len(chunk)) * width]
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate([np.empty(0, np.uint8), *chunks]).reshape(-1, width)


_LARGEST = 30 << 20


@cache
def reuse_freed_memory() -> None:
    """Make glibc keep freed blocks of up to 30 MiB. Otherwise clearing their pages takes a fifth of an ingest."""
    np.empty(_LARGEST, np.uint8)  # The array is freed at once, and glibc then raises its limits.


ROW_GROUP = 1 << 17
"""Number of records in a row group. A writer holds at most one row group per bucket, and a reader one."""
PART_BYTES = 96 << 20
"""Largest size of a Parquet file's columns in memory. When it is reached, the next file of the bucket is begun."""
_WAITING_BYTES = 64 << 20
_LEAST_ROWS = 1 << 10
_FLUSH_BYTES = 16 << 20
_FLUSHERS = 8
_FINISHERS = 2  # threads that write the last row groups; each additional thread would take memory of its own
MOST_SMALL = 16
"""Number of small Parquet files that a bucket may have. If there are more, they are joined."""
SMALL_RECORDS = 1 << 18


def _varying(records: Columns) -> list[str]:
    """Return the names of the columns that may differ between the records. The other ones hold one value."""
    some = ("period", "proven") if records.size else ()
    same = [name for name in some if getattr(records, name).min() == getattr(records, name).max()]
    return [name for name in Columns._fields if name not in same]


def bucket_of(ids: NDArray[np.uint64], shift: int, buckets: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return the bucket of N ids, (N,) uint64: the number above the lowest ``shift`` bits, modulo ``buckets`` = 2^b."""
    low = (ids >> np.uint64(shift)) & np.uint64(buckets - 1)
    return low.astype(np.uint8) if buckets <= 1 << 8 else low.astype(np.uint16)


def by_bucket(ids: NDArray[np.uint64], buckets: int) -> tuple[NDArray[np.intp], list[int]]:
    """Return the rows of N ids, (N,) uint64, in order of their bucket, (N,) intp, and where each bucket ends in them.

    A radix sort of one byte takes four times as long if the byte has few different values. The rest of the byte is
    therefore filled with further bits of the id.
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
    """Collects records per bucket and writes them into parts (Parquet files). A context manager; threads may share it.

    If the block of ``with`` raises, the written parts are removed. The names of all written parts begin with ``name``;
    no other part of the store has a name that begins so.
    """

    def __init__(self, folder: Path, layout: Layout, buckets: int, name: str) -> None:
        reuse_freed_memory()
        self._folder = folder
        self._layout = layout
        self._buckets = buckets
        self._name = name
        self._rows = min(ROW_GROUP, max(_LEAST_ROWS, _WAITING_BYTES // (buckets * (15 + layout.answer_bytes))))
        self._most = max(ROW_GROUP, PART_BYTES // (15 + layout.answer_bytes))
        self._open = [_Bucket(number, self._rows, layout.answer_bytes) for number in range(buckets)]
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
            part.discard()
        if error is not None:
            for part in self._begun:
                with suppress(OSError):  # A file that stays is removed by the next change of the store.
                    part.path.unlink()

    def add(self, stored: Stored) -> None:
        """Add records, in any order of ids. They are on the disk only after :meth:`finish`."""
        order, ends = by_bucket(stored.records.id, self._buckets)
        fields = _varying(stored.records)
        starts = [0, *ends]
        busy = []
        self._next += 1  # threads begin at different buckets, so that they rarely wait for the same lock
        for place in range(self._next, self._next + self._buckets):
            number = place % self._buckets
            rows = order[starts[number] : ends[number]]
            if not len(rows):
                continue
            if self._open[number].lock.acquire(blocking=False):
                self._add(self._open[number], stored, fields, rows)
            else:
                busy.append((number, rows))
        for number, rows in busy:
            self._open[number].lock.acquire()
            self._add(self._open[number], stored, fields, rows)

    def _add(self, bucket: _Bucket, stored: Stored, fields: Sequence[str], rows: NDArray[np.intp]) -> None:
        """Add the given rows to a bucket. The caller must hold the bucket's lock, which is released at the end."""
        try:
            while len(rows):
                rows = bucket.take(stored, fields, rows)
                if bucket.size == self._rows:
                    self._write(bucket)
        finally:
            bucket.lock.release()

    def finish(self) -> list[Part]:
        """Write all records that wait in memory, flush all, and return the parts. No thread may add any more."""
        with ThreadPoolExecutor(_FINISHERS) as pool:
            for part in filter(None, pool.map(self._finish, self._open)):
                self._flushes.append(self._flusher.submit(part.sync_and_release))
        for flush in self._flushes:
            flush.result()
        folders = {(self._folder / part.path).parent for part in self._parts}
        if folders:
            folders |= {self._folder / REPORTS, self._folder}  # they have entries for new folders
        list(self._flusher.map(sync_folder, sorted(folders)))
        return sorted(self._parts)

    def _finish(self, bucket: _Bucket) -> _OpenPart | None:
        """Write a bucket's waiting records, and end its open Parquet file, if any. Returns it, to be flushed."""
        if bucket.size:
            self._write(bucket)
        bucket.columns = None
        return None if bucket.part is None else self._end(bucket, bucket.part)

    def _write(self, bucket: _Bucket) -> None:
        part = bucket.part = bucket.part or self._begin(bucket)
        part.add(to_table(bucket.empty(), self._layout))
        if part.records + self._rows > self._most:
            self._flushes.append(self._flusher.submit(self._end(bucket, part).sync_and_release))
        elif part.unflushed >= _FLUSH_BYTES:  # Begin to flush before the part ends, so that the disk is not idle.
            part.unflushed = 0
            self._flushes.append(self._flusher.submit(part.sync))

    def _begin(self, bucket: _Bucket) -> _OpenPart:
        part = Part(bucket.number, f"{self._name}-{bucket.begun:04d}.parquet", 0, "")
        bucket.begun += 1
        path = self._folder / part.path
        path.parent.mkdir(parents=True, exist_ok=True)  # finish() flushes the new folder's entry in its parent
        begun = _OpenPart(path, part)
        self._begun.append(begun)  # before the writer is opened, so that __exit__ removes it after any error
        begun.open(self._layout)
        return begun

    def _end(self, bucket: _Bucket, part: _OpenPart) -> _OpenPart:
        bucket.part = None
        self._parts.append(part.end())
        return part


class _Bucket:
    """A writer of one bucket's records: the part file under way, and at most one row group in reused arrays."""

    def __init__(self, number: int, rows: int, answer_bytes: int) -> None:
        self.number = number
        self.lock = Lock()
        self.part: _OpenPart | None = None
        self.begun = self.size = 0
        self.columns: Columns | None = None
        self._rows = rows
        self._answer_bytes = answer_bytes
        self._claim: NDArray[np.uint64] | None = None

    def take(self, stored: Stored, fields: Sequence[str], rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Copy ``rows`` until the arrays are full, and return the rest. ``fields``: columns that are not constant."""
        if self.columns is None:
            room = Columns.empty(self._answer_bytes)
            self.columns = Columns._make(np.empty((self._rows, *each.shape[1:]), each.dtype) for each in room)
        chosen = rows[: self._rows - self.size]
        place = slice(self.size, self.size + len(chosen))
        self.size = place.stop
        for field in Columns._fields:
            source, target = getattr(stored.records, field), getattr(self.columns, field)
            if field in fields:
                source.take(chosen, axis=0, out=target[place], mode="clip")  # by default numpy makes a second copy
            else:
                target[place] = source[0]
        if stored.claim is not None and self._claim is None:
            self._claim = np.zeros(self._rows, np.uint64)
        if self._claim is not None:
            self._claim[place] = 0 if stored.claim is None else stored.claim[chosen]
        return rows[len(chosen) :]

    def empty(self) -> Stored:
        """Return the waiting records and forget them. The arrays are views, valid until the next :meth:`take`."""
        assert self.columns is not None
        used, self.size = slice(0, self.size), 0
        claim, self._claim = self._claim, None
        return Stored(self.columns.take(used), None if claim is None else claim[used])


class _OpenPart:
    """A part (Parquet file) that is being written, with the members that the Parquet writer asks of a file."""

    _parquet: pq.ParquetWriter = None

    def __init__(self, path: Path, part: Part) -> None:
        self.path = path
        self.records = self.unflushed = 0
        self.closed = False
        self._part = part
        self._digest = sha256()
        self._written = 0
        self._flushing = Lock()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def open(self, layout: Layout) -> None:
        self._parquet = parquet_writer(self, layout)

    def add(self, table: pa.Table) -> None:
        self._parquet.write_table(table, row_group_size=ROW_GROUP)
        self.records += table.num_rows

    def end(self) -> Part:
        self._parquet.close()
        return self._part._replace(records=self.records, sha256=self._digest.hexdigest())

    def write(self, data: bytes) -> int:
        """Write all bytes. After :meth:`release` discard them: the descriptor may belong to another file by then."""
        if self.closed:
            return len(data)
        self._digest.update(data)
        view, done = memoryview(data).cast("B"), 0
        while done < len(view):
            done += os.write(self._descriptor, view[done:])
        self._written += done
        self.unflushed += done
        return done

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Do nothing: no bytes are buffered here. :meth:`sync` flushes to the disk."""

    def close(self) -> None:
        """Do nothing: the file stays open until :meth:`release`."""

    def sync(self) -> None:
        """Flush the file to the disk. Do nothing for a closed file: it was flushed before, or an error ended it."""
        with self._flushing:
            if not self.closed:
                os.fsync(self._descriptor)

    def release(self) -> None:
        """Close the file. What the Parquet writer has not written yet is discarded."""
        with self._flushing:
            if not self.closed:
                self.closed = True
                os.close(self._descriptor)

    def discard(self) -> None:
        self.release()
        if self._parquet is not None:
            with suppress(OSError, pa.ArrowException):
                self._parquet.close()

    def sync_and_release(self) -> None:
        try:
            self.sync()
        finally:
            self.release()


def compact(
    folder: Path,
    layout: Layout,
    manifest: Manifest,
    parts: Sequence[Part],
    *,
    most_small: int | None = None,
    name: str = "joined",
) -> list[Part]:
    """Join the small parts of every bucket that has too many, and return the parts for the next manifest.

    Small parts (below :data:`SMALL_RECORDS`) slow down every tally; they stay until that manifest is written. ``parts``
    are those of ``manifest`` and those written since. Two calls for one generation need different ``name``. Raises
    StorageError ``store_damaged``: a small part is not as it was written.
    """
    kept: list[Part] = []
    joined: list[Part] = []
    for bucket in range(manifest.buckets):
        of_bucket = [part for part in parts if part.bucket == bucket]
        small = [part for part in of_bucket if part.records < SMALL_RECORDS]
        if len(small) > (MOST_SMALL if most_small is None else most_small):
            joined += small
            kept += [part for part in of_bucket if part.records >= SMALL_RECORDS]
        else:
            kept += of_bucket
    if not joined:
        return sorted(kept)
    with PartWriter(folder, layout, manifest.buckets, f"{manifest.generation + 1:08d}-{name}") as writer:
        for part in joined:
            for stored in read_part(folder / part.path, part, layout, manifest.buckets):
                writer.add(stored)
        return sorted(kept + writer.finish())
