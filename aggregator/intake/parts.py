"""Columns as Parquet parts, which pandas, DuckDB, Spark and Dask read as they are.

Columns of a part: ``id`` uint64, ``period`` uint32, ``question`` uint16, ``proven`` bool, and
``answer``: uint16 in layout 1, else the answer field's bytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from aggregator.intake.columns import Columns, big_endian
from aggregator.intake.manifest import BUCKETS, damaged
from aggregator.reading import read_regular
from protocol.mechanisms import SINGLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from aggregator.intake.manifest import Part
    from protocol.report import Layout


def part_schema(layout: Layout) -> pa.Schema:
    """Names and types of a part's columns."""
    answer = pa.uint16() if layout.kind == SINGLE else pa.binary(layout.answer_bytes)
    return pa.schema(
        [
            ("id", pa.uint64()),
            ("period", pa.uint32()),
            ("question", pa.uint16()),
            ("answer", answer),
            ("proven", pa.bool_()),
        ]
    )


def by_bucket(records: Columns) -> Iterator[tuple[int, Columns]]:
    """The records of each bucket that has any: those whose id has the bucket's number as its low bits."""
    bucket = _bucket_of(records)
    order = np.argsort(bucket, kind="stable")
    ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS))
    for number, end in enumerate(ends):
        start = int(ends[number - 1]) if number else 0
        if end > start:
            yield number, records.take(order[start:end])


def _bucket_of(records: Columns) -> NDArray[np.uint8]:
    return (records.id & np.uint64(BUCKETS - 1)).astype(np.uint8)


def to_parquet(records: Columns, layout: Layout) -> bytes:
    """The bytes of a part; every page carries a checksum."""
    if layout.kind == SINGLE:
        answer = pa.array(big_endian(records.answer, ">u2")[:, 0].astype(np.uint16))
    else:
        field = np.ascontiguousarray(records.answer)
        kind = pa.binary(layout.answer_bytes)
        answer = pa.FixedSizeBinaryArray.from_buffers(kind, records.size, [None, pa.py_buffer(field)])
    table = pa.table(
        [pa.array(records.id), pa.array(records.period), pa.array(records.question), answer, pa.array(records.proven)],
        schema=part_schema(layout),
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, write_page_checksum=True)
    return bytes(sink.getvalue())


def read_part(path: Path, part: Part, layout: Layout) -> Columns:
    """The records of a part, once it is sure that they are those the manifest names.

    Raises:
        StorageError: ``store_damaged``: the file is missing, altered, or another part's.
    """
    try:
        raw = read_regular(path)
    except OSError:
        raise damaged(f"part '{part.path}' is missing or can not be read") from None
    if sha256(raw).hexdigest() != part.sha256:
        raise damaged(f"part '{part.path}' is not as it was written")
    try:
        with pq.ParquetFile(pa.BufferReader(raw), page_checksum_verification=True) as file:
            table = file.read()
    except (OSError, pa.ArrowException):
        raise damaged(f"part '{part.path}' is no Parquet file") from None
    if not table.schema.equals(part_schema(layout)) or table.num_rows != part.records:
        raise damaged(f"part '{part.path}' does not hold what the manifest says")
    table = table.combine_chunks()
    records = Columns(
        table["id"].to_numpy(),
        table["period"].to_numpy(),
        table["question"].to_numpy(),
        _answer_field(table["answer"], layout),
        table["proven"].to_numpy(),
    )
    if (_bucket_of(records) != part.bucket).any():  # equal ids would no longer meet, and count twice
        raise damaged(f"part '{part.path}' holds records of another bucket")
    return records


def _answer_field(column: pa.ChunkedArray, layout: Layout) -> NDArray[np.uint8]:
    """The answers of a part as bytes, shape (N, A)."""
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
