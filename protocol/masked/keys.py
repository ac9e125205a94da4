"""The dealer's key book: every party's key of a masked campaign, sealed so that only the party can open it.

A party is a node of the campaign. The book is public, and each version of it holds all parties. Source:
docs/formats.md, section 6.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from nacl import bindings, exceptions

from protocol import SPEC, canonical
from protocol.documents.envelope import KEYID_BYTES, PAYLOAD_TYPES, keyid, seal
from protocol.documents.masked_terms import MAX_PARTIES
from protocol.documents.payload import read_field, read_integer
from protocol.errors import DocumentError, InputError
from protocol.masked.cipher import SECRET_BITS, SECRET_BYTES
from protocol.masked.costs import masked_terms_of
from protocol.masked.fields import DIGEST_BYTES, WORD, read_bytes, read_map, read_of_dealer
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from protocol.documents.campaign import Campaign
    from protocol.documents.envelope import SigningKey

ROLE = "keys"
KEYS_PAYLOAD_TYPE = PAYLOAD_TYPES[ROLE]
_TAG = "hearsay masked key 1"
_SEAL_BYTES = 48
"""Length by which a sealed box is longer than its content: an X25519 key and an authenticator."""
_SEED_BYTES = 32
_KEYS = {"campaign", "list", "parties", "spec", "version"}
_VALUES_PER_PARTY = 8
"""Limit of msgpack values per party. A node id and its entry are 5 values. The limit is higher, so that a wrong entry
is refused with a reason of its own."""
_VALUES_AROUND = 1 + 2 * len(_KEYS)
_SECRET_ITEMS = 7
_SMALLEST_BOX = _SEAL_BYTES + 1 + (1 + len(_TAG)) + (2 + DIGEST_BYTES) + (2 + KEYID_BYTES) + (3 + SECRET_BYTES)
"""Length of a box without its two numbers: the box, and array, tag, campaign, node and secret, each with its head."""


class PartyKey(NamedTuple):
    """The entry of a party in a key book.

    Attributes:
        serial: serial number of the key, which no other key of the campaign has.
        u: a number that stands for the number n of parties: n/2 < u ≤ n. It determines the party's share of the noise.
        sealed: the key, in a box that only the party's node key opens.
    """

    serial: int
    u: int
    sealed: bytes


class KeyBook(NamedTuple):
    """A parsed key book of the campaign with this id. Later books have larger versions.

    Attributes:
        list_version: version of the list of nodes whose nodes are the parties.
        parties: node id of 8 bytes → the party's key.
        identity: SHA-256 of the payload.
    """

    campaign: bytes
    version: int
    list_version: int
    parties: Mapping[bytes, PartyKey]
    identity: bytes


class MaskedKey(NamedTuple):
    """An opened key of a party: serial and u of its :class:`PartyKey`, and a secret below 2^4224, never shown."""

    serial: int
    u: int
    secret: int

    def __repr__(self) -> str:
        return f"MaskedKey(serial={self.serial}, u={self.u})"


def seal_key(
    public: bytes,
    campaign_id: bytes,
    node: bytes,
    serial: int,
    u: int,
    secret: int,
    entropy: Callable[[int], bytes] = os.urandom,
) -> bytes:
    """Seal a party's key to its node key: libsodium's ``crypto_box_seal``. The dealer runs this.

    Args:
        public: the node's Ed25519 public key, 32 bytes. The box is sealed to the X25519 key that follows from it.
        campaign_id, node: 32 bytes, and key id of the node, 8 bytes.
        serial, u: as in the book (:class:`PartyKey`).
        secret: sk, 0 ≤ sk < 2^4224.
        entropy: returns as many random bytes as it is asked for, for the box's own key pair.

    Raises InputError ``key_invalid``: ``public`` is no Ed25519 key; ``masked_key_invalid``: ``secret`` is out of range.
    """
    if not 0 <= secret < 1 << SECRET_BITS:
        raise InputError("masked_key_invalid", f"a secret is not from 0 to below 2^{SECRET_BITS}")
    content = _content(campaign_id, node, serial, u, secret.to_bytes(SECRET_BYTES, "big"))
    try:
        receiver = bindings.crypto_sign_ed25519_pk_to_curve25519(public)
    except (exceptions.CryptoError, TypeError):
        receiver = b""
    if not receiver:
        raise InputError("key_invalid", f"nothing can be sealed to the key of node {node.hex()}; ask its owner")
    sender, private = bindings.crypto_box_seed_keypair(entropy(_SEED_BYTES))
    nonce = blake2b(sender + receiver, digest_size=bindings.crypto_box_NONCEBYTES).digest()
    return sender + bytes(bindings.crypto_box(content, nonce, receiver, private))


def _content(campaign_id: bytes, node: bytes, serial: int, u: int, secret: bytes) -> bytes:
    return canonical.pack([_TAG, campaign_id, node, serial, u, secret])


def open_key(sealed: bytes, key: SigningKey, campaign_id: bytes) -> MaskedKey:
    """Open the sealed key of the node with this Ed25519 key pair. :func:`own_key` takes it from a key book.

    Raises DocumentError ``invalid_keys``: the box can not be opened with this key, or is for another campaign or node.
    """
    content = b""
    try:
        public = bindings.crypto_sign_ed25519_pk_to_curve25519(key.public)
        private = bindings.crypto_sign_ed25519_sk_to_curve25519(key.secret)
        content = bindings.crypto_box_seal_open(sealed, public, private)
    except (exceptions.CryptoError, TypeError):
        pass
    if not content:
        raise DocumentError("invalid_keys", "a key of the book can not be opened by its own node; ask the dealer")
    parsed = canonical.unpack(content, _SECRET_ITEMS)
    if not isinstance(parsed, list) or len(parsed) != _SECRET_ITEMS - 1 or parsed[0] != _TAG:
        raise DocumentError("invalid_keys", "a sealed box of the book holds no key; ask the dealer")
    body: dict[str, Any] = dict(zip(("campaign", "node", "serial", "u", "secret"), parsed[1:], strict=True))
    if body["campaign"] != campaign_id or body["node"] != keyid(key.public):
        raise DocumentError("invalid_keys", "a sealed key of the book is for another campaign or node; ask the dealer")
    return MaskedKey(
        serial=read_integer(body, "serial", 0, WORD - 1, "invalid_keys"),
        u=read_integer(body, "u", 1, MAX_PARTIES, "invalid_keys"),
        secret=int.from_bytes(read_bytes(body, "secret", SECRET_BYTES), "big"),
    )


def own_key(book: KeyBook, key: SigningKey) -> MaskedKey:
    """Return this node's key from a key book, opened and compared with the public entry.

    Raises DocumentError ``node_without_key``; ``invalid_keys``: the box can not be opened, or contradicts the book.
    """
    party = book.parties.get(keyid(key.public))
    if party is None:
        raise DocumentError("node_without_key", "the key book has no key for this node; ask the dealer for a newer one")
    found = open_key(party.sealed, key, book.campaign)
    if (found.serial, found.u) != (party.serial, party.u):
        raise DocumentError("invalid_keys", "the sealed key has another serial number or u than the book states")
    return found


def build_key_book(
    campaign: Campaign, dealer: SigningKey, version: int, list_version: int, parties: Mapping[bytes, PartyKey]
) -> bytes:
    """Return the signed envelope of a key book. The dealer runs this.

    Args:
        dealer: the dealer's key pair, whose public key the campaign names.
        version, list_version, parties: as in :class:`KeyBook`.

    Raises DocumentError ``invalid_keys``, ``malformed``: a value that :func:`read_key_book` refuses; InputError
    ``campaign_not_masked``; ``wrong_key``: the campaign names another dealer.
    """
    if masked_terms_of(campaign).dealer != dealer.public:
        raise InputError("wrong_key", "the campaign names another dealer")
    payload = canonical.pack(
        {
            "campaign": campaign.id,
            "list": list_version,
            "parties": {node.hex(): list(party) for node, party in parties.items()},
            "spec": SPEC,
            "version": version,
        }
    )
    _check_campaign(parse_key_book(payload), campaign)
    return seal(KEYS_PAYLOAD_TYPE, payload, [dealer])


def parse_key_book(payload: bytes) -> KeyBook:
    """Parse the payload of a key book. The signature is not verified, and no box is opened.

    Raises DocumentError ``malformed``, ``unsupported_version``; ``invalid_keys``: not 2 to 65536 parties, a node id
    that is none, a repeated serial number, a u outside n/2 < u ≤ n for n parties, or a box of another length.
    """
    # A payload of many tiny values is refused after few of them: a party takes no less than its box.
    most = _VALUES_AROUND + _VALUES_PER_PARTY * (len(payload) // _SMALLEST_BOX)
    body = read_map(payload, _KEYS, most, "key book")
    entries = read_field(body, "parties", dict)
    if not 2 <= len(entries) <= MAX_PARTIES:
        raise DocumentError("invalid_keys", f"a key book holds 2 to {MAX_PARTIES} parties")
    parties = {_node(name): _party(entry, len(entries)) for name, entry in entries.items()}
    if len({party.serial for party in parties.values()}) != len(parties):
        raise DocumentError("invalid_keys", "two keys of the book have one serial number")
    return KeyBook(
        campaign=read_bytes(body, "campaign", DIGEST_BYTES),
        version=read_integer(body, "version", 1, WORD - 1),
        list_version=read_integer(body, "list", 1, WORD - 1),
        parties=parties,
        identity=sha256(payload).digest(),
    )


def _node(name: str) -> bytes:
    if len(name) != 2 * KEYID_BYTES or not set(name) <= set("0123456789abcdef"):
        raise DocumentError("invalid_keys", "a node id of the key book is not 16 lower-case hexadecimal digits")
    return bytes.fromhex(name)


def _party(entry: object, parties: int) -> PartyKey:
    if not isinstance(entry, list) or len(entry) != len(PartyKey._fields):
        raise DocumentError("invalid_keys", "an entry of the key book is no array of serial number, u and box")
    body = dict(zip(PartyKey._fields, entry, strict=True))
    serial = read_integer(body, "serial", 0, WORD - 1, "invalid_keys")
    u = read_integer(body, "u", parties // 2 + 1, parties, "invalid_keys")
    sealed = read_field(body, "sealed", bytes, "invalid_keys")
    if len(sealed) != _sealed_bytes(serial, u):
        raise DocumentError("invalid_keys", "a box of the key book has another length than a sealed key")
    return PartyKey(serial, u, sealed)


def _sealed_bytes(serial: int, u: int) -> int:
    """Return the length of the sealed box of a key. It depends on the public numbers only."""
    return _SMALLEST_BOX + _width(serial) + _width(u)


def _width(number: int) -> int:
    """Return the number of bytes of ``number``, below 2^32, in canonical msgpack."""
    if number < 1 << 7:
        return 1
    return 2 if number < 1 << 8 else 3 if number < 1 << 16 else 5


def read_key_book(raw: bytes, campaign: Campaign) -> KeyBook:
    """Parse and verify a key book. The caller must check with :func:`check_successor` whether it may follow another.

    Raises DocumentError with the reasons of :func:`protocol.masked.fields.read_of_dealer` and :func:`parse_key_book`;
    ``unrecognized_campaign``; ``invalid_keys``: more parties than the campaign allows; InputError
    ``campaign_not_masked``.
    """
    book = parse_key_book(read_of_dealer(raw, ROLE, campaign))
    _check_campaign(book, campaign)
    return book


def _check_campaign(book: KeyBook, campaign: Campaign) -> None:
    if book.campaign != campaign.id:
        raise DocumentError("unrecognized_campaign", "the key book is of another campaign")
    most = masked_terms_of(campaign).most_parties
    if len(book.parties) > most:
        raise DocumentError("invalid_keys", f"the key book has more than {most} parties")


def check_successor(book: KeyBook, version: int, identity: bytes) -> None:
    """Refuse a book unless it is the newest book that the reader accepted before, or one of a higher version.

    ``version`` and ``identity`` are those of the newest book of the campaign that the reader accepted before.

    Raises DocumentError ``rollback``: the version is lower; ``equivocation``: another book of the same version.
    """
    if book.version < version:
        raise DocumentError("rollback", f"key book {book.version} is older than {version}, which was accepted before")
    if book.version == version and book.identity != identity:
        raise DocumentError("equivocation", f"another key book {version} was accepted before; ask the dealer")
