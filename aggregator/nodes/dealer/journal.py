"""The dealer's journal, an SQLite file: campaigns, the parties' numbers and serials, and every set that was released.

A change is one transaction with full synchronisation: a power cut leaves the file before or after the change. Every row
has a seal, a digest of its values; the row of a campaign counts its releases, and that of a book has the digest of the
book. So accidents are found: a changed bit, a missing row. Forgery is not: a program that can write the file can
compute seals. No secret is in the file. Layout: docs/formats.md, section 11.

The file also says where it was made: the machine, the file's inode, and the mark beside it
(:mod:`aggregator.common.marks`), which every change replaces. A copy of the folder, a backup that was restored into a
new folder or over the old one, and an old journal among new files do not fit. They are refused (``dealer_copied``),
since they may not know of releases that were made since. An older state of the whole disk is not noticed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from aggregator.common.files import DEALER_MARK, PRIVATE, write_output
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
from aggregator.nodes.dealer.rows import BookRow, CampaignRow, PartyRow, ReleaseRow
from protocol import canonical
from protocol.errors import InputError, StorageError

VERSION = 3
"""Version 1 had no table of the mark, and version 2 named one mark file that was renamed. Both become version 3."""
OLD_MARK_FILE = "dealer.mark"
"""The mark file of version 2."""
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


OTHER_FILES = ("dealer.key", "dealer.pub")
"""Files of a dealer's folder that are there from the beginning."""


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
        if not path.is_file() and any((path.parent / name).exists() for name in OTHER_FILES):
            raise StorageError(
                "dealer_damaged",
                f"the journal '{path}' is missing, so which sets were released is not known; put its newest copy back, "
                "then hearsay masked adopt",
            )
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
        version = self._version()
        if application != DEALER_MARK or version < 1:
            raise damaged()
        if version > VERSION:
            raise StorageError("dealer_newer", "newer software wrote the dealer's journal; update this software")
        if version < VERSION:
            self._bring_up_to_date()
        if self._run("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name") != [
            (each,) for each in _CREATED.values()
        ]:
            raise damaged()
        with self.snapshot():
            pass  # A snapshot checks that this is the original.

    def _version(self) -> int:
        version: int = self._run("PRAGMA user_version")[0][0]
        return version

    def _bring_up_to_date(self) -> None:
        """Make a journal of version 1 or 2 one of version 3, unless another process has just done it.

        Raises:
            StorageError: ``dealer_copied``: it is not in the place where it was made, or not the newest one there.
        """
        with self._changes():
            version = self._version()
            if version == VERSION:
                return
            if self._machine is not None and not (self._is_in_place() and self._is_newest_before_version_3(version)):
                raise _copied()
            if version == 1:
                self._run(_CREATED["mark"])
            self._run(f"PRAGMA user_version = {VERSION}")
            # A copy that is being adopted fits no mark before it was adopted.
            self._name(no_mark() if self._machine is None else new_mark(self._path))

    def _is_newest_before_version_3(self, version: int) -> bool:
        """Whether a journal of version 1 or 2 fits its mark exactly."""
        named = [] if version == 1 else self._rows("mark", "number = 1", ())
        old_mark = self._old_mark()
        if not named:
            return not old_mark and not marks_beside(self._path)
        found = [(each.lstat().st_ino, each.lstat().st_ctime_ns) for each in old_mark]
        return found == [named[0][2:]]

    def _old_mark(self) -> list[Path]:
        """The mark file of version 2, if there is one."""
        path = self._path.with_name(OLD_MARK_FILE)
        return [path] if os.path.lexists(path) else []

    def check_original(self) -> None:
        """Refuse a journal that is not in the place where it was made. Called inside a transaction or snapshot.

        Raises:
            StorageError: ``dealer_copied``: the journal was made on another machine or in another file, or the mark
                that it names is not beside it, as it was made.
        """
        if not (self._is_in_place() and is_there(self._path, self._mark())):
            raise _copied()

    def _is_in_place(self) -> bool:
        """Whether the journal is on the machine and in the file in which it was made."""
        _, _, machine, inode, _, _ = self._only("dealer", "number = 1", ())
        return (machine, inode) == (self._machine, self._path.stat().st_ino)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body of ``with`` as one transaction: its changes are on the disk when it ends, or undone by an error.

        Other processes wait. A process that is killed in here leaves the journal before or after the change, and one
        mark too many. If the commit itself fails, or the old mark can not be removed, the changes may stay although an
        error is raised.
        """
        with self._changes():
            if self._machine is not None:
                self.check_original()
                self._finish_killed_change()
            yield
            before = self._rows("mark", "number = 1", ())
            self._name(new_mark(self._path))
        with _errors():
            remove_marks(self._path, [path_of(self._path, each[1]) for each in before])

    @contextmanager
    def _changes(self) -> Iterator[None]:
        """Run the body of ``with`` between BEGIN and COMMIT; undo its changes after an error."""
        with _errors():
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise

    def _finish_killed_change(self) -> None:
        """Remove the marks that killed processes left, so that only this journal fits. Called inside a transaction."""
        left = self._superfluous_marks()
        if left:
            make_durable(self._path)
            remove_marks(self._path, left)

    def _superfluous_marks(self) -> list[Path]:
        """All marks but the one that the journal names."""
        return [*superfluous_marks(self._path, self._mark()), *self._old_mark()]

    def _mark(self) -> Mark:
        """The mark that the journal names."""
        named = as_mark(self._only("mark", "number = 1", ())[1:])
        if named is None:
            raise damaged()
        return named

    def _name(self, mark: Mark) -> None:
        """Let the journal name a mark. Called inside a transaction."""
        self.put("mark", (1, *mark))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Run the body of ``with`` on the journal as one moment left it. Nothing can be written in the body.

        Of a killed change only what can not be undone any more is read: its superfluous marks are removed before.
        """
        with _errors():
            while not self._begins_reading():
                with self._changes():  # It waits for other processes, whose changes are not yet finished.
                    self.check_original()
                    self._finish_killed_change()
            try:
                yield
            finally:
                self._run("ROLLBACK")

    def _begins_reading(self) -> bool:
        """Begin to read; False, with no transaction begun, if a change is not finished."""
        self._run("BEGIN")
        try:
            if self._machine is not None:
                self.check_original()
                if self._superfluous_marks():
                    self._run("ROLLBACK")
                    return False
        except BaseException:
            self._run("ROLLBACK")
            raise
        return True

    def put(self, table: str, row: Sequence[object]) -> None:
        """Add a row, or replace the row with the same key. Called inside a transaction. ``row`` lacks the seal."""
        values = (*row, _seal(table, row))
        with _errors():
            self._run(f"REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608  # own names

    def add_release(self, campaign: CampaignRow, released: ReleaseRow) -> None:
        """Record a set of parties, and count it in the row of its campaign. Called inside a transaction."""
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

    def has_serials(self, campaign: bytes, first: int, last: int) -> bool:
        """Whether any key of a campaign ever had a serial number from ``first`` to ``last``."""
        return bool(self._rows("parties", "campaign = ? AND serial BETWEEN ? AND ?", (campaign, first, last)))

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
