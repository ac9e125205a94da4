"""Columns as Parquet parts, which pandas, DuckDB, Spark and Dask can read directly.

Columns of a part: ``id`` uint64, ``period`` uint32, ``question`` uint16, ``answer`` (uint16 in the layout ``SINGLE``,
the bytes of the answer field in others), ``proven`` bool, and ``claim`` uint64. For a record of a damaged batch
``claim`` is the first eight bytes of the digest that the batch's trailer states, and null if it states none; for other
records it is null. docs/reference/store.md describes the data set for its readers. Decision 0024 gives the reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from aggregator.common.files import read_regular
from aggregator.reports.decoding.columns import Columns, big_endian
from aggregator.reports.storage.manifest import Part, damaged
from protocol.batches.report import Layout
from protocol.mechanisms import INTEGERS, SINGLE

_PACKED = "DELTA_BINARY_PACKED"
_CONSTANT = ["proven", "claim"]
"""Columns with mostly one value. If the statistics of a row group show that, the column is not read."""


class Stored(NamedTuple):
    """Records with the columns that only parts have.

    Attributes:
        records: N records.
        claim: (N,) uint64, the first eight bytes of the digest that the trailer of a record's damaged batch states; 0
            for a record without such a trailer. None if all are 0.
    """

    records: Columns
    claim: NDArray[np.uint64] | None

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Stored:
        """The records that ``rows`` selects: an index array, a mask of N values, or a slice."""
        return Stored(self.records.take(rows), None if self.claim is None else self.claim[rows])

    @classmethod
    def join(cls, pieces: list[Stored], answer_bytes: int) -> Stored:
        """Concatenate the records of all pieces, in the order of the pieces.

        Args:
            pieces: may be empty; the result then has no record.
            answer_bytes: width of the answer field, which the result needs if there are no pieces.
        """
        records = Columns.join([piece.records for piece in pieces], answer_bytes)
        if all(piece.claim is None for piece in pieces):
            return cls(records, None)
        claims = [np.zeros(piece.records.size, np.uint64) if piece.claim is None else piece.claim for piece in pieces]
        return cls(records, np.concatenate(claims))


def part_schema(layout: Layout) -> pa.Schema:
    """Names and types of the columns of a part, a Parquet file of the store, of one record layout."""
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
    """A Parquet writer with the encodings of a part.

    Ids and bits are practically random, so compression would cost time without a gain. Small numbers are packed by
    their differences: every engine can read that, and it takes half the time of a dictionary. Periods hardly vary, and
    noisy sums have empty high bytes, so both are compressed. Statistics of ids would be useless, since ids fill their
    whole range in every row group. The digest of the part replaces the checksums of pages.

    Args:
        sink: a file object that is open for writing. The caller closes it.
        layout: layout of the campaign's records.
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
    """Yield the records of a part, one row group at a time. The digest of the part is checked first.

    Args:
        path: of the part's file.
        part: what the manifest states about the part.
        layout: layout of the campaign's records.
        buckets: number of buckets of the store.

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
    """Leave out the records of damaged batches whose complete batch is in the store.

    Args:
        stored: the records.
        superseded: first eight bytes, as numbers, of the digests that these damaged batches state.
    """
    if stored.claim is None or not superseded:
        return stored
    return stored.take(~np.isin(stored.claim, np.array(sorted(superseded), np.uint64)))


def _read_group(file: pq.ParquetFile, group: int, layout: Layout) -> Stored:
    """Read a row group. The columns ``proven`` and ``claim`` are read only if they have several values."""
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
    """The answer fields of a part: (N, A) uint8."""
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
