"""Privacy and soundness of proofs by enumeration, over a field of 17 elements.

Over the real field the same counts hold with its p: docs/math.md, section 9.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest

from protocol.documents.shared_terms import best_chunk
from protocol.shared.circuits import Blocks
from protocol.shared.field import FIELD128, Field, roots
from protocol.shared.proofs import accepted, prove, query

TOY = Field(17, 1, 3, 4)
P = TOY.modulus


class Toy(Blocks):
    field = TOY


CIRCUITS = [Toy([2], 2), Toy([3], 3), Toy([2], 1)]
"""The first two call the gadget once; the third twice, and has two joint random elements."""
IDS = ["one call", "three cells", "two calls"]


def minus(left, right):
    return [(one - other) % P for one, other in zip(left, right, strict=True)]


def views(circuit, cells, own, random, joint, seeds):
    """How often a collector whose share of vector and proof is ``own`` sees each message of the other."""
    vector, found = circuit.encoded(cells), Counter()
    for one in seeds:
        whole = prove(circuit, vector, one, joint)
        rest = minus(vector, own[: circuit.length]), minus(whole, own[circuit.length :])
        found[tuple(query(circuit, *rest, random, joint, 2))] += 1
    return found


def is_private(circuit, own, random, joint, seeds):
    seeds, cells = list(seeds), range(circuit.sizes[0])
    first, *others = (views(circuit, [cell], own, random, joint, seeds) for cell in cells)
    return all(first == other for other in others)


def inner(circuit):
    """Points that the check permits: no roots of unity of the order of the nodes."""
    return [point for point in range(P) if point not in roots(TOY, circuit.nodes)]


def test_the_view_of_one_collector_is_the_same_for_all_records():
    """Its own share is uniform; for every one, joint randomness and point, so is what the other sends.

    Enumerated over all 17² random values of the proof of a circuit with two inputs, for all points and some shares. A
    point that is a root, or values that are not random, tell the record.
    """
    circuit = CIRCUITS[2]
    own = [(7 * at + 3) % P for at in range(circuit.length + circuit.proof_length)]
    for point, joint in product(inner(circuit), ([1, 1], [0, 5])):
        share = own if joint[0] else own[::-1]
        assert is_private(circuit, share, [3, 11, point], joint, product(range(P), repeat=2))
    at_root = [3, 11, roots(TOY, circuit.nodes)[1]]
    assert not is_private(circuit, own, at_root, [2, 9], product(range(P), repeat=2))
    assert not is_private(circuit, own, [3, 11, inner(circuit)[0]], [2, 9], [(4, 4)])


def test_either_share_alone_is_uniform():
    """The sharing x − r is a bijection in r for every x, so each share alone takes every value equally often."""
    for cell in range(2):
        vector = CIRCUITS[0].encoded([cell])
        shares = Counter(tuple(minus(vector, r)) for r in product(range(P), repeat=2))
        assert set(shares.values()) == {1}
        assert len(shares) == P**2


def bound(circuit, p=P):
    """At most so many proofs of a vector that is not permitted are accepted (docs/math.md, section 9)."""
    several = 1 if circuit.results > 1 else 0
    return Fraction(circuit.chunk + several, p) + Fraction(2 * (circuit.nodes - 1), p - circuit.nodes)


def accepted_share(circuit, vector, joint, *, cheats):
    """The share of the collectors' random elements with which a proof of this vector is accepted."""
    proof = prove(circuit, vector, [3] * circuit.arity, joint)
    if cheats:  # The polynomial says that the last call gives what makes the first result 0.
        wrong = query(circuit, vector, proof, [1, *[0] * (circuit.results - 1), inner(circuit)[0]], joint, 1)[0]
        at = circuit.arity + 2 * circuit.calls
        proof[at] = (proof[at] - wrong) % P
    points = inner(circuit)
    zero = sum(
        query(circuit, vector, proof, [*random, points[0]], joint, 1)[0] == 0
        for random in product(range(P), repeat=circuit.results)
    )
    right = 0
    for point in points:
        found = query(circuit, vector, proof, [*[0] * circuit.results, point], joint, 1)
        right += bool(accepted(circuit, [0, *found[1:]]))
    return Fraction(zero, P**circuit.results) * Fraction(right, len(points))


@pytest.mark.parametrize("circuit", CIRCUITS, ids=IDS)
@pytest.mark.parametrize("cheats", [False, True])
def test_few_proofs_of_other_vectors_are_accepted(circuit, cheats):
    """On average over joint randomness, for a device that lies about the gadget's polynomial and one that does not."""
    rest = [0] * (circuit.length - 2)
    wrong = [[1, 1], [0, 0], [2, P - 1], [5, 13], [16, 2]]
    joints = list(product(range(P), repeat=circuit.joint))[:: 1 if circuit.joint == 1 else 29]
    for vector in wrong:
        shares = [accepted_share(circuit, [*vector, *rest], joint, cheats=cheats) for joint in joints]
        assert sum(shares) / len(shares) <= bound(circuit)
    right = [accepted_share(circuit, circuit.encoded([1]), joint, cheats=False) for joint in joints[:20]]
    assert set(right) == {Fraction(1)}


def test_the_bound_of_the_real_field_is_far_below_2_to_the_minus_100():
    circuit = Blocks([12] * 20, best_chunk(240))
    assert 2**-123 < bound(circuit, FIELD128.modulus) < 2**-122
