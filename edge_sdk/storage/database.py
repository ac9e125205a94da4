"""Keep the state of a device in one SQLite file: trust, documents, ledger, waiting reports and secret.

The newest ledger line is noted in the small file ``highest`` beside the state, which is not flushed, to spare the
memory card. A state without this line is an older copy. During a reset the file names a line of the old and one of the
new state. A forked child process inherits SQLite's record of held locks and can not correct it: so the locks of all
states are taken before every fork and released after it, and the child opens a connection of its own.
"""

from __future__ import annotations

import os
import sqlite3
from _thread import RLock  # the same class as threading.RLock; importing threading takes a millisecond
from _weakref import ref  # the same as weakref.ref; importing weakref takes as long as importing this package
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_sdk.storage.atomic_files import private, replace, write_new
from edge_sdk.storage.rows import COUNTED, META, SCHEMA, Rows, seal
from protocol.database import JOURNAL, execute, flush_journal, place_of
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

HIGHEST_FILE = "highest"
_NUMBER_BYTES = 8
_SEAL_BYTES = 8


class Highest(NamedTuple):
    """Number and seal (digest) of a ledger line. The seal depends on all earlier lines."""

    line: int
    seal: bytes


def read_highest(path: str) -> tuple[Highest, ...]:
    """Return the ledger line that the file at ``path`` names; two lines if a reset has not ended.

    Return no line if there is no file, or if it can not be read or is damaged.
    """
    raw = b""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            raw = file.read(64)
    size = _NUMBER_BYTES + _SEAL_BYTES
    fields = [raw[at : at + size] for at in range(0, len(raw) - _SEAL_BYTES, size)]
    lines = tuple(Highest(int.from_bytes(each[:_NUMBER_BYTES], "big"), each[_NUMBER_BYTES:]) for each in fields)
    return lines if len(lines) in (1, 2) and raw == _content(lines) else ()


def _content(lines: tuple[Highest, ...]) -> bytes:
    fields = [part for line in lines for part in (line.line.to_bytes(_NUMBER_BYTES, "big"), line.seal)]
    return b"".join(fields) + seal(HIGHEST_FILE, tuple(fields))


def replace_highest(path: str, lines: tuple[Highest, ...]) -> None:
    """Replace the file at ``path`` by one that names the ``lines``, one or two, and flush it to disk.

    Raises OSError.
    """
    replace(path, _content(lines))


def write_highest(path: str, highest: Highest) -> None:
    """Write the line ``highest`` to the file at ``path``, in one write, in place of the one line that it names, if any.

    Errors are ignored: an older copy of the state may then stay unnoticed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(OSError):
        descriptor = os.open(path, flags, 0o600) if os.path.lexists(path) else private(path, flags | os.O_EXCL)
        try:
            os.pwrite(descriptor, _content((highest,)), 0)
        finally:
            os.close(descriptor)


_forking = RLock()
_locks: dict[int, tuple[Any, Any]] = {}
_taken: list[Any] = []


def quiet_at_fork(owner: object, lock: AbstractContextManager[Any]) -> None:
    """Hold ``lock``, a reentrant lock, during every fork of the process, until ``owner`` is garbage-collected."""
    key = id(owner)
    _locks[key] = ref(owner, lambda _: _locks.pop(key, None)), lock


def _before() -> None:
    _forking.acquire()
    for _, lock in list(_locks.values()):
        lock.acquire()
        _taken.append(lock)


def _after() -> None:
    while _taken:
        _taken.pop().release()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)


STATE_FILE = "state.db"
_LACKS = "lacks"
"""Key of the newest ledger line (number and seal) that was missing when this state was found to be an older copy."""


class State:
    """Reads and writes the state file. For methods that write, the caller must have opened a :meth:`transaction`.

    All methods but :meth:`close` may raise a :class:`StorageError`: ``state_closed`` after :meth:`close`;
    ``state_forked`` in a child process that may not use the state; ``state_busy``, ``state_damaged``, ``disk_full`` or
    ``io_failed``.

    Attributes:
        copied: why the state answers nothing here: a sentence on how another machine is recognised; "" on its own
            machine.
        era: a number that rises when a change is rolled back, and in a child process. When it has risen, a caller must
            read rows again that it keeps in memory.
    """

    def __init__(self, path: str | None) -> None:
        """Open or create the file at ``path``; if that is None, keep the state in memory.

        Raises StorageError ``state_newer``, ``state_older``: software of another version wrote the file.
        """
        self._path = path
        self._lock = RLock()
        self._owner = os.getpid()
        self._inherited: list[sqlite3.Connection] = []
        self._place = (0, 0)
        # A failing memory card becomes read-only. The device then still classifies and shows its status.
        self.read_only = path is not None and os.path.isfile(path) and not os.access(path, os.W_OK)
        self.copied = ""
        self._commit_failed = False
        self._inside = False
        self._closed = False
        self.era = 0
        self._metas: dict[str, bytes] | None = None
        self._turns = 0
        self._highest: Highest | None = None
        self._highest_path = ""
        self._connection = self._connect()
        quiet_at_fork(self, self._lock)

    def _connect(self) -> sqlite3.Connection:
        with SCHEMA.errors():
            if self._path is None:
                connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
                connection.deserialize(_empty_state())
                return connection
            _ensure_file(self._path)
            connection = SCHEMA.connect(self._path, mode="ro" if self.read_only else "rw", one_thread=False)
            execute(connection, "PRAGMA secure_delete = ON")  # overwrite deleted rows, which may hold secrets
            self._place = place_of(self._path)
        return connection

    @property
    def folder(self) -> str | None:
        """The folder of the state file; None for a state in memory."""
        return None if self._path is None else os.path.dirname(self._path)

    def close(self) -> None:
        """Release the file. Later uses raise ``state_closed``; a second call does nothing.

        In a child process that has not used the state, the connection is the parent's and stays open.
        """
        with self._lock:
            if self._owner == os.getpid() or self._path is None:
                self._connection.close()
            self._closed = True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body of ``with`` as one transaction: all its changes are on the disk when it ends.

        After an error in the body the changes are undone. Only if the last flush of the commit fails, the changes may
        stay although an error is raised; the next transaction then writes again before it ends. Raises StorageError
        ``state_lost``: the file was removed, or replaced by another or by an older copy.
        """
        if self.read_only:
            raise StorageError("io_failed", "the state can only be read: nothing can be answered or changed")
        with self._lock:
            connection = self._live()
            with SCHEMA.errors():
                execute(connection, "BEGIN IMMEDIATE")
                self._inside = True
                self._turns += 1
                before = connection.total_changes
                try:
                    self._check_place()
                    self._check_age(connection)
                    yield
                    self._check_process()
                    newest = self.newest_line() if self._highest_path else None
                    if connection.total_changes == before:
                        self._flush_journal(connection)
                    self._commit(connection)
                except BaseException:
                    self.era += connection.total_changes != before
                    if self._owner == os.getpid() and connection.in_transaction:
                        execute(connection, "ROLLBACK")
                    raise
                finally:
                    self._inside = False
                    self._metas = None
                self._note_highest(newest)

    @contextmanager
    def journal_in_memory(self) -> Iterator[None]:
        """Let the transactions in the body of ``with`` keep their journal in memory, so that they work on a full disk.

        An error still undoes the changes. But a kill or a power cut within such a transaction may damage the state. So
        use this only for changes after which the device answers nothing.
        """
        with self._lock:
            with SCHEMA.errors():
                execute(self._live(), "PRAGMA journal_mode = MEMORY")
            try:
                yield
            finally:
                with SCHEMA.errors():
                    execute(self._live(), f"PRAGMA journal_mode = {JOURNAL}")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let all reads in the body of ``with`` see one snapshot, without later changes of other processes."""
        with self._lock:
            connection = self._live()
            if self._path is None or connection.in_transaction:
                yield
                return
            with SCHEMA.errors():
                execute(connection, "BEGIN")
            try:
                yield
            finally:
                if self._owner == os.getpid() and connection.in_transaction:
                    with SCHEMA.errors():
                        execute(connection, "COMMIT")

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Commit the transaction. After a failed commit, readers may see the change although it is not on the disk."""
        self._commit_failed = True
        execute(connection, "COMMIT")
        self._commit_failed = False

    def _flush_journal(self, connection: sqlite3.Connection) -> None:
        """Flush earlier commits to disk. After a failed commit a flush proves nothing, and a value is written."""
        if self._path is None:
            return
        if self._commit_failed:
            # Only a write that succeeds shows that the disk works again. SQLite writes the number, although it is
            # the same.
            execute(connection, f"PRAGMA user_version = {SCHEMA.version}")
            return
        flush_journal(self._path)

    def _check_place(self) -> None:
        """Raise ``state_lost`` if the state file was removed or replaced: ε that is noted in it would be forgotten."""
        if self._path is not None and place_of(self._path) != self._place:
            raise StorageError("state_lost", "the state file was removed or replaced while in use; open it again")

    def check_highest(self) -> None:
        """Raise an error, now and in each transaction, if the ledger lacks the line that the file ``highest`` names.

        The error is ``state_lost``: without the line the state is an older copy.
        """
        if self._path is not None:
            self._highest_path = os.path.join(os.path.dirname(self._path), HIGHEST_FILE)
            with self._lock, SCHEMA.errors():
                lacks = self.meta(_LACKS)
                if lacks is not None:
                    self._highest = Highest(int.from_bytes(lacks[:8], "big"), lacks[8:])
                try:
                    present = self._check_age(self._live())
                except StorageError:
                    self._note_lack()
                    raise
                if self._highest is None and present:
                    self._highest = present[-1]
                if len(read_highest(self._highest_path)) > len(present):
                    # A reset has not ended. The other one of the two states must not be accepted later.
                    with suppress(OSError):
                        replace_highest(self._highest_path, present)

    def _note_lack(self) -> None:
        """Note in an older copy which line it lacks, so that it stays refused if the file ``highest`` is lost."""
        lines = read_highest(self._highest_path)
        if not lines or self.read_only:
            return
        missing = lines[-1]
        connection = self._live()
        with suppress(StorageError, sqlite3.Error, OSError):
            execute(connection, "BEGIN IMMEDIATE")
            try:
                self.write_meta(_LACKS, missing.line.to_bytes(8, "big") + missing.seal)
                execute(connection, "COMMIT")
            finally:
                if connection.in_transaction:
                    execute(connection, "ROLLBACK")

    def _check_age(self, connection: sqlite3.Connection) -> tuple[Highest, ...]:
        """Raise ``state_lost`` if the state lacks the newest ledger line that the file ``highest`` names.

        Return those lines of the file which the state has. The file is read each time, since another process may write.
        """
        noted = read_highest(self._highest_path) if self._highest_path else ()
        statement = "SELECT number, seal FROM ledger WHERE number = ?"
        found: tuple[Highest, ...] = ()
        for lines in {noted, () if self._highest is None else (self._highest,)} - {()}:
            present = tuple(line for line in lines if execute(connection, statement, line[:1]) == [line])
            if lines == noted:
                found = present
            if not present:
                raise StorageError(
                    "state_lost",
                    "an older copy was put in the place of the state; what was spent since is not known. "
                    "Nothing is answered until its owner resets it, which counts its whole budget as spent",
                )
        return found

    def newest_line(self) -> Highest | None:
        """Return the newest ledger line; None if the ledger is empty."""
        for row in self.run("SELECT number, seal FROM ledger ORDER BY number DESC LIMIT 1"):
            return Highest(*row)
        return None

    def _note_highest(self, newest: Highest | None) -> None:
        """Note a committed line in memory, and in the file ``highest`` unless that names a newer line."""
        if newest is None or newest == self._highest:
            return
        self._highest = newest
        noted = read_highest(self._highest_path)
        if len(noted) > 1:
            with suppress(OSError):
                replace_highest(self._highest_path, (newest,))
        elif not noted or noted[0].line < newest.line:
            write_highest(self._highest_path, newest)

    def _check_process(self) -> None:
        """Raise ``state_forked`` in a child process that would answer, with other noise, what its parent answers."""
        if self._owner != os.getpid() and (self._path is None or self._inside):
            raise StorageError(
                "state_forked",
                "this state is in the memory of the process that made it, or was in use while that forked; "
                "a child opens a device of its own",
            )

    def _live(self) -> sqlite3.Connection:
        """Return the connection of this process; a child process opens its own. The caller must hold the lock."""
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
        """Running number, from 1, of the open transaction of this object; 0 if none is open.

        By it a caller that keeps rows in memory knows whether they were read in the open transaction.
        """
        return self._turns if self._inside else 0

    def run(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one SQL statement, with a ``?`` for each of the ``values`` in order, and return all its rows."""
        problem: Exception
        with self._lock:
            try:
                return execute(self._live(), statement, values)
            except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
                problem = error
        raise SCHEMA.translated(problem)

    @property
    def _meta(self) -> Rows:
        # A state that stored this object would be part of a reference cycle, and be released late.
        return Rows(self, META)

    def meta(self, key: str) -> bytes | None:
        """Return the value of ``key``, for example ``secret``, in the table of single values; None if it has none."""
        return self._read_meta().get(key)

    def all_meta(self) -> dict[str, bytes]:
        """Return the whole table of single values: key → value."""
        return dict(self._read_meta())

    def _read_meta(self) -> dict[str, bytes]:
        """Return key → value. A transaction reads the table once, and keeps it until it ends or removes a key."""
        with self._lock:
            if not self._inside:
                return dict(self._meta.all())
            if self._metas is None:
                self._metas = dict(self._meta.all())
            return self._metas

    def write_meta(self, key: str, value: bytes) -> None:
        """Store ``value`` under ``key`` in the table of single values, in place of an older value, if any."""
        known = self.meta(key)
        if known == value:
            return
        (self._meta.add if known is None else self._meta.replace)((key, value))
        if self._metas is not None:
            self._metas[key] = value

    def remove_meta(self, key: str) -> None:
        """Delete the value of ``key`` in the table of single values, if any. Its bytes are overwritten in the file."""
        if self.meta(key) is not None:
            self._meta.remove(lambda row: row[0] == key)
            self._metas = None


def _ensure_file(path: str) -> None:
    """Make a new, complete state file with empty tables at ``path``, unless a file is there."""
    if not os.path.lexists(path):
        with suppress(FileExistsError):  # another process has just made the file
            write_new(path, lambda file: file.write(_empty_state()))
    if os.stat(path).st_size == 0:
        raise StorageError("state_damaged", "the state file is empty: what this device has spent is not known any more")


@lru_cache(maxsize=1)
def _empty_state() -> bytes:
    """Return the bytes of a database with empty tables; a state in memory begins as a copy."""
    return SCHEMA.new_file(("counts", (table.name, 0, seal("counts", (table.name, 0)))) for table in COUNTED)
