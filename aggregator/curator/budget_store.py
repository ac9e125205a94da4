"""The SQLite file of a curator's budget: how it is made, opened, checked and changed.

A change is one transaction with full synchronisation: a power cut leaves the file before or after the change. Every row
has a seal, a digest of its values and of the seal before it; the table ``counts`` has the number of rows. So accidents
are found: a changed bit, a missing last row. Forgery is not: a program that can write the file can compute seals.

Beside the file is its mark (:mod:`aggregator.common.marks`), which every change replaces. A copy of the file, and an
older one that was restored into its place, have no mark that fits: they can be read, and pay for nothing
(``budget_copied``). Layout: docs/formats.md, section 10.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.common.files import BUDGET_MARK, PRIVATE, check_output, storage_errors, write_output
from aggregator.common.marks import (
    Mark,
    as_mark,
    is_there,
    make_durable,
    marks_beside,
    new_mark,
    no_mark,
    path_of,
    remove_marks,
    superfluous_marks,
)
from aggregator.common.sqlite_errors import Failures, sqlite_errors
from protocol import canonical
from protocol.errors import InputError, StorageError

APPLICATION_ID = BUDGET_MARK
VERSION = 2
"""Version 1 had no table of the mark. It gets one with its next change."""
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
    "mark": ("nonce", "inode", "changed", "closed_at"),
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
        closed_at: when the whole total was counted as spent, in seconds since 1970; 0 if it never was.
    """

    budget: tuple[Any, ...]
    data: tuple[tuple[Any, ...], ...]
    queries: tuple[tuple[Any, ...], ...]
    closed_at: int


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
    check_output(path, force=False)
    real = Path(os.path.realpath(path))
    with storage_errors(f"'{path}' could not be written"):
        mark = new_mark(real)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in _CREATED.values():
            connection.execute(statement)
        _insert(connection, "budget", 1, budget, b"")
        _insert(connection, "counts", 1, (0, 0), b"")
        _insert(connection, "mark", 1, (*mark, 0), b"")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        content = connection.serialize()
    try:
        write_output(path, content, mode=PRIVATE)
    except BaseException:
        if not path.exists():  # It may be there though the flush of its folder failed.
            with suppress(OSError):
                remove_marks(real, [path_of(real, mark.nonce)])
        raise


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
        self._real = Path(os.path.realpath(path))
        self._place = _place(path)
        self.read_only = not os.access(path, os.W_OK)
        with _errors():
            quoted = os.fspath(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            address = f"file://{quoted}?mode={'ro' if self.read_only else 'rw'}"
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
        if application != APPLICATION_ID or self._version() < 1:
            raise damaged()
        if self._version() > VERSION:
            raise StorageError("budget_newer", "newer software wrote the budget file; update this software")
        expected = [(each,) for name, each in _CREATED.items() if name != "mark" or self._version() > 1]
        if self._run("SELECT sql FROM sqlite_master ORDER BY name") != expected:
            raise damaged()

    def _version(self) -> int:
        version: int = self._run("PRAGMA user_version")[0][0]
        return version

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._connection.close()

    @contextmanager
    def transaction(self, *, adopting: bool = False) -> Iterator[None]:
        """Run the body of ``with`` as one transaction: its changes are on the disk when it ends, or undone by an error.

        Only if the last flush of the commit fails, or the old mark can not be removed, the changes may stay although
        an error is raised. Every transaction writes to the file, so it makes earlier commits durable, too: a process
        that was killed in a commit may have left rows that every reader sees and that a power cut would undo.

        Args:
            adopting: this file is the only one from now on, whatever mark it names.

        Raises:
            StorageError: ``budget_copied``: this is a copy, or an older file that was restored; ``budget_lost``: the
                file was removed or replaced since it was opened; ``io_failed``: also for a file that can only be read.
        """
        if self.read_only:
            raise StorageError("io_failed", "the budget file can only be read, so nothing can be spent or assigned")
        with _errors():
            self._run("BEGIN IMMEDIATE")
            try:
                if _place(self._path) != self._place:
                    raise StorageError("budget_lost", "the budget file was removed or replaced while it was in use")
                named, closed_at = self._mark()
                if not adopting:
                    self._check_original(named)
                yield
                self._name(new_mark(self._real), self._mark()[1] or closed_at)
                self._run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise
            if named is not None:
                remove_marks(self._real, [path_of(self._real, named.nonce)])

    def _check_original(self, named: Mark | None) -> None:
        """Refuse a copy, and remove the marks that killed changes of the original left.

        Raises:
            StorageError: ``budget_copied``.
        """
        if named is None:
            original, left = not marks_beside(self._real), []
        else:
            original, left = is_there(self._real, named), superfluous_marks(self._real, named)
        if not original:
            raise StorageError(
                "budget_copied",
                "the budget file is a copy, was restored or was moved to another place, so it may not know what was "
                "spent since; use the original, or see hearsay budget adopt",
            )
        if left:
            make_durable(self._real)
            remove_marks(self._real, left)

    def _mark(self) -> tuple[Mark | None, int]:
        """The mark that the file names, None before version 2; and when the total was counted as spent, or 0."""
        found = self._checked("mark") if self._version() > 1 else ((b"", 0, 0, 0),)
        if len(found) != 1:
            raise damaged()
        named, closed_at = as_mark(found[0][:3]), found[0][3]
        if named is None and self._version() > 1:
            raise damaged()
        return named, closed_at

    def _name(self, mark: Mark, closed_at: int) -> None:
        """Let the file name a mark. Called inside a transaction."""
        if self._version() == 1:
            self._run(_CREATED["mark"])
            self._run(f"PRAGMA user_version = {VERSION}")
        self._run("DELETE FROM mark")
        _insert(self._connection, "mark", 1, (*mark, closed_at), b"")

    def close_total(self, now: int) -> None:
        """Count the whole total as spent, at ``now`` in seconds since 1970. Called inside a transaction."""
        with _errors():
            named, closed_at = self._mark()
            self._name(named or no_mark(), closed_at or now)

    def read(self) -> Rows:
        """Read and check everything. Outside of a transaction the file is as one moment left it."""
        own = not self._connection.in_transaction
        with _errors():
            if own:
                self._run("BEGIN")
            try:
                budget, counts = self._checked("budget"), self._checked("counts")
                data, queries = self._checked("data"), self._checked("queries")
                closed_at = self._mark()[1]
            finally:
                if own:
                    self._run("COMMIT")
        if len(budget) != 1 or counts != ((len(data), len(queries)),):
            raise damaged()
        return Rows(budget[0], data, queries, closed_at)

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
