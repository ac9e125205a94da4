"""The check of many reports at once gives what the draft's test vectors say, and what the code of devices gives."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.vdaf import FILES, encoded, of_file

from aggregator.collectors.elements import Elements, decoded
from aggregator.collectors.elements import encoded as encode_all
from aggregator.collectors.verification import Shares, added, confirmed, hashed, prepared
from protocol.errors import DocumentError
from protocol.shared.circuits import Blocks
from protocol.shared.field import FIELD64, FIELD128
from protocol.shared.keccak import Xof
from protocol.shared.prio3 import Prio3

FIELDS = pytest.mark.parametrize("field", [FIELD64, FIELD128], ids=["64", "128"])


def rows(texts):
    return np.frombuffer(b"".join(map(bytes.fromhex, texts)), np.uint8).reshape(len(texts), -1)


@pytest.mark.parametrize("name", FILES)
def test_every_file_of_the_draft_gives_what_it_says(name):
    data, prio3 = of_file(name)
    context, key, reports = bytes.fromhex(data["ctx"]), bytes.fromhex(data["verify_key"]), data["reports"]
    nonces, public = rows([one["nonce"] for one in reports]), rows([one["public_share"] for one in reports])
    steps = {step["operation"]: step["success"] for step in data["operations"]}
    found = []
    for number in range(prio3.shares):
        inputs = rows([one["input_shares"][number] for one in reports])
        found.append(prepared(prio3, key, context, number, Shares(nonces, public, inputs)))
        assert found[-1].readable.all()
        if "verifier_shares_to_message" in steps:
            assert found[-1].verifiers.tobytes().hex() == "".join(one["verifier_shares"][0][number] for one in reports)
    if "verifier_shares_to_message" not in steps:  # The message of this file is wrong, so no collector expects it.
        assert all((one.seeds != rows([reports[0]["verifier_messages"][0]])).any() for one in found)
        return
    verdicts = [confirmed(prio3, context, [one.verifiers for one in found], one.seeds) for one in found]
    assert all(right.all() == all(steps.values()) for right, _ in verdicts)
    if all(steps.values()):
        sums = [added(one.outputs, right) for one, (right, _) in zip(found, verdicts, strict=True)]
        for (_, messages), own, said in zip(verdicts, sums, data["agg_shares"], strict=True):
            assert messages.tobytes().hex() == "".join(one["verifier_messages"][0] for one in reports)
            assert prio3.circuit.field.encode(own).hex() == said
        total = [sum(each) % prio3.circuit.field.modulus for each in zip(*sums, strict=True)]
        assert total == (data["agg_result"] if isinstance(data["agg_result"], list) else [data["agg_result"]])


def random_bytes(*names):
    return hashlib.shake_128(repr(names).encode()).digest(4096)


def sharded(prio3, count):
    """For each of some reports: its nonce, its shards and its vector."""
    found = []
    for number in range(count):
        vector = encoded(prio3.circuit, number % prio3.circuit.sizes[0]) if len(prio3.circuit.sizes) == 1 else None
        vector = vector or prio3.circuit.encoded([number % size for size in prio3.circuit.sizes])
        some = random_bytes("shares", number)
        found.append(
            (some[:16], prio3.shard(b"context", vector, some[:16], some[16 : 16 + prio3.random_bytes]), vector)
        )
    return found


def shares_of(reports, number):
    columns = zip(*((nonce, shards.public, shards.inputs[number]) for nonce, shards, _ in reports), strict=True)
    return Shares(*(np.frombuffer(b"".join(each), np.uint8).reshape(len(reports), -1) for each in columns))


@pytest.mark.parametrize("sizes", [(1,), (2,), (3, 2, 5), (7,) * 9])
@pytest.mark.parametrize("chunk", [1, 3, 64])
@pytest.mark.parametrize("collectors", [2, 3])
def test_arrays_and_integers_agree_on_every_byte_and_on_the_total(sizes, chunk, collectors):
    prio3 = Prio3(0xFFFF0001, Blocks(sizes, chunk), collectors)
    reports = sharded(prio3, 5)
    found = [prepared(prio3, b"k" * 32, b"context", at, shares_of(reports, at)) for at in range(collectors)]
    for number, one in enumerate(found):
        for at, (nonce, shards, _) in enumerate(reports):
            share = prio3.share(b"context", number, shards.inputs[number])
            single = prio3.prepared(b"k" * 32, b"context", number, nonce, shards.public, share)
            assert prio3.encode_verifier(single.verifier) == one.verifiers[at].tobytes()
            assert single.seed == one.seeds[at].tobytes()
            assert single.output == [output.integers()[at] for output in one.outputs]
    right, _ = confirmed(prio3, b"context", [one.verifiers for one in found], found[0].seeds)
    assert right.all()
    sums = [added(one.outputs, right) for one in found]
    total = [sum(each) % FIELD128.modulus for each in zip(*sums, strict=True)]
    assert total == [sum(each) for each in zip(*(vector for _, _, vector in reports), strict=True)]


FORGED = {
    "two ones in a block": lambda vector: [1, 1, *vector[2:]],
    "no one in a block": lambda vector: [0, 0, *vector[2:]],
    "a two": lambda vector: [2, FIELD128.modulus - 1, *vector[2:]],
    "a half": lambda vector: [FIELD128.inverse(2)] * 2 + vector[2:],
}


@pytest.mark.parametrize("fault", FORGED)
def test_a_forged_vector_costs_its_own_report_alone(fault):
    prio3 = Prio3(0xFFFF0001, Blocks((2, 3), 2))
    reports = sharded(prio3, 4)
    nonce, _, vector = reports[2]
    some = random_bytes("forged")[: prio3.random_bytes]
    reports[2] = (nonce, prio3.shard(b"context", FORGED[fault](list(vector)), nonce, some), vector)
    found = [prepared(prio3, b"k" * 32, b"context", at, shares_of(reports, at)) for at in range(2)]
    right, _ = confirmed(prio3, b"context", [one.verifiers for one in found], found[1].seeds)
    assert right.tolist() == [True, True, False, True]


def _other(value):
    return bytes([value[0] ^ 1]) + value[1:]


CHANGED = {
    "nonce": lambda nonce, public, inputs: (_other(nonce), public, inputs),
    "public share": lambda nonce, public, inputs: (nonce, _other(public), inputs),
    "leader's vector": lambda nonce, public, inputs: (nonce, public, (_other(inputs[0]), inputs[1])),
    "leader's blind": lambda nonce, public, inputs: (
        nonce,
        public,
        (inputs[0][:-1] + _other(inputs[0][-1:]), inputs[1]),
    ),
    "helper's seed": lambda nonce, public, inputs: (nonce, public, (inputs[0], _other(inputs[1]))),
    "helper's blind": lambda nonce, public, inputs: (
        nonce,
        public,
        (inputs[0], inputs[1][:-1] + _other(inputs[1][-1:])),
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_changed_byte_of_any_part_is_refused_by_both_collectors_or_at_least_by_one(what):
    prio3 = Prio3(0xFFFF0001, Blocks((2, 3), 2))
    [(nonce, shards, vector)] = sharded(prio3, 1)
    nonce, public, inputs = CHANGED[what](nonce, shards.public, shards.inputs)
    report = [(nonce, shards._replace(public=public, inputs=inputs), vector)]
    found = [prepared(prio3, b"k" * 32, b"context", at, shares_of(report, at)) for at in range(2)]
    verdicts = [confirmed(prio3, b"context", [one.verifiers for one in found], own.seeds)[0].all() for own in found]
    assert not all(verdicts)


def test_an_element_that_is_not_below_the_modulus_makes_a_report_unreadable():
    prio3 = Prio3(0xFFFF0001, Blocks((2, 3), 2))
    reports = sharded(prio3, 2)
    nonce, shards, vector = reports[1]
    leader = (FIELD128.modulus).to_bytes(16, "little") + shards.inputs[0][16:]
    reports[1] = (nonce, shards._replace(inputs=(leader, shards.inputs[1])), vector)
    assert prepared(prio3, b"k" * 32, b"context", 0, shares_of(reports, 0)).readable.tolist() == [True, False]
    with pytest.raises(DocumentError, match="value_out_of_domain"):
        prio3.share(b"context", 0, leader)


@given(st.data())
@FIELDS
def test_arrays_compute_like_integers(field, data):
    p = field.modulus
    special = st.sampled_from([0, 1, 2, p - 1, p - 2, p // 2, 2**26 - 1, 2**26, 2**52, 2**63])
    numbers = st.lists(special | st.integers(0, p - 1), min_size=3, max_size=3)
    known = [data.draw(numbers) for _ in range(3)]
    arrays = [decoded(field, np.frombuffer(field.encode(one), np.uint8).reshape(3, -1))[0][0] for one in known]
    terms = [(list(one), array) for one, array in zip(known, arrays, strict=True)]
    for _ in range(data.draw(st.integers(1, 12))):
        (left, one), (right, other) = data.draw(st.sampled_from(terms)), data.draw(st.sampled_from(terms))
        constant = data.draw(st.sampled_from([0, 1, -1, 5, p - 1]))
        kind = data.draw(st.sampled_from("+-*cs%"))
        if kind == "+":
            terms.append(([a + b for a, b in zip(left, right, strict=True)], one + other))
        elif kind == "-":
            terms.append(([a - b for a, b in zip(left, right, strict=True)], one - other))
        elif kind == "*":
            terms.append(([a * b for a, b in zip(left, right, strict=True)], one * other))
        elif kind == "c":
            terms.append(([constant - a for a in left], constant - one))
        elif kind == "s":
            terms.append(([a * b * 70 for a, b in zip(left, right, strict=True)], sum([one * other] * 70)))
        else:
            terms.append(([a % p for a in left], one % p))
    bytes_of = encode_all([array for _, array in terms])
    for at, encoded_row in enumerate(bytes_of):
        assert encoded_row.tobytes() == field.encode([numbers[at] % p for numbers, _ in terms])
    for numbers, array in terms:
        assert array.integers() == [number % p for number in numbers]
        assert (array == Elements(field, array.limbs, array.size)).all()
        assert abs(array.limbs).max() <= array.size < 2**62


@pytest.mark.parametrize("binder", [0, 1, 100, 133, 134, 135, 136, 300])
@pytest.mark.parametrize("count", [1, 168, 169, 500])
def test_the_hash_of_arrays_is_that_of_devices_at_every_border_of_a_block(binder, count):
    rng = np.random.default_rng(binder)
    seeds, binders = (rng.integers(0, 256, (3, size), dtype=np.uint8) for size in (32, binder))
    found = hashed(seeds, b"tag", binders, count)
    for seed, bound, row in zip(seeds, binders, found, strict=True):
        assert row.tobytes() == Xof(seed.tobytes(), b"tag", bound.tobytes()).next(count)
