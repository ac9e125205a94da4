"""Journals of keepers of secrets: SQLite ledgers that also say who keeps them, and on which machine they were made.

A dealer and a collector each keep a journal of what they have released, since a second release of the same period would
tell what one must not tell. A copy of it on another machine, or an older file that was restored, is refused.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from aggregator.common.databases import Ledger, Mark, as_mark, no_mark
from aggregator.common.files import PRIVATE, write_output
from protocol.database import Schema, machine_ids, seal
from protocol.errors import StorageError

KEEPER_COLUMNS = ("number", "public", "machine", "inode", "made_at", "adopted_at")
MARK_COLUMNS = ("number", "nonce", "inode", "changed")


class Keeper(NamedTuple):
    """Who keeps a journal, and where.

    ``public``: the keeper's key; ``machine``: mark of the machine (:func:`machine_mark`), 32 bytes each. ``inode``: of
    the journal. ``made_at``, ``adopted_at`` (last; 0 if never): seconds since 1970.
    """

    public: bytes
    machine: bytes
    inode: int
    made_at: int
    adopted_at: int = 0


def table_of(name: str, columns: Sequence[str], key: str) -> str:
    """Return the SQL statement that makes a journal's table, whose rows are sealed."""
    return f"CREATE TABLE {name} ({', '.join(columns)}, seal, PRIMARY KEY ({key})) WITHOUT ROWID"


def machine_mark(tag: bytes) -> bytes:
    """Return 32 bytes that identify this machine without revealing its ids; equal on all machines without ids."""
    return sha256(tag + machine_ids()).digest()


class Journal(Ledger):
    """An open journal. All methods may raise the errors of its schema.

    ``SCHEMA``: reasons and tables. ``KEEPER``: name of the table with one row, the keeper's. ``KEYS``: table → its key
    columns, as SQL. ``TIMES``: table → place of the column that says when an entry was made.
    """

    SCHEMA: ClassVar[Schema]
    KEEPER: ClassVar[str]
    KEYS: ClassVar[Mapping[str, str]]
    TIMES: ClassVar[Mapping[str, int]]

    def __init__(self, path: Path, machine: bytes | None) -> None:
        """Open the journal; a ``machine`` mark of None leaves out the check whether this is where it was made."""
        self._machine = machine
        super().__init__(self.SCHEMA, path)
        try:
            with self.snapshot():
                pass  # A snapshot checks that this is the original.
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path, keeper: Keeper) -> None:
        """Make a journal for its owner alone. It may be renamed within its file system, not copied."""
        mark = (1, *no_mark())
        write_output(path, cls.SCHEMA.new_file([("mark", (*mark, seal("mark", mark)))]), mode=PRIVATE)
        with closing(cls(path, None)) as journal, journal.transaction():
            journal.put_keeper(keeper._replace(inode=path.stat().st_ino))

    def check_original(self) -> None:
        """Refuse a journal that is not the file that was made. The caller must have opened a transaction."""
        keeper = self.keeper()
        if (keeper.machine, keeper.inode) != (self._machine, self._path.stat().st_ino):
            raise self._copied()
        super().check_original()

    @abstractmethod
    def _copied(self) -> StorageError:
        """Return the error for a journal that is not the original."""

    @contextmanager
    def transaction(self) -> Iterator[None]:  # type: ignore[override]  # whether it adopts is said when it is opened
        """Run the body of ``with`` as one transaction (:meth:`aggregator.common.databases.Ledger.transaction`)."""
        with super().transaction(adopting=self._machine is None):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Read one consistent state of the journal in a ``with`` block. Superfluous marks go first."""
        while True:
            with self._reading():
                if self._machine is None or self._is_finished():
                    yield self
                    return
            with self._changes():  # It waits for other processes, whose changes are not yet finished.
                self.check_original()
                self._finish_killed_change()

    def _is_finished(self) -> bool:
        """Return whether the last change left no superfluous mark. Refuse a copy of the journal."""
        self.check_original()
        return not self._superfluous_marks()

    def _named(self) -> Mark:
        named = as_mark(self._only("mark", "number = 1", ())[1:])
        if named is None:
            raise self.SCHEMA.damaged()
        return named

    def _name(self, mark: Mark) -> None:
        self.put("mark", (1, *mark))

    def keeper(self) -> Keeper:
        """Return who keeps the journal."""
        return Keeper(*self._only(self.KEEPER, "number = 1", ())[1:])

    def put_keeper(self, keeper: Keeper) -> None:
        """Replace the keeper's row. The caller must have opened a transaction."""
        self.put(self.KEEPER, (1, *keeper))

    def adopt(self, machine: bytes, now: int) -> None:
        """Make this file, on the machine with this mark, the original. The caller must have opened a transaction.

        Raises StorageError ``clock_behind``: something in the journal is later than ``now``, so what begins later can
        not be told from what another copy has released.
        """
        keeper = self.keeper()
        entries = (row[self.TIMES[table]] for table in self.TIMES for row in self._rows(table, "1", ()))
        if now < max(keeper.made_at, keeper.adopted_at, *entries):
            raise StorageError("clock_behind", "the clock shows a time before the newest entry of the journal; set it")
        inode = self._path.stat().st_ino
        self.put_keeper(keeper._replace(machine=machine, inode=inode, adopted_at=now))

    def put(self, table: str, row: Sequence[object]) -> None:
        """Add a row (without seal), or replace the row of its key. The caller must have opened a transaction."""
        self._write(table, (*row, seal(table, row)), "REPLACE")

    def _only(self, table: str, where: str, values: Sequence[object]) -> tuple[Any, ...]:
        rows = self._rows(table, where, values)
        if len(rows) != 1:
            raise self.SCHEMA.damaged()
        return rows[0]

    def _rows(self, table: str, where: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return a table's rows that match an SQL condition, without their seals, by key. The seals are checked."""
        with self._errors():
            found = self._run(f"SELECT * FROM {table} WHERE {where} ORDER BY {self.KEYS[table]}", values)  # noqa: S608
        if any(row[-1] != self._seal(table, row[:-1]) for row in found):
            raise self.SCHEMA.damaged()
        return [row[:-1] for row in found]
