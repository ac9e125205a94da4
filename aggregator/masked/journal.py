"""The dealer's journal, an SQLite file: campaigns, the parties' numbers and serials, and every set that was released.

A change is one transaction with full synchronisation: a power cut leaves the file before or after the change. Every row
has a seal, a digest of its values; the row of a campaign counts its releases, and that of a book has the digest of the
book. So accidents are found: a changed bit, a missing row. Forgery is not: a program that can write the file can
compute seals. No secret is in the file. Layout: docs/formats.md, section 11.

The file also says where it was made: the machine, the file's inode, and the mark file beside it
(:mod:`aggregator.masked.mark`), which is replaced before every change. A copy of the folder, and a backup that was
restored into a new folder or over the old one, do not fit. They are refused (``dealer_copied``), since they may not
know of releases that were made since. An older state of the whole disk is not noticed.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from aggregator.files import DEALER_MARK, PRIVATE, sync_folder, write_output
from aggregator.masked.mark import NO_MARK, NONCE_BYTES, Place, read_mark, write_mark
from aggregator.masked.rows import BookRow, CampaignRow, PartyRow, ReleaseRow
from aggregator.storage.sqlite_errors import Failures, sqlite_errors
from protocol import canonical
from protocol.errors import InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from aggregator.masked.mark import Mark

VERSION = 2
"""Version 1 had no table of the mark. It is added when such a journal is opened."""
MARK_FILE = "dealer.mark"
SYNCHRONOUS = "EXTRA"
JOURNAL = "TRUNCATE"
BUSY_SECONDS = 30.0
_SEAL_BYTES = 8
_TABLES = {
    "books": ("campaign", "version", "list_version", "parties", "digest", "made_at"),
    "campaigns": (
        "campaign", "document", "version", "list_version", "list_digest", "next_serial", "releases", "first_period",
    ),
    "dealer": ("number", "public", "machine", "inode", "made_at", "adopted_at"),
    "mark": ("number", "nonce", "inode", "changed"),
    "parties": ("campaign", "serial", "node", "public", "u", "first", "last", "box"),
    "releases": ("campaign", "period", "version", "parties", "released_at"),
}  # fmt: skip
_KEYS = {
    "books": "campaign, version",
    "campaigns": "campaign",
    "dealer": "number",
    "mark": "number",
    "parties": "campaign, serial",
    "releases": "campaign, period",
}
_CREATED = {
    name: f"CREATE TABLE {name} ({', '.join(columns)}, seal, PRIMARY KEY ({_KEYS[name]})) WITHOUT ROWID"
    for name, columns in _TABLES.items()
}


def damaged() -> StorageError:
    """The error ``dealer_damaged``: the journal is not what this software has written."""
    return StorageError(
        "dealer_damaged",
        "the dealer's journal is damaged; which sets were released is not known, so nothing is released",
    )


def create_journal(path: Path, public: bytes, machine: bytes, made_at: int) -> None:
    """Make a journal that only its owner can read, at its final inode. It may be renamed within the file system.

    Args:
        path: of the new file.
        public: the dealer's public key, 32 bytes.
        machine: mark of the machine, 32 bytes.
        made_at: seconds since 1970.

    Raises:
        InputError: ``output_exists``, ``output_invalid``.
        StorageError: ``disk_full``, ``io_failed``.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in _CREATED.values():
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {DEALER_MARK}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        content = connection.serialize()
    write_output(path, content, mode=PRIVATE)
    with closing(Journal(path, None)) as journal, journal.transaction():
        journal.put("dealer", (1, public, machine, path.stat().st_ino, made_at, 0))


class Journal:
    """An open journal. All methods may raise ``dealer_damaged``, ``dealer_busy``, ``disk_full``, ``io_failed``."""

    def __init__(self, path: Path, machine: bytes | None) -> None:
        """Open the journal at ``path``.

        Args:
            path: of the file.
            machine: mark of this machine; None leaves out the check whether this is the place where it was made.

        Raises:
            StorageError: ``not_a_dealer``: there is no file; ``dealer_damaged``, ``dealer_newer``, ``dealer_busy``;
                ``dealer_copied``: this is a copy, or a restored backup.
        """
        self._path, self._machine = path, machine
        self._mark_path = path.with_name(MARK_FILE)
        self._pending: ReleaseRow | None = None
        if not path.is_file():
            raise StorageError("not_a_dealer", f"'{path.parent}' is no dealer's folder; hearsay masked new makes one")
        with _errors():
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        for statement in ("trusted_schema = OFF", f"journal_mode = {JOURNAL}", f"synchronous = {SYNCHRONOUS}"):
            self._run(f"PRAGMA {statement}")
        ((application,),) = self._run("PRAGMA application_id")
        ((version,),) = self._run("PRAGMA user_version")
        if application != DEALER_MARK or version < 1:
            raise damaged()
        if version > VERSION:
            raise StorageError("dealer_newer", "newer software wrote the dealer's journal; update this software")
        if version == 1:
            self._add_mark_table()
        if self._run("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name") != [
            (each,) for each in _CREATED.values()
        ]:
            raise damaged()
        with self.snapshot():
            pass  # A snapshot checks that this is the original.

    def _add_mark_table(self) -> None:
        """Make a journal of version 1 one of version 2, unless another process has just done it."""
        with self._changes():
            if self._run("PRAGMA user_version") == [(1,)]:
                self._run(_CREATED["mark"])
                self._run(f"PRAGMA user_version = {VERSION}")

    def check_original(self) -> None:
        """Refuse a journal that is not in the place where it was made. Called inside a transaction or snapshot.

        Raises:
            StorageError: ``dealer_copied``: the journal was made on another machine or in another file, or the mark
                file is not the one that was written last, in the place where it was written.
        """
        _, _, machine, inode, _, _ = self._only("dealer", "number = 1", ())
        if (machine, inode) != (self._machine, self._path.stat().st_ino):
            raise _copied()
        nonce, named = self._named_mark()
        found = read_mark(self._mark_path)
        if found is None:
            original = nonce == NO_MARK
        else:
            mark, place = found
            original = place == named if mark.nonce == nonce else mark.was_written_at(place)
        if not original:
            raise _copied()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body of ``with`` as one transaction: its changes are on the disk when it ends, or undone by an error.

        Other processes wait. If the commit itself fails, the changes may stay although an error is raised, and a set
        of parties that was to be recorded is recorded by the next transaction.
        """
        with self._changes():
            if self._machine is not None:
                self._finish_killed_change()
            yield
            self._replace_mark()

    @contextmanager
    def _changes(self) -> Iterator[None]:
        """Run the body of ``with`` between BEGIN and COMMIT; undo its changes after an error."""
        with _errors():
            self._run("BEGIN IMMEDIATE")
            self._pending = None
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise

    def _finish_killed_change(self) -> None:
        """Record the set that a killed process was about to record, in a commit of its own. The transaction stays open.

        The set may have left: the journal alone may have been restored from a backup.
        """
        self.check_original()
        self._make_durable()
        mark = self._mark_ahead()
        if mark is None or mark.pending is None:
            return
        row = self.campaign(mark.pending.campaign)
        if row is None:
            raise _copied()  # The journal is older than the change before the last one.
        if self.release(row.campaign, mark.pending.period) is None:
            self.add_release(row, mark.pending)
        self._replace_mark()
        self._run("COMMIT")
        self._run("BEGIN IMMEDIATE")
        self._pending = None
        self._finish_killed_change()

    def _make_durable(self) -> None:
        """Make commits of processes that were killed durable, before the mark goes on.

        Such a process may have ended its commit for all readers by cutting SQLite's own journal, without flushing
        that. A power cut would then undo the commit, and the mark would be two steps ahead.
        """
        with suppress(FileNotFoundError):
            descriptor = os.open(f"{self._path}-journal", os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(self._path.parent)

    def _named_mark(self) -> tuple[bytes, Place]:
        """Random number and place of the mark that the journal names; :data:`NO_MARK` if it names none yet."""
        rows = self._rows("mark", "number = 1", ())
        return (rows[0][1], Place(*rows[0][2:])) if rows else (NO_MARK, Place(0, 0))

    def _mark_ahead(self) -> Mark | None:
        """The mark of a change that the journal does not have; None if the journal names the present mark.

        Raises:
            StorageError: ``dealer_copied``: the mark is neither the one that the journal names nor the one after it.
        """
        nonce, _ = self._named_mark()
        found = read_mark(self._mark_path)
        mark = found[0] if found else None
        if (NO_MARK if mark is None else mark.nonce) == nonce:
            return None
        if mark is None or mark.before != nonce:
            raise _copied()
        return mark

    def _replace_mark(self) -> None:
        """Write a new mark with the set that is to be recorded, and let the journal name it."""
        # A mark of an adoption fits no journal but the adopted one: a killed adoption leaves a copy a copy.
        before = secrets.token_bytes(NONCE_BYTES) if self._machine is None else self._named_mark()[0]
        nonce = secrets.token_bytes(NONCE_BYTES)
        place = write_mark(self._mark_path, nonce, before, self._pending)
        self.put("mark", (1, nonce, *place))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Run the body of ``with`` on the journal as one moment left it. Nothing can be written in the body."""
        with _errors():
            self._run("BEGIN")
            try:
                if self._machine is not None:
                    self.check_original()
                    self._mark_ahead()
                yield
            finally:
                self._run("ROLLBACK")

    def put(self, table: str, row: Sequence[object]) -> None:
        """Add a row, or replace the row with the same key. Called inside a transaction. ``row`` lacks the seal."""
        values = (*row, _seal(table, row))
        with _errors():
            self._run(f"REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608  # own names

    def add_release(self, campaign: CampaignRow, released: ReleaseRow) -> None:
        """Record a set of parties, and count it in the row of its campaign. Called inside a transaction, once."""
        self._pending = released
        self.put("releases", released)
        self.put("campaigns", campaign._replace(releases=campaign.releases + 1))

    def dealer(self) -> tuple[bytes, int]:
        """The dealer's public key, and the time at which the journal was made, in seconds since 1970."""
        _, public, _, _, made_at, _ = self._only("dealer", "number = 1", ())
        return public, made_at

    def adopted_at(self) -> int:
        """The time at which a copy of the folder was adopted last, in seconds since 1970; 0 if that never happened."""
        adopted_at: int = self._only("dealer", "number = 1", ())[5]
        return adopted_at

    def campaigns(self) -> list[CampaignRow]:
        """All campaigns that were set up, by id."""
        return [CampaignRow(*row) for row in self._rows("campaigns", "1", ())]

    def campaign(self, campaign: bytes) -> CampaignRow | None:
        """The campaign with this id; None if it was not set up. The number of its releases is checked."""
        found = [CampaignRow(*row) for row in self._rows("campaigns", "campaign = ?", (campaign,))]
        if not found:
            return None
        ((releases,),) = self._run("SELECT count(*) FROM releases WHERE campaign = ?", (campaign,))
        if releases != found[0].releases:
            raise damaged()
        return found[0]

    def book(self, campaign: bytes, version: int) -> BookRow | None:
        """A version of a campaign's book; None if there is none."""
        found = self._rows("books", "campaign = ? AND version = ?", (campaign, version))
        return BookRow(*found[0]) if found else None

    def books(self, campaign: bytes) -> list[BookRow]:
        """All versions of a campaign's book, in order."""
        return [BookRow(*row) for row in self._rows("books", "campaign = ?", (campaign,))]

    def parties(self, book: BookRow) -> list[PartyRow]:
        """The keys of a version of a book, by serial number. Their number is checked."""
        held = self._rows(
            "parties", "campaign = ? AND first <= ?2 AND (last IS NULL OR last >= ?2)", (book.campaign, book.version)
        )
        if len(held) != book.parties:
            raise damaged()
        return [PartyRow(*row) for row in held]

    def release(self, campaign: bytes, period: int) -> ReleaseRow | None:
        """What was released for a campaign's period; None if nothing was."""
        found = self._rows("releases", "campaign = ? AND period = ?", (campaign, period))
        return ReleaseRow(*found[0]) if found else None

    def releases(self, campaign: bytes) -> list[ReleaseRow]:
        """All releases of a campaign, by period."""
        return [ReleaseRow(*row) for row in self._rows("releases", "campaign = ?", (campaign,))]

    def adopt(self, machine: bytes, now: int) -> None:
        """Take this file, on the machine with this mark, as the original from now on. Called inside a transaction."""
        number, public, _, _, made_at, _ = self._only("dealer", "number = 1", ())
        self.put("dealer", (number, public, machine, self._path.stat().st_ino, made_at, now))

    def _only(self, table: str, where: str, values: Sequence[object]) -> tuple[Any, ...]:
        rows = self._rows(table, where, values)
        if len(rows) != 1:
            raise damaged()
        return rows[0]

    def _rows(self, table: str, where: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Rows without their seals, in the order of the key. The seals are checked."""
        with _errors():
            found = self._run(f"SELECT * FROM {table} WHERE {where} ORDER BY {_KEYS[table]}", values)  # noqa: S608
            if any(row[-1] != _seal(table, row[:-1]) for row in found):
                raise damaged()
        return [row[:-1] for row in found]

    def _run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()


def _copied() -> StorageError:
    return StorageError(
        "dealer_copied",
        "the dealer's folder is a copy, was restored from a backup or was moved to another disk, so it may not "
        "know what was released since; if no other copy is in use any more: hearsay masked adopt",
    )


def _seal(table: str, values: Sequence[object]) -> bytes:
    """SHA-256(canonical msgpack of [table, *values])[:8]."""
    with suppress(InputError):
        return sha256(canonical.pack([table, *values])).digest()[:_SEAL_BYTES]
    raise damaged()  # a value of a type that this software does not write, for example a float


def _errors() -> AbstractContextManager[None]:
    """Context manager that turns errors of SQLite and of the system into :class:`StorageError`, without their texts."""
    return sqlite_errors(
        Failures(
            "the dealer's journal",
            StorageError("dealer_busy", "another process holds the dealer's journal; try again"),
            StorageError("disk_full", "there is no space left for the dealer's journal; nothing was released"),
            damaged(),
        )
    )
