"""A signed file with changed bits or bytes is refused with a documented reason, and the state does not change."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import part
from support.failures import reason
from support.hostile import every_bit
from support.publisher import CAMPAIGN_KEY, NOW, Publisher
from support.watched import peak

from protocol import canonical
from protocol.documents import campaign, model, trust
from protocol.documents.envelope import (
    PAYLOAD_TYPES,
    SIZE_LIMITS,
    SigningKey,
    read_envelope,
    role_of,
    seal,
    write_envelope,
)
from protocol.documents.provisioning import Provisioning, build_provisioning, parse_provisioning
from protocol.errors import DocumentError, HearsayError

PUBLISHER = Publisher()
ROOT, NEXT_ROOT = PUBLISHER.root(), PUBLISHER.root(version=2)
REASONS = {"malformed", "unsupported_version", "wrong_role", "bad_signature"}
"""Possible reasons for a damaged file. The reason depends on the changed byte."""


def arrive(state, raw, role):
    """The steps of a device with an arriving file, up to the owner's policy."""
    if role == "root":
        return trust.install_roots(state, [raw], NOW)
    understood = {"campaign": campaign.UNDERSTOOD, "model": model.UNDERSTOOD}[role]
    return trust.verify(state, raw, role, NOW, understood).state


FILES = [("campaign", PUBLISHER.campaign()), ("model", PUBLISHER.model()), ("root", NEXT_ROOT)]


@pytest.mark.parametrize(("role", "raw"), FILES, ids=[role for role, _ in FILES])
def test_every_single_bit_matters(role, raw):
    state = trust.pin(ROOT, NOW)
    untouched = deepcopy(state)
    assert arrive(state, raw, role) != state
    found = {reason(arrive, state, changed, role) for changed in part(every_bit(raw))}
    assert found == REASONS
    assert state == untouched


@pytest.mark.parametrize(("role", "raw"), FILES, ids=[role for role, _ in FILES])
def test_every_truncation_and_extension_is_refused(role, raw):
    state = trust.pin(ROOT, NOW)
    untouched = deepcopy(state)
    assert {reason(arrive, state, raw[:length], role) for length in range(len(raw))} == {"malformed"}
    assert {reason(arrive, state, raw + bytes([last]), role) for last in range(256)} == {"malformed"}
    assert {reason(arrive, state, bytes([first]) + raw, role) for first in range(256)} == {"malformed"}
    assert state == untouched


def test_every_bit_of_the_first_root_matters():
    assert {reason(trust.pin, changed, NOW) for changed in part(every_bit(ROOT))} == REASONS
    assert {reason(trust.pin, ROOT[:length], NOW) for length in range(len(ROOT))} == {"malformed"}


@pytest.mark.parametrize("role", SIZE_LIMITS)
def test_a_file_above_its_limit_is_refused_unread(role):
    for raw in (bytes(SIZE_LIMITS[role] + 1), PUBLISHER.campaign() + bytes(SIZE_LIMITS[role])):
        assert reason(read_envelope, raw, role) == "too_large"
    assert reason(read_envelope, bytes(SIZE_LIMITS[role]), role) == "malformed"


def hostile(size):
    """Unsigned files of almost ``size`` bytes that try to cause more work or memory than their size."""
    head = b"\x94\xa4hsy1\xa0\xc4\x00"
    room = size - len(head) - 5
    yield "empty maps", head + b"\xdd" + room.to_bytes(4, "big") + b"\x80" * room
    yield "empty arrays", head + b"\xdd" + room.to_bytes(4, "big") + b"\x90" * room
    yield "deep arrays", b"\x91" * size
    yield "deep maps", b"\x81\xa0" * (size // 2)
    yield "array of 2^32", head + b"\xdd\xff\xff\xff\xff" + b"\x90" * room
    yield "map of 2^32", b"\xdf\xff\xff\xff\xff" + bytes(size - 5)
    yield "text of 2^32", b"\x94\xdb\xff\xff\xff\xff" + b"a" * (size - 6)
    yield "bytes of 2^32", b"\x94\xa4hsy1\xa0\xc6\xff\xff\xff\xff" + bytes(size - 12)
    yield "nested lengths", (b"\xdd" + (size // 5).to_bytes(4, "big")) * (size // 5)
    yield "integers", b"\xdd" + (size - 5).to_bytes(4, "big") + bytes(size - 5)


@pytest.mark.parametrize(
    ("name", "raw"), list(hostile(SIZE_LIMITS["model"])), ids=lambda each: each if isinstance(each, str) else ""
)
def test_an_unsigned_file_costs_little_memory(name, raw):
    assert len(raw) <= SIZE_LIMITS["model"]
    assert peak(lambda: reason(read_envelope, raw, "model")) < 100_000, name
    assert reason(read_envelope, raw, "model") == "malformed"


@pytest.mark.parametrize("name", ["empty maps", "empty arrays", "deep arrays", "nested lengths", "integers"])
def test_a_signed_payload_costs_at_most_a_fixed_multiple_of_its_length(name):
    raw = dict(hostile(1 << 14))[name]
    assert peak(lambda: reason(canonical.unpack, raw)) < 200 * len(raw)


def test_role_of_names_the_claimed_role_only():
    assert [role_of(raw) for _, raw in FILES] == ["campaign", "model", "root"]
    assert role_of(b"id,value\n") is None


def test_a_signing_key_shows_its_id_only():
    key = SigningKey.from_seed(bytes(range(32)))
    assert repr(key) == str(key) == "SigningKey(56475aa75463474c)"
    assert key.seed == bytes(range(32))
    assert reason(SigningKey.from_seed, bytes(31)) == "seed_invalid"


def test_a_document_carries_1_to_16_signatures():
    keys = [SigningKey.from_seed(bytes([number]) * 32) for number in range(17)]
    kind = PAYLOAD_TYPES["campaign"]
    assert len(read_envelope(seal(kind, b"", keys[:16]), "campaign").signatures) == 16
    for count in (0, 17):
        assert reason(seal, kind, b"", keys[:count]) == "signatures_invalid"
    assert len(read_envelope(seal(kind, b"", [CAMPAIGN_KEY, CAMPAIGN_KEY]), "campaign").signatures) == 1
    raw = PUBLISHER.campaign()
    assert write_envelope(read_envelope(raw, "campaign")) == raw


# Provisioning files: written files are read, damaged files are refused, and no text shows the secret

SECRET = bytes(range(32))
GOOD = build_provisioning(Provisioning("orchard", "gate 7", SECRET))
# Debian 12's hypothesis, with which the tests run on ARM, knows the older name of `categories` only.
names = st.text(st.characters(max_codepoint=0x7F, whitelist_categories=["L", "N", "P"]), min_size=1, max_size=40)


@given(fleet=names, device=names, secret=st.binary(min_size=32, max_size=32))
def test_what_is_written_is_read(fleet, device, secret):
    made = Provisioning(fleet, device, secret)
    assert parse_provisioning(build_provisioning(made)) == made


def test_every_truncation_and_every_flipped_bit_is_refused():
    for raw in (*(GOOD[:length] for length in range(len(GOOD))), *every_bit(GOOD)):
        with pytest.raises(DocumentError, match=r"^(malformed|unsupported_version)"):
            parse_provisioning(raw)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(raw):
    with pytest.raises(HearsayError):
        parse_provisioning(raw)


def test_neither_repr_nor_errors_show_the_secret():
    made = Provisioning("orchard", "gate 7", SECRET)
    assert "secret" not in repr(made)
    with pytest.raises(DocumentError) as caught:
        build_provisioning(made._replace(secret=b"thirty-one bytes of a true secret"))
    assert "thirty" not in str(caught.value)
