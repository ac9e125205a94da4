"""A party's own entries of key books: which version was accepted last, and the sealed key in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.rows import PARTY_KEYS, Rows
from protocol.documents.envelope import keyid
from protocol.errors import DocumentError, InputError
from protocol.masked.keys import check_successor, open_key, own_key

if TYPE_CHECKING:
    from edge_sdk.storage.rows import Database
    from protocol.documents.campaign import Campaign
    from protocol.documents.envelope import SigningKey
    from protocol.masked.keys import KeyBook, MaskedKey


class _Kept(NamedTuple):
    """A row: the newest key book of a campaign, without the entries of other parties.

    Attributes:
        campaign: id of the campaign in hexadecimal digits.
        version: of the book.
        digest: SHA-256 of the book's payload.
        node: id of this node when the book was accepted, 8 bytes.
        serial, u: of this node's entry; u is 0 if the book has no key for this node.
    """

    campaign: str
    version: int
    digest: bytes
    node: bytes
    serial: int
    u: int


class PartyKeys:
    """Reads and writes of the party's keys. :meth:`accept` is called inside a transaction.

    All methods raise ``state_damaged`` (a :class:`protocol.errors.StorageError`) for a row that was changed or is
    missing.
    """

    def __init__(self, state: Database) -> None:
        self._rows = Rows(state, PARTY_KEYS)

    def accept(self, book: KeyBook, key: SigningKey) -> DocumentError | None:
        """Store the version of a verified book, and this node's sealed key in it, in place of those of an older book.

        The rest of a book, up to 64 MiB, is not stored: a book that contradicts this one is refused, and not kept as
        evidence.

        Args:
            book: from :func:`protocol.masked.keys.read_key_book`.
            key: the node's key pair.

        Returns:
            Why the book has no usable key for this node: ``node_without_key``, ``invalid_keys``. Its version is stored
            all the same, so that no older book is accepted after it. None if the key can be opened.

        Raises:
            DocumentError: ``rollback``, ``equivocation``: nothing is stored.
        """
        kept = self._kept(book.campaign)
        if kept is not None:
            check_successor(book, kept.version, kept.digest)
        entry, problem = book.parties.get(keyid(key.public)), None
        try:
            own_key(book, key)
        except DocumentError as error:
            entry, problem = None, error
        row = _Kept(
            book.campaign.hex(),
            book.version,
            book.identity,
            keyid(key.public),
            0 if entry is None else entry.serial,
            0 if entry is None else entry.u,
        )
        (self._rows.add if kept is None else self._rows.replace)(row, b"" if entry is None else entry.sealed)
        return problem

    def own(self, campaign: Campaign, key: SigningKey) -> MaskedKey:
        """This node's key of the newest accepted book of a campaign.

        Args:
            campaign: a masked campaign.
            key: the node's key pair.

        Raises:
            InputError: ``keys_unknown``: no book of the campaign was accepted yet.
            DocumentError: ``node_without_key``: the newest book has no key for this node, or was accepted before an
                opt-out or a reset made another node; ``invalid_keys``: the stored box can not be opened.
        """
        kept = self._kept(campaign.id)
        if kept is None:
            raise InputError(
                "keys_unknown", "no key book of this campaign was accepted yet; give the dealer's file .hsk"
            )
        if kept.node != keyid(key.public) or not kept.u:
            raise DocumentError(
                "node_without_key",
                f"key book {kept.version} has no key for this node ({keyid(key.public).hex()}); after an opt-out or a "
                "reset a node has a new key pair: the publisher lists it anew, and the dealer makes a newer key book",
            )
        return open_key(self._rows.body(kept.campaign), key, campaign.id)

    def _kept(self, campaign_id: bytes) -> _Kept | None:
        for row in self._rows.all():
            if row[0] == campaign_id.hex():
                return _Kept(*row)
        return None
