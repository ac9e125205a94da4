"""The device's memory: one SQLite file with trust, documents, ledger, spool and secret.

Every change is one transaction with full synchronisation, so after a power cut the state is the one
before or the one after, never between. The ledger outlives the spool: what was spent stays spent.
What is read is checked for its type, and for its digest where it has one; damage is an error of ours.
"""

from __future__ import annotations

import os
import sqlite3
from _thread import RLock  # threading.RLock itself; importing threading would cost a millisecond
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from edge_sdk.durable import write_new
from edge_sdk.forks import quiet_at_fork
from protocol.errors import HearsayError, StorageError
from protocol.trust import TrustState, restore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

STATE_FILE = "state.db"
STATE_VERSION = 1
_APPLICATION_ID = 0x48737931  # "Hsy1"
_BUSY_SECONDS = 30.0
_PROVISIONED = frozenset(("root", "secret", "time_floor"))
_Stored = TypeVar("_Stored", bytes, int, str)
_ID_BYTES = 32
_LEAST_RECORD_BYTES = 18
_MAX_DIGITS = 20
_DAMAGE = (
    "SQLITE_CORRUPT",
    "SQLITE_NOTADB",
    "SQLITE_SCHEMA",
    "SQLITE_ERROR",
    "SQLITE_CONSTRAINT",
    "SQLITE_MISMATCH",
    "SQLITE_TOOBIG",
    "OperationalError",
)
"""Errors, by the beginning of their names, that a whole state of this software never causes."""

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
        quiet_at_fork(self, self._lock)

    def _connect(self) -> sqlite3.Connection:
        with _storage_errors():
            if self._path is not None:
                _ensure_file(self._path)
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
        if self._path is None:
            connection.deserialize(_empty_state())
            return
        _execute(connection, "PRAGMA journal_mode = TRUNCATE")
        _execute(connection, "PRAGMA synchronous = EXTRA")
        ((application,),) = _execute(connection, "PRAGMA application_id")
        ((version,),) = _execute(connection, "PRAGMA user_version")
        if application != _APPLICATION_ID or version < 1:
            raise _damaged()
        if version > STATE_VERSION:
            raise StorageError("state_newer", "the state was written by newer software; update this one")

    def close(self) -> None:
        """Release the file. A child that never used the state has nothing to release: that is its parent's."""
        with self._lock:
            if self._owner == os.getpid() or self._path is None:
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
                _execute(connection, "BEGIN IMMEDIATE")
                try:
                    yield
                    _execute(connection, "COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        _execute(connection, "ROLLBACK")
                    raise

    def _live(self) -> sqlite3.Connection:
        """The connection of this process: one must not cross a fork, nor be closed by the child.

        Called with the lock held.
        """
        if self._owner != os.getpid() and self._path is not None:
            self._inherited.append(self._connection)
            self._connection = self._connect()
            self._owner = os.getpid()
        return self._connection

    def _run(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock, _storage_errors():
            return _execute(self._live(), statement, values)

    def _run_many(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        for row in rows:
            self._run(statement, row)

    def secret(self) -> bytes | None:
        """The device's secret; None in a new state."""
        return self._meta("secret")

    def trust(self) -> TrustState | None:
        """The trust state; None in a new state.

        Raises:
            StorageError: ``state_damaged``: the stored root is not one that could have been accepted, or
                some of what provisioning wrote is gone.
        """
        keys = {key for (key,) in self._run("SELECT key FROM meta")}
        if not keys:
            return None
        root = self._meta("root")
        if root is None or not keys >= _PROVISIONED:
            raise _damaged()
        floors = {}
        for role, name, version, digest in self._run("SELECT role, name, version, digest FROM floors"):
            floors[_checked(role, str), _checked(name, str)] = _checked(version, int), _checked(digest, bytes)
        floor = self.time_floor()
        restored = None
        try:
            restored = restore(root, floors, floor)
        except HearsayError:
            restored = None
        if restored is None:
            raise _damaged()
        return restored

    def time_floor(self) -> int:
        """The earliest time it can be, whatever the wall clock says."""
        text = self._meta("time_floor")
        if text is None:
            return 0
        if not text.isdigit() or len(text) > _MAX_DIGITS:
            raise _damaged()
        return int(text)

    def _meta(self, key: str) -> bytes | None:
        for (value,) in self._run("SELECT value FROM meta WHERE key = ?", (key,)):
            return _checked(value, bytes)
        return None

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
        """Name, digest and payload of the accepted documents of a role, by name.

        Raises:
            StorageError: ``state_damaged``: a payload is not the one that was accepted.
        """
        rows = self._run("SELECT name, digest, payload FROM documents WHERE role = ? ORDER BY name", (role,))
        return [(_checked(name, str), digest, _whole(payload, digest)) for name, digest, payload in rows]

    def document_by_digest(self, role: str, digest: bytes) -> bytes | None:
        """The payload of one accepted document.

        Raises:
            StorageError: ``state_damaged``: it is not the one that was accepted.
        """
        for (payload,) in self._run("SELECT payload FROM documents WHERE role = ? AND digest = ?", (role, digest)):
            return _whole(payload, digest)
        return None

    def write_document(self, role: str, name: str, digest: bytes, payload: bytes) -> None:
        """Store an accepted document; it replaces the one of the same name."""
        self._run("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)", (role, name, digest, payload))

    def last_entry(self, campaign: bytes) -> Entry | None:
        """The newest period that was answered for a campaign."""
        rows = self._run(
            "SELECT period, epsilon_micro, reports FROM ledger WHERE campaign = ? ORDER BY period DESC LIMIT 1",
            (campaign,),
        )
        for period, micro, reports in rows:
            return Entry(_checked(period, int), _checked(micro, int), _checked(reports, bytes))
        return None

    def spent_micro(self) -> int:
        """Everything this device ever spent, in millionths of ε."""
        rows = self._run("SELECT coalesce(sum(epsilon_micro), 0), coalesce(min(epsilon_micro), 1) FROM ledger")
        ((total, least),) = rows
        if _checked(least, int) < 1:
            raise _damaged()
        return _checked(total, int)

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
            groups.setdefault(_checked(campaign, bytes), []).append(_checked(record, bytes))
        for campaign, records in groups.items():
            lengths = set(map(len, records))
            if len(campaign) != _ID_BYTES or len(lengths) != 1 or min(lengths) < _LEAST_RECORD_BYTES:
                raise _damaged()
        return groups

    def spool_count(self) -> int:
        """Number of unsent reports."""
        ((count,),) = self._run("SELECT count(*) FROM spool")
        return _checked(count, int)

    def clear_spool(self) -> None:
        """Forget the spooled reports once they are safe in a batch file."""
        self._run("DELETE FROM spool")


def _execute(connection: sqlite3.Connection, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of a statement. Fetched here, since SQLite may find damage at any row.

    Its text about a damaged schema quotes that schema, which need not be UTF-8.
    """
    with suppress(UnicodeDecodeError):
        return connection.execute(statement, values).fetchall()
    raise _damaged()


def _ensure_file(path: str) -> None:
    """Make a new state file, complete but for its contents, or see that there is one.

    It is made beside and linked into place, with the mode of a secret, so a file of length zero is
    always what is left of a lost one: it is refused rather than taken for a device that spent nothing.
    """
    if not os.path.lexists(path):
        with suppress(FileExistsError):  # another process made it meanwhile
            write_new(path, _write_tables)
    if os.stat(path).st_size == 0:
        raise StorageError("state_damaged", "the state file is empty: what this device has spent is not known any more")


def _write_tables(file: IO[bytes]) -> None:
    with closing(sqlite3.connect(file.name, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")  # what a crash leaves of it is thrown away
        _make_tables(connection)


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.split(";")[:-1]:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {STATE_VERSION}")


@lru_cache(maxsize=1)
def _empty_state() -> bytes:
    """A state with its tables and nothing in them: a fleet in memory copies it instead of making each."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        _make_tables(connection)
        return connection.serialize()
    finally:
        connection.close()


def _damaged() -> StorageError:
    return StorageError("state_damaged", "the state file is damaged or not one of this software")


def _checked(value: object, kind: type[_Stored]) -> _Stored:
    """A stored value, if it still is of the type that was written."""
    if type(value) is not kind:
        raise _damaged()
    return value


def _whole(payload: object, digest: object) -> bytes:
    """A stored payload, if it still is the one that was accepted."""
    found = _checked(payload, bytes)
    if sha256(found).digest() != digest:
        raise _damaged()
    return found


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn SQLite's and the system's errors into ours. Their texts name statements, never values."""
    reason, detail = "", ""
    try:
        yield
    except sqlite3.Error as error:
        # What Python itself finds in a row, text that is no UTF-8 for example, has no name of SQLite's.
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
    if name.startswith(_DAMAGE):
        return "state_damaged", _damaged().detail
    return "io_failed", f"the state can not be read or written ({name})"
