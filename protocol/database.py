"""SQLite files that survive a power cut and reveal damage: a device's state, a budget, a dealer's journal, a store.

A file is of one :class:`Schema`. Every change is one transaction with full synchronisation, so a power cut leaves the
file before or after it.

SQLite has no checksums: a changed bit may alter a row or hide it. So a row has a *seal*, a digest of the table's name
and of every value. Seals detect accidents, not forgery: a program that can write the file can compute seals. A missing
row is found by what the owners of the files note beside: a number of rows, or seals that build on each other.

The owners also note where a file is (:func:`place_of`, :func:`machine_ids`), to find one that was replaced or copied.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from protocol.errors import StorageError
from protocol.stream import sha256

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

SYNCHRONOUS = "EXTRA"
JOURNAL = "TRUNCATE"
SEAL_BYTES = 8
_NO_SPACE = (28, 122)
"""ENOSPC and EDQUOT; importing errno for two numbers takes as long as this module."""
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_SCHEMA", "SQLITE_ERROR", "SQLITE_CONSTRAINT", "SQLITE_MISMATCH",
           "SQLITE_TOOBIG", "OperationalError", "OverflowError", "UnicodeDecodeError")  # fmt: skip
"""Beginnings of the names of errors that an undamaged file of this software never causes.

UnicodeDecodeError: SQLite's message on a damaged schema quotes bytes of it."""
_MACHINE_FILES = ("/etc/machine-id", "/proc/device-tree/serial-number")
NO_MACHINE_ID = b"uninitialized"
"""What systemd writes into ``/etc/machine-id`` before the first start has chosen an id."""


class Reasons(NamedTuple):
    """Reasons of the errors of one kind of file. They are written out, so that a search finds them."""

    busy: str
    damaged: str
    newer: str
    older: str


class Schema(NamedTuple):
    """One kind of SQLite file.

    Attributes:
        what: the file in words, for example "the dealer's journal".
        reasons: of its errors.
        application_id: the number of SQLite's header that tells this kind of file.
        version: ``user_version`` of the header.
        tables: name → the statement that creates the table.
        damage: what a user reads of a damaged file.
        unchanged: what a user reads of a full disk, for example "nothing was released".
        older: what a user reads of a file of an older version; empty: the same as of a damaged one.
        busy_seconds: how long a statement waits for another process.
    """

    what: str
    reasons: Reasons
    application_id: int
    version: int
    tables: Mapping[str, str]
    damage: str
    unchanged: str = "nothing was changed"
    older: str = ""
    busy_seconds: float = 30.0

    def damaged(self) -> StorageError:
        """The error for contents that this software has not written."""
        return StorageError(self.reasons.damaged, self.damage)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the system in the body of ``with`` into :class:`StorageError`.

        The text of the new error names the kind of error only. SQLite's own text is dropped: it may contain values.

        Raises:
            StorageError: ``busy`` and ``damaged`` of :class:`Reasons`, ``disk_full``, ``io_failed``.
        """
        import sqlite3  # here, since a device reads tables' names before it opens its state

        problem: Exception
        try:
            yield
        except (OSError, sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            problem = error
        else:
            return
        failure = self.translated(problem)
        try:
            raise failure
        finally:
            failure.__context__ = None  # An error of this package shows no text of another error.

    def translated(self, error: Exception) -> StorageError:
        """The error of this software in the place of one of SQLite or of the system."""
        if isinstance(error, OSError):
            full = error.errno in _NO_SPACE
            problem = "there is no space left" if full else os.strerror(error.errno or 5)
            return StorageError("disk_full" if full else "io_failed", f"{self.what} can not be used: {problem}")
        # Errors that Python itself raises, for text that is not UTF-8 for example, have no SQLite name.
        name = getattr(error, "sqlite_errorname", "") or type(error).__name__
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StorageError(self.reasons.busy, f"another process holds {self.what}; try again")
        if name.startswith("SQLITE_FULL"):
            return StorageError("disk_full", f"there is no space left for {self.what}; {self.unchanged}")
        if name.startswith(_DAMAGE):
            return self.damaged()
        return StorageError("io_failed", f"{self.what} can not be read or written ({name})")

    def check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file of another kind or version, and one with other tables.

        Raises:
            StorageError: ``damaged``, ``newer`` and ``older`` of :class:`Reasons`.
        """
        ((application,),) = execute(connection, "PRAGMA application_id")
        ((version,),) = execute(connection, "PRAGMA user_version")
        if application != self.application_id or version < 1:
            raise self.damaged()
        if version > self.version:
            raise StorageError(self.reasons.newer, f"newer software wrote {self.what}; update this software")
        if version < self.version:
            raise StorageError(self.reasons.older, self.older or self.damage)
        found = execute(connection, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        if found != [(self.tables[name],) for name in sorted(self.tables)]:
            raise self.damaged()

    def make_tables(self, connection: sqlite3.Connection, rows: Iterable[tuple[str, Sequence[object]]] = ()) -> None:
        """Make the tables and the header of a new file, and write rows, each with the name of its table."""
        for statement in self.tables.values():
            connection.execute(statement)
        for table, row in rows:
            write_row(connection, table, row)
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {self.version}")

    def new_file(self, rows: Iterable[tuple[str, Sequence[object]]] = ()) -> bytes:
        """The content of a new file with these rows."""
        import sqlite3

        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            self.make_tables(connection, rows)
            return connection.serialize()

    def connect(
        self,
        path: str,
        *,
        mode: str = "rw",
        one_thread: bool = True,
        make: Callable[[sqlite3.Connection], None] | None = None,
    ) -> sqlite3.Connection:
        """Open a file and check its header and its tables. Run inside :meth:`errors`.

        Args:
            path: of the file.
            mode: ``ro`` or ``rw``.
            one_thread: the connection may be used by the thread alone that opened it.
            make: is called before the check, and may make the file's tables if it has none. The file may be missing.

        Raises:
            StorageError: as :meth:`check`.
            sqlite3.Error, OSError: the file can not be used.
        """
        import sqlite3

        connection = sqlite3.connect(
            address_of(path, mode if make is None else "rwc"),
            timeout=self.busy_seconds,
            isolation_level=None,
            check_same_thread=one_thread,
            uri=True,
        )
        try:
            execute(connection, "PRAGMA trusted_schema = OFF")
            if mode != "ro":
                execute(connection, f"PRAGMA journal_mode = {JOURNAL}")
            execute(connection, f"PRAGMA synchronous = {SYNCHRONOUS}")
            if make is not None:
                make(connection)
            self.check(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def execute(connection: sqlite3.Connection, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Run a statement and fetch all rows at once, since SQLite may find damage at any row."""
    return connection.execute(statement, values).fetchall()


def write_row(connection: sqlite3.Connection, table: str, row: Sequence[object], verb: str = "INSERT") -> None:
    """Write a whole row. ``verb`` is ``INSERT`` or ``REPLACE``."""
    execute(connection, f"{verb} INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def row_digest(table: str, values: Sequence[object]) -> bytes:
    """SHA-256(msgpack of [table, *values])."""
    return sha256(msgpack.packb((table, *values))).digest()


def seal(table: str, values: Sequence[object]) -> bytes:
    """The seal of a row: SHA-256(msgpack of [table, *values])[:8]."""
    return row_digest(table, values)[:SEAL_BYTES]


def address_of(path: str, mode: str) -> str:
    """The URI by which SQLite opens the file at ``path`` in a mode, for example ``ro``.

    An absolute path comes after an empty host: in ``file://a/b`` SQLite reads ``a`` as the name of a host.
    """
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{'//' if path.startswith('/') else ''}{quoted}?mode={mode}"


def place_of(path: str) -> tuple[int, int]:
    """Device and inode of the file at ``path``; (0, 0) if there is none.

    Raises:
        OSError: the file can not be examined.
    """
    with suppress(FileNotFoundError):
        found = os.stat(path)  # noqa: PTH116  # pathlib would load on every device
        return found.st_dev, found.st_ino
    return 0, 0


def flush_journal(path: str) -> None:
    """Make the commit of a process that was killed durable, before anything relies on it.

    A commit ends with emptying SQLite's journal and flushing it. If a process is killed between the two, every reader
    sees the commit, but a power cut undoes it.

    Raises:
        OSError: the journal can not be flushed.
    """
    with suppress(FileNotFoundError):
        # Closing a file drops this process's locks on it. SQLite has no lock on the journal that could be lost.
        descriptor = os.open(f"{path}-journal", os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def machine_ids() -> bytes:
    """The machine's id and the board's serial number, joined by a zero byte; each is empty if it is not known.

    They are personal to a machine: only a digest of them is stored or shown.
    """
    found = []
    for path in _MACHINE_FILES:
        raw = b""
        with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            raw = file.read(256).strip(b"\0\n ").removeprefix(NO_MACHINE_ID)
        found.append(raw)
    return b"\0".join(found)
