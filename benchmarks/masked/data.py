"""Statistics of masked totals of a data set by the vector engine, and splits into ten folds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.estimates.statistics import Statistics
from aggregator.nodes.campaigns.campaigns import Masking, masked_terms
from benchmarks.federated.data import PERIOD, Data, Split
from protocol.documents.campaign import Campaign
from protocol.documents.masked_terms import NodeTerms
from protocol.epsilon import micro_epsilon
from simulation.drawn import numbers_of_setup, total_statistics, totals
from simulation.parties import made_up_dealer

FOLDS = 10


def masked_campaign(
    data: Data,
    epsilon: str,
    parties: int,
    records: int,
    noise: str,
    delta: str | None = None,
    *,
    honest: str = "1",
) -> Campaign:
    """Return an unsigned masked campaign whose ε is for adding or removing a record.

    ``delta``: δ of a whole total, None for ``divided`` noise. ``honest``: γ, the share of parties whose noise suffices.
    """
    most, micro = -(-records // parties), micro_epsilon(epsilon)
    masking = Masking(made_up_dealer(), honest, parties, noise=noise, delta=delta)
    terms = masked_terms(masking, NodeTerms("nodes", most, micro), data.schema, data.family, micro)
    return data.campaign(epsilon, most, terms)


def masked_statistics(
    data: Data,
    campaign: Campaign,
    rows: Integers,
    parties: int,
    rng: np.random.Generator,
    numbers: Mapping[int, int] | None = None,
) -> Statistics:
    """Return statistics of the decrypted totals of records that are dealt to parties.

    Args:
        rows: shape (n,) int64, row numbers of the records.
        numbers: number u of a party in the key book → how many parties have this u; None for those of the dealer's
            setup.
    """
    numbers = numbers_of_setup(parties) if numbers is None else numbers
    exact = data.exact(campaign, rows, 1, rng)[0]
    return total_statistics(totals(exact, campaign, numbers, rng).tolist(), campaign, numbers, PERIOD)


def folds(data: Data, rng: np.random.Generator) -> Iterator[Split]:
    """Yield endless splits into nine tenths and one tenth of the records: ten folds, then ten other folds."""
    while True:
        order = rng.permutation(len(data.labels))
        for fold in range(FOLDS):
            test = order[fold::FOLDS]
            yield Split(np.setdiff1d(order, test), test)
