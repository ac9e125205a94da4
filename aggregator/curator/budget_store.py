"""The SQLite file of a curator's budget: how it is made, opened, checked and changed.

A change is one transaction with full synchronisation: a power cut leaves the file before or after the change. Every row
has a seal, a digest of its values and of the seal before it; the table ``counts`` has the number of rows. So accidents
are found: a changed bit, a missing last row. Forgery is not: a program that can write the file can compute seals.

Beside the file is its mark (:mod:`aggregator.common.databases`), which every change replaces. A copy of the file, and
an older one that was restored into its place, have no mark that fits: they can be read, and pay for nothing
(``budget_copied``). Layout: docs/formats.md, section 10.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.common.databases import Ledger, Mark, as_mark, new_mark, path_of, remove_marks
from aggregator.common.files import BUDGET_MARK, PRIVATE, check_output, storage_errors, write_output
from protocol.database import Schema, place_of, seal
from protocol.errors import InputError, StorageError

MAX_FILE_BYTES = 64 << 20
MAX_ROWS = 100_000
"""Most queries, and most assigned digests, of one file."""
_TABLES = {
    "budget": ("name", "epsilon_micro", "delta", "concentrated_delta", "adjacency", "made_at", "key"),
    "counts": ("data", "queries"),
    "data": ("digest", "note", "assigned_at"),
    "mark": ("nonce", "inode", "changed", "closed_at"),
    "queries": ("data", "query", "epsilon_micro", "delta", "rho", "spent_at"),
}
SCHEMA = Schema(
    what="the budget file",
    reasons="budget",
    application_id=BUDGET_MARK,
    version=2,
    tables={
        name: f"CREATE TABLE {name} (number INTEGER PRIMARY KEY, {', '.join(columns)}, seal)"
        for name, columns in _TABLES.items()
    },
    damage="the budget file is damaged or not one of this software; what was spent is not known, so nothing is "
    "released",
    unchanged="nothing was spent",
)


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
    rows = {"budget": budget, "counts": (0, 0), "mark": (*mark, 0)}
    content = SCHEMA.new_file((table, _sealed(table, 1, row, b"")) for table, row in rows.items())
    try:
        write_output(path, content, mode=PRIVATE)
    except BaseException:
        if not path.exists():  # It may be there though the flush of its folder failed.
            with suppress(OSError):
                remove_marks(real, [path_of(real, mark.nonce)])
        raise


class BudgetStore(Ledger):
    """An open budget file. Besides the errors of a ledger, opening and changing may raise the following."""

    def __init__(self, path: Path) -> None:
        """Open the file at ``path``.

        Raises:
            InputError: ``file_not_found``; ``unreadable``: no regular file, or no permission.
            StorageError: ``budget_damaged``: also for a file of another program; ``budget_newer``: newer software wrote
                it; ``budget_busy``; ``io_failed``.
        """
        found = _check_file(path)
        self._given, self._place = path, (found.st_dev, found.st_ino)
        self.read_only = not os.access(path, os.W_OK)
        super().__init__(SCHEMA, Path(os.path.realpath(path)), mode="ro" if self.read_only else "rw")

    @contextmanager
    def transaction(self, *, adopting: bool = False) -> Iterator[None]:
        """Run the body of ``with`` as one transaction, as that of :class:`aggregator.common.databases.Ledger`.

        Raises:
            StorageError: ``budget_copied``; ``budget_lost``: the file was removed or replaced since it was opened;
                ``io_failed``: also for a file that can only be read.
        """
        if self.read_only:
            raise StorageError("io_failed", "the budget file can only be read, so nothing can be spent or assigned")
        with super().transaction(adopting=adopting):
            yield

    @contextmanager
    def _changes(self) -> Iterator[None]:
        with super()._changes():
            if place_of(os.fspath(self._given)) != self._place:
                raise StorageError("budget_lost", "the budget file was removed or replaced while it was in use")
            yield

    def _copied(self) -> StorageError:
        return StorageError(
            "budget_copied",
            "the budget file is a copy, was restored or was moved to another place, so it may not know what was "
            "spent since; use the original, or see hearsay budget adopt",
        )

    def _mark_row(self) -> tuple[Mark, int]:
        """The mark that the file names; and when the total was counted as spent, or 0."""
        found = self._checked("mark")
        named = as_mark(found[0][:3]) if len(found) == 1 else None
        if named is None:
            raise SCHEMA.damaged()
        return named, found[0][3]

    def _named(self) -> Mark:
        return self._mark_row()[0]

    def _name(self, mark: Mark) -> None:
        self._put_mark(mark, self._mark_row()[1])

    def _put_mark(self, mark: Mark, closed_at: int) -> None:
        self._write("mark", _sealed("mark", 1, (*mark, closed_at), b""), "REPLACE")

    def close_total(self, now: int) -> None:
        """Count the whole total as spent, at ``now`` in seconds since 1970. Called inside a transaction."""
        named, closed_at = self._mark_row()
        self._put_mark(named, closed_at or now)

    def read(self) -> Rows:
        """Read and check everything. Outside of a transaction the file is as one moment left it."""
        with self._reading():
            budget, counts = self._checked("budget"), self._checked("counts")
            data, queries = self._checked("data"), self._checked("queries")
            closed_at = self._mark_row()[1]
        if len(budget) != 1 or counts != ((len(data), len(queries)),):
            raise SCHEMA.damaged()
        return Rows(budget[0], data, queries, closed_at)

    def add(self, table: str, values: Sequence[object]) -> None:
        """Add a row to the table ``data`` or ``queries``. Called inside a transaction.

        Raises:
            InputError: ``too_large``: the table has :data:`MAX_ROWS` rows.
        """
        with self._errors():
            ((number,),) = self._run(f"SELECT count(*) FROM {table}")  # noqa: S608  # names of this software
            if number >= MAX_ROWS:
                raise InputError(
                    "too_large", f"the budget file has {MAX_ROWS} rows in its table '{table}'; make another"
                )
            last = self._run(f"SELECT seal FROM {table} WHERE number = ?", (number,))  # noqa: S608
            self._write(table, _sealed(table, number + 1, values, last[0][0] if last else b""))
            ((_, data, queries, _),) = self._run("SELECT * FROM counts")
            counts = (data + (table == "data"), queries + (table == "queries"))
            self._write("counts", _sealed("counts", 1, counts, b""), "REPLACE")

    def _checked(self, table: str) -> tuple[tuple[Any, ...], ...]:
        """The rows of a table, without number and seal. Numbers must follow each other from 1, and seals be right."""
        before, found = b"", []
        statement = f"SELECT * FROM {table} ORDER BY number LIMIT {MAX_ROWS + 1}"  # noqa: S608
        for expected, (number, *values, sealed) in enumerate(self._run(statement), 1):
            if number != expected or sealed != self._seal(table, (number, *values, before)):
                raise SCHEMA.damaged()
            found.append(tuple(values))
            before = sealed
        return tuple(found)


def _check_file(path: Path) -> os.stat_result:
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
        raise SCHEMA.damaged()
    return found


def _sealed(table: str, number: int, values: Sequence[object], before: bytes) -> tuple[object, ...]:
    """A row with its number, and with its seal, which covers the seal of the row before."""
    return number, *values, seal(table, (number, *values, before))
