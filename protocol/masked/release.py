"""The aggregator's request for a sum, and the dealer's release, which decrypts the sum of exactly one set of parties.

Source: docs/formats.md, section 6; docs/decisions/masked-sums.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol import SPEC, canonical
from protocol.documents.envelope import PAYLOAD_TYPES, seal
from protocol.documents.masked_terms import MAX_PARTIES
from protocol.documents.payload import read_field, read_integer
from protocol.errors import DocumentError, InputError
from protocol.masked.costs import ciphertexts_of, masked_terms_of
from protocol.masked.fields import (
    DIGEST_BYTES,
    WORD,
    are_in_group,
    read_bytes,
    read_map,
    read_numbers,
    read_of_dealer,
    read_parties,
    write_numbers,
)
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from protocol.documents.campaign import Campaign
    from protocol.documents.envelope import SigningKey

ROLE = "release"
RELEASE_PAYLOAD_TYPE = PAYLOAD_TYPES[ROLE]
REQUEST_TAG = "hearsay masked request 1"
MAX_REQUEST_BYTES = 1 << 20
_REQUEST_ITEMS = 6
_KEYS = {"campaign", "elements", "parties", "period", "spec", "version"}
_MAX_ITEMS = 1 + 2 * len(_KEYS)


class Request(NamedTuple):
    """An aggregator's request to the dealer for the sum of these parties (nodes) in one period.

    ``campaign`` is an id of 32 bytes; ``version`` that of the key book by which the messages were judged; ``parties``
    are node ids of 8 bytes, sorted, each once.
    """

    campaign: bytes
    period: int
    version: int
    parties: tuple[bytes, ...]


class Release(NamedTuple):
    """The dealer's answer to a request: its fields, and what decrypts the sum of exactly the parties A in period t.

    Attributes:
        elements: for each ciphertext j the number H(t, j)^(−Σ keys of A) mod N² (:mod:`protocol.masked.cipher`).
        identity: SHA-256 of the payload.
    """

    campaign: bytes
    period: int
    version: int
    parties: tuple[bytes, ...]
    elements: tuple[int, ...]
    identity: bytes

    @property
    def request(self) -> Request:
        """The request that this release answers."""
        return Request(self.campaign, self.period, self.version, self.parties)


def build_request(campaign_id: bytes, period: int, version: int, parties: Iterable[bytes]) -> bytes:
    """Return the bytes of a request for parties in any order. The aggregator runs this, and carries it to the dealer.

    Raises:
        DocumentError: ``malformed``: a value that :func:`parse_request` refuses.
    """
    raw = canonical.pack([REQUEST_TAG, campaign_id, period, version, b"".join(sorted(set(parties)))])
    parse_request(raw)
    return raw


def parse_request(raw: bytes) -> Request:
    """Parse the bytes of a request. Nobody signs a request: the dealer decides what to release by its own rules.

    Raises:
        DocumentError: ``too_large``: above 1 MiB; ``malformed``.
    """
    if len(raw) > MAX_REQUEST_BYTES:
        raise DocumentError("too_large", f"a request has at most {MAX_REQUEST_BYTES} bytes")
    parsed = canonical.unpack(raw, _REQUEST_ITEMS)
    if not isinstance(parsed, list) or len(parsed) != _REQUEST_ITEMS - 1 or parsed[0] != REQUEST_TAG:
        raise DocumentError("malformed", "not a request for a masked sum")
    body = dict(zip(("campaign", "period", "version", "parties"), parsed[1:], strict=True))
    return Request(
        campaign=read_bytes(body, "campaign", DIGEST_BYTES),
        period=read_integer(body, "period", 0, WORD - 1),
        version=read_integer(body, "version", 1, WORD - 1),
        parties=read_parties(body["parties"], MAX_PARTIES),
    )


def build_release(campaign: Campaign, dealer: SigningKey, request: Request, elements: Sequence[int]) -> bytes:
    """Return the signed envelope of a release. The dealer runs this after it stored the set durably.

    ``dealer`` is the key pair whose public key the campaign names. The same arguments give the same bytes.

    Raises:
        DocumentError: the reasons of :func:`read_release`.
        InputError: ``campaign_not_masked``; ``wrong_key``: the key is not that of the campaign's dealer.
    """
    if masked_terms_of(campaign).dealer != dealer.public:
        raise InputError("wrong_key", "the campaign names another dealer")
    payload = canonical.pack(
        {
            "campaign": request.campaign,
            "elements": write_numbers(elements),
            "parties": b"".join(request.parties),
            "period": request.period,
            "spec": SPEC,
            "version": request.version,
        }
    )
    _check_release(parse_release(payload), campaign)
    return seal(RELEASE_PAYLOAD_TYPE, payload, [dealer])


def parse_release(payload: bytes) -> Release:
    """Parse the payload of a release. Signature, campaign and group are not checked.

    Raises:
        DocumentError: ``malformed``, ``unsupported_version``.
    """
    body = read_map(payload, _KEYS, _MAX_ITEMS, "release of a dealer")
    return Release(
        campaign=read_bytes(body, "campaign", DIGEST_BYTES),
        period=read_integer(body, "period", 0, WORD - 1),
        version=read_integer(body, "version", 1, WORD - 1),
        parties=read_parties(read_field(body, "parties", bytes), MAX_PARTIES),
        elements=read_numbers(body, "elements"),
        identity=sha256(payload).digest(),
    )


def read_release(raw: bytes, campaign: Campaign) -> Release:
    """Parse and verify a release. The caller must check with :func:`check_answers` whether it answers a request.

    Raises:
        DocumentError: the reasons of :func:`protocol.masked.fields.read_of_dealer`; ``unrecognized_campaign``;
            ``invalid_release``: more parties than the campaign allows, another number of elements, or one that is not
            below N² or shares a divisor with the modulus N.
        InputError: ``campaign_not_masked``.
    """
    release = parse_release(read_of_dealer(raw, ROLE, campaign))
    _check_release(release, campaign)
    return release


def _check_release(release: Release, campaign: Campaign) -> None:
    terms = masked_terms_of(campaign)
    if release.campaign != campaign.id:
        raise DocumentError("unrecognized_campaign", "the release is of another campaign")
    if len(release.parties) > terms.most_parties:
        raise DocumentError("invalid_release", f"the release is of more than {terms.most_parties} parties")
    count = ciphertexts_of(campaign)
    if len(release.elements) != count:
        raise DocumentError("invalid_release", f"the release holds {len(release.elements)} elements, not {count}")
    if not are_in_group(release.elements, terms.modulus):
        raise DocumentError("invalid_release", "an element is not below N², or shares a divisor with N")


def check_answers(release: Release, request: Request) -> None:
    """Refuse a release that is of another campaign, period, key book or set of parties than a request.

    Raises:
        DocumentError: ``release_mismatch``: the release can not decrypt that sum.
    """
    names = {"campaign": "campaign", "period": "period", "version": "version of the key book", "parties": "parties"}
    other = [name for field, name in names.items() if getattr(release, field) != getattr(request, field)]
    if other:
        raise DocumentError("release_mismatch", f"the release is for another {', '.join(other)} than was asked for")
