"""Names of the types of arrays, for annotations, and sums by key."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def run_starts(values: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices at which the K runs of equal values begin in N values, (N,): (K,) intp, rising."""
    return np.flatnonzero(np.concatenate([[True] * bool(len(values)), values[1:] != values[:-1]]))


def sums_by_key(key: Integers, amount: Integers) -> tuple[Integers, Integers]:
    """Add up those of N amounts, (N,), that have equal keys: the keys, rising, and their sums, without sums of 0."""
    order = np.argsort(key, kind="stable")
    key = key.take(order)
    starts = run_starts(key)
    sums = np.add.reduceat(amount.take(order), starts) if len(key) else amount
    return key[starts][sums != 0], sums[sums != 0]
