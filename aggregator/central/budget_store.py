"""The SQLite file of a curator's budget: how it is made, opened, checked and changed.

A change is one transaction with full synchronisation: a power cut leaves the file before or after the change. Every row
has a seal, a digest of its values and of the seal before it; the table ``counts`` has the number of rows. So accidents
are found: a changed bit, a missing last row. Forgery is not: a program that can write the file can compute seals.
Layout: docs/formats.md, section 10.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.files import BUDGET_MARK, PRIVATE, write_output
from aggregator.storage.sqlite_errors import Failures, sqlite_errors
from protocol import canonical
from protocol.errors import InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

APPLICATION_ID = BUDGET_MARK
VERSION = 1
SYNCHRONOUS = "EXTRA"
JOURNAL = "TRUNCATE"
MAX_FILE_BYTES = 64 << 20
MAX_ROWS = 100_000
"""Most queries, and most assigned digests, of one file."""
BUSY_SECONDS = 30.0
_SEAL_BYTES = 8
_TABLES = {
    "budget": ("name", "epsilon_micro", "delta", "concentrated_delta", "adjacency", "made_at", "key"),
    "counts": ("data", "queries"),
    "data": ("digest", "note", "assigned_at"),
    "queries": ("data", "query", "epsilon_micro", "delta", "rho", "spent_at"),
}
_CREATED = {
    name: f"CREATE TABLE {name} (number INTEGER PRIMARY KEY, {', '.join(columns)}, seal)"
    for name, columns in _TABLES.items()
}


class Rows(NamedTuple):
    """Everything in a budget file, each row without its number and seal.

    Attributes:
        budget: the only row of the table ``budget``.
        data: the rows of assigned digests.
        queries: the rows of queries.
    """

    budget: tuple[Any, ...]
    data: tuple[tuple[Any, ...], ...]
    queries: tuple[tuple[Any, ...], ...]


def damaged() -> StorageError:
    """The error ``budget_damaged``: the file's contents are not what this software has written."""
    return StorageError(
        "budget_damaged",
        "the budget file is damaged or not one of this software; what was spent is not known, so nothing is released",
    )


def create_file(path: Path, budget: Sequence[object]) -> None:
    """Make a budget file, which only its owner can read. It appears complete or not at all.

    Args:
        path: of the new file.
        budget: values of the columns of the table ``budget``.

    Raises:
        InputError: ``output_exists``, ``output_invalid``.
        StorageError: ``disk_full``, ``io_failed``.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in _CREATED.values():
            connection.execute(statement)
        _insert(connection, "budget", 1, budget, b"")
        _insert(connection, "counts", 1, (0, 0), b"")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        content = connection.serialize()
    write_output(path, content, mode=PRIVATE)


class BudgetStore:
    """An open budget file. All methods may raise ``budget_damaged``, ``budget_busy``, ``disk_full``, ``io_failed``."""

    def __init__(self, path: Path) -> None:
        """Open the file at ``path``.

        Raises:
            InputError: ``file_not_found``; ``unreadable``: no regular file, or no permission.
            StorageError: ``budget_damaged``: also for a file of another program; ``budget_newer``: newer software wrote
                it; ``budget_busy``; ``io_failed``.
        """
        self._path = path
        _check_file(path)
        self._place = _place(path)
        self.read_only = not os.access(path, os.W_OK)
        with _errors():
            quoted = os.fspath(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            address = f"file:{quoted}?mode={'ro' if self.read_only else 'rw'}"
            self._connection = sqlite3.connect(address, timeout=BUSY_SECONDS, isolation_level=None, uri=True)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        self._run("PRAGMA trusted_schema = OFF")
        if not self.read_only:
            self._run(f"PRAGMA journal_mode = {JOURNAL}")
        self._run(f"PRAGMA synchronous = {SYNCHRONOUS}")
        ((application,),) = self._run("PRAGMA application_id")
        ((version,),) = self._run("PRAGMA user_version")
        if application != APPLICATION_ID or version < 1:
            raise damaged()
        if version > VERSION:
            raise StorageError("budget_newer", "newer software wrote the budget file; update this software")
        if self._run("SELECT sql FROM sqlite_master ORDER BY name") != [(each,) for each in _CREATED.values()]:
            raise damaged()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body of ``with`` as one transaction: its changes are on the disk when it ends, or undone by an error.

        Only if the last flush of the commit fails, the changes may stay although an error is raised.

        Raises:
            StorageError: ``budget_lost``: the file was removed or replaced since it was opened; ``io_failed``: also for
                a file that can only be read.
        """
        if self.read_only:
            raise StorageError("io_failed", "the budget file can only be read, so nothing can be spent or assigned")
        with _errors():
            self._run("BEGIN IMMEDIATE")
            try:
                if _place(self._path) != self._place:
                    raise StorageError("budget_lost", "the budget file was removed or replaced while it was in use")
                yield
                self._run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise

    def read(self) -> Rows:
        """Read and check everything. Outside of a transaction the file is as one moment left it."""
        own = not self._connection.in_transaction
        with _errors():
            if own:
                self._run("BEGIN")
            try:
                budget, counts = self._checked("budget"), self._checked("counts")
                data, queries = self._checked("data"), self._checked("queries")
            finally:
                if own:
                    self._run("COMMIT")
        if len(budget) != 1 or counts != ((len(data), len(queries)),):
            raise damaged()
        return Rows(budget[0], data, queries)

    def rewrite(self) -> None:
        """Write a value that the file has already. Called inside a transaction that changes nothing else.

        Its commit makes earlier commits durable. A process that was killed in a commit, or whose last flush failed, may
        have left rows that every reader sees and that a power cut would undo.
        """
        with _errors():
            self._run(f"PRAGMA user_version = {VERSION}")

    def add(self, table: str, values: Sequence[object]) -> None:
        """Add a row to the table ``data`` or ``queries``. Called inside a transaction.

        Raises:
            InputError: ``too_large``: the table has :data:`MAX_ROWS` rows.
        """
        with _errors():
            ((number,),) = self._run(f"SELECT count(*) FROM {table}")  # noqa: S608  # names of this software
            if number >= MAX_ROWS:
                raise InputError(
                    "too_large", f"the budget file has {MAX_ROWS} rows in its table '{table}'; make another"
                )
            last = self._run(f"SELECT seal FROM {table} WHERE number = ?", (number,))  # noqa: S608
            _insert(self._connection, table, number + 1, values, last[0][0] if last else b"")
            ((_, data, queries, _),) = self._run("SELECT * FROM counts")
            counts = (data + (table == "data"), queries + (table == "queries"))
            self._run("DELETE FROM counts")
            _insert(self._connection, "counts", 1, counts, b"")

    def _checked(self, table: str) -> tuple[tuple[Any, ...], ...]:
        """The rows of a table, without number and seal. Numbers must follow each other from 1, and seals be right."""
        before, found = b"", []
        statement = f"SELECT * FROM {table} ORDER BY number LIMIT {MAX_ROWS + 1}"  # noqa: S608
        for expected, (number, *values, seal) in enumerate(self._run(statement), 1):
            if number != expected or seal != _seal(table, number, values, before):
                raise damaged()
            found.append(tuple(values))
            before = seal
        return tuple(found)

    def _run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()


def _place(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at ``path``; None if there is none, or if it can not be examined."""
    with suppress(OSError, ValueError):  # ValueError: a path with a zero byte
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _check_file(path: Path) -> None:
    """Refuse a path where there is no regular file of a size that a budget can have."""
    found = None
    problem = InputError("unreadable", f"'{path}' is not a file that can be read")
    try:
        found = path.stat()
    except FileNotFoundError:
        problem = InputError("file_not_found", f"there is no budget file '{path}'; see hearsay budget new")
    except (OSError, ValueError):
        pass  # ValueError: a path with a zero byte
    if found is None or not stat.S_ISREG(found.st_mode) or not os.access(path, os.R_OK):
        raise problem
    if not 0 < found.st_size <= MAX_FILE_BYTES:
        raise damaged()


def _insert(connection: sqlite3.Connection, table: str, number: int, values: Sequence[object], before: bytes) -> None:
    row = (number, *values, _seal(table, number, values, before))
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608


def _seal(table: str, number: int, values: Sequence[object], before: bytes) -> bytes:
    """SHA-256(canonical msgpack of [table, number, *values, seal of the row before])[:8]."""
    with suppress(InputError):
        return sha256(canonical.pack([table, number, *values, before])).digest()[:_SEAL_BYTES]
    raise damaged()  # a value of a type that this software does not write, for example a float


def _errors() -> AbstractContextManager[None]:
    """Context manager that turns errors of SQLite and of the system into :class:`StorageError`, without their texts."""
    return sqlite_errors(
        Failures(
            "the budget file",
            StorageError("budget_busy", "another process holds the budget file; try again"),
            StorageError("disk_full", "there is no space left for the budget file; nothing was spent"),
            damaged(),
        )
    )
