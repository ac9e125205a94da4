"""Real parties of the vertical form in memory: they count with noise and encrypt; the aggregator opens products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from protocol.schema import Schema, build_schema
from protocol.stream import SEED_BYTES
from research.products import product_keys
from research.vertical import ProductOpener, VerticalParty, VerticalTerms, class_weights
from simulation.experiment import records_of
from simulation.running import Randomness


class Parties(NamedTuple):
    """The parties of one trial, and the aggregator.

    Attributes:
        parties: one or more features each.
        features: indices of each party's features, in the order of its tables.
        opener: the aggregator's key and class weights.
    """

    parties: tuple[VerticalParty, ...]
    features: tuple[tuple[int, ...], ...]
    opener: ProductOpener

    def classify(self, records: pd.DataFrame, label: str) -> Integers:
        """The predicted class of every record, shape (n,) int64. Every party encrypts its number for every class.

        Args:
            records: n typed records with the column ``label``, which is not used.
            label: name of that column.
        """
        found = [
            self.opener.classify([party.encrypt(record, query) for party in self.parties], query)
            for query, (record, _) in enumerate(records_of(records, label))
        ]
        return np.array(found, np.int64)


def gather(schema: Schema, people: pd.DataFrame, nodes: int, terms: VerticalTerms, randomness: Randomness) -> Parties:
    """Divide the features among parties at random, in equal shares, and let each party count its tables once.

    Args:
        schema: all features and the label, without groups and projection.
        people: typed records with their label.
        nodes: number of parties, from 2 to the number of features.
        terms: of the campaign.
        randomness: entropy of keys and noise; division of the features.
    """
    order = randomness.noise.permutation(len(schema.features)).tolist()
    shares = tuple(tuple(sorted(order[party::nodes])) for party in range(nodes))
    keys = product_keys(nodes, randomness.entropy)
    label = schema.label.name
    parties: list[VerticalParty] = []
    for share, secret in zip(shares, keys.secrets, strict=True):
        own = build_schema(schema.label, [schema.features[feature] for feature in share])
        records = ({**record, label: value} for record, value in records_of(people, label))
        seed = randomness.entropy(SEED_BYTES)
        parties.append(VerticalParty(own, records, terms, secret, seed, with_classes=not parties))
    weights = class_weights(parties[0].class_counts, [feature.size for feature in schema.features])
    bounds = tuple(party.bound for party in parties)
    return Parties(
        tuple(parties), shares, ProductOpener(terms.campaign, terms.period, keys.aggregator, bounds, weights)
    )
