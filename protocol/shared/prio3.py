"""Prio3: a device splits a vector into shares with a proof; collectors check the proof and add up what they accept.

The order of use: a device calls :meth:`Prio3.shard`. Each collector calls :meth:`Prio3.prepared` and sends its
:class:`Verifier`. :meth:`Prio3.message` joins all verifiers, or refuses the report. Each collector compares the message
with its own state in :func:`confirmed`. What it accepted is added up modulo p; the sums of all collectors add up to
the total.
Source: draft-irtf-cfrg-vdaf-20, section 7.2, with one proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import DocumentError, InputError
from protocol.shared.keccak import SEED_BYTES, Xof, derived_seed
from protocol.shared.proofs import accepted, is_root, prove, query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.shared.proofs import Circuit

VERSION = 18
"""The draft's number of the wire format."""
NONCE_BYTES = 16
PROOFS = b"\x01"
VECTOR, PROOF, JOINT, PROVER, QUERY, JOINT_SEED, JOINT_PART = range(1, 8)
"""What random bytes are for: a part of every tag."""


class Shards(NamedTuple):
    """What a device makes of one vector.

    Attributes:
        public: the public share, for all collectors: a joint randomness part of 32 bytes for each, or nothing.
        inputs: for each collector its own share, secret from the others.
    """

    public: bytes
    inputs: tuple[bytes, ...]


class Share(NamedTuple):
    """A collector's share of a report: elements of vector and proof, and its blind, empty without joint randomness."""

    vector: list[int]
    proof: list[int]
    blind: bytes


class Verifier(NamedTuple):
    """What a collector sends to the others: its share of the check, and its joint randomness part, or nothing."""

    elements: list[int]
    part: bytes


class Prepared(NamedTuple):
    """What a collector keeps until the report is decided.

    Attributes:
        output: its share of what is added up.
        seed: the joint randomness seed that it expects, or nothing.
        verifier: what it sends.
    """

    output: list[int]
    seed: bytes
    verifier: Verifier


class Prio3(NamedTuple):
    """A way to add up vectors that a circuit permits.

    Attributes:
        algorithm: the registered number of the algorithm (draft, section 10), or one for private use.
        circuit: which vectors are permitted.
        shares: number of collectors, 2 to 255.
    """

    algorithm: int
    circuit: Circuit
    shares: int = 2

    @property
    def random_bytes(self) -> int:
        """Random bytes that :meth:`shard` takes."""
        return SEED_BYTES * self.shares * (2 if self.circuit.joint else 1)

    def tag(self, usage: int, context: bytes) -> bytes:
        """Return the domain separation tag of one usage: version, class (0: VDAF), algorithm, usage and context."""
        return bytes([VERSION, 0]) + self.algorithm.to_bytes(4, "big") + usage.to_bytes(2, "big") + context

    def shard(self, context: bytes, vector: Sequence[int], nonce: bytes, random: bytes) -> Shards:
        """Return the shares of a vector. A device runs this; equal arguments give equal shares.

        Args:
            context: bytes that name the application; collectors must use the same.
            vector: a permitted vector.
            nonce: 16 random bytes, public.
            random: ``random_bytes`` secret random bytes.

        Raises:
            InputError: ``shape_invalid``: a wrong number of elements or bytes.
        """
        circuit = self.circuit
        if len(nonce) != NONCE_BYTES or len(random) != self.random_bytes or len(vector) != circuit.length:
            raise InputError("shape_invalid", "the vector, the nonce or the random bytes have a wrong length")
        seeds = [random[at : at + SEED_BYTES] for at in range(0, len(random), SEED_BYTES)]
        *helpers, own, prover = seeds if circuit.joint else [*seeds[:-1], b"", seeds[-1]]
        blinds = [own, *helpers[1::2]] if circuit.joint else []
        secrets = helpers[::2] if circuit.joint else helpers
        p, rest = circuit.field.modulus, list(vector)
        helpers_vectors = [self._vector_of(context, number, secret) for number, secret in enumerate(secrets, 1)]
        for share in helpers_vectors:
            rest = [(one - other) % p for one, other in zip(rest, share, strict=True)]
        parts = [
            self._part(context, number, blind, share, nonce)
            for number, (blind, share) in enumerate(zip(blinds, [rest, *helpers_vectors], strict=False))
        ]
        joint = self._joint(context, self._joint_seed(context, parts)) if circuit.joint else []
        random_inputs = self._xof(PROVER, context, prover, PROOFS).elements(circuit.field, circuit.arity)
        proof = prove(circuit, vector, random_inputs, joint)
        for number, secret in enumerate(secrets, 1):
            share = self._proof_of(context, number, secret)
            proof = [(one - other) % p for one, other in zip(proof, share, strict=True)]
        leader = circuit.field.encode(rest) + circuit.field.encode(proof) + own
        others = (secret + blind for secret, blind in zip(secrets, blinds[1:] or [b""] * len(secrets), strict=True))
        return Shards(b"".join(parts), (leader, *others))

    def share(self, context: bytes, number: int, encoded: bytes) -> Share:
        """Return the share that bytes encode.

        Args:
            context: as in :meth:`shard`.
            number: the collector's number; 0 is the leader.
            encoded: one of ``inputs`` of :class:`Shards`.

        Raises:
            DocumentError: ``malformed``: a wrong length; ``value_out_of_domain``: an element is not below p.
        """
        circuit = self.circuit
        blind = SEED_BYTES if circuit.joint else 0
        length = (circuit.length + circuit.proof_length) * circuit.field.size if number == 0 else SEED_BYTES
        if len(encoded) != length + blind:
            raise DocumentError("malformed", f"a share has {len(encoded)} bytes, not {length + blind}")
        secret, own = encoded[:length], encoded[length:]
        if number:
            return Share(self._vector_of(context, number, secret), self._proof_of(context, number, secret), own)
        elements = circuit.field.decode(secret)
        return Share(elements[: circuit.length], elements[circuit.length :], own)

    def prepared(self, key: bytes, context: bytes, number: int, nonce: bytes, public: bytes, share: Share) -> Prepared:
        """Return what a collector sends and keeps of one report.

        Args:
            key: the verify key of all collectors, secret from devices.
            context: as in :meth:`shard`.
            number: the collector's number.
            nonce: the report's nonce.
            public: the public share.
            share: the collector's share.

        Raises:
            DocumentError: ``malformed``: the public share has a wrong length; ``value_out_of_domain``: the random point
                is a root of unity.
        """
        circuit = self.circuit
        if len(public) != (SEED_BYTES * self.shares if circuit.joint else 0):
            raise DocumentError("malformed", "the public share has a wrong length")
        part, seed, joint = b"", b"", []
        if circuit.joint:
            parts = [public[at : at + SEED_BYTES] for at in range(0, len(public), SEED_BYTES)]
            parts[number] = part = self._part(context, number, share.blind, share.vector, nonce)
            seed = self._joint_seed(context, parts)
            joint = self._joint(context, seed)
        random = self._xof(QUERY, context, key, PROOFS + nonce).elements(circuit.field, circuit.query_length)
        if is_root(circuit.field, random[-1], circuit.nodes):
            raise DocumentError("value_out_of_domain", "the random point of a check is a root of unity")
        elements = query(circuit, share.vector, share.proof, random, joint, self.shares)
        return Prepared(circuit.released(share.vector), seed, Verifier(elements, part))

    def message(self, context: bytes, verifiers: Sequence[Verifier]) -> bytes:
        """Return the message that confirms a report: the joint randomness seed of all parts, or nothing.

        Args:
            context: as in :meth:`shard`.
            verifiers: those of all collectors, in the order of their numbers.

        Raises:
            DocumentError: ``proof_invalid``: the vector is not a permitted one.
        """
        circuit = self.circuit
        sums = [sum(each) % circuit.field.modulus for each in zip(*(one.elements for one in verifiers), strict=True)]
        if not accepted(circuit, sums):
            raise DocumentError("proof_invalid", "the proof does not show that the record is a permitted one")
        return self._joint_seed(context, [one.part for one in verifiers]) if circuit.joint else b""

    def encode_verifier(self, verifier: Verifier) -> bytes:
        """Return the bytes of a verifier."""
        return self.circuit.field.encode(verifier.elements) + verifier.part

    def decode_verifier(self, encoded: bytes) -> Verifier:
        """Return the verifier that bytes encode.

        Raises:
            DocumentError: ``malformed``, ``value_out_of_domain``, as in :meth:`share`.
        """
        length = self.circuit.verifier_length * self.circuit.field.size
        if len(encoded) != length + (SEED_BYTES if self.circuit.joint else 0):
            raise DocumentError("malformed", "a verifier has a wrong length")
        return Verifier(self.circuit.field.decode(encoded[:length]), encoded[length:])

    def _xof(self, usage: int, context: bytes, seed: bytes, binder: bytes) -> Xof:
        return Xof(seed, self.tag(usage, context), binder)

    def _vector_of(self, context: bytes, number: int, secret: bytes) -> list[int]:
        xof = self._xof(VECTOR, context, secret, bytes([number]))
        return xof.elements(self.circuit.field, self.circuit.length)

    def _proof_of(self, context: bytes, number: int, secret: bytes) -> list[int]:
        xof = self._xof(PROOF, context, secret, PROOFS + bytes([number]))
        return xof.elements(self.circuit.field, self.circuit.proof_length)

    def _part(self, context: bytes, number: int, blind: bytes, vector: Sequence[int], nonce: bytes) -> bytes:
        binder = bytes([number]) + nonce + self.circuit.field.encode(vector)
        return derived_seed(blind, self.tag(JOINT_PART, context), binder)

    def _joint_seed(self, context: bytes, parts: Sequence[bytes]) -> bytes:
        return derived_seed(bytes(SEED_BYTES), self.tag(JOINT_SEED, context), b"".join(parts))

    def _joint(self, context: bytes, seed: bytes) -> list[int]:
        return self._xof(JOINT, context, seed, PROOFS).elements(self.circuit.field, self.circuit.joint)


def confirmed(prepared: Prepared, message: bytes) -> list[int]:
    """Return a collector's share of what is added up, once all collectors agree.

    Args:
        prepared: what the collector kept.
        message: of :meth:`Prio3.message`.

    Raises:
        DocumentError: ``proof_invalid``: the device gave the collectors different joint randomness.
    """
    if message != prepared.seed:
        raise DocumentError("proof_invalid", "the collectors' joint randomness differs from what the report says")
    return prepared.output
