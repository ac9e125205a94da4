"""The SQLite file of a store of summaries: how it is made, opened and changed.

    documents    the campaign's file and the newest list of nodes
    summaries    per period and node the summaries that are kept, at most two
    rejected     per input file and reason the number of pieces that were refused
    quarantine   place and reason of refused pieces; their bytes stay in the input file

Every change is one transaction with full synchronisation: a crash or power cut leaves the file before or after it.
Several processes may write; each waits for the others.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.storage.manifest import SUMMARIES_FILE, damaged
from aggregator.storage.sqlite_errors import Failures, sqlite_errors
from protocol.errors import StorageError
from protocol.nodes.summary import read_summary
from protocol.nodes.summary_files import Entry, kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

APPLICATION_ID = 0x4873796E
"""``application_id`` of the file, "Hsyn"."""
VERSION = 1
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
    envelope BLOB NOT NULL, PRIMARY KEY (period, node, identity))""",
    """CREATE TABLE rejected (file BLOB NOT NULL, reason TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (file, reason)) WITHOUT ROWID""",
    """CREATE TABLE quarantine (file BLOB NOT NULL, place INTEGER NOT NULL, length INTEGER NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (file, place)) WITHOUT ROWID""",
)


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
        if not make and not self.path.is_file():
            raise StorageError("not_a_store", f"'{folder}' is no store of summaries; hearsay ingest makes one")
        with self._errors():
            quoted = os.fspath(self.path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            address = f"file:{quoted}?mode={'rwc' if make else 'rw'}"
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
                    self._run(f"PRAGMA application_id = {APPLICATION_ID}")
                    self._run(f"PRAGMA user_version = {VERSION}")
        ((application,),) = self._run("PRAGMA application_id")
        ((version,),) = self._run("PRAGMA user_version")
        if application == APPLICATION_ID and version > VERSION:
            raise StorageError("store_newer", "newer software wrote this store; update this software")
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
        """Run the body of ``with`` as one transaction, which writes all its changes, or after an error none."""
        with self._errors():
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise

    def document(self, name: str) -> bytes | None:
        """The bytes of a document: ``campaign`` or ``list``; None if there is none."""
        with self._errors():
            found = self._run("SELECT raw FROM documents WHERE name = ?", (name,))
        return found[0][0] if found else None

    def put_document(self, name: str, raw: bytes) -> None:
        """Keep a document, in place of an earlier one of that name. Called inside a transaction."""
        self._run("INSERT OR REPLACE INTO documents VALUES (?, ?)", (name, raw))

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
        before = [
            Entry(*found)
            for found in self._run("SELECT identity, envelope FROM summaries WHERE period = ? AND node = ?", place)
        ]
        after = kept((*before, Entry(row.identity, row.envelope)))
        if set(after) != set(before):
            self._run("DELETE FROM summaries WHERE period = ? AND node = ?", place)
            for entry in after:
                self._run("INSERT INTO summaries VALUES (?, ?, ?, ?)", (*place, *entry))
        if any(entry.identity == row.identity for entry in before):
            return REPLAYED_REASON
        return CONFLICT_REASON if before else ACCEPTED

    def holds(self, envelope: bytes) -> bool:
        """Whether the payload of a summary's envelope is kept."""
        summary = read_summary(envelope)[1]
        place = (summary.period, summary.node, summary.identity)
        with self._errors():
            return bool(self._run("SELECT 1 FROM summaries WHERE period = ? AND node = ? AND identity = ?", place))

    def note_refused(self, file: bytes, name: str, counts: Mapping[str, int], places: Sequence[Refused]) -> None:
        """Replace what was refused of an input file. Called inside a transaction.

        Args:
            file: SHA-256 of the file's content, decompressed.
            name: the file's name, for people.
            counts: reason → number of the file's refused pieces; empty if there are none.
            places: the refused pieces whose places are kept, as long as all files have at most
                :data:`MOST_QUARANTINED`.
        """
        self._run("DELETE FROM rejected WHERE file = ?", (file,))
        self._run("DELETE FROM quarantine WHERE file = ?", (file,))
        for reason, number in counts.items():
            self._run("INSERT INTO rejected VALUES (?, ?, ?, ?)", (file, reason, name, number))
        if places:
            ((there,),) = self._run("SELECT count(*) FROM quarantine")
            for piece in places[: max(0, MOST_QUARANTINED - there)]:
                self._run("INSERT INTO quarantine VALUES (?, ?, ?, ?)", (file, *piece))

    def rejected(self) -> dict[str, int]:
        """Number of refused pieces of all input files, by reason, in alphabetical order."""
        with self._errors():
            return dict(self._run("SELECT reason, sum(number) FROM rejected GROUP BY reason ORDER BY reason"))

    def quarantined(self) -> list[tuple[str, bytes, Refused]]:
        """Name of the input file, SHA-256 of its content, and place of every refused piece that is kept."""
        with self._errors():
            found = self._run(
                "SELECT name, q.file, place, length, q.reason FROM quarantine q "
                "JOIN rejected r ON q.file = r.file AND q.reason = r.reason ORDER BY name, q.file, place"
            )
        return [(name, file, Refused(*piece)) for name, file, *piece in found]

    def numbers(self) -> list[tuple[bytes, int]]:
        """The node and the number of kept summaries, 1 or 2, of every period and node."""
        with self._errors():
            return self._run("SELECT node, count(*) FROM summaries GROUP BY period, node")

    def rows(self) -> Iterator[Row]:
        """All kept summaries, by period, node and identity, as one moment left them."""
        with self._errors():
            cursor = self._connection.execute("SELECT * FROM summaries ORDER BY period, node, identity")
            yield from (Row(*values) for values in cursor)

    def _run(self, statement: str, values: Iterable[object] = ()) -> list[Any]:
        return self._connection.execute(statement, tuple(values)).fetchall()
