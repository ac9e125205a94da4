"""How a dealer releases the sum of one set of parties of a period, and which sets it refuses."""

from __future__ import annotations

from typing import NamedTuple

from aggregator.nodes.dealer.journal import Journal
from aggregator.nodes.dealer.rows import CampaignRow, ReleaseRow
from aggregator.nodes.dealer.secret_keys import sum_of_secrets
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import KEYID_BYTES, SigningKey, read_envelope
from protocol.errors import InputError, PolicyError
from protocol.masked.cipher import release_elements
from protocol.masked.release import Request, build_release
from protocol.masked.terms import ciphertexts_of, least_parties, masked_terms_of


class Released(NamedTuple):
    """The answer to a request.

    Attributes:
        raw: the bytes of the release (``.hsd``).
        campaign: the campaign.
        request: what was asked: period, version of the key book, parties.
        missing: ids of the parties of that version that are not in the set.
        repeated: whether the same set was released before; the bytes are the same then.
    """

    raw: bytes
    campaign: Campaign
    request: Request
    missing: tuple[bytes, ...]
    repeated: bool


def parsed_campaign(row: CampaignRow) -> Campaign:
    """The campaign of a row. It was verified when it was set up."""
    return parse_campaign(read_envelope(row.document, "campaign").payload)


def not_set_up() -> InputError:
    """The error ``not_set_up``: the dealer has made no keys for a campaign."""
    return InputError("not_set_up", "this dealer has no keys for that campaign; hearsay masked setup makes them")


def release_set(journal: Journal, signer: SigningKey, asked: Request, at_least: int, now: int) -> Released:
    """Release one set of parties, and no other set of that period. The set is in the journal when this returns.

    The release is computed first, so that an error of the computation locks no period.

    Args:
        journal: the dealer's journal.
        signer: the dealer's key pair.
        asked: the request.
        at_least: fewest parties that the dealer's keeper wants in a set, above what the campaign demands.
        now: seconds since 1970.

    Raises:
        InputError, PolicyError: the reasons of :meth:`aggregator.nodes.dealer.dealer.Dealer.release`.
    """
    with journal.snapshot():
        row = _row(journal, asked)
        campaign = parsed_campaign(row)
        serials = _serials(journal, row, asked)
        _check_set(campaign, asked, serials, at_least)
        _check_period(journal, campaign, row, asked, now)
    raw = _signed_release(campaign, signer, asked, [(node, serials[node]) for node in asked.parties])
    with journal.transaction():
        row = _row(journal, asked)
        repeated = _check_period(journal, campaign, row, asked, now)
        if not repeated:
            journal.add_release(
                row, ReleaseRow(row.campaign, asked.period, asked.version, b"".join(asked.parties), now)
            )
    missing = tuple(sorted(serials.keys() - set(asked.parties)))
    return Released(raw, campaign, asked, missing, repeated)


def _row(journal: Journal, asked: Request) -> CampaignRow:
    """The campaign of a request in the journal.

    Raises:
        InputError: ``not_set_up``.
    """
    row = journal.campaign(asked.campaign)
    if row is None:
        raise not_set_up()
    return row


def _serials(journal: Journal, row: CampaignRow, asked: Request) -> dict[bytes, int]:
    """Node id → serial number of the keys of the book that a request names.

    Raises:
        InputError: ``book_unknown``.
    """
    book = journal.book(row.campaign, asked.version)
    if book is None:
        raise InputError("book_unknown", f"the campaign has no key book {asked.version}; it has 1 to {row.version}")
    return {party.node: party.serial for party in journal.parties(book)}


def _check_period(journal: Journal, campaign: Campaign, row: CampaignRow, asked: Request, now: int) -> bool:
    """Whether the same set was released before. Refuses another set, and periods in which none is released.

    Raises:
        PolicyError: ``set_released``, ``period_refused``.
    """
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


def _signed_release(campaign: Campaign, signer: SigningKey, asked: Request, keys: list[tuple[bytes, int]]) -> bytes:
    """The bytes of a release. They are made before the set is recorded, so that an error locks no period.

    ``keys`` are the node ids of the set with the serial numbers of their keys.
    """
    total = sum_of_secrets(signer.seed, campaign.id, keys)
    modulus = masked_terms_of(campaign).modulus
    elements = release_elements(total, campaign.id, asked.period, ciphertexts_of(campaign), modulus)
    return build_release(campaign, signer, asked, elements)


def _check_set(campaign: Campaign, asked: Request, serials: dict[bytes, int], at_least: int) -> None:
    """Refuse a set with strangers, or with too few parties.

    Raises:
        InputError: ``party_unknown``, ``parties_too_few``.
    """
    for node in asked.parties:
        if node not in serials:
            raise InputError("party_unknown", f"{node.hex()} is no party of key book {asked.version}")
    least = max(least_parties(masked_terms_of(campaign), len(serials)), at_least)
    if len(asked.parties) < least:
        raise InputError(
            "parties_too_few",
            f"the set has {len(asked.parties)} of {len(serials)} parties, and {least} are needed; nothing was released",
        )
