"""Find ids that occur more than once, without sorting complete ids.

Ids are pseudo-random. Dividing them by a few bits at a time, with a radix sort of one or two bytes, soon leaves groups
that mostly have one member. Only neighbours within a group are compared. This takes about the same time on every
processor, while sorting 64-bit numbers is five times slower on some processors than on others. Ids that an attacker
chose to agree in these bits are sorted completely: more slowly, and in the same order of growth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]

_SLAB = 1 << 16
_GROUP = 1 << 15
_MAX_GROUPS = 1 << 8
_LAGS = 12
_MANY = 1 / 8


class IdSet:
    """Collects ids, and finds the ids that were added more than once.

    Args:
        expected: approximate number of ids.
        known_bits: number of lowest bits that are the same in all ids, and so can not tell ids apart.
    """

    def __init__(self, expected: int, known_bits: int) -> None:
        groups = 1
        while groups < _MAX_GROUPS and groups * _GROUP < expected:
            groups *= 2
        self._shift = np.uint64(known_bits)
        self._mask = np.uint8(groups - 1)
        room = expected // groups + 4 * int((expected / groups) ** 0.5) + 64
        self._ids = [np.empty(room, np.uint64) for _ in range(groups)]
        self._used = [0] * groups

    def add(self, ids: Ids) -> None:
        """Add ids, (N,) uint64."""
        for start in range(0, len(ids), _SLAB):  # the ids of one slab fit into the processor's cache
            self._add(ids[start : start + _SLAB])

    def _add(self, slab: Ids) -> None:
        if len(self._ids) == 1:
            self._append(0, slab)
            return
        key = (slab >> self._shift).astype(np.uint8) & self._mask
        moved = slab.take(np.argsort(key, kind="stable"))
        ends = np.cumsum(np.bincount(key, minlength=len(self._ids))).tolist()
        start = 0
        for group, end in enumerate(ends):
            self._append(group, moved[start:end])
            start = end

    def _append(self, group: int, ids: Ids) -> None:
        used = self._used[group]
        end = used + len(ids)
        if end > len(self._ids[group]):
            self._ids[group] = np.concatenate([self._ids[group][:used], np.empty(end, np.uint64)])
        self._ids[group][used:end] = ids
        self._used[group] = end

    def repeated(self) -> Ids:
        """The ids that were added more than once: (M,) uint64, sorted and distinct."""
        found = [_repeated(ids[:used]) for ids, used in zip(self._ids, self._used, strict=True)]
        return _distinct(np.concatenate(found))

    def has_many(self) -> bool:
        """Whether so many ids repeat that looking each one up takes longer than sorting all.

        Only a sample of the ids is examined, which suffices for pseudo-random ids. For ids that an attacker chose the
        answer may be wrong, which costs time only.
        """
        return len(_repeated(self._ids[0][: self._used[0]])) > _MANY * self._used[0]


def _distinct(ids: Ids) -> Ids:
    """Sort ids, (N,) uint64, and drop repeats. ``numpy.unique`` uses a hash table, which is several times slower."""
    ids = np.sort(ids)
    return ids[np.concatenate([[True], ids[1:] != ids[:-1]])] if len(ids) else ids


def _repeated(ids: Ids) -> Ids:
    """Ids that occur more than once in (N,) uint64, in any order, some perhaps several times.

    Ids are grouped by their sixteen highest bits. Large groups are sorted.
    """
    key = (ids >> np.uint64(48)).astype(np.uint16)
    order = np.argsort(key, kind="stable")
    key, ids = key.take(order), ids.take(order)
    found = []
    for lag in range(1, _LAGS + 1):
        near = np.flatnonzero(key[lag:] == key[:-lag])
        if not len(near):
            break
        here = ids.take(near)
        found.append(here[here == ids.take(near + lag)])
    else:
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        lengths = np.diff(np.append(starts, len(key)))
        crowd = np.sort(ids[np.repeat(lengths > _LAGS, lengths)])
        found.append(crowd[1:][crowd[1:] == crowd[:-1]])
    return np.concatenate([ids[:0], *found])


class Members:
    """Finds quickly which of many ids are in a small set.

    Args:
        ids: the set, (M,) uint64, sorted and distinct.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        bits = min(24, max(10, len(ids).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._may_be = np.zeros(1 << bits, np.bool_)
        self._may_be[ids >> self._shift] = True

    def rows(self, ids: Ids) -> NDArray[np.intp]:
        """Indices of the elements of ``ids``, (N,) uint64, that are in the set: (R,) intp, rising."""
        rows = np.flatnonzero(self._may_be.take((ids >> self._shift).view(np.int64)))
        candidates = ids.take(rows)
        place = np.minimum(self._ids.searchsorted(candidates), max(0, len(self._ids) - 1))
        return rows[self._ids.take(place) == candidates] if len(self._ids) else rows


def repeated_rows(ids: Ids, known_bits: int) -> NDArray[np.intp]:
    """Indices of the elements that occur more than once.

    Args:
        ids: (N,) uint64.
        known_bits: number of lowest bits that are the same in all ids.

    Returns:
        (R,) intp, rising; every occurrence of a repeated id is included.
    """
    gathered = IdSet(len(ids), known_bits)
    gathered.add(ids)
    return Members(gathered.repeated()).rows(ids)
