"""Use a node: a device whose answer of one period is one summary (noisy sums) of many people's records."""

from __future__ import annotations

import os
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.arguments import check_bytes
from edge_sdk.device import Device, FollowedDocument
from edge_sdk.log import logged
from edge_sdk.node.release import OfRecords, check_in_the_clear, node_key
from edge_sdk.node.sums import ExactSums
from protocol.documents.envelope import SIZE_LIMITS, keyid
from protocol.documents.masked_terms import PARTY
from protocol.epsilon import micro_epsilon
from protocol.errors import DocumentError
from protocol.nodes.summary import read_summary
from protocol.nodes.terms import SMOOTH, released_vectors, terms_of
from protocol.schema import FROM_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from decimal import Decimal

    from edge_sdk.node.exchanging import Exchanged
    from edge_sdk.node.sums import Unread
    from edge_sdk.storage.ledger import Answered
    from protocol.documents.campaign import Campaign
    from protocol.masked.keys import KeyBook


class Summarised(NamedTuple):
    """The summary of a node for one period.

    Attributes:
        raw: the bytes of the signed summary.
        period: index of the period since 1970.
        repeated: the period was summarised before; these are the bytes of that summary, and no record was read.
        next_at: when the wall clock will show that the next period can be summarised, in seconds since 1970.
        epsilon_micro: ε of the summary, in millionths, if one record is added or removed.
        cost_micro: the ε that the ledger counts for the summary, in millionths.
        unread: counts of missing and unlisted values, for the owner; None if no record was read. They are exact and
            private: they must not leave the node.
    """

    raw: bytes
    period: int
    repeated: bool
    next_at: int
    epsilon_micro: int
    cost_micro: int
    unread: Unread | None


class Encrypted(NamedTuple):
    """The encrypted sums of a node for one period of a masked campaign.

    Attributes:
        raw: the bytes of the signed message.
        period, repeated, next_at, unread: the same as in :class:`Summarised`.
        serial: serial number of the key that encrypted.
        cost_micro, cost_delta_pico: the ε in millionths and the δ in 10⁻¹² that the ledger counts for the message.
        beyond: number of records after the first ``max_records``, if the unit of protection is a party. They were not
            read and are in no sum.
    """

    raw: bytes
    period: int
    repeated: bool
    next_at: int
    serial: int
    cost_micro: int
    cost_delta_pico: int
    unread: Unread | None
    beyond: int


class AcceptedKeys(NamedTuple):
    """A key book that the node has accepted.

    Attributes:
        campaign: the masked campaign to which the book belongs.
        serial, u: serial number of this node's key, and the number u of this party.
    """

    campaign: Campaign
    version: int
    parties: int
    serial: int
    u: int


class Node(Device):
    """A node: it holds many people's records, and sends at most one signed summary per campaign and period.

    It is a :class:`edge_sdk.Device` with a state folder of its own, and takes part only in campaigns for nodes.
    """

    @property
    def public_key(self) -> bytes:
        """The node's Ed25519 public key, 32 bytes, which the publisher puts on the list of nodes.

        After an opt-out or a reset the node has another key. After an opt-out PolicyError ``disabled`` is raised.
        """
        return node_key(self._reporting.secret()).public

    @property
    def node_id(self) -> bytes:
        """The node's id, 8 bytes: the id of :attr:`public_key`."""
        return keyid(self.public_key)

    @property
    def public_key_line(self) -> bytes:
        """The content of a ``.key.pub`` file with :attr:`public_key` and the role ``node`` (formats.md, section 9)."""
        return b"hearsay-key-1 node %b\n" % self.public_key.hex().encode()

    @logged("summarise")
    def summarise(
        self,
        campaign: bytes | str,
        records: Iterable[Mapping[str, object]],
        label: object = FROM_RECORD,
        *,
        epsilon: str | float | Decimal | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Summarised:
        """Summarise records, at most once per period. A second call in a period returns the first summary's bytes.

        Memory does not grow with the number of records. The summary and the ε that it costs are stored in one durable
        transaction after the last record was read: if reading fails, nothing was spent. No refusal depends on a record:
        one with a value that the campaign refuses is left out, which ε covers. Without any record the summary is noise
        alone. ε bounds what a summary tells about one record; for a person with m records the bound is m·ε.

        Args:
            campaign: ``Campaign.id``; or as text its name, or the first hexadecimal digits of its id.
            records: mappings from feature names to values. None or an absent key is a missing value. Not read if the
                period was summarised before, or if the summary would be refused.
            label: the class of every record; None if it is not known. The default is each record's own label.
            epsilon: ε for one record more or less, between the campaign's least ε and its ε, which is the default.
            progress: is called with the number of records so far, every 10,000 records.

        Raises:
            InputError: ``campaign_for_devices``: call :meth:`edge_sdk.Device.report`; ``campaign_masked``: call
                :meth:`encrypt`; ``epsilon_out_of_range``: the campaign does not allow this ε; ``epsilon_invalid``.
            PolicyError: ``adjacency_uncovered``: the campaign's noise does not hide what the policy's
                ``node_adjacency`` names; ``adjacency_fixed``: the node's first summary was booked for another
                ``node_adjacency``.
            InputError, DocumentError, PolicyError, StorageError: as :meth:`edge_sdk.Device.report`, except
                ``campaign_for_nodes``, ``model_unknown``, ``value_refused`` and those of a series.
            Exception: an error of the iterator ``records``.
        """
        campaign_id = self.campaign(campaign).id if isinstance(campaign, str) else campaign
        making = OfRecords(None if epsilon is None else micro_epsilon(epsilon), self._entropy)
        said = self._reporting.earlier(campaign_id, making)
        unread = None
        if said is None:
            found = self._reporting.campaign(campaign_id)
            is_smooth = terms_of(found).sensitivity == SMOOTH
            sums = ExactSums(found.schema, released_vectors(found), with_grids=is_smooth)
            sums.add_all(records, label, progress)
            making.exact, making.grids, unread = sums.totals, sums.grids, sums.unread()
            said = self._reporting.answer(campaign_id, making)
        cost_micro = self._paid(campaign_id, said.period).epsilon_micro
        micro = read_summary(said.reports)[1].epsilon_micro
        return Summarised(said.reports, said.period, said.repeated, said.next_at, micro, cost_micro, unread)

    def _paid(self, campaign_id: bytes, period: int) -> Answered:
        (line,) = [line for line in self.history(campaign_id) if line.period == period]
        return line

    @logged("encrypt")
    def encrypt(
        self,
        campaign: bytes | str,
        records: Iterable[Mapping[str, object]],
        label: object = FROM_RECORD,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Encrypted:
        """Encrypt noisy sums of records for a masked campaign, at most once per period.

        A second call in a period returns the first message's bytes. Message, ε and δ are stored in one durable
        transaction after the last record was read: if reading fails, nothing was spent. The aggregator decrypts only
        the total of many nodes. The noise of this node alone is too small to hide a record: ε and δ hold as long as the
        campaign's share of nodes adds its noise, and the dealer neither reads messages nor gives keys away.

        Args:
            campaign, label, progress: as for :meth:`summarise`.
            records: mappings from feature names to values, with missing values as in :meth:`summarise`. If the unit of
                protection is a party, only the first ``max_records`` are read; the others are counted for the owner.

        Raises:
            InputError: ``campaign_not_masked``: call :meth:`summarise`; ``keys_unknown``: call :meth:`accept_keys`
                first.
            DocumentError: ``node_without_key``: the newest key book has no key for this node, for example because an
                opt-out has changed the node's key; ``invalid_keys``.
            PolicyError: ``policy_refused``: the policy allows no masked campaigns (``allow_masked``), or not the cost.
            InputError, DocumentError, PolicyError, StorageError, Exception: as :meth:`summarise`.
        """
        from edge_sdk.node.encryption import OfSums, PartyKeys, Unprepared
        from protocol.masked.message import read_message

        campaign_id = self.campaign(campaign).id if isinstance(campaign, str) else campaign
        making = OfSums(PartyKeys(self._state), lambda: node_key(self._reporting.secret()), self._entropy)
        said = self._reporting.earlier(campaign_id, making)
        unread, beyond = None, 0
        if said is None:
            found = self._reporting.campaign(campaign_id)
            sums = ExactSums(found.schema, released_vectors(found))
            beyond = _add_within_unit(sums, found, records, label, progress)
            making.exact, unread = sums.totals, sums.unread()
        while said is None:
            try:
                said = self._reporting.answer(campaign_id, making)
            except Unprepared as needed:
                making.prepare(found, needed)
        paid, message = self._paid(campaign_id, said.period), read_message(said.reports)[1]
        return Encrypted(
            said.reports, said.period, said.repeated, said.next_at, message.serial,
            paid.epsilon_micro, paid.delta_pico, unread, beyond,
        )  # fmt: skip

    @logged("accept_keys", lambda found: f"key book {found.version}")
    def accept_keys(self, book: bytes, *, campaign: bytes | str | None = None) -> AcceptedKeys:
        """Verify a dealer's key book, and store its version and this node's key in it.

        The book must be signed by the dealer whom the campaign names. Afterwards no older book is accepted, and no
        different book of the same version. The same book may be given again.

        Args:
            book: the ``.hsk`` file.
            campaign: the masked campaign of the book, as for :meth:`summarise`; None finds the accepted campaign to
                which the book belongs.

        Raises:
            InputError: ``campaign_unknown``, ``campaign_not_masked``, ``argument_invalid``.
            DocumentError: ``unrecognized_campaign``: the book belongs to no masked campaign that was accepted here;
                ``bad_signature``, ``rollback``, ``equivocation``, ``invalid_keys``, and the reasons of a file that can
                not be read; ``node_without_key``: the book has no key for this node. Its version is stored all the
                same.
            PolicyError: ``disabled``: the owner has opted out.
        """
        from edge_sdk.node.encryption import PartyKeys

        check_bytes(book, "a key book")
        found, read = self._book_of(book, campaign)
        keys = PartyKeys(self._state)
        with self._state.transaction():
            key = node_key(self._reporting.secret())
            problem = keys.accept(read, key)
        if problem is not None:
            raise problem
        own = keys.own(found, key)
        return AcceptedKeys(found, read.version, len(read.parties), own.serial, own.u)

    def followed(self) -> list[FollowedDocument]:
        """Return the lists of nodes of the accepted campaigns, and the key books of those that are masked."""
        found = []
        books = self._documents.key_books()
        for campaign in self.campaigns():
            if campaign.nodes is None or campaign.ended:
                continue
            listed = campaign.nodes.list_name
            held = self._acceptance.listed_version(listed)
            accept = partial(lambda name, raw: self._acceptance.accept_nodes(raw, name).header.version, listed)
            found.append(FollowedDocument("nodes", listed, held, accept, SIZE_LIMITS["nodes"]))
            if campaign.masked is not None:
                from protocol.masked.fields import largest_file

                held = books.get(campaign.id.hex())
                accept = partial(lambda of, raw: self.accept_keys(raw, campaign=of).version, campaign.id)
                most = largest_file("keys", campaign)
                found.append(FollowedDocument("keys", campaign.header.name, held, accept, most))
        return found

    def _book_of(self, raw: bytes, campaign: bytes | str | None) -> tuple[Campaign, KeyBook]:
        """Return a verified key book and its campaign, which is searched among the accepted ones unless named."""
        from protocol.masked.keys import read_key_book

        if campaign is not None:
            named = self.campaign(campaign)
            return named, read_key_book(raw, named)
        problem = DocumentError("unrecognized_campaign", "this node has accepted no masked campaign; enrol in it first")
        for each in self.campaigns():
            if each.masked is not None:
                try:
                    return each, read_key_book(raw, each)
                except DocumentError as error:
                    # "malformed": the book is of another dealer. The reason for a book of this dealer tells more.
                    if problem.reason in ("malformed", "unrecognized_campaign"):
                        problem = error
        raise problem

    @logged("check_records")
    def check_records(
        self,
        campaign: bytes | str,
        records: Iterable[Mapping[str, object]],
        label: object = FROM_RECORD,
        progress: Callable[[int], None] | None = None,
    ) -> Unread:
        """Read records as :meth:`summarise` does, and return counts of what a summary could not use. Nothing is spent.

        A summary is made once per period: a wrong file costs the period. The counts are exact and for the owner alone.
        More records than the campaign's ``max_records`` make useless sums, since the node cuts them off. The arguments
        and errors are those of :meth:`summarise`.
        """
        found = self.campaign(campaign) if isinstance(campaign, str) else self._reporting.campaign(campaign)
        sums = ExactSums(found.schema, released_vectors(found))
        sums.add_all(records, label, progress)
        return sums.unread()

    @logged("exchange")
    def exchange(
        self,
        campaign: bytes | str,
        own: str | os.PathLike[str],
        peers: Iterable[str | os.PathLike[str]],
        nodes: bytes | None = None,
    ) -> Exchanged:
        """Unite the summaries of peers with this node's file of summaries, without an aggregator.

        The node's own summaries that were not acknowledged are added too. Every summary is verified as an aggregator
        does. Nodes that exchange in any order end with equal files. The records and the ledger are not touched.

        Args:
            campaign: as for :meth:`summarise`.
            own: this node's file of summaries; it is made if it does not exist.
            peers: files of summaries, or folders of which all files ``*.hsn`` are read.
            nodes: the signed list of nodes (``.hsl``). It is stored, and no older list is accepted later. None uses the
                list that was stored last.

        Raises:
            InputError: ``campaign_unknown``; ``campaign_masked``: only the dealer and the aggregator together can read
                encrypted sums; ``nodes_unknown``: no list was accepted yet; and as
                :func:`edge_sdk.node.exchanging.exchange`.
            DocumentError: the list is refused: ``bad_signature``, ``rollback``, ``equivocation``, ``expired``,
                ``not_yet_valid``, ``other_name``: the campaign names another list; ``wrong_role``, ``invalid_nodes``,
                ``malformed``, ``unknown_crit``, ``unsupported_version``.
        """
        from edge_sdk.node.exchanging import exchange

        found = self.campaign(campaign)
        check_in_the_clear(found)
        listed = terms_of(found).list_name
        accepted = self._acceptance.nodes(listed) if nodes is None else self._acceptance.accept_nodes(nodes, listed)
        paths = [os.fspath(peer) for peer in peers]
        mine = b"".join(self._reporting.spool.reports().get(found.id, ()))
        return exchange(found, accepted, self._acceptance.present(), os.fspath(own), paths, mine)


def _add_within_unit(
    sums: ExactSums,
    campaign: Campaign,
    records: Iterable[Mapping[str, object]],
    label: object,
    progress: Callable[[int], None] | None,
) -> int:
    """Add all records to ``sums``, or at most ``max_records`` if a party is protected. Return how many are left out."""
    if campaign.masked is None or campaign.masked.unit != PARTY:
        sums.add_all(records, label, progress)
        return 0
    iterator = iter(records)
    sums.add_all(islice(iterator, terms_of(campaign).max_records), label, progress)
    return sum(1 for _ in iterator)
