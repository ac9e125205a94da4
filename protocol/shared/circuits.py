"""Circuits for vectors of zeros and ones.

Source: draft-irtf-cfrg-vdaf-20, sections 7.4.3 (parallel sums of products), 7.4.4 and 7.4.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.errors import InputError
from protocol.shared.field import FIELD128
from protocol.shared.proofs import Circuit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.shared.proofs import Call


class Bits(Circuit):
    """Vectors of zeros and ones: Σ r^j·x·(x − 1) over each chunk is 0 for a random r only if every x is 0 or 1.

    Args:
        length: elements of the vector.
        chunk: elements that one call of the gadget checks. The proof is shortest near the square root of ``length``.
    """

    field = FIELD128
    results = 1

    def __init__(self, length: int, chunk: int) -> None:
        if length < 1 or chunk < 1:
            raise InputError("shape_invalid", "a vector and a chunk have at least one element")
        self.length = self.outputs = length
        self.chunk, self.arity = chunk, 2 * chunk
        self.calls = self.joint = -(-length // chunk)

    def gadget(self, inputs: Sequence[Any]) -> Any:
        """Return the sum of the products of neighbouring inputs."""
        return sum(left * right for left, right in zip(inputs[::2], inputs[1::2], strict=True))

    def evaluated(self, call: Call, vector: Sequence[Any], joint: Sequence[Any], shares: int) -> list[Any]:
        """Return one number, 0 if every element is 0 or 1."""
        p = self.field.modulus
        one = self.field.inverse(shares)
        total: Any = 0
        for number, r in enumerate(joint):
            inputs: list[Any] = []
            power = r
            for element in vector[number * self.chunk : (number + 1) * self.chunk]:
                inputs += (power * element % p, (element - one) % p)
                power = power * r % p
            inputs += [0, -one % p] * ((self.arity - len(inputs)) // 2)
            total = total + call(inputs)
        return [total % p]


class Blocks(Bits):
    """Vectors of blocks of which each holds one 1 and else zeros: for each asked feature, one of its cells.

    The check of a histogram, for several blocks at once: every element is 0 or 1, and every block adds up to 1. With
    one block it is the draft's ``Histogram``.

    Args:
        sizes: elements of each block.
        chunk: as of :class:`Bits`.
    """

    def __init__(self, sizes: Sequence[int], chunk: int) -> None:
        super().__init__(sum(sizes), chunk)
        self.sizes = tuple(sizes)
        self.results = 1 + len(self.sizes)

    def evaluated(self, call: Call, vector: Sequence[Any], joint: Sequence[Any], shares: int) -> list[Any]:
        """Return the number of :class:`Bits`, and for each block its sum minus 1."""
        p, start = self.field.modulus, 0
        one = self.field.inverse(shares)
        results = super().evaluated(call, vector, joint, shares)
        for size in self.sizes:
            results.append((sum(vector[start : start + size]) - one) % p)
            start += size
        return results

    def encoded(self, cells: Sequence[int]) -> list[int]:
        """Return the vector with a 1 at one cell of each block.

        Args:
            cells: for each block the number of its cell, from 0.

        Raises:
            InputError: ``value_out_of_domain``: a block has no such cell; ``shape_invalid``: another number of blocks.
        """
        if len(cells) != len(self.sizes):
            raise InputError("shape_invalid", f"{len(cells)} cells for {len(self.sizes)} blocks")
        vector: list[int] = []
        for size, cell in zip(self.sizes, cells, strict=True):
            if not 0 <= cell < size:
                raise InputError("value_out_of_domain", f"a block of {size} cells has no cell {cell}")
            vector += [0] * cell + [1] + [0] * (size - 1 - cell)
        return vector
