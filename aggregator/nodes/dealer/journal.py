"""The dealer's journal, an SQLite file: campaigns, the parties' numbers and serials, and every set that was released.

A change is one transaction. Rows have digests and are counted, so accidents are found; forgery is not. The file says
where it was made, so a copy or an older journal is refused (``dealer_copied``). Layout: docs/formats.md, section 11.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from aggregator.common.files import DEALER_MARK
from aggregator.common.journals import KEEPER_COLUMNS, MARK_COLUMNS, Keeper, table_of
from aggregator.common.journals import Journal as Original
from protocol.database import Reasons, Schema
from protocol.errors import StorageError


class CampaignRow(NamedTuple):
    """The journal's row of a campaign for which keys were made.

    ``document``: its signed file; ``version``: of the newest key book, with version and payload's SHA-256 of its node
    list; ``first_period``: first period for which a new release is allowed; 0 if this was never limited.
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
    """One key of one party (a node, its id and Ed25519 key ``public``), and the versions of the key book that hold it.

    ``u``: the party's number u, which sizes its noise (:mod:`aggregator.nodes.campaigns.numbering`). ``first``,
    ``last``: first and last version of the book with this key; ``last`` is None if the newest has it. ``box``: the key,
    sealed to the node; empty if the newest book does not have the key any more.
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
    "dealer": KEEPER_COLUMNS,
    "mark": MARK_COLUMNS,
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
    tables={name: table_of(name, columns, _KEYS[name]) for name, columns in _TABLES.items()},
    damage="the dealer's journal is damaged; which sets were released is not known, so nothing is released",
    unchanged="nothing was released",
)
OTHER_FILES = ("dealer.key", "dealer.pub")
"""Files of a dealer's folder that are there from the beginning."""


def create_journal(path: Path, public: bytes, machine: bytes, made_at: int) -> None:
    """Make a journal that only its owner can read, for a dealer's public key and a machine's mark, 32 bytes each."""
    Journal.create(path, Keeper(public, machine, 0, made_at))


class Journal(Original):
    """An open journal. All methods may raise ``dealer_damaged`` and ``dealer_busy``."""

    SCHEMA, KEEPER, KEYS = SCHEMA, "dealer", _KEYS
    TIMES = MappingProxyType(
        {"books": BookRow._fields.index("made_at"), "releases": ReleaseRow._fields.index("released_at")}
    )

    def __init__(self, path: Path, machine: bytes | None) -> None:
        """Open the journal at ``path``.

        ``machine`` is the mark of this machine; None leaves out the check whether this is where the file was made.
        Raises StorageError: ``not_a_dealer``: there is no file; ``dealer_damaged``, ``dealer_newer``, ``dealer_busy``;
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
        super().__init__(path, machine)

    def _copied(self) -> StorageError:
        return StorageError(
            "dealer_copied",
            "the dealer's folder is a copy, was restored from a backup or was moved to another disk, so it may not "
            "know what was released since; if no other copy is in use any more: hearsay masked adopt",
        )

    def add_release(self, campaign: CampaignRow, released: ReleaseRow) -> None:
        """Record a released set, and count it in its campaign's row. The caller must have opened a transaction."""
        self.put("releases", released)
        self.put("campaigns", campaign._replace(releases=campaign.releases + 1))

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
