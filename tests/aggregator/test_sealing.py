"""Secrets at rest open with their passphrase, with no other, and never cost more than allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from nacl.pwhash import argon2id
from support.examples import examples
from support.failures import refusal

from aggregator.common.sealing import MAX_MEMORY_BYTES, MAX_PASSES, Cost, open_secret, seal_secret
from protocol import canonical

CHEAP = Cost(1, argon2id.MEMLIMIT_MIN)
SEALED = seal_secret(b"the secret", b"horse", cost=CHEAP)


@examples(20)
@given(secret=st.binary(max_size=200), passphrase=st.binary(min_size=1, max_size=40))
def test_what_was_sealed_opens_again(secret, passphrase):
    raw = seal_secret(secret, passphrase, cost=CHEAP)
    assert open_secret(raw, passphrase) == secret
    assert len(secret) < 8 or secret not in raw


def test_the_standard_cost_is_what_libsodium_calls_moderate():
    body = canonical.unpack(seal_secret(b"s", b"p"))
    assert (body["passes"], body["memory"]) == (3, 256 << 20)


def test_salt_and_nonce_come_from_the_entropy_given():
    assert seal_secret(b"s", b"p", cost=CHEAP) != seal_secret(b"s", b"p", cost=CHEAP)
    fixed = [seal_secret(b"s", b"p", cost=CHEAP, entropy=lambda n: b"\7" * n) for _ in range(2)]
    assert fixed[0] == fixed[1]


def test_what_is_no_sealed_secret_or_not_this_ones_is_refused_before_it_costs_anything():
    for passphrase in (b"hors", b"horse ", b"\0"):
        assert refusal(open_secret, SEALED, passphrase) == "passphrase_wrong"
    assert refusal(open_secret, SEALED, b"") == refusal(seal_secret, b"s", b"", cost=CHEAP) == "passphrase_missing"
    for length in range(len(SEALED)):
        assert refusal(open_secret, SEALED[:length], b"horse") == "sealed_damaged"
    body = canonical.unpack(SEALED)
    changes = [(name, bytes([body[name][0] ^ 1]) + body[name][1:], "wrong") for name in ("box", "salt", "nonce")]
    changes += [("memory", value, "damaged") for value in (MAX_MEMORY_BYTES + 1, 1 << 62, 0, argon2id.MEMLIMIT_MIN - 1)]
    changes += [("passes", value, "damaged") for value in (MAX_PASSES + 1, 0, True)]
    changes += [("salt", b"short", "damaged"), ("nonce", "text", "damaged"), ("more", 1, "damaged")]
    changes += [("hearsay_sealed", 2, "newer"), ("hearsay_sealed", 0, "damaged"), ("box", b"", "wrong")]
    for name, value, why in changes:
        reason = "passphrase_wrong" if why == "wrong" else f"sealed_{why}"
        assert refusal(open_secret, canonical.pack({**body, name: value}), b"horse") == reason
