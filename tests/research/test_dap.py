"""A record for a task of DAP: the draft's circuit, and a report that both servers of the task can read."""

from __future__ import annotations

import random
from hashlib import sha256

import pyhpke
import pytest
from support.shared import shared_campaign
from support.vdaf import of_file

from protocol.errors import DocumentError, InputError
from protocol.shared.prio3 import confirmed
from research.dap import HpkeKey, TaskConfiguration, read_keys, sealed, task_shards, task_variant, upload

TASK, NONCE = bytes(range(32)), b"n" * 16
SUITE = pyhpke.CipherSuite.new(
    pyhpke.KEMId.DHKEM_X25519_HKDF_SHA256, pyhpke.KDFId.HKDF_SHA256, pyhpke.AEADId.CHACHA20_POLY1305
)
CONFIGURATION = TaskConfiguration(b"ward", "https://one.example/dap", "https://two.example/", 3600, 500)


@pytest.fixture(scope="module")
def campaign():
    return shared_campaign()


def total(prio3, nonce, public, shares):
    """The vector that both servers come to together, by the device's code of the draft's check."""
    context, both = b"dap-18" + TASK, []
    for number, share in enumerate(shares):
        both.append(prio3.prepared(b"k" * 32, context, number, nonce, public, prio3.share(context, number, share)))
    message = prio3.message(context, [one.verifier for one in both])
    out = zip(*(confirmed(one, message) for one in both), strict=True)
    return [sum(each) % prio3.circuit.field.modulus for each in out]


def test_a_record_is_sharded_by_the_drafts_multihot_variant_under_the_tasks_context(campaign):
    prio3 = task_variant(campaign)
    data, known = of_file("Prio3MultihotCountVec_0.json")
    assert (prio3.algorithm, type(prio3.circuit), prio3.shares) == (
        known.algorithm,
        type(known.circuit),
        data["shares"],
    )
    assert (prio3.circuit.outputs, prio3.circuit.most) == (12, 2)
    shards = task_shards(campaign, TASK, [3, 2], NONCE, bytes(range(128)))
    assert [at for at, one in enumerate(total(prio3, NONCE, *shards)) if one] == [3, 8 + 2]
    shards = task_shards(campaign, bytes(32), [3, 2], NONCE, bytes(range(128)))
    with pytest.raises(DocumentError, match="proof_invalid"):
        total(prio3, NONCE, *shards)


def test_both_servers_open_their_halves_of_an_uploaded_report_and_the_halves_confirm(campaign):
    """The servers' part is written from the draft's text, with the authenticated data as literal fields."""
    pairs = [SUITE.kem.derive_key_pair(bytes([number]) * 32) for number in range(2)]
    listed = b"".join(
        bytes([7 + number, 0, 0x20, 0, 1, 0, 3, 0, 32]) + pair.public_key.to_public_bytes()
        for number, pair in enumerate(pairs)
    )
    keys = read_keys(len(listed).to_bytes(2, "big") + listed)
    source = random.Random(5)
    report = upload(campaign, TASK, CONFIGURATION, [3, 2], tuple(keys), time=7300, random_bytes=source.randbytes)
    prio3, at = task_variant(campaign), 0

    def taken(size):
        nonlocal at
        at += size
        return report[at - size : at]

    metadata = taken(16 + 8 + 2)
    assert metadata[16:] == (2).to_bytes(8, "big") + b"\0\0"
    public = taken(int.from_bytes(taken(4), "big"))
    configuration = (
        b"\x04ward" + b"\0\x17https://one.example/dap" + b"\0\x14https://two.example/" + (3600).to_bytes(8, "big")
        + (500).to_bytes(8, "big") + b"\x01" + b"\0\0" + b"\0\0\0\x05" + b"\0\x10" + (12).to_bytes(4, "big")
        + prio3.circuit.chunk.to_bytes(4, "big") + (2).to_bytes(8, "big") + b"\0\0"
    )  # fmt: skip
    associated = TASK + configuration + metadata + len(public).to_bytes(4, "big") + public
    shares = []
    for number, pair in enumerate(pairs):
        assert taken(1) == bytes([7 + number])
        encapsulated = taken(int.from_bytes(taken(2), "big"))
        content = taken(int.from_bytes(taken(4), "big"))
        info = b"dap-18 input share\x01" + bytes([2 + number])
        opened = SUITE.create_recipient_context(encapsulated, pair.private_key, info).open(content, associated)
        assert opened[:6] == b"\0\0" + (len(opened) - 6).to_bytes(4, "big")
        shares.append(opened[6:])
    assert at == len(report)
    assert [at for at, one in enumerate(total(prio3, metadata[:16], public, shares)) if one] == [3, 8 + 2]


def test_a_sealed_share_is_that_of_rfc_9180():
    """The first encryption of its appendix A.1.1."""
    public = bytes.fromhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d")
    seed = bytes.fromhex("7268600d403fce431561aef583ee1613527cff655c1343f29812e66706df3234")
    info, associated = b"Ode on a Grecian Urn", b"Count-0"
    found = sealed(HpkeKey(1, 0x20, 1, 1, public), info, associated, b"Beauty is truth, truth beauty", seed)
    assert found[3:35].hex() == "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
    assert found[39:].hex() == (
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"task": bytes(31)}, "shape_invalid"),
        ({"cells": [3]}, "shape_invalid"),
        ({"cells": [3, 4]}, "value_out_of_domain"),
        ({"report_id": bytes(15)}, "shape_invalid"),
        ({"random": bytes(127)}, "shape_invalid"),
    ],
)
def test_wrong_shards_for_a_task_are_refused(campaign, change, reason):
    right = {"task": bytes(32), "cells": [3, 2], "report_id": bytes(16), "random": bytes(128)}
    with pytest.raises(InputError, match=reason):
        task_shards(campaign, **{**right, **change})


@pytest.mark.parametrize(
    "content", ["", "0000", "00026162", f"000a{'00' * 9}", "0009010020000100010000", f"000a{'00' * 10}"]
)
def test_what_is_no_list_of_keys_is_refused(content):
    with pytest.raises(DocumentError, match="invalid_message"):
        read_keys(bytes.fromhex(content))


@pytest.mark.parametrize(
    ("kem", "aead", "public"),
    [(0x99, 1, bytes(32)), (0x20, 0xFFFF, b"\x09" + bytes(31)), (0x20, 1, bytes(5)), (0x20, 1, bytes(32))],
)
def test_keys_of_unknown_algorithms_or_of_no_use_are_refused(kem, aead, public):
    with pytest.raises(InputError, match="shape_invalid"):
        sealed(HpkeKey(1, kem, 1, aead, public), b"", b"", b"content", sha256().digest())


UNORDERED = ((2, b""), (1, b""))


@pytest.mark.parametrize(
    "change",
    [
        {"info": b""},
        {"info": bytes(256)},
        {"leader": ""},
        {"helper": "ü"},
        {"time_precision": 0},
        {"time_precision": 1 << 64},
        {"extensions": UNORDERED},
    ],
)
def test_configurations_that_have_no_encoding_are_refused(campaign, change):
    with pytest.raises(InputError, match="shape_invalid"):
        CONFIGURATION._replace(**change).encoded(task_variant(campaign))
