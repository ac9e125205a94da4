"""The device's memory: one SQLite file with trust, documents, ledger, spool and secret.

Every change is one transaction with full synchronisation, so after a power cut the state is the one
before or the one after, never between. The ledger outlives the spool: what was spent stays spent.
"""

from __future__ import annotations

import os
import sqlite3
from _thread import RLock  # threading.RLock itself; importing threading would cost a millisecond
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import StorageError
from protocol.trust import TrustState, restore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STATE_FILE = "state.db"
STATE_VERSION = 1
_APPLICATION_ID = 0x48737931  # "Hsy1"
_BUSY_SECONDS = 30.0

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE floors (role TEXT, name TEXT, version INTEGER NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (role, name)) WITHOUT ROWID;
CREATE TABLE documents (role TEXT, name TEXT, digest BLOB NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (role, name));
CREATE TABLE ledger (campaign BLOB, period INTEGER, epsilon_micro INTEGER NOT NULL, answered_at INTEGER NOT NULL,
    reports BLOB NOT NULL, PRIMARY KEY (campaign, period)) WITHOUT ROWID;
CREATE TABLE spool (sequence INTEGER PRIMARY KEY, campaign BLOB NOT NULL, record BLOB NOT NULL);
"""


class Entry(NamedTuple):
    """One line of the ledger: what a period's answers cost, and their bytes (never the input)."""

    period: int
    epsilon_micro: int
    reports: bytes


class State:
    """Reads and writes of the state file. Methods that write are called inside :meth:`transaction`."""

    def __init__(self, path: str | None) -> None:
        """Open or create the file at ``path``; None keeps the state in memory, for simulations.

        Raises:
            StorageError: ``state_newer``, ``state_damaged``, ``state_busy``, ``io_failed``.
        """
        self._path = path
        self._lock = RLock()
        self._owner = os.getpid()
        self._inherited: list[sqlite3.Connection] = []
        self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        if self._path is not None and not os.path.exists(self._path):
            # Created empty with the right mode first: the file will hold the device's secret.
            with _storage_errors():
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        with _storage_errors():
            connection = sqlite3.connect(
                ":memory:" if self._path is None else self._path,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if self._path is not None:
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            connection.execute("PRAGMA synchronous = EXTRA")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._create(connection)
        elif version > STATE_VERSION:
            raise StorageError("state_newer", "the state was written by newer software; update this one")
        elif connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise StorageError("state_damaged", "the state file is not one of this software")

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # not made by another process meanwhile
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StorageError("state_damaged", "the state file is not one of this software")
            for statement in _TABLES.split(";")[:-1]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {STATE_VERSION}")
        connection.execute("COMMIT")

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: everything done inside is durable when this returns, or did not happen.

        Raises:
            StorageError: ``state_busy``, ``disk_full``, ``state_damaged``, ``io_failed``.
        """
        with self._lock:
            connection = self._live()
            with _storage_errors():
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise

    def _live(self) -> sqlite3.Connection:
        """The connection of this process: one must not cross a fork, nor be closed by the child."""
        if self._owner != os.getpid() and self._path is not None:
            self._inherited.append(self._connection)
            self._connection = self._connect()
            self._owner = os.getpid()
        return self._connection

    def _run(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        with _storage_errors():
            return self._live().execute(statement, values)

    def _run_many(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        with _storage_errors():
            self._live().executemany(statement, rows)

    def secret(self) -> bytes | None:
        """The device's secret; None in a new state."""
        return self._meta("secret")

    def trust(self) -> TrustState | None:
        """The trust state; None in a new state."""
        root = self._meta("root")
        floor = self._meta("time_floor")
        if root is None or floor is None:
            return None
        rows = self._run("SELECT role, name, version, digest FROM floors")
        floors = {(role, name): (version, digest) for role, name, version, digest in rows}
        return restore(root, floors, int(floor))

    def time_floor(self) -> int:
        """The earliest time it can be, whatever the wall clock says."""
        return int(self._meta("time_floor") or b"0")

    def _meta(self, key: str) -> bytes | None:
        row = self._run("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def write_secret(self, secret: bytes) -> None:
        """Store a new device's secret."""
        self._run("INSERT INTO meta VALUES ('secret', ?)", (secret,))

    def write_trust(self, trust: TrustState) -> None:
        """Replace the trust state."""
        run = self._run
        run("INSERT OR REPLACE INTO meta VALUES ('root', ?)", (trust.root_bytes,))
        run("INSERT OR REPLACE INTO meta VALUES ('time_floor', ?)", (b"%d" % trust.time_floor,))
        run("DELETE FROM floors")
        rows = [(role, name, version, digest) for (role, name), (version, digest) in trust.floors.items()]
        self._run_many("INSERT INTO floors VALUES (?, ?, ?, ?)", rows)

    def documents(self, role: str) -> list[tuple[str, bytes, bytes]]:
        """Name, digest and payload of the accepted documents of a role, by name."""
        rows = self._run("SELECT name, digest, payload FROM documents WHERE role = ? ORDER BY name", (role,))
        return [(name, bytes(digest), bytes(payload)) for name, digest, payload in rows]

    def document_by_digest(self, role: str, digest: bytes) -> bytes | None:
        """The payload of one accepted document."""
        row = self._run("SELECT payload FROM documents WHERE role = ? AND digest = ?", (role, digest)).fetchone()
        return None if row is None else bytes(row[0])

    def write_document(self, role: str, name: str, digest: bytes, payload: bytes) -> None:
        """Store an accepted document; it replaces the one of the same name."""
        self._run("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)", (role, name, digest, payload))

    def last_entry(self, campaign: bytes) -> Entry | None:
        """The newest period that was answered for a campaign."""
        row = self._run(
            "SELECT period, epsilon_micro, reports FROM ledger WHERE campaign = ? ORDER BY period DESC LIMIT 1",
            (campaign,),
        ).fetchone()
        return None if row is None else Entry(row[0], row[1], bytes(row[2]))

    def spent_micro(self) -> int:
        """Everything this device ever spent, in millionths of ε."""
        total: int = self._run("SELECT coalesce(sum(epsilon_micro), 0) FROM ledger").fetchone()[0]
        return total

    def write_answers(self, campaign: bytes, entry: Entry, answered_at: int, records: Sequence[bytes]) -> None:
        """Spend and spool together. Earlier periods keep their cost and lose their bytes."""
        run = self._run
        run("UPDATE ledger SET reports = x'' WHERE campaign = ? AND reports <> x''", (campaign,))
        run(
            "INSERT INTO ledger VALUES (?, ?, ?, ?, ?)",
            (campaign, entry.period, entry.epsilon_micro, answered_at, entry.reports),
        )
        rows = [(campaign, record) for record in records]
        self._run_many("INSERT INTO spool (campaign, record) VALUES (?, ?)", rows)

    def spooled(self) -> dict[bytes, list[bytes]]:
        """Unsent reports by campaign, in the order they were made."""
        groups: dict[bytes, list[bytes]] = {}
        for campaign, record in self._run("SELECT campaign, record FROM spool ORDER BY sequence"):
            groups.setdefault(bytes(campaign), []).append(bytes(record))
        return groups

    def spool_count(self) -> int:
        """Number of unsent reports."""
        count: int = self._run("SELECT count(*) FROM spool").fetchone()[0]
        return count

    def clear_spool(self) -> None:
        """Forget the spooled reports once they are safe in a batch file."""
        self._run("DELETE FROM spool")


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn SQLite's and the system's errors into ours. Their texts name statements, never values."""
    reason, detail = "", ""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "") or type(error).__name__
        reason, detail = _classify(name)
    except OSError as error:
        reason = "disk_full" if error.errno in (28, 122) else "io_failed"
        detail = f"the state can not be written: {os.strerror(error.errno or 5)}"
    if reason:
        raise StorageError(reason, detail)


def _classify(name: str) -> tuple[str, str]:
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "state_busy", "another process holds the state; try again"
    if name.startswith("SQLITE_FULL"):
        return "disk_full", "there is no space left for the state; nothing was changed"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_SCHEMA", "SQLITE_ERROR")):
        return "state_damaged", "the state file is damaged or not one of this software"
    return "io_failed", f"the state can not be read or written ({name})"
