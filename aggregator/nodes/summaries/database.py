"""The SQLite file of a store of summaries: how it is made, opened and changed.

    documents    the campaign's file, the newest list of nodes, and other documents that a kind of store needs
    summaries    per period and node the envelopes that are kept, at most two: summaries, or masked messages
    rejected     per input file and reason the number of pieces that were refused
    quarantine   place and reason of refused pieces; their bytes stay in the input file
    row_sums     of each table above the number of rows and the sum of their digests

Every change is one transaction with full synchronisation: a crash or power cut leaves the file before or after it.
Several processes may write; each waits for the others. Every read compares the rows of its table with their sum, so
damage to the file is noticed (:mod:`aggregator.nodes.summaries.row_sums`).
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.common.sqlite_errors import Failures, sqlite_errors
from aggregator.nodes.summaries.row_sums import RowSum, changed, row_digest
from aggregator.reports.storage.manifest import SUMMARIES_FILE, damaged
from protocol.errors import StorageError
from protocol.nodes.summary_files import Entry, kept

APPLICATION_ID = 0x4873796E
"""``application_id`` of the file, "Hsyn"."""
VERSION = 2
SYNCHRONOUS = "EXTRA"
JOURNAL = "TRUNCATE"
BUSY_SECONDS = 60.0
ACCEPTED = "accepted"
REPLAYED_REASON = "summary_replayed"
CONFLICT_REASON = "summary_conflict"
MOST_QUARANTINED = 100_000
"""Most places of refused pieces that are kept; all are counted."""
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
_COLUMNS = {
    "documents": "name, raw",
    "summaries": "period, node, identity, digest",
    "rejected": "file, reason, name, number",
    "quarantine": "file, place, length, reason",
}
"""Table → the columns that its sum covers. ``digest`` is the SHA-256 of ``envelope`` and covers it."""
_WITH_ENVELOPE = f"{_COLUMNS['summaries']}, envelope"


class Row(NamedTuple):
    """A kept summary.

    Attributes:
        period: number of its period.
        node: id of its node, 8 bytes.
        identity: SHA-256 of its payload.
        envelope: its signed bytes.
    """

    period: int
    node: bytes
    identity: bytes
    envelope: bytes


class Refused(NamedTuple):
    """A refused piece of an input file: its first byte, its length and the reason."""

    offset: int
    length: int
    reason: str

    def bytes_of(self, content: bytes) -> bytes:
        """The piece, cut out of the content of its file."""
        return content[self.offset : self.offset + self.length]


class Database:
    """An open file of summaries. All methods may raise ``store_busy``, ``store_damaged``, ``disk_full``, ``io_failed``.

    Args:
        folder: the store's folder.
        make: make the file if there is none.

    Raises:
        StorageError: ``not_a_store``: there is no file of summaries; ``store_newer``: newer software wrote it.
    """

    def __init__(self, folder: Path, *, make: bool = False) -> None:
        self.path = folder / SUMMARIES_FILE
        self._sums: dict[str, RowSum] = {}  # of the tables that the present transaction has changed
        if not make and not self.path.is_file():
            raise StorageError("not_a_store", f"'{folder}' is no store of summaries; hearsay ingest makes one")
        with self._errors():
            quoted = os.fspath(self.path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            address = f"file://{quoted}?mode={'rwc' if make else 'rw'}"
            self._connection = sqlite3.connect(address, timeout=BUSY_SECONDS, isolation_level=None, uri=True)
            try:
                self._prepare(make=make)
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, *, make: bool) -> None:
        self._run("PRAGMA trusted_schema = OFF")
        self._run(f"PRAGMA journal_mode = {JOURNAL}")
        self._run(f"PRAGMA synchronous = {SYNCHRONOUS}")
        if make:
            with self.transaction():
                if not self._run("SELECT 1 FROM sqlite_master"):
                    for statement in _TABLES:
                        self._run(statement)
                    self._sums = dict.fromkeys(_COLUMNS, RowSum())
                    self._run(f"PRAGMA application_id = {APPLICATION_ID}")
        ((application,),) = self._run("PRAGMA application_id")
        ((version,),) = self._run("PRAGMA user_version")
        if application == APPLICATION_ID and version > VERSION:
            raise StorageError("store_newer", "newer software wrote this store; update this software")
        if application == APPLICATION_ID and 0 < version < VERSION:
            raise StorageError("store_older", "older software made this store; ingest its files into a new one")
        found = {sql for (sql,) in self._run("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        if application != APPLICATION_ID or found != set(_TABLES):
            raise damaged("its file of summaries is not one of this software")

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._connection.close()

    def _errors(self) -> AbstractContextManager[None]:
        return sqlite_errors(
            Failures(
                "the store of summaries",
                StorageError("store_busy", "another process is writing to this store; try again later"),
                StorageError("disk_full", "there is no space left for the store of summaries"),
                damaged("its file of summaries can not be read"),
            )
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body of ``with`` as one transaction, which writes all its changes, or after an error none.

        A transaction without changes writes a value that the file has already. Its commit makes earlier commits
        durable: a process that was killed in a commit may have left rows that every reader sees and that a power cut
        would undo.
        """
        with self._errors():
            self._run("BEGIN IMMEDIATE")
            self._sums = {}
            try:
                yield
                for table, found in self._sums.items():
                    self._run("INSERT OR REPLACE INTO row_sums VALUES (?, ?, ?)", table, found.rows, found.to_bytes())
                self._run(f"PRAGMA user_version = {VERSION}")
                self._run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise
            finally:
                self._sums = {}

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Let all statements in the body of ``with`` see the file as one moment left it."""
        with self._errors():
            own = not self._connection.in_transaction
            if own:
                self._run("BEGIN")
            try:
                yield
            finally:
                if own:
                    self._run("ROLLBACK")

    def _sum_of(self, table: str) -> RowSum:
        """The sum of a table's rows, with the changes of the present transaction."""
        if table not in self._sums:
            found = self._run("SELECT number, digests FROM row_sums WHERE name = ?", table)
            if len(found) != 1 or not isinstance(found[0][1], bytes):
                raise changed()
            return RowSum(found[0][0], int.from_bytes(found[0][1], "big"))
        return self._sums[table]

    def _all(self, table: str) -> list[tuple[Any, ...]]:
        """All rows of a table, sorted and compared with their sum."""
        with self._snapshot():
            found = self._run(f"SELECT {_COLUMNS[table]} FROM {table}")  # noqa: S608
            self._sum_of(table).check(len(found), sum(row_digest(table, row) for row in found))
        return sorted(found)

    def _insert(self, table: str, *row: object, envelope: bytes | None = None) -> None:
        """Add a row, ``row`` being the columns that the sum covers."""
        values = row if envelope is None else (*row, envelope)
        self._run(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", *values)  # noqa: S608
        self._sums[table] = self._sum_of(table).with_row(table, row)

    def _delete(self, table: str, condition: str, *values: object) -> None:
        """Remove the rows that match an SQL condition, which has a ``?`` for each value."""
        for row in self._run(f"SELECT {_COLUMNS[table]} FROM {table} WHERE {condition}", *values):  # noqa: S608
            self._sums[table] = self._sum_of(table).without_row(table, row)
        self._run(f"DELETE FROM {table} WHERE {condition}", *values)  # noqa: S608

    def document(self, name: str) -> bytes | None:
        """The bytes of a document, for example ``campaign`` or ``list``; None if there is none."""
        return self.documents().get(name)

    def documents(self) -> dict[str, bytes]:
        """Name → bytes of all documents that the store keeps."""
        return dict(self._all("documents"))

    def put_document(self, name: str, raw: bytes) -> None:
        """Keep a document, in place of an earlier one of that name. Called inside a transaction."""
        self._delete("documents", "name = ?", name)
        self._insert("documents", name, raw)

    def put(self, row: Row) -> str:
        """Join a summary to the kept ones. Called inside a transaction.

        Of each period and node the two smallest identities are kept, and of each identity the smallest envelope, so
        the kept rows do not depend on the order in which summaries arrive
        (:func:`protocol.nodes.summary_files.kept`).

        Returns:
            :data:`ACCEPTED`; :data:`REPLAYED_REASON`: the payload was kept already; :data:`CONFLICT_REASON`: another
            payload of that node and period was.
        """
        place = (row.period, row.node)
        found = self._run(f"SELECT {_WITH_ENVELOPE} FROM summaries WHERE period = ? AND node = ?", *place)  # noqa: S608
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
        """Whether the envelope of a period, node and identity is kept."""
        with self._errors():
            return bool(self._run("SELECT 1 FROM summaries WHERE period = ? AND node = ? AND identity = ?", *key))

    def note_refused(self, file: bytes, name: str, counts: Mapping[str, int], places: Sequence[Refused]) -> None:
        """Replace what was refused of an input file. Called inside a transaction.

        Args:
            file: SHA-256 of the file's content, decompressed.
            name: the file's name, for people.
            counts: reason → number of the file's refused pieces; empty if there are none.
            places: the refused pieces whose places are kept, as long as all files have at most
                :data:`MOST_QUARANTINED`.
        """
        self._delete("rejected", "file = ?", file)
        self._delete("quarantine", "file = ?", file)
        for reason, number in counts.items():
            self._insert("rejected", file, reason, name, number)
        for piece in places[: max(0, MOST_QUARANTINED - self._sum_of("quarantine").rows)]:
            self._insert("quarantine", file, *piece)

    def rejected(self) -> dict[str, int]:
        """Number of refused pieces of all input files, by reason, in alphabetical order."""
        found: Counter[str] = Counter()
        for _, reason, _, number in self._all("rejected"):
            found[reason] += number
        return dict(sorted(found.items()))

    def quarantined(self) -> list[tuple[str, bytes, Refused]]:
        """Name of the input file, SHA-256 of its content, and place of every refused piece that is kept."""
        with self._snapshot():
            names = {(file, reason): name for file, reason, name, _ in self._all("rejected")}
            places = self._all("quarantine")
        return sorted(
            (names[file, reason], file, Refused(place, length, reason)) for file, place, length, reason in places
        )

    def numbers(self) -> list[tuple[bytes, int]]:
        """The node and the number of kept summaries, 1 or 2, of every period and node."""
        rows = self._summaries(_COLUMNS["summaries"])
        return [(node, sum(1 for _ in same)) for (_, node), same in groupby(rows, key=itemgetter(0, 1))]

    def rows(self) -> Generator[Row, None, None]:
        """All kept summaries, by period, node and identity, as one moment left them.

        A changed or missing row may be noticed only after the last one, so all rows must be read before any result is
        used. A reader that stops earlier closes the iterator before this file.
        """
        with closing(self._summaries(_WITH_ENVELOPE)) as found:
            yield from map(_row_in, found)

    def _summaries(self, columns: str) -> Generator[tuple[Any, ...], None, None]:
        """Rows of summaries by period, node and identity; after the last one they are compared with their sum.

        Args:
            columns: the columns that the sum covers, and perhaps others after them.
        """
        number, digests, last = 0, 0, (-1,)
        with self._snapshot():
            expected = self._sum_of("summaries")
            for row in self._connection.execute(f"SELECT {columns} FROM summaries ORDER BY 1, 2, 3"):  # noqa: S608
                if tuple(map(type, row[:4])) != (int, bytes, bytes, bytes) or row[:3] <= last:
                    raise changed()
                number, digests, last = number + 1, digests + row_digest("summaries", row[:4]), row[:3]
                yield row
            expected.check(number, digests)

    def _run(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()


def _row_in(found: tuple[Any, ...]) -> Row:
    """The summary of a row of the table; its envelope is compared with its digest."""
    period, node, identity, digest, envelope = found
    if not isinstance(envelope, bytes) or sha256(envelope).digest() != digest:
        raise changed()
    return Row(period, node, identity, envelope)
