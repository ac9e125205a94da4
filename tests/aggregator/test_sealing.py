"""Secrets at rest open with their passphrase, with no other, and never cost more than allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.pwhash import argon2id
from support.examples import examples

from aggregator.common.sealing import MAX_MEMORY_BYTES, MAX_PASSES, Cost, open_secret, seal_secret
from protocol import canonical
from protocol.errors import HearsayError, InputError, StorageError

CHEAP = Cost(1, argon2id.MEMLIMIT_MIN)
SEALED = seal_secret(b"the secret", b"horse", cost=CHEAP)


@examples(20)
@given(secret=st.binary(max_size=200), passphrase=st.binary(min_size=1, max_size=40))
def test_what_was_sealed_opens_again(secret, passphrase):
    raw = seal_secret(secret, passphrase, cost=CHEAP)
    assert open_secret(raw, passphrase) == secret
    assert len(secret) < 8 or secret not in raw


def test_every_sealing_has_its_own_salt_and_nonce_and_they_come_from_the_entropy_given():
    assert seal_secret(b"s", b"p", cost=CHEAP) != seal_secret(b"s", b"p", cost=CHEAP)
    fixed = [seal_secret(b"s", b"p", cost=CHEAP, entropy=lambda n: b"\7" * n) for _ in range(2)]
    assert fixed[0] == fixed[1]


def test_the_standard_cost_is_what_libsodium_calls_moderate():
    body = canonical.unpack(seal_secret(b"s", b"p"))
    assert (body["passes"], body["memory"]) == (3, 256 << 20)


@pytest.mark.parametrize("passphrase", [b"hors", b"horse ", b"\0"])
def test_another_passphrase_is_refused(passphrase):
    with pytest.raises(InputError, match=r"^passphrase_wrong"):
        open_secret(SEALED, passphrase)


def test_an_empty_passphrase_is_refused():
    with pytest.raises(InputError, match=r"^passphrase_missing"):
        seal_secret(b"s", b"", cost=CHEAP)
    with pytest.raises(InputError, match=r"^passphrase_missing"):
        open_secret(SEALED, b"")


def test_every_truncation_and_every_flipped_bit_of_the_box_is_refused():
    for length in range(len(SEALED)):
        with pytest.raises(StorageError, match=r"^sealed_damaged"):
            open_secret(SEALED[:length], b"horse")
    for name in ("box", "salt", "nonce"):
        body = canonical.unpack(SEALED)
        body[name] = bytes([body[name][0] ^ 1]) + body[name][1:]
        with pytest.raises(InputError, match=r"^passphrase_wrong"):
            open_secret(canonical.pack(body), b"horse")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"memory": MAX_MEMORY_BYTES + 1}, "sealed_damaged"),
        ({"memory": 1 << 62}, "sealed_damaged"),
        ({"memory": 0}, "sealed_damaged"),
        ({"passes": MAX_PASSES + 1}, "sealed_damaged"),
        ({"passes": 0}, "sealed_damaged"),
        ({"passes": True}, "sealed_damaged"),
        ({"salt": b"short"}, "sealed_damaged"),
        ({"nonce": "text"}, "sealed_damaged"),
        ({"hearsay_sealed": 2}, "sealed_newer"),
        ({"hearsay_sealed": 0}, "sealed_damaged"),
        ({"more": 1}, "sealed_damaged"),
        ({"box": b""}, "passphrase_wrong"),
    ],
)
def test_a_hostile_file_is_refused_before_it_costs_anything(change, reason):
    with pytest.raises(HearsayError, match=f"^{reason}"):
        open_secret(canonical.pack({**canonical.unpack(SEALED), **change}), b"horse")
