"""SQLite files that survive a power cut and reveal damage: a device's state, a budget, a dealer's journal, a store.

A :class:`Schema` describes one kind of file; every change is one fully synchronised transaction. SQLite has no
checksums, so a row has a *seal*, a digest of the table's name and of every value. Seals detect accidents, not forgery.
The modules that use this one also store a number of rows or chained seals, and where a file is (:func:`place_of`,
:func:`machine_ids`), to detect a missing row and a file that was replaced or copied.
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
"""The error numbers ENOSPC and EDQUOT. Importing errno for them would take as long as importing this module."""
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_SCHEMA", "SQLITE_ERROR", "SQLITE_CONSTRAINT", "SQLITE_MISMATCH",
           "SQLITE_TOOBIG", "OperationalError", "OverflowError", "UnicodeDecodeError")  # fmt: skip
"""Beginnings of the names of errors that only a damaged file causes.

UnicodeDecodeError is among them, because SQLite's message on a damaged schema quotes bytes of the schema."""
_MACHINE_FILES = ("/etc/machine-id", "/proc/device-tree/serial-number")
NO_MACHINE_ID = b"uninitialized"
"""What systemd writes into ``/etc/machine-id`` before the first start has chosen an id."""


class Reasons(NamedTuple):
    """The reasons of the errors of one kind of file. They are written out, so that a search finds them."""

    busy: str
    damaged: str
    newer: str
    older: str


class Schema(NamedTuple):
    """One kind of SQLite file.

    Attributes:
        what: the file in words, for example "the dealer's journal".
        reasons: the reasons of the errors about such a file.
        application_id: the number in SQLite's header that identifies this kind of file.
        version: the version of the tables, ``user_version`` in SQLite's header.
        tables: name of each table → the statement that creates it.
        damage: the text of the error for a damaged file.
        unchanged: the end of the text of the error for a full disk, for example "nothing was released".
        older: the text of the error for a file of an older version; empty for the text of ``damage``.
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
        """Return the error for contents that this software has not written."""
        return StorageError(self.reasons.damaged, self.damage)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the system in the body of ``with`` into :class:`StorageError`.

        Its reason is ``busy`` or ``damaged`` of this kind of file, ``disk_full`` or ``io_failed``. SQLite's own text
        may contain values and is dropped.
        """
        import sqlite3  # imported here, since a device reads the names of tables before it opens its state

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
        """Return the :class:`StorageError` that replaces ``error``, an error of SQLite or of the system."""
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
        """Refuse (``damaged``, ``newer``, ``older``) a file of another kind or version, or with other tables."""
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
        """Make the tables and the header of a new file, and write ``rows``: pairs of a table's name and a row."""
        for statement in self.tables.values():
            connection.execute(statement)
        for table, row in rows:
            write_row(connection, table, row)
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {self.version}")

    def new_file(self, rows: Iterable[tuple[str, Sequence[object]]] = ()) -> bytes:
        """Return the content of a new file that holds ``rows``: pairs of a table's name and a row."""
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
        """Open a file and check its header and its tables. The caller must be inside :meth:`errors`.

        Args:
            mode: ``ro`` or ``rw``.
            one_thread: whether only the thread that opened the connection may use it.
            make: a function that is called before the check and may make the tables of a file that has none. With
                ``make`` the file may be missing.
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
    """Run a statement and return all its rows. They are fetched at once, since SQLite may find damage at any row."""
    return connection.execute(statement, values).fetchall()


def write_row(connection: sqlite3.Connection, table: str, row: Sequence[object], verb: str = "INSERT") -> None:
    """Write a whole row. ``verb`` is ``INSERT`` or ``REPLACE``."""
    execute(connection, f"{verb} INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def row_digest(table: str, values: Sequence[object]) -> bytes:
    """Return SHA-256(msgpack of [table, *values])."""
    return sha256(msgpack.packb((table, *values))).digest()


def seal(table: str, values: Sequence[object]) -> bytes:
    """Return the seal of a row: SHA-256(msgpack of [table, *values])[:8]."""
    return row_digest(table, values)[:SEAL_BYTES]


def address_of(path: str, mode: str) -> str:
    """Return the URI by which SQLite opens the file at ``path`` in ``mode``, for example ``ro``.

    An absolute path is preceded by an empty host: in ``file://a/b`` SQLite reads ``a`` as the name of a host.
    """
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{'//' if path.startswith('/') else ''}{quoted}?mode={mode}"


def place_of(path: str) -> tuple[int, int]:
    """Return device and inode of the file at ``path``, or (0, 0) if there is no such file."""
    with suppress(FileNotFoundError):
        found = os.stat(path)  # noqa: PTH116  # pathlib would load on every device
        return found.st_dev, found.st_ino
    return 0, 0


def flush_journal(path: str) -> None:
    """Make the last commit to the file at ``path`` durable, in case the process that wrote it was killed.

    SQLite commits by emptying its journal and flushing it. If a process is killed between the two, every reader sees
    the commit, but a power cut undoes it. So callers use this function before anything relies on the commit.
    """
    with suppress(FileNotFoundError):
        # Closing a file drops this process's locks on it. SQLite has no lock on the journal that could be lost.
        descriptor = os.open(f"{path}-journal", os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def machine_ids() -> bytes:
    """Return the machine's id and the board's serial number, joined by a zero byte. An unknown one is empty.

    They identify one machine, so only a digest of them is stored or shown.
    """
    found = []
    for path in _MACHINE_FILES:
        raw = b""
        with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            raw = file.read(256).strip(b"\0\n ").removeprefix(NO_MACHINE_ID)
        found.append(raw)
    return b"\0".join(found)
