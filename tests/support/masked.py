"""Masked campaigns, key books, messages and releases, made in memory for tests.

The modulus is the product of two primes that are written here, so nobody may use it for anything but tests.
"""

from hashlib import sha256

from protocol.documents.campaign import GAUSSIAN, parse_campaign
from protocol.documents.envelope import keyid
from protocol.documents.masked_terms import DIVIDED, RECORD, MaskedTerms
from protocol.masked.cipher import SECRET_BITS
from protocol.masked.costs import ciphertexts_of
from protocol.masked.keys import PartyKey, build_key_book, read_key_book, seal_key
from protocol.masked.message import build_message
from protocol.nodes.terms import NodeTerms
from support.nodes import NODE_KEYS, PERIOD, node_payload
from support.publisher import Publisher, key

P = int(
    "ded8d3e6d7bbb122ce8c02d6ae8a174f325d75a77f62ceb7b4f13fe8d59f3e6f58209f35733f04cdde203c88d70c525f5f67"
    "1187b289f7132ade53b71adb1fcb66bfd70bdcbb22ff7e228f3cfdb877585457f8ac85a5542b75f72846540143b0cf2485e1"
    "3be938c26abfa86976678e8ce29072030b8a20847c906ac46d46d27d",
    16,
)
Q = int(
    "c5facd9d08043479d771b94eb66b3ec6a750d2d040238246ee88773fb687af50acfccbf69966b6dfc60bd862c027d7b0e86a"
    "7f798f98497b7c6bad74647305e0ad2bbb64e4abc795cafeb109b7a89e6c7cc27609ab3a123840d8dfc13b523f200163db7a"
    "448b56e538ff196ad36f2456de8fb42c7b4ba0a4ccebeda747f93b53",
    16,
)
"""First primes from SHA-256(``hearsay test prime p 0``) ‖ SHA-256(``… 1``) ‖ … (of ``q``) with the two top bits set."""
MODULUS = P * Q
DEALER = key(90)
NODES = NodeTerms("wards", 1000, 1_000_000)
TERMS = MaskedTerms(
    dealer=DEALER.public,
    modulus=MODULUS,
    noise=DIVIDED,
    delta_pico=0,
    honest_micro=1_000_000,
    colluding_micro=0,
    most_parties=100,
    unit=RECORD,
    slot_bits=40,
)


def masked_payload(publisher=None, family=GAUSSIAN, *, masked=TERMS, **options):
    """The payload of a masked campaign; options are those of :func:`support.nodes.node_payload`."""
    options = {"terms": NODES, **options}
    return node_payload(publisher or Publisher(), family, masked=masked, **options)


def masked_campaign(family=GAUSSIAN, publisher=None, *, masked=TERMS, **options):
    """A parsed masked campaign on the publisher's schema."""
    return parse_campaign(masked_payload(publisher, family, masked=masked, **options))


def secret_of(number):
    """A fixed secret of 4224 bits for the party with this number."""
    raw = b"".join(sha256(b"hearsay test secret %d %d" % (number, block)).digest() for block in range(17))
    return int.from_bytes(raw, "big") >> 8 * len(raw) - SECRET_BITS


def fixed_entropy(number):
    """Bytes that depend on the number alone, in place of the system's randomness."""
    return lambda count: sha256(b"hearsay test entropy %d" % number).digest()[:count]


def book_of(campaign, keys=tuple(NODE_KEYS), version=1, dealer=DEALER):
    """A signed key book with serial numbers 1, 2, … and u = n for all parties. Equal arguments give equal bytes."""
    parties = {
        keyid(one.public): PartyKey(
            serial,
            len(keys),
            seal_key(
                one.public, campaign.id, keyid(one.public), serial, len(keys), secret_of(serial), fixed_entropy(serial)
            ),
        )
        for serial, one in enumerate(keys, 1)
    }
    return build_key_book(campaign, dealer, version, 1, parties)


def book(campaign, **options):
    """The parsed key book of :func:`book_of`."""
    return read_key_book(book_of(campaign, **options), campaign)


def any_ciphertexts(campaign, number=1):
    """So many numbers of the group as a message holds; they encrypt nothing that anybody knows."""
    return [pow(3 + number, 65_537 + place, MODULUS**2) for place in range(ciphertexts_of(campaign))]


def message_of(campaign, node=0, number=1, period=PERIOD, serial=None):
    """The signed message of one of ``NODE_KEYS``; ``number`` changes its ciphertexts."""
    serial = node + 1 if serial is None else serial
    return build_message(campaign, NODE_KEYS[node], period, serial, any_ciphertexts(campaign, number))
