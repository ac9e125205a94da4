"""Signatures gathered one by one: a key counts once, whatever the order and the copies."""

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason
from support.publisher import CAMPAIGN_KEY, NOW, Publisher, key

from aggregator.publishing.signatures import (
    UNSIGNED,
    check_payload,
    draft,
    joined,
    signed,
    standing,
    successor,
    to_bytes,
)
from protocol import canonical
from protocol.documents import trust
from protocol.documents.envelope import PAYLOAD_TYPES, Envelope, keyid, read_envelope, seal
from protocol.documents.trust import Role

PAYLOAD = Publisher().campaign_payload()
TYPE = PAYLOAD_TYPES["campaign"]
KEYS = [key(number) for number in range(20, 37)]
ROLE = Role(frozenset(each.public for each in KEYS[:3]), 2)


def test_a_draft_without_signatures_is_an_envelope_that_holds_under_no_key():
    made = draft(TYPE, PAYLOAD)
    assert made.signatures == (UNSIGNED,)
    assert read_envelope(to_bytes(made, "campaign"), "campaign") == made
    assert standing(made, ROLE).signers == ()
    assert str(standing(made, ROLE)) == "0 of 2 needed signatures"
    assert signed(made, KEYS[0]) == read_envelope(seal(TYPE, PAYLOAD, KEYS[:1]), "campaign")


def test_a_key_signs_once_and_no_more_than_sixteen_sign():
    once = signed(draft(TYPE, PAYLOAD), KEYS[0])
    assert signed(once, KEYS[0]) is once
    assert not standing(once, ROLE).complete
    twice = once._replace(signatures=once.signatures * 2)
    assert len(standing(twice, ROLE).signers) == 1
    assert len(joined([once, twice, once], ROLE.keys).signatures) == 1
    assert standing(signed(once, KEYS[1]), ROLE).complete
    full = draft(TYPE, PAYLOAD, KEYS[:16])
    assert len(full.signatures) == 16
    assert signed(full, KEYS[3]) is full
    assert reason(signed, full, KEYS[16]) == "signatures_invalid"


def test_a_forged_signature_under_a_keys_id_is_replaced_and_hides_no_good_one():
    good = signed(draft(TYPE, PAYLOAD), KEYS[0])
    forged = Envelope(TYPE, PAYLOAD, ((keyid(KEYS[0].public), b"\1" * 64),))
    assert standing(forged, ROLE).signers == ()
    assert signed(forged, KEYS[0]) == good
    assert joined([good._replace(signatures=(*forged.signatures, *good.signatures))], ROLE.keys) == good


@examples(60)
@given(
    copies=st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_joined_copies_hold_what_any_of_them_held(copies, order):
    """Whatever is joined first: the same bytes; keys that do not count are left behind."""
    known = [each.public for each in KEYS[:4]]
    envelopes = [draft(TYPE, PAYLOAD, [KEYS[number] for number in members]) for members in copies]
    whole = joined(envelopes, known)
    held = {number for members in copies for number in members if number < 4}
    assert {hint for hint, _ in whole.signatures if hint != UNSIGNED[0]} == {keyid(KEYS[n].public) for n in held}
    order.shuffle(envelopes)
    assert joined(envelopes, known) == whole
    assert joined([joined(envelopes[:2], known), *envelopes[1:], whole], known) == whole


def test_a_payload_that_no_device_accepts_is_refused():
    publisher = Publisher()
    for changes, why in (
        ({"epsilon_micro": 999_999}, "epsilon_understated"),
        ({"answers": 2}, "invalid_campaign"),
        ({"crit": ["later"]}, "unknown_crit"),
        ({"spec": "2.0"}, "unsupported_version"),
        ({"expires": NOW}, "malformed"),
    ):
        assert reason(check_payload, read_envelope(publisher.campaign(changes), "campaign"), "campaign") == why
    root = canonical.unpack(read_envelope(publisher.root(), "root").payload)
    root["roles"]["model"]["threshold"] = 0
    hollow = Envelope(PAYLOAD_TYPES["root"], canonical.pack(root), (UNSIGNED,))
    assert reason(check_payload, hollow, "root") == "malformed"
    assert check_payload(read_envelope(publisher.model(), "model"), "model").name == "mushrooms"


def test_the_successor_is_the_next_version_signed_by_both():
    publisher = Publisher()
    first = trust.restore(publisher.root(), {}, 0).root
    assert successor(first, publisher.root(version=2)).header.version == 2
    assert reason(successor, first, publisher.root()) == "rollback"
    assert reason(successor, first, publisher.root(version=3)) == "rollback"
    stranger = publisher.sign("root", read_envelope(publisher.root(version=2), "root").payload, CAMPAIGN_KEY)
    assert reason(successor, first, stranger) == "bad_signature"
