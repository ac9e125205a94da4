"""What the aggregator needs beside the class. The family brings estimator, noise law and interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggregator.estimates.debias import Law, Marginal, debias, marginal, pairs_of
from aggregator.publishing.mechanisms.draws import draw
from more_mechanisms.hadamard import Hadamard
from protocol.mechanisms.base import ONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@draw.register(Hadamard)
def draw_hadamard(mechanism: Hadamard, inputs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """As the device, with arrays."""
    columns = rng.integers(0, mechanism.answers, len(inputs))
    rows = inputs + 1
    fits = _even(rows & columns)
    wanted = rng.integers(0, ONE, len(inputs)) < mechanism.threshold
    return np.where(fits == wanted, columns, columns ^ (rows & -rows))


def _even(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.array([number.bit_count() % 2 == 0 for number in numbers.tolist()], np.bool_)


@pairs_of.register(Hadamard)
def pairs_of_hadamard(_mechanism: Hadamard) -> None:
    """None: two rows go together with a third one, which is their sum, and with no other."""


@marginal.register(Hadamard)
def marginal_hadamard(mechanism: Hadamard, n: int, counts: Sequence[int], groups: int) -> Marginal:
    """Sums of the values' estimates. The law is an upper bound: at most every second pair of rows goes together.

    The covariance of such a pair is (2p − 1)/4, that of all others is 0.
    """
    members, p = len(counts) // groups, float(mechanism.p)
    cells = debias(mechanism, n, counts).estimate.reshape(members, groups)
    apart = (2 * p - 1) / 2
    at_zero = members / 4 + members // 2 * apart
    at_one = p * (1 - p) + (members - 1) / 4 + (members - 1) // 2 * apart
    return Marginal(cells.sum(axis=0), Law(at_zero / (p - 0.5) ** 2, at_one / (p - 0.5) ** 2))
