"""The rows of a dealer's journal: campaigns, versions of key books, keys of parties, and released sets."""

from __future__ import annotations

from typing import NamedTuple


class CampaignRow(NamedTuple):
    """A campaign that was set up.

    Attributes:
        campaign: id, 32 bytes.
        document: the signed campaign.
        version: of the newest key book.
        list_version, list_digest: of the list of nodes from which the newest book was made.
        next_serial: serial number of the next key.
        releases: number of rows of releases of the campaign.
        first_period: no period before it is released, unless it is in the journal; 0 if this was never limited.
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
    """A version of a key book: its campaign, list version, number of parties, payload's SHA-256 and time."""

    campaign: bytes
    version: int
    list_version: int
    parties: int
    digest: bytes
    made_at: int


class PartyRow(NamedTuple):
    """One key of one party, and the versions of the book that hold it.

    Attributes:
        campaign: id, 32 bytes.
        serial: serial number of the key.
        node: node id, 8 bytes.
        public: the node's Ed25519 key, 32 bytes.
        u: the party's number.
        first, last: first and last version of the book with this key; ``last`` is None if the newest has it.
        box: the key, sealed to the node; empty once the newest book has it no more.
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
    """The one set of a campaign's period that was released: node ids of 8 bytes, sorted and joined."""

    campaign: bytes
    period: int
    version: int
    parties: bytes
    released_at: int
