"""The SQLite file of a state: how it is made and addressed, and its errors in the project's terms."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from edge_sdk.storage.atomic_files import write_new
from edge_sdk.storage.rows import COUNTED, COUNTS, DELTAS, PARTY_KEYS, SERIES, TABLES, damaged, seal
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO

    from edge_sdk.storage.rows import Table

STATE_FILE = "state.db"
STATE_VERSION = 6
_ADDED = {5: (SERIES,), 6: (DELTAS, PARTY_KEYS)}
"""Version of the state → tables that it added. States of earlier versions are brought up to date when opened."""
OLDEST_VERSION = min(_ADDED) - 1
"""The oldest version that can be brought up to date."""
APPLICATION_ID = 0x48737931  # "Hsy1"
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
"""Beginnings of the names of errors that an undamaged state of this software never causes."""


def ensure_file(path: str) -> None:
    """Make a new state file with empty tables at ``path``, unless there is a file.

    The new file is written under another name and appears complete, readable by its owner only. So an empty file is
    never a new state, but what is left of a damaged one: it is refused, since it would count as having spent nothing.

    Raises:
        StorageError: ``state_damaged``: the file is empty.
        OSError, sqlite3.Error: the file can not be made or examined.
    """
    if not os.path.lexists(path):
        with suppress(FileExistsError):  # another process has just made the file
            write_new(path, _write_tables)
    if os.stat(path).st_size == 0:
        raise StorageError("state_damaged", "the state file is empty: what this device has spent is not known any more")


def _write_tables(file: IO[bytes]) -> None:
    with closing(sqlite3.connect(file.name, isolation_level=None)) as connection:
        # No journal file is needed: after an error, write_new removes the unfinished database.
        connection.execute("PRAGMA journal_mode = MEMORY")
        _make_tables(connection)


def _make_tables(connection: sqlite3.Connection) -> None:
    for table in TABLES:
        connection.execute(table.create())
    for table in COUNTED:
        _count_from_0(connection, table)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {STATE_VERSION}")


def _count_from_0(connection: sqlite3.Connection, table: Table) -> None:
    connection.execute("INSERT INTO counts VALUES (?, 0, ?)", (table.name, seal(COUNTS.name, (table.name, 0))))


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Add the tables that a state of an older version has not, empty, in one transaction.

    Older software has answered in no series and spent no δ, if it did not know them. If another process has just
    brought the state up to date, nothing is changed.

    Raises:
        StorageError: ``state_damaged``: the state has other tables than its version.
        sqlite3.Error: the file can not be read or written.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        missing = [table for later, tables in _ADDED.items() if later > version for table in tables]
        if missing:
            check_tables(connection, [table for table in TABLES if table not in missing])
            for table in missing:
                connection.execute(table.create())
                _count_from_0(connection, table)
            connection.execute(f"PRAGMA user_version = {STATE_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_tables(connection: sqlite3.Connection, tables: Iterable[Table]) -> None:
    """Check that a state has exactly these tables, or else raise the StorageError ``state_damaged``."""
    with suppress(UnicodeDecodeError):
        found = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        if found == [(table.create(),) for table in sorted(tables)]:
            return
    raise damaged()


@lru_cache(maxsize=1)
def empty_state() -> bytes:
    """The bytes of a database with empty tables. A state in memory begins as a copy, which is faster than SQL."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        _make_tables(connection)
        return connection.serialize()
    finally:
        connection.close()


def address_of(path: str, *, read_only: bool) -> str:
    """The URI by which SQLite opens the state file at ``path``, for reading only if ``read_only``.

    An absolute path comes after an empty host: in ``file://a/b`` SQLite reads ``a`` as the name of a host.
    """
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{'//' if path.startswith('/') else ''}{quoted}?mode={'ro' if read_only else 'rw'}"


def place_of(path: str) -> tuple[int, int]:
    """Device and inode of the file at ``path``; (0, 0) if there is none.

    Raises:
        OSError: the file can not be examined.
    """
    with suppress(FileNotFoundError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return 0, 0


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn errors of SQLite and of the system in the body of ``with`` into :class:`StorageError`.

    The text of the new error names the kind of error only. SQLite's own text is dropped: it may contain values.
    """
    problem: sqlite3.Error | OSError
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        problem = error
    else:
        return
    raise translated(problem)


def translated(error: sqlite3.Error | OSError) -> StorageError:
    """The :class:`StorageError` that replaces ``error``.

    Its reason is ``disk_full``, ``io_failed``, ``state_busy`` or ``state_damaged``.
    """
    if isinstance(error, OSError):
        reason = "disk_full" if error.errno in (28, 122) else "io_failed"
        return StorageError(reason, f"the state can not be written: {os.strerror(error.errno or 5)}")
    # Errors that Python itself raises, for text that is not UTF-8 for example, have no SQLite name.
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
