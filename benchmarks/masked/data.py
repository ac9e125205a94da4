"""Masked totals of a data set by the simulation's vector engine, and ten folds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.federated.data import PERIOD, Split
from protocol.epsilon import micro_epsilon
from simulation.masked.vector import numbers_of_setup, statistics_of, totals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from aggregator.estimates.statistics import Statistics
    from benchmarks.federated.data import Data
    from protocol.documents.campaign import Campaign
    from simulation.masked.terms import Terms

    Integers = NDArray[np.int64]

FOLDS = 10


def masked_campaign(data: Data, epsilon: str, parties: int, records: int, terms: Terms) -> Campaign:
    """A masked campaign for so many parties and records, unsigned."""
    most = -(-records // parties)
    masked = terms.masked(data.schema, data.family, parties, most, micro_epsilon(epsilon))
    return data.campaign(epsilon, most, masked)


def masked_statistics(
    data: Data,
    campaign: Campaign,
    rows: Integers,
    parties: int,
    rng: np.random.Generator,
    numbers: Mapping[int, int] | None = None,
) -> Statistics:
    """Statistics of the decrypted totals of records that are dealt to parties.

    Args:
        data: the data set.
        campaign: a masked campaign.
        rows: shape (n,) int64, row numbers of the records.
        parties: number of parties.
        rng: randomness of the noise.
        numbers: u → number of parties that have it in the key book; None for the numbers of the dealer's setup.
    """
    numbers = numbers_of_setup(parties) if numbers is None else numbers
    exact = data.exact(campaign, rows, 1, rng)[0]
    return statistics_of(totals(exact, campaign, numbers, rng).tolist(), campaign, numbers, PERIOD)


def folds(data: Data, rng: np.random.Generator) -> Iterator[Split]:
    """Endless splits into nine tenths and one tenth of the records: ten folds, then ten others."""
    while True:
        order = rng.permutation(len(data.labels))
        for fold in range(FOLDS):
            test = order[fold::FOLDS]
            yield Split(np.setdiff1d(order, test), test)
