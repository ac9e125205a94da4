"""The index of a store's input files, so that each file content is ingested once.

:func:`identity` names a content; its last bytes (:func:`tail`) tell most files apart without a digest.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from aggregator.common.files import read_regular
from aggregator.reports.decoding.content import Content, piecewise_digest
from aggregator.reports.storage.locking import make_folder, write_durably
from aggregator.reports.storage.manifest import INPUTS, SideFile, damaged
from protocol.batches.batch import TRAILER_BYTES

MAX_FILES = 16
"""Largest number of files of the index. When it is reached, the next ingest writes one file in place of all."""
TAIL_BYTES = 8

_SCHEMA = pa.schema(
    [
        pa.field("identity", pa.binary(32), nullable=False),
        pa.field("tail", pa.binary(TAIL_BYTES), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("size_bytes", pa.uint64(), nullable=False),
        pa.field("present", pa.uint64(), nullable=False),
        pa.field("proven", pa.uint64(), nullable=False),
        pa.field("unproven", pa.uint64(), nullable=False),
        pa.field("rejected", pa.string(), nullable=False),
        pa.field("batches", pa.binary(), nullable=False),
        pa.field("refused", pa.binary(), nullable=False),
        pa.field("enrolment", pa.binary(), nullable=False),
    ]
)


class Ingested(NamedTuple):
    """The index entry of one input file.

    ``identity``, ``tail``: digest and last bytes of its content; ``present``: the latest period in which it was read;
    ``proven``, ``unproven``: good records in complete and in damaged batches; ``rejected``: by reason; ``batches``:
    first eight bytes of the digest of every complete batch; ``refused``: positions of records ``id_not_enrolled``,
    packed by :func:`pack_places`; ``enrolment``: digest of the one set of enrolled ids that refused them, or empty.
    """

    identity: bytes
    tail: bytes
    name: str
    size_bytes: int
    present: int
    proven: int
    unproven: int
    rejected: dict[str, int]
    batches: bytes
    refused: bytes = b""
    enrolment: bytes = b""


def pack_places(places: NDArray[np.int64]) -> bytes:
    """Compress the N rising positions of a file's records, (N,) int64, for the index; empty if N is 0."""
    return zlib.compress(np.diff(places, prepend=0).astype("<u8").tobytes(), 1) if len(places) else b""


def unpack_places(packed: bytes) -> NDArray[np.int64]:
    """Decompress N positions of records, (N,) int64, which :func:`pack_places` compressed."""
    steps = np.frombuffer(zlib.decompress(packed), "<u8") if packed else np.empty(0, np.uint64)
    return np.cumsum(steps.astype(np.int64))


def identity(data: Content, body: bytes | None = None) -> bytes:
    """Return a digest that names the decompressed content of a file, 32 bytes.

    It is SHA-256(SHA-256(all but the last 44 bytes) ‖ the last 44 bytes). In a file of one batch the inner digest,
    ``body``, is that of the batch. Raises ``FileShortenedError`` if ``data`` became shorter.
    """
    cut = max(0, len(data) - TRAILER_BYTES)
    inner = piecewise_digest(data, 0, cut) if body is None else body
    return sha256(inner + data[cut:]).digest()


def tail(data: Content) -> bytes:
    """Return the last eight bytes of a file's content ``data``. Shorter content is padded with zeros in front."""
    return data[-TAIL_BYTES:].rjust(TAIL_BYTES, b"\0")


class Inputs:
    """The index of a store's input files, with the new entries of the running ingest. Raises ``store_damaged``."""

    def __init__(self, folder: Path, files: Sequence[SideFile]) -> None:
        self._folder = folder / INPUTS
        self._files = tuple(files)
        tables = [read_side_file(self._folder, file, _SCHEMA) for file in files]
        self._table = pa.concat_tables([_SCHEMA.empty_table(), *tables]).combine_chunks()
        self._tails = np.sort(numbers(b"".join(self._table["tail"].to_pylist())))
        self._identities = b"".join(self._table["identity"].to_pylist())
        starts = np.frombuffer(self._identities, ">u8")[::4].astype(np.uint64)
        self._order = np.argsort(starts, kind="stable")
        self._starts = starts[self._order]
        self._presents = self._table["present"].to_numpy()
        self._early = pc.match_substring(self._table["rejected"], '"report_too_early"').to_numpy()
        self._new: dict[bytes, Ingested] = {}

    def may_know(self, tail: bytes) -> bool:
        """Return whether an earlier ingest read a file with these last eight bytes. Only :func:`identity` is sure."""
        low, high = _places(self._tails, tail)
        return high > low

    def has_all(self, name: bytes, present: int, enrolment: bytes = b"") -> bool:
        """Return whether a file is known, and reading it again would add no report.

        Reports that were too early may be accepted in a later period, ``present``, those not enrolled with another set
        of ids, whose digest is ``enrolment`` (empty for an open store).
        """
        if name in self._new:
            return True
        place = self._place(name)
        if place is None or (self._early[place] and self._presents[place] < present):
            return False
        refused = self._table["refused"][place].as_buffer()
        return not (refused and refused.size) or self._table["enrolment"][place].as_py() == enrolment

    def get(self, name: bytes) -> Ingested | None:
        """Return the entry of the file with the :func:`identity` ``name``, or None if no ingest has read it."""
        if name in self._new:
            return self._new[name]
        place = self._place(name)
        return None if place is None else _rows(self._table.slice(place, 1))[0]

    def _place(self, name: bytes) -> int | None:
        """Return the row of the last entry of a file, or None. Last bytes would not do: an attacker chooses them."""
        low, high = _places(self._starts, name[:8])
        for place in self._order[low:high][::-1].tolist():  # The last entry of a file is valid, so it is tried first.
            if self._identities[32 * place : 32 * place + 32] == name:
                return int(place)
        return None

    def add(self, entry: Ingested) -> None:
        """Add the entry of a file of this ingest."""
        self._new[entry.identity] = entry

    def is_new(self, name: bytes) -> bool:
        """Return whether this ingest added the file with the :func:`identity` ``name``."""
        return name in self._new

    @property
    def new(self) -> bool:
        """Return whether this ingest added an entry."""
        return bool(self._new)

    def entries(self) -> Iterator[Ingested]:
        """Yield the last, and so valid, entry of every content."""
        latest = {entry.identity: entry for entry in _rows(self._table)} | self._new
        yield from latest.values()

    def batches(self) -> NDArray[np.uint64]:
        """Return the first eight bytes of the digest of each of B complete batches of earlier ingests: (B,) uint64."""
        return numbers(b"".join(self._table["batches"].to_pylist()))

    def write(self, name: str) -> tuple[SideFile, ...]:
        """Write the entries of this ingest to a file called ``name``, and return all files of the index.

        If there are :data:`MAX_FILES` already, the new file gets all entries and replaces them.
        """
        joined = len(self._files) >= MAX_FILES
        table = _to_table(self.entries() if joined else self._new.values())
        file = write_side_file(self._folder, name, table)
        return (file,) if joined else (*self._files, file)


def _places(ordered: NDArray[np.uint64], eight: bytes) -> tuple[int, int]:
    """Return the first and end position of a number, given as ``eight`` bytes, in sorted numbers."""
    number = np.uint64(int.from_bytes(eight))
    return int(ordered.searchsorted(number)), int(ordered.searchsorted(number, "right"))


def write_side_file(folder: Path, name: str, table: pa.Table) -> SideFile:
    """Write a table to a Parquet file, durably, and return what the next manifest says of the file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    raw = bytes(sink.getvalue())
    make_folder(folder)
    write_durably(folder / name, raw)
    return SideFile(name, table.num_rows, sha256(raw).hexdigest())


def read_side_file(folder: Path, file: SideFile, schema: pa.Schema) -> pa.Table:
    """Read a Parquet file that the manifest names, with the columns ``schema``. Raises ``store_damaged``."""
    where = f"'{folder.name}/{file.name}'"
    try:
        raw = read_regular(folder / file.name)
    except OSError:
        raise damaged(f"{where} is missing or can not be read") from None
    if sha256(raw).hexdigest() != file.sha256:
        raise damaged(f"{where} is not as it was written")
    try:
        table = pq.read_table(pa.BufferReader(raw))
    except (OSError, pa.ArrowException):
        raise damaged(f"{where} is no Parquet file") from None
    if not table.schema.equals(schema) or table.num_rows != file.rows:
        raise damaged(f"{where} does not hold what the manifest says")
    return table


def numbers(eights: bytes) -> NDArray[np.uint64]:
    """Read ``eights``, 8·N bytes, as N big-endian numbers of eight bytes: (N,) uint64."""
    return np.frombuffer(eights, ">u8").astype(np.uint64)


def _to_table(entries: Iterable[Ingested]) -> pa.Table:
    entries = list(entries)
    columns: dict[str, list[Any]] = {name: [getattr(entry, name) for entry in entries] for name in _SCHEMA.names}
    columns["rejected"] = [json.dumps(entry.rejected) if entry.rejected else "" for entry in entries]
    columns["name"] = [
        entry.name.encode("utf-8", "replace").decode() for entry in entries
    ]  # Bytes of a name that are no UTF-8 become question marks: Parquet's texts can not hold them.
    return pa.table(columns, schema=_SCHEMA)


def _rows(table: pa.Table) -> list[Ingested]:
    return [Ingested(**{**row, "rejected": json.loads(row["rejected"] or "{}")}) for row in table.to_pylist()]
