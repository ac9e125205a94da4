"""The SQLite file of a store of summaries: how it is made, opened and changed.

Its tables: ``documents`` (campaign, newest list of nodes, others of a kind of store), ``summaries`` (per period and
node at most two envelopes), ``rejected``, ``quarantine`` (place and reason of refused pieces) and ``row_sums``. Every
read compares the rows of its table with their sum (:class:`RowSum`), so damage to the file is noticed. Several
processes may write.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.common import databases
from aggregator.reports.storage.manifest import SUMMARIES_FILE, damaged
from protocol.database import Reasons, Schema, execute, row_digest
from protocol.errors import StorageError
from protocol.nodes.summary import Entry, kept

ACCEPTED = "accepted"
REPLAYED_REASON = "summary_replayed"
CONFLICT_REASON = "summary_conflict"
MOST_QUARANTINED = 100_000
"""Most places of refused pieces that are kept; all are counted."""
_COLUMNS = {
    "documents": "name, raw",
    "summaries": "period, node, identity, digest",
    "rejected": "file, reason, name, number",
    "quarantine": "file, place, length, reason",
}
"""Table → the columns that its sum covers. ``digest`` is the SHA-256 of ``envelope`` and covers it."""
_WITH_ENVELOPE = f"{_COLUMNS['summaries']}, envelope"
_TABLES = (
    "CREATE TABLE documents (name TEXT PRIMARY KEY, raw BLOB NOT NULL) WITHOUT ROWID",
    """CREATE TABLE summaries (period INTEGER NOT NULL, node BLOB NOT NULL, identity BLOB NOT NULL,
    digest BLOB NOT NULL, envelope BLOB NOT NULL, PRIMARY KEY (period, node, identity))""",
    """CREATE TABLE rejected (file BLOB NOT NULL, reason TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (file, reason)) WITHOUT ROWID""",
    """CREATE TABLE quarantine (file BLOB NOT NULL, place INTEGER NOT NULL, length INTEGER NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (file, place)) WITHOUT ROWID""",
    "CREATE TABLE row_sums (name TEXT PRIMARY KEY, number INTEGER NOT NULL, digests BLOB NOT NULL) WITHOUT ROWID",
)
SCHEMA = Schema(
    what="the store of summaries",
    reasons=Reasons("store_busy", "store_damaged", "store_newer", "store_older"),
    application_id=0x4873796E,  # Hsyn
    version=2,
    tables={statement.split()[2]: statement for statement in _TABLES},
    damage=damaged("its file of summaries is damaged or not one of this software").detail,
    older="older software made this store; ingest its files into a new one",
    busy_seconds=60.0,
)
_BITS = 256


class Row(NamedTuple):
    """A kept envelope. ``node``: the node's id, 8 bytes; ``identity``: the payload's SHA-256."""

    period: int
    node: bytes
    identity: bytes
    envelope: bytes


class RefusedPiece(NamedTuple):
    """A refused piece of an input file: the offset of its first byte, its length in bytes and the reason."""

    offset: int
    length: int
    reason: str


class RowSum(NamedTuple):
    """The number of rows of a table, and the sum of their digests (:func:`protocol.database.row_digest`) mod 2^256."""

    rows: int = 0
    digests: int = 0

    def plus(self, table: str, row: Sequence[object], sign: int = 1) -> RowSum:
        """Return the sum after ``row`` is added to ``table``, or, if ``sign`` is −1, removed from it."""
        return RowSum(self.rows + sign, (self.digests + sign * _digest(table, row)) % (1 << _BITS))

    def check(self, number: int, digests: int) -> None:
        """Raise ``store_damaged`` unless a number of rows, and the sum of their digests, are those of this sum."""
        if self != (number, digests % (1 << _BITS)):
            raise _changed()

    def to_bytes(self) -> bytes:
        """Return the sum of the digests as 32 bytes, big-endian."""
        return self.digests.to_bytes(_BITS // 8, "big")


def _digest(table: str, row: Sequence[object]) -> int:
    return int.from_bytes(row_digest(table, row), "big")


def _changed() -> StorageError:
    return damaged("its file of summaries was changed")


class Database(databases.Database):
    """An open store's SQLite file, made if ``make``. May raise ``not_a_store`` and the errors of ``SCHEMA``."""

    def __init__(self, folder: Path, *, make: bool = False) -> None:
        self._sums: dict[str, RowSum] = {}  # of the tables that the present transaction has changed
        path = folder / SUMMARIES_FILE
        if not make and not path.is_file():
            raise StorageError("not_a_store", f"'{folder}' is no store of summaries; hearsay ingest makes one")
        super().__init__(SCHEMA, path, make=_make if make else None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body of ``with`` as one transaction, which writes all changes or, if the body fails, none.

        Without changes it writes a value that the file has already: its commit makes earlier commits durable, which a
        process that was killed may have left so that a power cut would undo them.
        """
        with self._changes():
            self._sums = {}
            try:
                yield
                for table, found in self._sums.items():
                    self._write("row_sums", (table, found.rows, found.to_bytes()), "REPLACE")
                self._run(f"PRAGMA user_version = {SCHEMA.version}")
            finally:
                self._sums = {}

    def _sum_of(self, table: str) -> RowSum:
        """Return the number and digest sum of a table's rows, with the changes of the present transaction."""
        if table not in self._sums:
            found = self._run("SELECT number, digests FROM row_sums WHERE name = ?", (table,))
            if len(found) != 1 or not isinstance(found[0][1], bytes):
                raise _changed()
            return RowSum(found[0][0], int.from_bytes(found[0][1], "big"))
        return self._sums[table]

    def _all(self, table: str) -> list[tuple[Any, ...]]:
        """Return all rows of a table, sorted and compared with their sum."""
        with self._reading():
            found = self._run(f"SELECT {_COLUMNS[table]} FROM {table}")  # noqa: S608
            self._sum_of(table).check(len(found), sum(_digest(table, row) for row in found))
        return sorted(found)

    def _insert(self, table: str, *row: object, envelope: bytes | None = None) -> None:
        self._write(table, row if envelope is None else (*row, envelope))
        self._sums[table] = self._sum_of(table).plus(table, row)

    def _delete(self, table: str, condition: str, *values: object) -> None:
        for row in self._run(f"SELECT {_COLUMNS[table]} FROM {table} WHERE {condition}", values):  # noqa: S608
            self._sums[table] = self._sum_of(table).plus(table, row, -1)
        self._run(f"DELETE FROM {table} WHERE {condition}", values)  # noqa: S608

    def document(self, name: str) -> bytes | None:
        """Return the bytes of a document, for example ``campaign`` or ``list``, or None if it is not kept."""
        return self.documents().get(name)

    def documents(self) -> dict[str, bytes]:
        """Return name → bytes of all documents that the store keeps."""
        return dict(self._all("documents"))

    def put_document(self, name: str, raw: bytes) -> None:
        """Keep a document in place of an earlier one of that name. The caller must have opened a transaction."""
        self._delete("documents", "name = ?", name)
        self._insert("documents", name, raw)

    def put(self, row: Row) -> str:
        """Add an envelope to the kept ones, whatever the order. The caller must have opened a transaction.

        Return :data:`REPLAYED_REASON` if the payload was kept before, :data:`CONFLICT_REASON` if another payload of the
        same period and node was, else :data:`ACCEPTED`.
        """
        place = (row.period, row.node)
        found = self._run(f"SELECT {_WITH_ENVELOPE} FROM summaries WHERE period = ? AND node = ?", place)  # noqa: S608
        before = [Entry(kept_row.identity, kept_row.envelope) for kept_row in map(_row_in, found)]
        after = kept((*before, Entry(row.identity, row.envelope)))
        if set(after) != set(before):
            self._delete("summaries", "period = ? AND node = ?", *place)
            for identity, envelope in after:
                self._insert("summaries", *place, identity, sha256(envelope).digest(), envelope=envelope)
        if any(entry.identity == row.identity for entry in before):
            return REPLAYED_REASON
        return CONFLICT_REASON if before else ACCEPTED

    def holds(self, key: tuple[int, bytes, bytes]) -> bool:
        """Return whether the envelope of a period, node and identity is kept."""
        with self._errors():
            return bool(self._run("SELECT 1 FROM summaries WHERE period = ? AND node = ? AND identity = ?", key))

    def note_refused(self, file: bytes, name: str, counts: Mapping[str, int], places: Sequence[RefusedPiece]) -> None:
        """Record what was refused of an input file, in place of what was recorded of it before.

        The caller must have opened a transaction. ``file`` is the SHA-256 of the file's content, ``counts`` are numbers
        by reason. The ``places`` of all files are limited to :data:`MOST_QUARANTINED`.
        """
        self._delete("rejected", "file = ?", file)
        self._delete("quarantine", "file = ?", file)
        for reason, number in counts.items():
            self._insert("rejected", file, reason, name, number)
        for piece in places[: max(0, MOST_QUARANTINED - self._sum_of("quarantine").rows)]:
            self._insert("quarantine", file, *piece)

    def rejected(self) -> dict[str, int]:
        """Return the number of refused pieces of all input files, by reason, in alphabetical order."""
        found: Counter[str] = Counter()
        for _, reason, _, number in self._all("rejected"):
            found[reason] += number
        return dict(sorted(found.items()))

    def quarantined(self) -> list[tuple[str, bytes, RefusedPiece]]:
        """Return the name of the input file, SHA-256 of its content, and place of every refused piece that is kept."""
        with self._reading():
            names = {(file, reason): name for file, reason, name, _ in self._all("rejected")}
            places = self._all("quarantine")
        return sorted(
            (names[file, reason], file, RefusedPiece(place, length, reason)) for file, place, length, reason in places
        )

    def numbers(self) -> list[tuple[bytes, int]]:
        """Return (node, number of kept summaries, 1 or 2) for every period and node that has any."""
        rows = self._summaries(_COLUMNS["summaries"])
        return [(node, sum(1 for _ in same)) for (_, node), same in groupby(rows, key=itemgetter(0, 1))]

    def rows(self) -> Generator[Row, None, None]:
        """Yield all kept summaries of one consistent state, by period, node and identity.

        A changed or missing row may be noticed only after the last row, so the caller must read all rows before it uses
        any. A caller that stops earlier must close the iterator before this file.
        """
        with closing(self._summaries(_WITH_ENVELOPE)) as found:
            yield from map(_row_in, found)

    def _summaries(self, columns: str) -> Generator[tuple[Any, ...], None, None]:
        """Yield the rows of ``summaries`` with these columns, sorted; then check them against their digest sum."""
        number, digests, last = 0, 0, (-1,)
        with self._reading():
            expected = self._sum_of("summaries")
            for row in self._connection.execute(f"SELECT {columns} FROM summaries ORDER BY 1, 2, 3"):  # noqa: S608
                if tuple(map(type, row[:4])) != (int, bytes, bytes, bytes) or row[:3] <= last:
                    raise _changed()
                number, digests, last = number + 1, digests + _digest("summaries", row[:4]), row[:3]
                yield row
            expected.check(number, digests)


def _make(connection: sqlite3.Connection) -> None:
    execute(connection, "BEGIN IMMEDIATE")
    if not execute(connection, "SELECT 1 FROM sqlite_master"):
        SCHEMA.make_tables(connection, [("row_sums", (name, 0, RowSum().to_bytes())) for name in _COLUMNS])
    execute(connection, "COMMIT")


def _row_in(found: tuple[Any, ...]) -> Row:
    """Return the envelope in a row of the table. Raise ``store_damaged`` if it does not have its digest."""
    period, node, identity, digest, envelope = found
    if not isinstance(envelope, bytes) or sha256(envelope).digest() != digest:
        raise _changed()
    return Row(period, node, identity, envelope)
