"""Which records share an id with another one, without sorting whole ids.

Ids are pseudo-random, so dividing them by a few bits at a time, by a radix sort of one or two bytes, soon
leaves groups of which most have one member; only equal neighbours in these are looked at. This is about
as fast on every processor, while sorting 64-bit numbers is five times slower on some than on others.
Ids that somebody chose so that they agree in those bits are sorted after all: more slowly, and in no
worse order of growth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SLAB = 1 << 17
_GROUP = 1 << 15
_LAGS = 12


def repeated_rows(ids: NDArray[np.uint64], known_bits: int) -> NDArray[np.intp]:
    """The rows, in no particular order, whose id stands in another row too.

    Args:
        ids: shape (N,).
        known_bits: so many low bits are the same in all of them, so they tell nothing apart.
    """
    if len(ids) <= 2 * _GROUP:
        return _in_group(ids)
    found = [rows[_in_group(group)] for group, rows in _groups(ids, known_bits)]
    return np.concatenate(found)


def _groups(ids: NDArray[np.uint64], shift: int) -> list[tuple[NDArray[np.uint64], NDArray[np.intp]]]:
    """The ids in 256 groups by the eight bits from ``shift`` on, each with its ids' rows."""
    pieces: list[list[tuple[NDArray[np.uint64], NDArray[np.uint32]]]] = [[] for _ in range(256)]
    for start in range(0, len(ids), _SLAB):  # what is moved about stays in the cache
        slab = ids[start : start + _SLAB]
        key = (slab >> np.uint64(shift)).astype(np.uint8)
        order = np.argsort(key, kind="stable")
        moved, rows = slab.take(order), (order + start)
        ends = np.cumsum(np.bincount(key, minlength=256)).tolist()
        begin = 0
        for group, end in zip(pieces, ends, strict=True):
            if end > begin:
                group.append((moved[begin:end], rows[begin:end]))
            begin = end
    return [
        (np.concatenate([part for part, _ in group]), np.concatenate([rows for _, rows in group]))
        for group in pieces
        if group
    ]


def _in_group(ids: NDArray[np.uint64]) -> NDArray[np.intp]:
    """:func:`repeated_rows` of few ids, by their sixteen highest bits."""
    key = (ids >> np.uint64(48)).astype(np.uint16)
    order = np.argsort(key, kind="stable")
    key, ids = key.take(order), ids.take(order)
    repeated = np.zeros(len(ids), np.bool_)
    for lag in range(1, _LAGS + 1):
        near = np.flatnonzero(key[lag:] == key[:-lag])
        if not len(near):
            return order[repeated]
        equal = near[ids.take(near) == ids.take(near + lag)]
        repeated[equal] = True
        repeated[equal + lag] = True
    starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    lengths = np.diff(np.append(starts, len(key)))
    crowd = np.flatnonzero(np.repeat(lengths > _LAGS, lengths))
    by_id = crowd[np.argsort(ids[crowd])]
    same = np.flatnonzero(ids[by_id[1:]] == ids[by_id[:-1]])
    repeated[by_id[same]] = True
    repeated[by_id[same + 1]] = True
    return order[repeated]
