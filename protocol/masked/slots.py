"""Several signed numbers in one plaintext: slots of w bits, ⌊2000/w⌋ slots in each plaintext.

    x = Σ_s v_s · 2^(w·s),  s = 0 … ⌊2000/w⌋ − 1

x is linear in the numbers: the sum of several nodes' plaintexts is the plaintext of the sums, also where a single x is
negative, and whatever the numbers are. A total is read back if each |Σ v_s| < 2^(w−1). The slots leave 48 of the 2048
bits of N free, and what is above the last used slot must be 0 in a total.
Source: docs/math.md, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.documents.masked_terms import PLAINTEXT_BITS
from protocol.errors import DocumentError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

SPACE = PLAINTEXT_BITS
"""Bits of a plaintext that hold slots: 2000."""


class Slots:
    """How numbers are laid out in plaintexts.

    Args:
        bits: w, the bits of one slot, 2 … ``space``.
        space: bits of a plaintext; smaller ones are for tests with a short modulus.

    Attributes:
        bits: w.
        each: the number of slots in one plaintext.

    Raises:
        InputError: ``argument_invalid``: w is not from 2 to ``space``.
    """

    __slots__ = ("bits", "each")

    def __init__(self, bits: int, space: int = SPACE) -> None:
        if not 2 <= bits <= space:
            raise InputError("argument_invalid", f"a slot has 2 to {space} bits")
        self.bits = bits
        self.each = space // bits

    def plaintexts(self, count: int) -> int:
        """J: the number of plaintexts for ``count`` numbers; the last one may have unused slots."""
        return -(-count // self.each)

    def pack(self, numbers: Sequence[int]) -> list[int]:
        """Lay out numbers, each of them checked against its slot.

        Args:
            numbers: integers of any sign, at least one.

        Returns:
            The plaintexts x, in order, of :meth:`plaintexts` entries. A plaintext may be negative.

        Raises:
            InputError: ``slot_overflow``: some |v| ≥ 2^(w−1). The text names the position, not the number.
        """
        limit = 1 << (self.bits - 1)
        for place, value in enumerate(numbers):
            if not -limit < value < limit:
                raise InputError("slot_overflow", f"number {place} does not fit into a slot of {self.bits} bits")
        return self.spread(numbers)

    def spread(self, numbers: Sequence[int]) -> list[int]:
        """Lay out numbers of any size, without a check: :meth:`pack` for noise.

        Noise has no bound. The plaintext of exact numbers plus noise is ``pack(numbers)`` + ``spread(noise)``, entry by
        entry. A refusal that depends on the noise would tell something that the noise does not hide. A number too large
        for its slot changes its neighbours in the total; it does not change what the total tells about a record.
        """
        return [
            sum(value << (self.bits * slot) for slot, value in enumerate(numbers[start : start + self.each]))
            for start in range(0, len(numbers), self.each)
        ]

    def unpack(self, plaintexts: Sequence[int], count: int) -> list[int]:
        """Read numbers back: take the lowest w bits as a signed number, subtract it, shift, and so on.

        Args:
            plaintexts: signed totals of plaintexts, in order.
            count: how many numbers were packed.

        Returns:
            ``count`` integers of [−2^(w−1), 2^(w−1)).

        Raises:
            DocumentError: ``mask_mismatch``: another number of plaintexts than ``count`` numbers have, or a remainder
                after the last used slot.
        """
        if len(plaintexts) != self.plaintexts(count):
            raise DocumentError("mask_mismatch", f"{count} numbers have {self.plaintexts(count)} plaintexts")
        found: list[int] = []
        half, low = 1 << (self.bits - 1), (1 << self.bits) - 1
        for plaintext in plaintexts:
            rest = plaintext
            for _ in range(min(self.each, count - len(found))):
                value = ((rest + half) & low) - half
                found.append(value)
                rest = (rest - value) >> self.bits
            if rest:
                raise DocumentError("mask_mismatch", "a decrypted total has more than its slots hold")
        return found
