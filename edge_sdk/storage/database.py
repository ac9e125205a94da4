"""The device's memory: one SQLite file with trust, documents, ledger, spool and secret.

Every change is one transaction with full synchronisation, so after a power cut the state is the one
before or the one after, never between. Every row that is read is checked by its digest (``rows``); damage is an
error of ours. ``documents``, ``ledger`` and ``spool`` say what their tables mean.
"""

from __future__ import annotations

import os
import sqlite3
from _thread import RLock  # threading.RLock itself; importing threading would cost a millisecond
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from edge_sdk.storage.atomic_files import write_new
from edge_sdk.storage.forks import quiet_at_fork
from edge_sdk.storage.highest import HIGHEST_FILE, Highest, read_highest, write_highest
from edge_sdk.storage.rows import COUNTED, COUNTS, META, TABLES, Rows, damaged, seal
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

STATE_FILE = "state.db"
STATE_VERSION = 4
_APPLICATION_ID = 0x48737931  # "Hsy1"
_BUSY_SECONDS = 30.0
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
        self._place = (0, 0)
        # A card that fails becomes read-only: the device then still classifies and tells what it knows.
        self.read_only = path is not None and os.path.isfile(path) and not os.access(path, os.W_OK)
        self._unsure = False
        self._inside = False
        self._closed = False
        self.era = 0  # another number once a change was taken back, or in a child: what was read may hold no more
        self._metas: dict[str, bytes] | None = None
        self._turns = 0
        self._highest: Highest | None = None
        self._highest_path = ""
        self._connection = self._connect()
        quiet_at_fork(self, self._lock)

    def _connect(self) -> sqlite3.Connection:
        with _storage_errors():
            if self._path is not None:
                _ensure_file(self._path)
            connection = sqlite3.connect(
                ":memory:" if self._path is None else _address(self._path, read_only=self.read_only),
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                uri=self._path is not None,
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
        if not self.read_only:
            _execute(connection, "PRAGMA journal_mode = TRUNCATE")
        _execute(connection, "PRAGMA synchronous = EXTRA")
        ((application,),) = _execute(connection, "PRAGMA application_id")
        ((version,),) = _execute(connection, "PRAGMA user_version")
        if application != _APPLICATION_ID or version < 1:
            raise damaged()
        if version > STATE_VERSION:
            raise StorageError("state_newer", "the state was written by newer software; update this one")
        if version < STATE_VERSION:
            raise StorageError("state_older", "the state was written before the first release; reset this device")
        tables = _execute(connection, "SELECT sql FROM sqlite_master ORDER BY name")
        if tables != [(table.create(),) for table in sorted(TABLES)]:
            raise damaged()
        _execute(connection, "PRAGMA secure_delete = ON")  # what is deleted, a secret among it, leaves no bytes
        self._place = _place_of(self._path)

    @property
    def folder(self) -> str | None:
        """Where the file is; None in memory."""
        return None if self._path is None else os.path.dirname(self._path)

    def close(self) -> None:
        """Release the file. A child that never used the state has nothing to release: that is its parent's."""
        with self._lock:
            if self._owner == os.getpid() or self._path is None:
                self._connection.close()
            self._closed = True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: everything done inside is durable when this returns, or did not happen.

        Raises:
            StorageError: ``state_busy``, ``disk_full``, ``state_damaged``, ``io_failed``.
        """
        if self.read_only:
            raise StorageError("io_failed", "the state can only be read: nothing can be answered or changed")
        with self._lock:
            connection = self._live()
            with _storage_errors():
                _execute(connection, "BEGIN IMMEDIATE")
                self._inside = True
                self._turns += 1
                before = connection.total_changes
                try:
                    self._check_place()
                    self._check_age(connection)
                    yield
                    self._check_process()
                    newest = self._newest(connection)
                    if connection.total_changes == before:
                        self._settle(connection)
                    self._commit(connection)
                except BaseException:
                    self.era += connection.total_changes != before
                    if self._owner == os.getpid() and connection.in_transaction:
                        _execute(connection, "ROLLBACK")
                    raise
                finally:
                    self._inside = False
                    self._metas = None
                self._see(newest)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All that is read inside is of one moment, whatever other threads and processes write meanwhile."""
        with self._lock:
            connection = self._live()
            if self._path is None or connection.in_transaction:
                yield
                return
            with _storage_errors():
                _execute(connection, "BEGIN")
            try:
                yield
            finally:
                if self._owner == os.getpid() and connection.in_transaction:
                    with _storage_errors():
                        _execute(connection, "COMMIT")

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Commit. One that fails may stand all the same, for all that can be read, and not be on the disk."""
        self._unsure = True
        _execute(connection, "COMMIT")
        self._unsure = False

    def _settle(self, connection: sqlite3.Connection) -> None:
        """Make durable what is already there, before a transaction that changes nothing relies on it.

        What counts last is that the journal was emptied. A process that was killed between that and its
        flush leaves a commit that every reader sees and a power cut takes back. After a flush that failed
        another one proves nothing, so something is written.
        """
        if self._path is None:
            return
        if self._unsure:
            _execute(connection, f"PRAGMA user_version = {STATE_VERSION}")  # an equal number is written all the same
            return
        with suppress(FileNotFoundError):
            descriptor = os.open(self._path + "-journal", os.O_RDWR)  # no lock is on it that closing could drop
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _check_place(self) -> None:
        """Refuse to write into a file that was removed or replaced: what is spent there would be forgotten."""
        if self._path is not None and _place_of(self._path) != self._place:
            raise StorageError("state_lost", "the state file was removed or replaced while in use; open it again")

    def recall(self) -> None:
        """Take note of the newest line of the ledger that earlier runs have seen.

        Raises:
            StorageError: ``state_lost``: the state does not have it, so it is an older copy.
        """
        if self._path is not None:
            self._highest_path = os.path.join(os.path.dirname(self._path), HIGHEST_FILE)
            self._highest = read_highest(self._highest_path)
            with self._lock, _storage_errors():
                self._check_age(self._live())

    def _check_age(self, connection: sqlite3.Connection) -> None:
        """Refuse a state that an older copy was written over: what was spent since is not in it.

        The file is read each time: another process may have seen a newer line than this one.
        """
        noted = read_highest(self._highest_path) if self._highest_path else None
        for seen in {self._highest, noted} - {None}:
            statement = "SELECT number, seal FROM ledger WHERE number = ?"
            if seen is not None and _execute(connection, statement, seen[:1]) != [seen]:
                raise StorageError(
                    "state_lost",
                    "an older copy was put in the place of the state; what was spent since is not known. "
                    "Nothing is answered until its owner resets it, which counts its whole budget as spent",
                )

    def _newest(self, connection: sqlite3.Connection) -> Highest | None:
        """The newest line of the ledger, looked for inside a transaction: no other copy can be put there meanwhile."""
        if not self._highest_path:
            return None
        for row in _execute(connection, "SELECT number, seal FROM ledger ORDER BY number DESC LIMIT 1"):
            return Highest(*row)
        return None

    def _see(self, newest: Highest | None) -> None:
        """Remember a line that was committed, also for later runs and other processes, unless these are further."""
        if newest is None or newest == self._highest:
            return
        self._highest = newest
        noted = read_highest(self._highest_path)
        if noted is None or noted.line < newest.line:
            write_highest(self._highest_path, newest)

    def _check_process(self) -> None:
        """Refuse to go on in a child of the process that began: it would answer a second time.

        A state in memory is the parent's alone, and so is a transaction that the fork cut through.
        """
        if self._owner != os.getpid() and (self._path is None or self._inside):
            raise StorageError(
                "state_forked",
                "this state is in the memory of the process that made it, or was in use while that forked; "
                "a child opens a device of its own",
            )

    def _live(self) -> sqlite3.Connection:
        """The connection of this process: one must not cross a fork, nor be closed by the child.

        Called with the lock held.
        """
        if self._closed:
            raise StorageError("state_closed", "this device was closed; open it again")
        self._check_process()
        if self._owner != os.getpid():
            self._inherited.append(self._connection)
            self._connection = self._connect()
            self._owner = os.getpid()
            self.era += 1
        return self._connection

    @property
    def turn(self) -> int:
        """Number of the transaction that is under way, in which nobody else writes; 0 if none is."""
        return self._turns if self._inside else 0

    def run(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of one statement."""
        problem: sqlite3.Error | OSError
        with self._lock:
            try:
                return _execute(self._live(), statement, values)
            except (sqlite3.Error, OSError) as error:
                problem = error
        raise _translated(problem)

    @property
    def _meta(self) -> Rows:
        return Rows(self, META)  # not kept: a state that nobody uses any more is to be closed at once

    def meta(self, key: str) -> bytes | None:
        """A single value kept under a name. Inside a transaction all are read at once."""
        with self._lock:
            if not self._inside:
                return self.all_meta().get(key)
            if self._metas is None:
                self._metas = self.all_meta()
            return self._metas.get(key)

    def all_meta(self) -> dict[str, bytes]:
        """All single values by name."""
        return dict(self._meta.all())

    def write_meta(self, key: str, value: bytes) -> None:
        """Replace a single value."""
        if self.meta(key) is None:
            self._meta.add((key, value))
        else:
            self._meta.replace((key, value))
        if self._metas is not None:
            self._metas[key] = value

    def remove_meta(self, key: str) -> None:
        """Forget a single value; its bytes are overwritten in the file."""
        if self.meta(key) is not None:
            self._meta.remove(lambda row: row[0] == key)
            self._metas = None


def _execute(connection: sqlite3.Connection, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of a statement. Fetched here, since SQLite may find damage at any row.

    Its text about a damaged schema quotes that schema, which need not be UTF-8.
    """
    with suppress(UnicodeDecodeError):
        return connection.execute(statement, values).fetchall()
    raise damaged()


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
    for table in TABLES:
        connection.execute(table.create())
    for table in COUNTED:
        connection.execute("INSERT INTO counts VALUES (?, 0, ?)", (table.name, seal(COUNTS.name, (table.name, 0))))
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


def _address(path: str, *, read_only: bool) -> str:
    """A state file as SQLite's address."""
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode={'ro' if read_only else 'rw'}"


def _place_of(path: str) -> tuple[int, int]:
    """Which file a path names; (0, 0) if none."""
    with suppress(FileNotFoundError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return 0, 0


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn SQLite's and the system's errors into ours. Their texts name statements, never values."""
    problem: sqlite3.Error | OSError
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        problem = error
    else:
        return
    raise _translated(problem)


def _translated(error: sqlite3.Error | OSError) -> StorageError:
    if isinstance(error, OSError):
        reason = "disk_full" if error.errno in (28, 122) else "io_failed"
        return StorageError(reason, f"the state can not be written: {os.strerror(error.errno or 5)}")
    # What Python itself finds in a row, text that is no UTF-8 for example, has no name of SQLite's.
    pair = _classify(getattr(error, "sqlite_errorname", "") or type(error).__name__)
    return StorageError(*pair)


def _classify(name: str) -> tuple[str, str]:
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "state_busy", "another process holds the state; try again"
    if name.startswith("SQLITE_FULL"):
        return "disk_full", "there is no space left for the state; nothing was changed"
    if name.startswith(_DAMAGE):
        return "state_damaged", damaged().detail
    return "io_failed", f"the state can not be read or written ({name})"
