"""The dealer's journal, an SQLite file: campaigns, the parties' numbers and serials, and every set that was released.

A change is one transaction with full synchronisation. Rows have digests and are counted, so accidents are found;
forgery is not. No secret is in the file. It says where it was made: machine, inode, and the mark beside it, which every
change replaces (:mod:`aggregator.common.databases`). A copy, or an older journal among newer files, is refused
(``dealer_copied``); an older state of the whole disk is not noticed. Layout: docs/formats.md, section 11.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.common.databases import Ledger, Mark, as_mark, no_mark
from aggregator.common.files import DEALER_MARK, PRIVATE, write_output
from protocol.database import Reasons, Schema, seal
from protocol.errors import StorageError


class CampaignRow(NamedTuple):
    """The journal's row of a campaign for which keys were made.

    Attributes:
        campaign, document: the campaign's id of 32 bytes, and its signed file.
        version: version of the newest key book.
        list_version, list_digest: version, and SHA-256 of the payload, of the node list of the newest book.
        next_serial: serial number of the next key.
        releases: number of the campaign's releases in the journal.
        first_period: first period for which a new release is allowed; 0 if this was never limited.
    """

    campaign: bytes
    document: bytes
    version: int
    list_version: int
    list_digest: bytes
    next_serial: int
    releases: int
    first_period: int


class BookRow(NamedTuple):
    """The row of one version of a key book. ``parties``: number of parties; ``digest``: SHA-256 of its payload."""

    campaign: bytes
    version: int
    list_version: int
    parties: int
    digest: bytes
    made_at: int


class PartyRow(NamedTuple):
    """One key of one party (a node), and the versions of the key book that hold it.

    Attributes:
        campaign, node: ids of 32 and 8 bytes.
        serial: serial number of the key.
        public: the node's Ed25519 key, 32 bytes.
        u: the party's number u, which sizes its noise (:mod:`aggregator.nodes.campaigns.numbering`).
        first, last: first and last version of the book with this key; ``last`` is None if the newest has it.
        box: the key, sealed to the node; empty if the newest book does not have the key any more.
    """

    campaign: bytes
    serial: int
    node: bytes
    public: bytes
    u: int
    first: int
    last: int | None
    box: bytes


class ReleaseRow(NamedTuple):
    """The one set that was released for a campaign's period. ``parties``: node ids of 8 bytes, sorted and joined."""

    campaign: bytes
    period: int
    version: int
    parties: bytes
    released_at: int


_TABLES = {
    "books": BookRow._fields,
    "campaigns": CampaignRow._fields,
    "dealer": ("number", "public", "machine", "inode", "made_at", "adopted_at"),
    "mark": ("number", "nonce", "inode", "changed"),
    "parties": PartyRow._fields,
    "releases": ReleaseRow._fields,
}
_KEYS = {
    "books": "campaign, version",
    "campaigns": "campaign",
    "dealer": "number",
    "mark": "number",
    "parties": "campaign, serial",
    "releases": "campaign, period",
}
SCHEMA = Schema(
    what="the dealer's journal",
    reasons=Reasons("dealer_busy", "dealer_damaged", "dealer_newer", "dealer_damaged"),
    application_id=DEALER_MARK,
    version=3,
    tables={
        name: f"CREATE TABLE {name} ({', '.join(columns)}, seal, PRIMARY KEY ({_KEYS[name]})) WITHOUT ROWID"
        for name, columns in _TABLES.items()
    },
    damage="the dealer's journal is damaged; which sets were released is not known, so nothing is released",
    unchanged="nothing was released",
)
OTHER_FILES = ("dealer.key", "dealer.pub")
"""Files of a dealer's folder that are there from the beginning."""


def create_journal(path: Path, public: bytes, machine: bytes, made_at: int) -> None:
    """Make a journal that only its owner can read. Later it may be renamed within its file system, but not copied.

    ``public`` is the dealer's public key, ``machine`` the mark of the machine, 32 bytes each; ``made_at`` is in
    seconds since 1970.
    """
    mark = (1, *no_mark())
    content = SCHEMA.new_file([("mark", (*mark, seal("mark", mark)))])
    write_output(path, content, mode=PRIVATE)
    with closing(Journal(path, None)) as journal, journal.transaction():
        journal.put("dealer", (1, public, machine, path.stat().st_ino, made_at, 0))


class Journal(Ledger):
    """An open journal. All methods may raise ``dealer_damaged`` and ``dealer_busy``."""

    def __init__(self, path: Path, machine: bytes | None) -> None:
        """Open the journal at ``path``.

        ``machine`` is the mark of this machine; None leaves out the check whether this is where the file was made.

        Raises:
            StorageError: ``not_a_dealer``: there is no file; ``dealer_damaged``, ``dealer_newer``, ``dealer_busy``;
                ``dealer_copied``: this is a copy, or a restored backup.
        """
        self._machine = machine
        if not path.is_file() and any((path.parent / name).exists() for name in OTHER_FILES):
            raise StorageError(
                "dealer_damaged",
                f"the journal '{path}' is missing, so which sets were released is not known; put its newest copy back, "
                "then hearsay masked adopt",
            )
        if not path.is_file():
            raise StorageError("not_a_dealer", f"'{path.parent}' is no dealer's folder; hearsay masked new makes one")
        super().__init__(SCHEMA, path)
        try:
            with self.snapshot():
                pass  # A snapshot checks that this is the original.
        except BaseException:
            self.close()
            raise

    def check_original(self) -> None:
        """Refuse a journal that is not the file that was made, as ``dealer_copied``. It needs an open transaction."""
        _, _, machine, inode, _, _ = self._only("dealer", "number = 1", ())
        if (machine, inode) != (self._machine, self._path.stat().st_ino):
            raise self._copied()
        super().check_original()

    def _copied(self) -> StorageError:
        return StorageError(
            "dealer_copied",
            "the dealer's folder is a copy, was restored from a backup or was moved to another disk, so it may not "
            "know what was released since; if no other copy is in use any more: hearsay masked adopt",
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:  # type: ignore[override]  # whether it adopts is said when it is opened
        """Run the body of ``with`` as one transaction (:meth:`aggregator.common.databases.Ledger.transaction`)."""
        with super().transaction(adopting=self._machine is None):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Run the body of ``with`` on one consistent state of the journal. The body can not write.

        Superfluous marks of a process that was killed in a change are removed first, so that the state is final.
        """
        while True:
            with self._reading():
                if self._machine is None or self._is_finished():
                    yield
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
            raise SCHEMA.damaged()
        return named

    def _name(self, mark: Mark) -> None:
        self.put("mark", (1, *mark))

    def put(self, table: str, row: Sequence[object]) -> None:
        """Add a row (without seal), or replace the row of its key. The caller must have opened a transaction."""
        self._write(table, (*row, seal(table, row)), "REPLACE")

    def add_release(self, campaign: CampaignRow, released: ReleaseRow) -> None:
        """Record a released set, and count it in its campaign's row. The caller must have opened a transaction."""
        self.put("releases", released)
        self.put("campaigns", campaign._replace(releases=campaign.releases + 1))

    def dealer(self) -> tuple[bytes, int]:
        """Return the dealer's public key, and the time at which the journal was made, in seconds since 1970."""
        _, public, _, _, made_at, _ = self._only("dealer", "number = 1", ())
        return public, made_at

    def adopted_at(self) -> int:
        """Return when a copy of the folder was adopted last, in seconds since 1970; 0 if that never happened."""
        adopted_at: int = self._only("dealer", "number = 1", ())[5]
        return adopted_at

    def campaigns(self) -> list[CampaignRow]:
        """Return the rows of all campaigns for which keys were made, by id."""
        return [CampaignRow(*row) for row in self._rows("campaigns", "1", ())]

    def campaign(self, campaign: bytes) -> CampaignRow | None:
        """Return the row of a campaign, or None if it has no keys. The number of its releases is checked."""
        found = [CampaignRow(*row) for row in self._rows("campaigns", "campaign = ?", (campaign,))]
        if not found:
            return None
        ((releases,),) = self._run("SELECT count(*) FROM releases WHERE campaign = ?", (campaign,))
        if releases != found[0].releases:
            raise SCHEMA.damaged()
        return found[0]

    def book(self, campaign: bytes, version: int) -> BookRow | None:
        """Return the row of a version of a campaign's key book, or None if there is no such version."""
        found = self._rows("books", "campaign = ? AND version = ?", (campaign, version))
        return BookRow(*found[0]) if found else None

    def books(self, campaign: bytes) -> list[BookRow]:
        """Return all versions of a campaign's book, in order."""
        return [BookRow(*row) for row in self._rows("books", "campaign = ?", (campaign,))]

    def parties(self, book: BookRow) -> list[PartyRow]:
        """Return the rows of all keys in a version of a key book, by serial number. Their number is checked."""
        held = self._rows(
            "parties", "campaign = ? AND first <= ?2 AND (last IS NULL OR last >= ?2)", (book.campaign, book.version)
        )
        if len(held) != book.parties:
            raise SCHEMA.damaged()
        return [PartyRow(*row) for row in held]

    def has_serials(self, campaign: bytes, first: int, last: int) -> bool:
        """Return whether any key of a campaign ever had a serial number from ``first`` to ``last``."""
        return bool(self._rows("parties", "campaign = ? AND serial BETWEEN ? AND ?", (campaign, first, last)))

    def release(self, campaign: bytes, period: int) -> ReleaseRow | None:
        """Return the release for a campaign's period, or None if nothing was released."""
        found = self._rows("releases", "campaign = ? AND period = ?", (campaign, period))
        return ReleaseRow(*found[0]) if found else None

    def releases(self, campaign: bytes) -> list[ReleaseRow]:
        """Return all releases of a campaign, by period."""
        return [ReleaseRow(*row) for row in self._rows("releases", "campaign = ?", (campaign,))]

    def adopt(self, machine: bytes, now: int) -> None:
        """Make this file, on the machine with this mark, the original. The caller must have opened a transaction."""
        number, public, _, _, made_at, _ = self._only("dealer", "number = 1", ())
        self.put("dealer", (number, public, machine, self._path.stat().st_ino, made_at, now))

    def _only(self, table: str, where: str, values: Sequence[object]) -> tuple[Any, ...]:
        rows = self._rows(table, where, values)
        if len(rows) != 1:
            raise SCHEMA.damaged()
        return rows[0]

    def _rows(self, table: str, where: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return a table's rows that match an SQL condition, without their seals, by key. The seals are checked."""
        with self._errors():
            found = self._run(f"SELECT * FROM {table} WHERE {where} ORDER BY {_KEYS[table]}", values)  # noqa: S608
        if any(row[-1] != self._seal(table, row[:-1]) for row in found):
            raise SCHEMA.damaged()
        return [row[:-1] for row in found]
