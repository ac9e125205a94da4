"""TurboSHAKE128, and the generator of seeds and field elements that Prio3 makes of it.

Source: RFC 9861, section 2, and draft-irtf-cfrg-vdaf-20, section 6.2.1 (XofTurboShake128). The hashes of the Python
standard library run Keccak with 24 rounds, and TurboSHAKE runs 12, so the permutation stands here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.shared.field import Field

SEED_BYTES = 32
RATE = 168
"""Bytes that one run of the permutation takes in or gives out."""
DOMAIN = 1
"""The byte behind the message: the domain of XofTurboShake128."""
_ALL = 2**64 - 1
_ROUNDS = (
    0x000000008000808B,
    0x800000000000008B,
    0x8000000000008089,
    0x8000000000008003,
    0x8000000000008002,
    0x8000000000000080,
    0x000000000000800A,
    0x800000008000000A,
    0x8000000080008081,
    0x8000000000008080,
    0x0000000080000001,
    0x8000000080008008,
)
"""The constants of the last 12 of Keccak's 24 rounds."""
_TURNS = (0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14)
"""By how many bits step ρ turns lane x + 5y."""
_MOVES = tuple((lane, lane // 5 + 5 * ((2 * (lane % 5) + 3 * (lane // 5)) % 5), _TURNS[lane]) for lane in range(25))
"""Steps ρ and π: (lane, the lane it moves to, bits it turns by)."""


def permuted(lanes: list[Any]) -> list[Any]:
    """Return Keccak-p[1600, 12] of a state: 25 lanes of 64 bits, lane x + 5y at column x and row y.

    A lane is an integer, or an array of unsigned 64-bit integers, one for each of several states.
    """
    moved: list[Any] = [0] * 25
    for constant in _ROUNDS:
        columns = [lanes[x] ^ lanes[x + 5] ^ lanes[x + 10] ^ lanes[x + 15] ^ lanes[x + 20] for x in range(5)]
        mixed = [columns[x - 1] ^ _turned(columns[(x + 1) % 5], 1) for x in range(5)]
        for lane, place, turn in _MOVES:
            moved[place] = _turned(lanes[lane] ^ mixed[lane % 5], turn)
        lanes = []
        for y in range(0, 25, 5):
            a, b, c, d, e = moved[y : y + 5]
            lanes += (a ^ (~b & c), b ^ (~c & d), c ^ (~d & e), d ^ (~e & a), e ^ (~a & b))
        lanes[0] = lanes[0] ^ constant
    return lanes


def _turned(lane: Any, turn: int) -> Any:
    return (lane << turn | lane >> (64 - turn)) & _ALL if turn else lane


class Xof:
    """An endless sequence of bytes from a seed.

    Args:
        seed: secret bytes, at most 255.
        tag: what the bytes are for (the draft's domain separation tag), at most 65,535 bytes.
        binder: public bytes on which the sequence also depends.
    """

    def __init__(self, seed: bytes, tag: bytes, binder: bytes) -> None:
        message = len(tag).to_bytes(2, "little") + tag + len(seed).to_bytes(1, "little") + seed + binder
        padded = bytearray(message + bytes([DOMAIN]))
        padded += bytes(-len(padded) % RATE)
        padded[-1] ^= 0x80
        self._lanes: list[int] = [0] * 25
        for start in range(0, len(padded), RATE):
            for lane in range(RATE // 8):
                at = start + 8 * lane
                self._lanes[lane] ^= int.from_bytes(padded[at : at + 8], "little")
            self._lanes = permuted(self._lanes)
        self._ready = self._block()

    def _block(self) -> bytes:
        return b"".join([lane.to_bytes(8, "little") for lane in self._lanes[: RATE // 8]])

    def next(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        while len(self._ready) < count:
            self._lanes = permuted(self._lanes)
            self._ready += self._block()
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def elements(self, field: Field, count: int) -> list[int]:
        """Return the next ``count`` field elements; numbers that are not below the modulus are left out."""
        found: list[int] = []
        while len(found) < count:
            encoded, size = self.next((count - len(found)) * field.size), field.size
            numbers = [int.from_bytes(encoded[at : at + size], "little") for at in range(0, len(encoded), size)]
            found += [number for number in numbers if number < field.modulus]
        return found


def derived_seed(seed: bytes, tag: bytes, binder: bytes) -> bytes:
    """Return a new seed of 32 bytes that depends on a seed, a tag and a binder, as of :class:`Xof`."""
    return Xof(seed, tag, binder).next(SEED_BYTES)
