"""Which ids stand more than once, without sorting whole ids.

Ids are pseudo-random, so dividing them by a few bits at a time, by a radix sort of one or two bytes, soon
leaves groups of which most have one member; only equal neighbours in these are looked at. This is about
as fast on every processor, while sorting 64-bit numbers is five times slower on some than on others.
Ids that somebody chose so that they agree in those bits are sorted after all: more slowly, and in no
worse order of growth.
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
    """Gathers ids and finds those that were added twice or more often.

    Args:
        expected: about how many ids there will be.
        known_bits: so many low bits are the same in all of them, so they tell nothing apart.
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
        """More ids, shape (N,)."""
        for start in range(0, len(ids), _SLAB):  # what is moved about stays in the cache
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
        """Those that stand more than once, each of them once."""
        found = [_repeated(ids[:used]) for ids, used in zip(self._ids, self._used, strict=True)]
        return _distinct(np.concatenate(found))

    def has_many(self) -> bool:
        """Whether so many stand more than once that looking each of them up takes longer than sorting them all.

        Ids are pseudo-random, so the first group tells; of ids that somebody chose it may be mistaken.
        """
        return len(_repeated(self._ids[0][: self._used[0]])) > _MANY * self._used[0]


def _distinct(ids: Ids) -> Ids:
    """Rising, each once. ``numpy.unique`` goes by a hash table, which is several times slower for these."""
    ids = np.sort(ids)
    return ids[np.concatenate([[True], ids[1:] != ids[:-1]])] if len(ids) else ids


def _repeated(ids: Ids) -> Ids:
    """Those that stand more than once, perhaps more than once here too; by their sixteen highest bits."""
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
    """Tells quickly which of many ids are among some few.

    Args:
        ids: these, rising, each once.
    """

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        bits = min(24, max(10, len(ids).bit_length() + 4))
        self._shift = np.uint64(64 - bits)
        self._may_be = np.zeros(1 << bits, np.bool_)
        self._may_be[ids >> self._shift] = True

    def rows(self, ids: Ids) -> NDArray[np.intp]:
        """Which rows of ``ids``, shape (N,), hold one of them, rising."""
        rows = np.flatnonzero(self._may_be.take((ids >> self._shift).view(np.int64)))
        candidates = ids.take(rows)
        place = np.minimum(self._ids.searchsorted(candidates), max(0, len(self._ids) - 1))
        return rows[self._ids.take(place) == candidates] if len(self._ids) else rows


def repeated_rows(ids: Ids, known_bits: int) -> NDArray[np.intp]:
    """The rows, rising, whose id stands in another row too. ``known_bits`` as in :class:`IdSet`."""
    gathered = IdSet(len(ids), known_bits)
    gathered.add(ids)
    return Members(gathered.repeated()).rows(ids)
