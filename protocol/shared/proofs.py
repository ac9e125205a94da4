"""Proofs that a vector of field elements is permitted, which collectors check on shares of vector and proof.

A *circuit* says which vectors are permitted: sums and products of the vector's elements that must all be 0. The only
products are those of the circuit's *gadget*, a sum of products that the circuit calls several times. The proof gives
the results of all calls, as a polynomial. A collector evaluates the circuit on its share with these results, and
compares polynomial and gadget at one random point.

The results are linear in vector and proof, so the sum of what the collectors compute on shares is what one of them
would compute on the whole. Elements are integers, or arrays that compute like integers, one for each of many reports.
Source: draft-irtf-cfrg-vdaf-20, sections 7.1 and 7.3, for circuits with one gadget of degree 2 and one proof.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.shared.field import doubled, roots, weights_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from protocol.shared.field import Field

    Call = Callable[[list[Any]], Any]


class Circuit(ABC):
    """Which vectors are permitted, and what is added up of them.

    Attributes:
        field: the field of all elements.
        arity: number of inputs of the gadget.
        calls: how often the circuit calls the gadget.
        length: elements of the vector.
        joint: random elements that device and collectors share.
        results: numbers that must be 0.
        outputs: elements of what is added up.
    """

    field: Field
    arity: int
    calls: int
    length: int
    joint: int
    results: int
    outputs: int

    @abstractmethod
    def gadget(self, inputs: Sequence[Any]) -> Any:
        """Return the result of one call of the gadget, a polynomial of degree 2 in its inputs."""

    @abstractmethod
    def evaluated(self, call: Call, vector: Sequence[Any], joint: Sequence[Any], shares: int) -> list[Any]:
        """Return the numbers that are 0 for a permitted vector.

        Args:
            call: what to use as gadget.
            vector: the vector, or one of its shares.
            joint: the joint randomness.
            shares: number of shares; 1 for the whole vector. Constants are divided by it.
        """

    def released(self, vector: Sequence[Any]) -> list[Any]:
        """Return what of a vector is added up: by default the vector."""
        return list(vector)

    @property
    def nodes(self) -> int:
        """Values by which an input's polynomial is known: the least power of two above the number of calls."""
        return 1 << self.calls.bit_length()

    @property
    def proof_length(self) -> int:
        """Elements of a proof: a random value for each input, and the gadget's polynomial."""
        return self.arity + 2 * self.nodes - 1

    @property
    def verifier_length(self) -> int:
        """Elements of what a collector computes: the results in one number, each input and the gadget at the point."""
        return 1 + self.arity + 1

    @property
    def query_length(self) -> int:
        """Random elements of a check: one for each result if there are several, and the point."""
        return 1 + (self.results if self.results > 1 else 0)


class Wires(NamedTuple):
    """The inputs of all calls of a gadget.

    Attributes:
        seeds: the random value of each input, which hides the others.
        inputs: for each call the inputs.
    """

    seeds: Sequence[Any]
    inputs: list[list[Any]]

    def polynomials(self, nodes: int) -> list[list[Any]]:
        """Return for each input its polynomial: the random value, the values of all calls, and zeros."""
        padding = [0] * (nodes - 1 - len(self.inputs))
        return [[self.seeds[at], *(inputs[at] for inputs in self.inputs), *padding] for at in range(len(self.seeds))]


def prove(circuit: Circuit, vector: Sequence[Any], seeds: Sequence[Any], joint: Sequence[Any]) -> list[Any]:
    """Return the proof that a vector is permitted, not reduced. A device runs this.

    Args:
        circuit: which vectors are permitted.
        vector: the whole vector.
        seeds: a random element for each input of the gadget.
        joint: the joint randomness.
    """
    wires = Wires(seeds, [])

    def call(inputs: list[Any]) -> Any:
        wires.inputs.append(inputs)
        return circuit.gadget(inputs)

    circuit.evaluated(call, vector, joint, 1)
    values = [doubled(circuit.field, polynomial) for polynomial in wires.polynomials(circuit.nodes)]
    gadget = [circuit.gadget(inputs) for inputs in zip(*values, strict=True)]
    return [*seeds, *gadget[:-1]]


def query(
    circuit: Circuit,
    vector: Sequence[Any],
    proof: Sequence[Any],
    random: Sequence[Any],
    joint: Sequence[Any],
    shares: int,
) -> list[Any]:
    """Return a share of the numbers by which :func:`accepted` decides. A collector runs this on its shares.

    Args:
        circuit: which vectors are permitted.
        vector: a share of the vector.
        proof: a share of the proof.
        random: the collectors' random elements, ``circuit.query_length``.
        joint: the joint randomness.
        shares: number of shares.

    The last random element is the point. The caller refuses a report for which :func:`is_root` says that the point is
    a root of unity, where the check would tell an input; by chance this happens with a probability below 2^−100.
    """
    field, nodes = circuit.field, circuit.nodes
    p, wires = field.modulus, Wires(proof[: circuit.arity], [])
    known, turns = list(proof[circuit.arity :]), roots(field, 2 * nodes)
    # The polynomial has degree 2·nodes − 2, so its highest coefficient, Σ v_i·ω^i, is 0. This gives the last value.
    known.append(-turns[1] * dot(known, turns) % p)

    def call(inputs: list[Any]) -> Any:
        wires.inputs.append(inputs)
        return known[2 * len(wires.inputs)]

    results = circuit.evaluated(call, vector, joint, shares)
    result = dot(results, random) if len(results) > 1 else results[0]
    point = random[-1]
    at_point = weights_at(field, nodes, point)
    inputs = [dot(at_point, polynomial) % p for polynomial in wires.polynomials(nodes)]
    return [result % p, *inputs, dot(weights_at(field, 2 * nodes, point), known) % p]


def dot(left: Sequence[Any], right: Sequence[Any]) -> Any:
    """Return Σ left_i·right_i over the shorter of two sequences, not reduced."""
    return sum(one * other for one, other in zip(left, right, strict=False))


def is_root(field: Field, point: Any, nodes: int) -> Any:
    """Return whether a point is a root of unity of an order that divides ``nodes``, a power of two."""
    for _ in range(nodes.bit_length() - 1):
        point = point * point % field.modulus
    return point == 1


def accepted(circuit: Circuit, verifier: Sequence[Any]) -> Any:
    """Return whether the sum of the collectors' numbers shows that a vector is permitted.

    Args:
        circuit: which vectors are permitted.
        verifier: for each number of :func:`query` the sum over all shares, reduced.
    """
    return (verifier[0] == 0) & (circuit.gadget(verifier[1:-1]) % circuit.field.modulus == verifier[-1])
