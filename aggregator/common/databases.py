"""SQLite files of curators, dealers and stores, and ledgers, whose old copies are found by a mark beside them.

A :class:`Ledger` is a file that records what was spent: a dealer's journal, or a curator's budget. A copy or an older
file would spend it twice. So each change makes an empty file beside it, its mark, commits the ledger, which names the
mark and the kernel's time of it, and removes the old mark. Only then may a result leave the computer. Layout:
docs/formats.md, section 11.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.common.files import PRIVATE, sync_folder
from protocol.database import Schema, execute, flush_journal, seal, write_row
from protocol.errors import StorageError

NONCE_BYTES = 16
_LARGEST = (1 << 63) - 1
"""Largest integer of SQLite. An inode number of 64 bits is cut to it."""
_NAME = re.compile(f"[0-9a-f]{{{2 * NONCE_BYTES}}}\\.mark")


class Database:
    """An open SQLite file. All methods may raise the errors of its schema."""

    def __init__(
        self, schema: Schema, path: Path, *, mode: str = "rw", make: Callable[[sqlite3.Connection], None] | None = None
    ) -> None:
        """Open the file at ``path``. The other arguments are those of :meth:`protocol.database.Schema.connect`."""
        self._schema, self._path = schema, path
        with self._errors():
            self._connection = schema.connect(os.fspath(path.absolute()), mode=mode, make=make)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._connection.close()

    def _errors(self) -> AbstractContextManager[None]:
        return self._schema.errors()

    @contextmanager
    def _changes(self) -> Iterator[None]:
        """Context manager that runs its block as one transaction, and undoes the block's changes after an error."""
        with self._errors():
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Context manager in whose block all statements see the file in the same state."""
        with self._errors():
            own = not self._connection.in_transaction
            if own:
                self._run("BEGIN")
            try:
                yield
            finally:
                if own:
                    self._run("ROLLBACK")

    def _run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return execute(self._connection, statement, values)

    def _write(self, table: str, row: Sequence[object], verb: str = "INSERT") -> None:
        with self._errors():
            write_row(self._connection, table, row, verb)

    def _seal(self, table: str, values: Sequence[object]) -> bytes:
        """Return the seal (digest) of a row. This software writes no floats, so a row with a float is damaged."""
        if float in map(type, values):
            raise self._schema.damaged()
        return seal(table, values)


class Mark(NamedTuple):
    """A ledger's mark file as the ledger names it: 16 random bytes, inode number, last change in ns since 1970."""

    nonce: bytes
    inode: int
    changed: int


def as_mark(values: Sequence[object]) -> Mark | None:
    """Return the mark that ``values`` of a ledger describe, or None if no mark has such values."""
    match values:
        case bytes(nonce), int(inode), int(changed) if len(nonce) == NONCE_BYTES:
            return Mark(nonce, inode, changed)
    return None


def no_mark() -> Mark:
    """Return a mark that fits no file. A ledger that names it must be adopted before it can be used."""
    return Mark(secrets.token_bytes(NONCE_BYTES), 0, 0)


def new_mark(ledger: Path) -> Mark:
    """Make a mark beside a ledger, durably. Raises ``OSError`` if the file can not be made or flushed."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    descriptor = os.open(path_of(ledger, nonce), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        os.fsync(descriptor)
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(ledger.parent)
    return Mark(nonce, found.st_ino & _LARGEST, found.st_ctime_ns)


def is_there(ledger: Path, named: Mark) -> bool:
    """Return whether the mark that a ledger names is beside it, unchanged. Raises ``OSError`` if that is not known."""
    try:
        found = os.lstat(path_of(ledger, named.nonce))
    except FileNotFoundError:
        return False
    return (found.st_ino & _LARGEST, found.st_ctime_ns) == named[1:]


def marks_beside(ledger: Path) -> list[Path]:
    """Return all marks of a ledger, also those that it does not name. Raises OSError: the folder can not be read."""
    before = f"{ledger.name}."
    names = [each.name for each in os.scandir(ledger.parent)]
    return [
        ledger.with_name(name) for name in names if name.startswith(before) and _NAME.fullmatch(name[len(before) :])
    ]


def remove_marks(ledger: Path, marks: list[Path]) -> None:
    """Remove marks durably, so that no older ledger that names one can be used. Raises ``OSError`` if it fails."""
    for each in marks:
        each.unlink(missing_ok=True)
    sync_folder(ledger.parent)


def path_of(ledger: Path, nonce: bytes) -> Path:
    """Return the path of the mark with the random number ``nonce``."""
    return ledger.with_name(f"{ledger.name}.{nonce.hex()}.mark")


class Ledger(Database, ABC):
    """A database with a mark (an empty file) beside it. Every change of the database replaces the mark."""

    @abstractmethod
    def _named(self) -> Mark:
        """Return the mark that the ledger names."""

    @abstractmethod
    def _name(self, mark: Mark) -> None:
        """Let the ledger name a mark. The caller must have begun a transaction."""

    @abstractmethod
    def _copied(self) -> StorageError:
        """Return the error for a ledger that was copied or restored, so that spending may be missing in it."""

    def check_original(self) -> None:
        """Raise ``NAME_copied``, NAME being its kind, if this is a copy or was restored. Call it in a transaction."""
        if not is_there(self._path, self._named()):
            raise self._copied()

    @contextmanager
    def transaction(self, *, adopting: bool = False) -> Iterator[None]:
        """Context manager that runs its block as one transaction: an error undoes the block's changes.

        After the block its changes are on the disk. A kill leaves the ledger as before or after, with one mark too
        many. If the last flush, or the removal of the old mark, fails, changes may stay although an error is raised.
        With ``adopting`` this file becomes the only valid one. Raises StorageError ``NAME_copied``: it is a copy, or
        was restored.
        """
        with self._changes():
            if not adopting:
                self.check_original()
                self._finish_killed_change()
            yield
            before = self._named()
            self._name(new_mark(self._path))
        with self._errors():
            remove_marks(self._path, [path_of(self._path, before.nonce)])

    def _finish_killed_change(self) -> None:
        """Remove all marks that the ledger does not name. Its last commit is made durable first."""
        superfluous = self._superfluous_marks()
        if superfluous:
            flush_journal(os.fspath(self._path))
            sync_folder(self._path.parent)
            remove_marks(self._path, superfluous)

    def _superfluous_marks(self) -> list[Path]:
        """Return the marks that the ledger does not name: restored ones, or those of a process killed in a change."""
        own = path_of(self._path, self._named().nonce)
        return [each for each in marks_beside(self._path) if each != own]
