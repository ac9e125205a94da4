"""Privacy and soundness of proofs by enumeration, over a field of 17 elements.

Over the real field the same counts hold with its p: docs/math.md, section 9.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from fractions import Fraction
from itertools import product
from typing import NamedTuple

import pytest

from protocol.documents.shared_terms import HELPER, LEADER, ROLES, best_chunk
from protocol.errors import DocumentError
from protocol.shared.circuits import Blocks
from protocol.shared.field import FIELD128, Field, roots
from protocol.shared.keccak import SEED_BYTES
from protocol.shared.prio3 import JOINT, PROOF, Prio3, Share, Verifier
from protocol.shared.proofs import accepted, prove, query
from protocol.shared.shape import share_lengths, variant

TOY = Field(17, 1, 3, 4)
P = TOY.modulus


class Toy(Blocks):
    field = TOY


CIRCUITS = [Toy([2], 2), Toy([3], 3), Toy([2], 1)]
"""The first two call the gadget once; the third twice, and has two joint random elements."""
IDS = ["one call", "three cells", "two calls"]


def minus(left, right):
    return [(one - other) % P for one, other in zip(left, right, strict=True)]


def inner(circuit):
    """Points that the check permits: no roots of unity of the order of the nodes."""
    return [point for point in range(P) if point not in roots(TOY, circuit.nodes)]


BLINDS = 3
"""Values of a blind, and of a joint randomness part."""


class Oracle(NamedTuple):
    """What a seed gives: its own bytes, from a place on. So enumerating seeds enumerates what follows from them."""

    elements_of: bytes
    place: int = 0

    def elements(self, field, count):
        return [each % field.modulus for each in self.elements_of[self.place : self.place + count]]


class ToyPrio3(Prio3):
    """The code of devices and collectors with seeds of few values; a joint randomness part is a blind plus a hash."""

    def _xof(self, usage, _context, seed, _binder):
        if usage == JOINT:
            return Oracle(bytes((seed[0] * (at + 1) + at) % P for at in range(self.circuit.joint)))
        return Oracle(seed, self.circuit.length if usage == PROOF else 0)

    def _part(self, _context, number, blind, vector, _nonce):
        hashed = number + sum((at + 2) * element for at, element in enumerate(vector))
        return bytes([(blind[0] + hashed) % BLINDS]).ljust(SEED_BYTES, b"\0")

    def _joint_seed(self, _context, parts):
        return bytes([(3 * parts[0][0] + 5 * parts[1][0] + 1) % P]).ljust(SEED_BYTES, b"\0")


class Unblinded(ToyPrio3):
    def _part(self, context, number, _blind, vector, nonce):
        return super()._part(context, number, b"\0", vector, nonce)


def padded(*numbers):
    return bytes(numbers).ljust(SEED_BYTES, b"\0")


NOISE = {0: 2, 1: 1, P - 1: 1}
"""Noise of the honest collector in the first cell, with its weight. That of other cells is independent of it."""


class Game(NamedTuple):
    """One honest device and one honest collector; the other collector sees what it sees, and says what it likes.

    Attributes:
        prio3: the code of both.
        role: the dishonest collector's number.
        own: the vector, proof and blind that it gets; uniform, since what is subtracted is.
        query: the collectors' random elements.
        spoils: what it adds to each number of its verifier, and to its joint randomness part.
        adds_refused: whether the honest collector adds up what it refused, which is a mistake.
        seeds: the random values of the proof.
    """

    prio3: ToyPrio3
    role: int
    own: Share
    query: list[int]
    spoils: tuple[list[int], int]
    adds_refused: bool = False
    seeds: list[tuple[int, ...]] | None = None

    def all_seeds(self):
        return self.seeds or list(product(range(P), repeat=self.prio3.circuit.arity))

    def shards(self, vector, blind, seeds):
        """The shards of a device whose shares for the dishonest collector are ``own``."""
        mine, blinds, prover = self.own, [padded(blind), padded(blind)], padded(*seeds)
        blinds[self.role] = mine.blind
        if self.role == HELPER:
            secret = padded(*mine.vector, *mine.proof)
            return self.prio3.shard(b"", vector, bytes(16), secret + blinds[1] + blinds[0] + prover)
        rest = minus(vector, mine.vector)
        proof = [0] * len(mine.proof)
        for _ in range(2):  # The first run tells the whole proof, from which the helper's share follows.
            secret = padded(*rest, *proof)
            found = self.prio3.shard(b"", vector, bytes(16), secret + blinds[1] + blinds[0] + prover)
            proof = minus(found.inputs[0][len(vector) : -SEED_BYTES], mine.proof)
        return found

    def prepared(self, number, public, share):
        return self.prio3.prepared(padded(*self.query), b"", number, bytes(16), public, share)

    def answered(self, verifiers, expected):
        """Whether the honest collector accepts what it gets."""
        numbers, part = self.spoils
        mine = verifiers[self.role]
        numbers = [(one + other) % P for one, other in zip(mine.elements, numbers, strict=True)]
        verifiers[self.role] = Verifier(numbers, padded((mine.part[0] + part) % BLINDS))
        try:
            return self.prio3.message(b"", verifiers) == expected
        except DocumentError:
            return False

    def real(self, cells):
        """How often the dishonest collector sees what: public share, the other's verifier, verdict and noisy sums."""
        vector, seen, honest = self.prio3.circuit.encoded(cells), Counter(), 1 - self.role
        for blind, seeds in product(range(BLINDS), self.all_seeds()):
            public, inputs = self.shards(vector, blind, seeds)
            shares = [self.prio3.share(b"", number, inputs[number]) for number in range(2)]
            assert shares[self.role] == self.own
            both = [self.prepared(number, public, shares[number]) for number in range(2)]
            right = self.answered([one.verifier for one in both], both[honest].seed)
            sums = both[honest].output if right or self.adds_refused else [0] * len(vector)
            view = public, *map(tuple, both[honest].verifier), right
            for noise, weight in NOISE.items():
                seen[*view, (sums[0] + noise) % P, *sums[1:]] += weight
        return seen

    def simulated(self, total):
        """The same from the total with the honest collector's noise alone: it gets no record.

        ``total`` is the sum over the accepted reports without noise, here one record's vector.
        """
        circuit, seen, honest = self.prio3.circuit, Counter(), 1 - self.role
        for part, inputs in product(range(BLINDS), product(range(P), repeat=circuit.arity)):
            parts = [padded(part), padded(part)]
            parts[self.role] = self.prio3._part(b"", self.role, self.own.blind, self.own.vector, b"")
            public = b"".join(parts)
            mine = self.prepared(self.role, public, self.own)
            whole = [0, *inputs, circuit.gadget(inputs) % P]
            verifiers = [mine.verifier, mine.verifier]
            verifiers[honest] = Verifier(minus(whole, mine.verifier.elements), parts[honest])
            view = public, *map(tuple, verifiers[honest])
            right = self.answered(verifiers, mine.seed)
            sums = minus(total, mine.output) if right else [0] * len(total)
            for noise, weight in NOISE.items():
                seen[*view, right, (sums[0] + noise) % P, *sums[1:]] += weight
        return seen


def game(circuit, role, spoils=0, code=ToyPrio3, **more):
    """A game about a circuit, with a share that looks random, at the last point that the check permits."""
    prio3 = code(0xFFFF4853, circuit)
    own = Share(
        [(5 * at + 3 + role) % P for at in range(circuit.length)],
        [(7 * at * at + 2) % P for at in range(circuit.proof_length)],
        padded(1),
    )
    query = [*((4 * at + 3) % P for at in range(circuit.query_length - 1)), inner(circuit)[-1]]
    wrong = [0] * circuit.verifier_length, 0
    if spoils == "part":
        wrong = wrong[0], 1
    elif spoils:
        wrong = [0, 1, *wrong[0][2:]], 0
    return Game(prio3, role, own, query, wrong)._replace(**more)


PAIR = Toy([2, 1], 1)
GAMES = {
    "two blocks": (Toy([2, 2], 1), 0, [[0, 1], [1, 1]]),
    "a block of one cell": (PAIR, 0, [[0, 0], [1, 0]]),
    "a wrong number": (PAIR, "number", [[0, 0], [1, 0]]),
    "a wrong joint randomness part": (PAIR, "part", [[0, 0], [1, 0]]),
}
"""Circuit, what the dishonest collector spoils, and records. Devices' circuits have several blocks, too."""


@pytest.mark.parametrize("role", [LEADER, HELPER], ids=ROLES)
@pytest.mark.parametrize("name", GAMES)
def test_what_one_collector_sees_is_simulated_from_the_noisy_total_and_the_verdict(name, role):
    """Of one report, for one share that it got (any is as likely): all it sees has the very law of a simulation.

    Enumerated are the proof's 17² random values and the other collector's blinds. A refused report is in no sum.
    """
    circuit, spoils, records = GAMES[name]
    played = game(circuit, role, spoils)
    for cells in records:
        seen = played.real(cells)
        assert seen == played.simulated(circuit.encoded(cells))
        verdicts = {accepted for _, _, _, accepted, *_ in seen}
        assert verdicts == {0: {True}, "number": {True, False}, "part": {False}}[spoils]


MISTAKES = {
    "no blinds": {"code": Unblinded},
    "values that are not random": {"seeds": [(4, 4)]},
    "a root as point": {"query": [3, 11, 5, roots(TOY, PAIR.nodes)[1]]},
    "a refused report is added up": {"adds_refused": True, "spoils": "number"},
}


@pytest.mark.parametrize("role", [LEADER, HELPER], ids=ROLES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_tells_one_collector_the_record(monkeypatch, mistake, role):
    """What it sees then has another law than the simulation, and another for each record."""
    monkeypatch.setattr("protocol.shared.prio3.is_root", lambda *_: False)
    played = game(PAIR, role, **MISTAKES[mistake])
    seen = [played.real(cells) for cells in ([0, 0], [1, 0])]
    assert seen[0] != seen[1]
    assert seen[0] != played.simulated(PAIR.encoded([0, 0]))


@pytest.mark.parametrize("role", [LEADER, HELPER], ids=ROLES)
def test_in_the_real_field_a_simulated_view_passes_every_check_that_a_collector_makes(role):
    """The same simulation, once: random values at the point in place of a record, and both collectors accept."""
    prio3 = variant([3, 2], 2)
    circuit, field, own = prio3.circuit, prio3.circuit.field, hashlib.shake_128(bytes([role])).digest
    share = prio3.share(b"c", role, _reduced(own(share_lengths(prio3)[role])))
    parts = [own(SEED_BYTES), own(2 * SEED_BYTES)[SEED_BYTES:]]
    parts[role] = prio3._part(b"c", role, share.blind, share.vector, bytes(16))
    mine = prio3.prepared(own(32), b"c", role, bytes(16), b"".join(parts), share)
    inputs = [int.from_bytes(own(16 * at)[-16:]) % field.modulus for at in range(1, 1 + circuit.arity)]
    whole = [0, *inputs, circuit.gadget(inputs)]
    rest = [(one - other) % field.modulus for one, other in zip(whole, mine.verifier.elements, strict=True)]
    verifiers = [mine.verifier, mine.verifier]
    verifiers[1 - role] = Verifier(rest, parts[1 - role])
    assert prio3.message(b"c", verifiers) == mine.seed
    verifiers[1 - role] = Verifier([*rest[:-1], rest[-1] + 1], parts[1 - role])
    with pytest.raises(DocumentError, match="proof_invalid"):
        prio3.message(b"c", verifiers)


def _reduced(encoded):
    """Bytes whose elements of 16 are below the modulus."""
    return b"".join(encoded[at : at + 15] + b"\0" for at in range(0, len(encoded), 16))


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
