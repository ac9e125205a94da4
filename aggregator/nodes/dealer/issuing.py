"""What a dealer gives out: key books for a campaign and its newer node lists, and one release per period.

All parties' keys are derived from the dealer's one secret, so the journal holds no key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from hashlib import sha256, shake_256
from typing import NamedTuple

from aggregator.common.extras import missing_extra
from aggregator.nodes.campaigns.dealer_file import DealerPublic
from aggregator.nodes.campaigns.numbering import renumbered
from aggregator.nodes.dealer.journal import SCHEMA, BookRow, CampaignRow, Journal, PartyRow, ReleaseRow
from aggregator.publishing.signatures import signed_campaign, signed_list
from protocol import canonical
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import KEYID_BYTES, SigningKey, read_envelope
from protocol.errors import DocumentError, InputError, PolicyError
from protocol.masked.cipher import MODULUS_BITS, SECRET_BYTES, release_elements
from protocol.masked.costs import ciphertexts_of, least_parties, masked_terms_of
from protocol.masked.keys import ROLE, PartyKey, build_key_book, seal_key
from protocol.masked.release import Request, build_release
from protocol.nodes.summary import NodeList

_TAG = "hearsay dealer key 1"
_EXPONENT = 65_537


def party_secret(seed: bytes, campaign: bytes, node: bytes, serial: int) -> int:
    """Return the secret key of a party: SHAKE-256(canonical [tag, seed, campaign, node, serial]), 528 bytes.

    For whoever lacks the 32 secret bytes of ``seed`` the number is as good as uniform on [0, 2^4224).
    """
    stream = shake_256(canonical.pack([_TAG, seed, campaign, node, serial]))
    return int.from_bytes(stream.digest(SECRET_BYTES), "big")


def new_modulus() -> int:
    """Return a new modulus N = pq of exactly 2048 bits, where p and q are random primes of 1024 bits.

    ``cryptography`` makes an RSA key of which only N is read. Raises InputError ``missing_extra`` without that library.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError:
        rsa = None  # type: ignore[assignment]
    if rsa is None:
        raise missing_extra("a dealer's modulus needs the library cryptography", "masked")
    made = rsa.generate_private_key(_EXPONENT, MODULUS_BITS)
    return made.public_key().public_numbers().n


_KEPT_SERIALS = 2**24
"""Number of unused serial numbers that must follow the first one after an adoption, and precede the largest u32."""


class Documents(NamedTuple):
    """A verified campaign with its signed file (``document``), and a list of nodes with its payload's SHA-256."""

    campaign: Campaign
    document: bytes
    listed: NodeList
    digest: bytes


class IssuedBook(NamedTuple):
    """A signed key book that was made.

    ``raw`` is its file, ``parties`` the number of parties. ``joined`` are ids of the nodes that the list before did not
    have, ``left`` of those that the new list does not have, ``changed`` of all other nodes that have a new key.
    """

    raw: bytes
    campaign: Campaign
    version: int
    parties: int
    joined: tuple[bytes, ...] = ()
    left: tuple[bytes, ...] = ()
    changed: tuple[bytes, ...] = ()


def check_documents(dealer: DealerPublic, campaign: bytes, listed: bytes, trusted: bytes, now: int | None) -> Documents:
    """Verify the signed campaign and list that a book is made from, by the campaign keys of a trust root.

    The campaign must name ``dealer``, and not have expired at ``now`` (None: not checked). Raises the errors of
    :meth:`aggregator.nodes.dealer.dealer.Dealer.setup`.
    """
    found = signed_campaign(trusted, campaign)
    terms = masked_terms_of(found)
    if (terms.dealer, terms.modulus) != (dealer.key, dealer.modulus):
        raise InputError("wrong_key", "the campaign names another dealer, or another modulus than this dealer's")
    if now is not None and now >= found.header.expires:
        raise DocumentError("expired", "the campaign is over; no node will answer it")
    nodes = signed_list(trusted, listed)
    assert found.nodes is not None
    if nodes.header.name != found.nodes.list_name:
        raise DocumentError("other_name", "the campaign names another list of nodes than this one")
    if len(nodes.nodes) < 2:
        raise InputError("parties_too_few", "the list has one node, and the sum of one party is its own numbers")
    if len(nodes.nodes) > terms.most_parties:
        raise InputError(
            "parties_too_many",
            f"the list has {len(nodes.nodes)} nodes, and the campaign allows {terms.most_parties}; more could overflow "
            "a sum",
        )
    return Documents(found, campaign, nodes, sha256(read_envelope(listed, "nodes").payload).digest())


def first_book(journal: Journal, signer: SigningKey, documents: Documents, now: int) -> IssuedBook:
    """Make the first key book of a campaign. The caller must have opened a transaction. ``now``: seconds since 1970."""
    # A copy that was adopted may be older than an earlier setup of this campaign, and than releases that followed it.
    adopted = journal.keeper().adopted_at
    first_period = documents.campaign.period_at(adopted) + 1 if adopted else 0
    serial = serial_after_adoption(journal, documents.campaign.id) if adopted else 1
    row = CampaignRow(documents.campaign.id, documents.document, 0, 0, b"", serial, 0, first_period)
    return _issue(journal, signer, documents, row, {}, now)


def serial_after_adoption(journal: Journal, campaign: bytes) -> int:
    """Return the next serial number of a campaign in an adopted folder. The caller must have opened a transaction.

    If the other copy gave a party a key of the same serial number and another u, a set could be released with less
    noise than its book says. So the number is random among u32: copies with n parties share one with a chance of at
    most n / 2^31.
    """
    while True:
        first = _KEPT_SERIALS + secrets.randbelow(2**32 - 2 * _KEPT_SERIALS)
        if not journal.has_serials(campaign, first, first + _KEPT_SERIALS):
            return first


def next_book(journal: Journal, signer: SigningKey, documents: Documents, row: CampaignRow, now: int) -> IssuedBook:
    """Make the key book for a newer node list; for the list of the present book return that book.

    The caller must have opened a transaction. ``row`` is the campaign's row in the journal. Raises DocumentError
    ``rollback`` or ``equivocation`` as :meth:`aggregator.nodes.dealer.dealer.Dealer.rekey`.
    """
    version = documents.listed.header.version
    if version < row.list_version:
        raise DocumentError(
            "rollback", f"the list is version {version}, and the present book was made from {row.list_version}"
        )
    if version > row.list_version:
        before = {party.node: party for party in _parties(journal, row)}
        return _issue(journal, signer, documents, row, before, now)
    if documents.digest != row.list_digest:
        raise DocumentError("equivocation", f"the present book was made from another list of version {version}")
    raw = signed_book(journal, signer, row)
    return IssuedBook(raw, documents.campaign, row.version, len(documents.listed.nodes))


def _issue(
    journal: Journal,
    signer: SigningKey,
    documents: Documents,
    row: CampaignRow,
    before: Mapping[bytes, PartyRow],
    now: int,
) -> IssuedBook:
    """Write the next version of a campaign's key book. ``before``: node id → the party's row in the version before."""
    nodes = documents.listed.nodes
    numbers = renumbered({node: party.u for node, party in before.items()}, nodes)
    version, serial = row.version + 1, row.next_serial
    parties = {}
    for node, u in sorted(numbers.items()):
        known = before.get(node)
        if known is not None and (known.u, known.public) == (u, nodes[node]):
            parties[node] = known
            continue
        secret = party_secret(signer.seed, row.campaign, node, serial)
        box = seal_key(nodes[node], row.campaign, node, serial, u, secret)
        parties[node] = PartyRow(row.campaign, serial, node, nodes[node], u, version, None, box)
        serial += 1
    for node, party in before.items():
        if parties.get(node) != party:
            journal.put("parties", party._replace(last=row.version, box=b""))
    fresh = {node for node, party in parties.items() if before.get(node) != party}
    for node in sorted(fresh):
        journal.put("parties", parties[node])
    header = documents.listed.header
    raw, digest = _build(documents.campaign, signer, version, header.version, parties.values())
    journal.put("books", BookRow(row.campaign, version, header.version, len(parties), digest, now))
    journal.put(
        "campaigns",
        row._replace(version=version, list_version=header.version, list_digest=documents.digest, next_serial=serial),
    )
    joined, left = nodes.keys() - before.keys(), before.keys() - nodes.keys()
    changed = (tuple(sorted(each)) for each in (joined, left, fresh & before.keys()))
    return IssuedBook(raw, documents.campaign, version, len(parties), *changed)


def signed_book(journal: Journal, signer: SigningKey, row: CampaignRow) -> bytes:
    """Return the newest key book, with the same bytes as when it was made, or raise ``dealer_damaged``."""
    parties = _parties(journal, row)
    raw, digest = _build(parsed_campaign(row), signer, row.version, row.list_version, parties)
    book = journal.book(row.campaign, row.version)
    if book is None or digest != book.digest:
        raise SCHEMA.damaged()
    return raw


def _parties(journal: Journal, row: CampaignRow) -> list[PartyRow]:
    book = journal.book(row.campaign, row.version)
    if book is None:
        raise SCHEMA.damaged()
    return journal.parties(book)


def _build(
    campaign: Campaign, signer: SigningKey, version: int, list_version: int, parties: Iterable[PartyRow]
) -> tuple[bytes, bytes]:
    """Return the bytes of a signed key book, and the SHA-256 of its payload."""
    keys = {party.node: PartyKey(party.serial, party.u, party.box) for party in parties}
    raw = build_key_book(campaign, signer, version, list_version, keys)
    return raw, sha256(read_envelope(raw, ROLE).payload).digest()


class ReleasedSum(NamedTuple):
    """The answer to a request for a sum.

    ``raw`` is the file of the release (``.hsd``). ``missing`` are ids of the parties that are in the request's version
    of the key book and not in the set. ``repeated`` says whether the same set was released before, with the same bytes.
    """

    raw: bytes
    campaign: Campaign
    request: Request
    missing: tuple[bytes, ...]
    repeated: bool


def parsed_campaign(row: CampaignRow) -> Campaign:
    """Return the campaign in a row of the journal. It was verified when its first keys were made."""
    return parse_campaign(read_envelope(row.document, "campaign").payload)


def campaign_row(journal: Journal, campaign: bytes) -> CampaignRow:
    """Return the journal's row of the campaign with this id, or raise InputError ``not_set_up``."""
    row = journal.campaign(campaign)
    if row is None:
        raise InputError("not_set_up", "this dealer has no keys for that campaign; hearsay masked setup makes them")
    return row


def release_set(journal: Journal, signer: SigningKey, asked: Request, at_least: int, now: int) -> ReleasedSum:
    """Release the sum of one set of parties, and of no other set of that period. The set is in the journal on return.

    The release is computed before it is recorded, so an error of the computation blocks no period. Arguments and
    errors: :meth:`aggregator.nodes.dealer.dealer.Dealer.release`.
    """
    with journal.snapshot():
        row = campaign_row(journal, asked.campaign)
        campaign = parsed_campaign(row)
        serials = _serials(journal, row, asked)
        least = max(least_parties(masked_terms_of(campaign), len(serials)), at_least)
        if len(asked.parties) < least:
            raise InputError(
                "parties_too_few",
                f"the set has {len(asked.parties)} of {len(serials)} parties, and {least} are needed; nothing was "
                "released",
            )
        _was_released(journal, campaign, row, asked, now)
    secret = sum(party_secret(signer.seed, campaign.id, node, serials[node]) for node in asked.parties)
    modulus = masked_terms_of(campaign).modulus
    elements = release_elements(secret, campaign.id, asked.period, ciphertexts_of(campaign), modulus)
    raw = build_release(campaign, signer, asked, elements)
    with journal.transaction():
        row = campaign_row(journal, asked.campaign)
        repeated = _was_released(journal, campaign, row, asked, now)
        if not repeated:
            parties = b"".join(asked.parties)
            journal.add_release(row, ReleaseRow(row.campaign, asked.period, asked.version, parties, now))
    missing = tuple(sorted(serials.keys() - set(asked.parties)))
    return ReleasedSum(raw, campaign, asked, missing, repeated)


def _serials(journal: Journal, row: CampaignRow, asked: Request) -> dict[bytes, int]:
    """Return node id → serial number of its key in the key book of a request. Refuse parties that are not in it."""
    book = journal.book(row.campaign, asked.version)
    if book is None:
        raise InputError("book_unknown", f"the campaign has no key book {asked.version}; it has 1 to {row.version}")
    serials = {party.node: party.serial for party in journal.parties(book)}
    for node in asked.parties:
        if node not in serials:
            raise InputError("party_unknown", f"{node.hex()} is no party of key book {asked.version}")
    return serials


def _was_released(journal: Journal, campaign: Campaign, row: CampaignRow, asked: Request, now: int) -> bool:
    """Return whether the requested set was released before. Refuse another set, and a period that can have none."""
    before = journal.release(row.campaign, asked.period)
    if before is not None:
        if (before.version, before.parties) == (asked.version, b"".join(asked.parties)):
            return True
        raise PolicyError(
            "set_released",
            f"for period {asked.period} a set of {len(before.parties) // KEYID_BYTES} parties of key book "
            f"{before.version} was released; two sums of one period would tell the numbers of single parties",
        )
    length, header = campaign.time_precision, campaign.header
    if not header.not_before // length <= asked.period < -(-header.expires // length):
        raise PolicyError("period_refused", f"period {asked.period} is not one of the campaign's")
    if asked.period * length > now:
        raise PolicyError("period_refused", f"period {asked.period} has not begun, by this machine's clock")
    if asked.period < row.first_period:
        raise PolicyError(
            "period_refused",
            f"period {asked.period} began before this copy of the dealer was adopted, and the other copy may have "
            "released a set for it",
        )
    return False
