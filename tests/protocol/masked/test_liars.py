"""One role lies, the others follow the rules: what is refused, what is noticed, and what is not.

A whole campaign at its real size: sealed keys of a book, signed messages, a release. Tests named *not noticed* state
the limits that docs/math.md, section 6, names.
"""

import pytest
from support.failures import failure
from support.masked import DEALER, MODULUS, book, masked_campaign, secret_of
from support.nodes import NODE_KEYS, PERIOD
from support.publisher import NOW, Publisher

from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import keyid
from protocol.masked.cipher import Unmasking, mask_all, release_elements
from protocol.masked.costs import ciphertexts_of, masked_terms_of
from protocol.masked.fields import Slots
from protocol.masked.keys import own_key
from protocol.masked.message import build_message, judge_message
from protocol.masked.release import Request, build_release, read_release
from protocol.nodes.summary import build_node_list, parse_node_list
from protocol.nodes.terms import released_vectors

CAMPAIGN = masked_campaign(DISCRETE)
SLOTS = Slots(masked_terms_of(CAMPAIGN).slot_bits)
COUNT = sum(subject.size for subject in released_vectors(CAMPAIGN))
KEYS = NODE_KEYS[:3]
IDS = [keyid(one.public) for one in KEYS]
BOOK = book(CAMPAIGN, keys=tuple(KEYS))
LISTED = parse_node_list(build_node_list(Publisher().header("wards", 1), [one.public for one in KEYS]))
NUMBERS = [[100 * node + place for place in range(COUNT)] for node in range(3)]
SQUARE = MODULUS**2


SENT = [
    mask_all(SLOTS.pack(NUMBERS[node]), own_key(BOOK, KEYS[node]).secret, CAMPAIGN.id, PERIOD, MODULUS)
    for node in range(3)
]


def message(node, values):
    """A message of a party, who chooses what it signs."""
    return build_message(CAMPAIGN, KEYS[node], PERIOD, BOOK.parties[IDS[node]].serial, values)


def judged(raw):
    return judge_message(raw, CAMPAIGN, LISTED, BOOK, NOW)


def released(change=1):
    """A dealer's release for all; ``change`` is multiplied to each element by a dealer who lies."""
    secrets = sum(own_key(BOOK, each).secret for each in KEYS)
    elements = release_elements(secrets, CAMPAIGN.id, PERIOD, ciphertexts_of(CAMPAIGN), MODULUS)
    request = Request(CAMPAIGN.id, PERIOD, BOOK.version, tuple(sorted(IDS)))
    return build_release(CAMPAIGN, DEALER, request, [element * change % SQUARE for element in elements])


RELEASE = released()


def opened(raws, release=RELEASE):
    """What an honest aggregator does: judge every message, open the release, decrypt."""
    unmasking = Unmasking(MODULUS, ciphertexts_of(CAMPAIGN))
    for raw in raws:
        unmasking.add(judged(raw).ciphertexts)
    return SLOTS.unpack(unmasking.opened(read_release(release, CAMPAIGN).elements), COUNT)


def noticed(raws, release=RELEASE):
    error = failure(opened, raws, release)
    return error is not None and error.reason == "mask_mismatch"


HONEST = [message(node, SENT[node]) for node in range(3)]
TOTALS = [sum(column) for column in zip(*NUMBERS, strict=True)]


def test_with_honest_roles_the_totals_are_opened():
    assert own_key(BOOK, KEYS[1]).secret == secret_of(2)
    assert opened(HONEST) == TOTALS


# A party lies.


def test_a_party_that_cancels_another_s_ciphertext_is_noticed():
    """The inverse of another party's ciphertext would take that party out of the product."""
    cancelled = [one * pow(other, -1, SQUARE) % SQUARE for one, other in zip(SENT[0], SENT[1], strict=True)]
    assert noticed([message(0, cancelled), *HONEST[1:]])


@pytest.mark.parametrize("factor", [SQUARE - 1, MODULUS - 1, MODULUS + 2, pow(3, MODULUS, SQUARE)])
def test_a_party_that_multiplies_by_elements_of_small_order_or_others_is_noticed(factor):
    """−1 has order 2, N − 1 is −1 modulo N; an N-th power is what masks are made of."""
    assert noticed([message(0, [one * factor % SQUARE for one in SENT[0]]), *HONEST[1:]])


def test_not_noticed_a_party_that_lies_about_its_own_numbers():
    """Data pollution. The largest lie shifts a total by any amount; the public range of totals bounds it."""
    shifted = [one * (1 + 500 * MODULUS) % SQUARE for one in SENT[0]]
    assert opened([message(0, shifted), *HONEST[1:]])[0] == TOTALS[0] + 500


# The dealer lies, or somebody in its name.


def test_not_noticed_a_dealer_that_shifts_totals():
    """The dealer is trusted for the totals, too: (1+N)^k in a release adds k to them."""
    assert opened(HONEST, released(1 + 500 * MODULUS))[0] == TOTALS[0] + 500


def test_not_noticed_a_dealer_with_the_ciphertexts_reads_every_party():
    """Why the dealer's machine must never get messages."""
    for node in range(3):
        secret = own_key(BOOK, KEYS[node]).secret
        alone = Unmasking(MODULUS, ciphertexts_of(CAMPAIGN))
        alone.add(SENT[node])
        elements = release_elements(secret, CAMPAIGN.id, PERIOD, ciphertexts_of(CAMPAIGN), MODULUS)
        assert SLOTS.unpack(alone.opened(elements), COUNT) == NUMBERS[node]


def test_not_noticed_a_thief_of_a_node_key_reads_that_node_s_earlier_messages():
    """The key book is public and opens with the node's signing key: there is no forward secrecy."""
    stolen = KEYS[2]
    secret = own_key(BOOK, stolen).secret
    kept = judged(HONEST[2]).ciphertexts
    alone = Unmasking(MODULUS, len(kept))
    alone.add(kept)
    elements = release_elements(secret, CAMPAIGN.id, PERIOD, len(kept), MODULUS)
    assert SLOTS.unpack(alone.opened(elements), COUNT) == NUMBERS[2]
