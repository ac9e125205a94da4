"""Field elements of many reports at once, as numpy arrays that compute like Python's integers.

An element is Σ l_i·2^(26·i) with n signed limbs l_i, 5 of them for a field of 128 bits. A product has 2n limbs of some
54 bits, so 64 bits hold a sum of dozens of products. As with integers, ``+``, ``-`` and ``*`` let numbers grow, and
``% p`` reduces them; before a limb could overflow, they are reduced by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Integers
from protocol.shared.field import FIELD64, FIELD128, Field

BITS = 26
MASK = (1 << BITS) - 1
SMALL = 1 << (BITS + 1)
"""The size of a limb after a reduction."""
LOOSE = 6 * SMALL
"""The size of limbs that ``%`` leaves as they are: the columns of a product of two such stay below :data:`LARGEST`."""
LARGEST = 1 << 62
"""The size that no limb reaches."""
LIMBS = {FIELD64: 3, FIELD128: 5}
_FOLDS = {FIELD64: ((0, -(1 << 14)), (1, 1 << 20)), FIELD128: ((0, -4), (2, 7 << 16))}
"""2^(26·n) modulo p, as limbs that are not 0: (position, value)."""


class Elements:
    """N elements of a field.

    Args:
        field: the field.
        limbs: shape (n or 2n, N) int64, signed.
        size: what no limb exceeds in size.
    """

    __slots__ = ("field", "limbs", "size")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, field: Field, limbs: Integers, size: int = SMALL) -> None:
        self.field, self.limbs, self.size = field, limbs, size

    def _other(self, other: Elements | int) -> Elements:
        return other if isinstance(other, Elements) else Elements(self.field, _constant(self.field, other))

    def _added(self, other: Elements, sign: int) -> Elements:
        one, two = self, other
        if one.size + two.size >= LARGEST:
            one, two = one.reduced(), two.reduced()
        if len(one.limbs) == len(two.limbs):
            limbs = one.limbs + two.limbs if sign > 0 else one.limbs - two.limbs
        else:
            shape = (2 * LIMBS[self.field], max(one.limbs.shape[1], two.limbs.shape[1]))
            limbs = np.zeros(shape, np.int64)
            limbs[: len(one.limbs)] = one.limbs
            limbs[: len(two.limbs)] += two.limbs if sign > 0 else -two.limbs
        return Elements(self.field, limbs, one.size + two.size)

    def __add__(self, other: Elements | int) -> Elements:
        return self if isinstance(other, int) and other == 0 else self._added(self._other(other), 1)

    __radd__ = __add__

    def __sub__(self, other: Elements | int) -> Elements:
        return self if isinstance(other, int) and other == 0 else self._added(self._other(other), -1)

    def __rsub__(self, other: int) -> Elements:
        return self._other(other)._added(self, -1)

    def __mul__(self, other: Elements | int) -> Elements | int:
        if isinstance(other, int) and other == 0:
            return 0
        one, two, n = self % self.field.modulus, self._other(other) % self.field.modulus, LIMBS[self.field]
        columns = np.zeros((2 * n, max(one.limbs.shape[1], two.limbs.shape[1])), np.int64)
        for position in range(n):
            columns[position : position + n] += one.limbs[position] * two.limbs
        return Elements(self.field, columns, n * one.size * two.size)

    __rmul__ = __mul__

    def __mod__(self, modulus: int) -> Elements:
        return self if len(self.limbs) == LIMBS[self.field] and self.size <= LOOSE else self.reduced()

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        assert isinstance(other, Elements | int)
        return np.array([value == 0 for value in (self - other).integers()])

    def reduced(self) -> Elements:
        """Return the same elements with n limbs of at most :data:`SMALL`."""
        if len(self.limbs) == LIMBS[self.field] and self.size <= SMALL:
            return self
        return Elements(self.field, _reduced(self.field, self.limbs))

    def integers(self) -> list[int]:
        """Return the N elements as integers in [0, p)."""
        limbs = self.limbs.astype(object)
        total = sum(limb << BITS * position for position, limb in enumerate(limbs)) % self.field.modulus
        return list(total)


def decoded(field: Field, encoded: NDArray[np.uint8]) -> tuple[list[Elements], NDArray[np.bool_]]:
    """Return the elements that each of N reports holds, and whether all of a report's are below the modulus.

    Args:
        field: the field.
        encoded: shape (N, count · bytes of an element) uint8.

    Returns:
        ``count`` times the elements of N reports, and shape (N,) bool.
    """
    words = np.ascontiguousarray(encoded).view("<u8").reshape(len(encoded), -1, field.size // 8).T
    low, high = words[0], words[-1]
    if field.size == 8:
        limbs = [low & MASK, low >> 26 & MASK, low >> 52]
        below = low < field.modulus
    else:
        limbs = [low & MASK, low >> 26 & MASK, (low >> 52 | high << 12) & MASK, high >> 14 & MASK, high >> 40]
        top, bottom = divmod(field.modulus, 2**64)
        below = (high < top) | ((high == top) & (low < bottom))
    joined = np.stack(limbs, axis=1).astype(np.int64)
    return [Elements(field, one) for one in joined], np.asarray(below.all(axis=0))


def encoded(elements: Sequence[Elements]) -> NDArray[np.uint8]:
    """Return the bytes of several elements of each of N reports, as :meth:`protocol.shared.field.Field.encode` does.

    Returns:
        Shape (N, bytes of all elements) uint8.
    """
    field = elements[0].field
    n, bits = LIMBS[field], 8 * field.size - BITS * (LIMBS[field] - 1)
    limbs = np.stack([element.reduced().limbs for element in elements], axis=1)
    # 2^(8·size) − p as limbs: whatever is above the last bit is folded twice, then it is at most p too large.
    rest = [(0, -1), (1, 1 << 6)] if field.size == 8 else [(0, -1), (2, 7 << 14)]
    for _ in range(2):
        _carried_up(limbs)
        above = limbs[-1] >> bits
        limbs[-1] -= above << bits
        for position, value in rest:
            limbs[position] += above * value
    _carried_up(limbs)
    less = limbs.copy()
    for position, value in rest:
        less[position] += value
    _carried_up(less)
    limbs = np.where(less[-1] >> bits > 0, less, limbs).astype(np.uint64)
    words = [limbs[0] | limbs[1] << 26 | limbs[2] << 52]
    if n > 3:
        words.append(limbs[2] >> 12 | limbs[3] << 14 | limbs[4] << 40)
    joined = np.stack(words, axis=-1).astype("<u8").transpose(1, 0, 2)
    return np.ascontiguousarray(joined).view(np.uint8).reshape(limbs.shape[2], -1)


def _carried_up(limbs: Integers) -> None:
    """Carry from the first limb to the last, so that all but the last are in [0, 2^26)."""
    for position in range(len(limbs) - 1):
        limbs[position + 1] += limbs[position] >> BITS
        limbs[position] &= MASK


@lru_cache(maxsize=4096)
def _constant(field: Field, value: int) -> Integers:
    value %= field.modulus
    return np.array([value >> (BITS * position) & MASK for position in range(LIMBS[field])], np.int64)[:, None]


def _carried(limbs: Integers) -> Integers:
    """Carry every limb to the next one, twice. The last limb takes what comes and gives nothing."""
    for _ in range(2):
        carry = limbs[:-1] >> BITS
        limbs[:-1] &= MASK
        limbs[1:] += carry
    return limbs


def _reduced(field: Field, limbs: Integers) -> Integers:
    """Return n limbs of at most :data:`SMALL` with the value of more or larger ones, modulo p."""
    n, folds = LIMBS[field], _FOLDS[field]
    room = np.zeros((len(limbs) + (2 if len(limbs) == n else 1), limbs.shape[1]), np.int64)
    room[: len(limbs)] = limbs
    limbs = _carried(room)
    while len(limbs) > n:
        high = limbs[n:]
        # The last fold is of one small limb, and leaves nothing above the n-th.
        size = n if len(high) == 1 else max(n, len(high) + folds[-1][0]) + 1
        folded = np.zeros((size, limbs.shape[1]), np.int64)
        folded[:n] = limbs[:n]
        for position, value in folds:
            folded[position : position + len(high)] += high * value
        limbs = _carried(folded)
    return limbs
