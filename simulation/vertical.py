"""``vertical`` trust: parties hold different features of the same records, and know all labels.

The features are divided among N parties at random, in equal shares. Every party counts its features' values by class
and adds discrete Laplace noise once; the class counts get noise once, too. With F features every count gets ε_q = ⌊ε/(F
+ 1)⌋, so adding or removing a record costs at most ε. For a record to classify the aggregator decrypts a product per
class and compares the classes (:mod:`research.vertical`).

The engine ``device`` runs the parties' code with real ciphertexts, each distinct record once; ``vector`` multiplies the
same numbers by numpy. Equal tables give equal predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.models.encoding import MISSING, label_codes, observe, recognise
from aggregator.publishing.mechanisms.draws import discrete_laplace
from protocol.documents.campaign import DISCRETE, Fit
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.questions import ADD_REMOVE, discrete_subjects
from protocol.schema import Schema, build_schema
from protocol.stream import SEED_BYTES
from research.products import product_keys
from research.vertical import ProductOpener, VerticalParty, VerticalTerms, class_weights
from simulation.design import Design
from simulation.drawn import exact_sums
from simulation.local import records_of
from simulation.nodes import labelled_records
from simulation.settings import Settings
from simulation.trust import Lab, Part, Randomness, Trial, Trust, accuracies, trial_of

SLOW_QUERIES = 200
"""Above this number of test records the engine ``device`` is announced as slow."""
FAST_SECONDS, SLOW_SECONDS = 0.006, 0.05
"""About how long a processor takes for one power of 2048 bits, with gmpy2 and without."""


class Tables(NamedTuple):
    """Noisy counts of a trial.

    Attributes:
        counts: shape (k,) int64, records per class; may be negative.
        tables: per feature, shape (values, k) int64, records per value and class, cut to 0 … the public bound.
    """

    counts: Integers
    tables: tuple[Integers, ...]


class VerticalTrust(Trust):
    """Nodes hold different features of the same records. No trial has a model, since all parties classify together."""

    def __init__(self, settings: Settings, design: Design, tests: int) -> None:
        """Check the settings. ``tests``: number of records to classify in a trial; many are announced as slow.

        Raises InputError ``setting_invalid``: no number of parties, a single party, more parties than features, or
        groups of values; ``epsilon_invalid``: ε is too small to be divided.
        """
        schema = design.template_schema()
        self._features = len(schema.observed)
        if settings.nodes is None:
            raise InputError("setting_invalid", "vertical trust needs a number of parties (--nodes)")
        if not 2 <= settings.nodes <= self._features:
            raise InputError(
                "setting_invalid",
                f"vertical trust has 2 to {self._features} parties, since each holds one of {self._features} features",
            )
        if micro_epsilon(settings.epsilon) <= self._features:
            raise InputError("epsilon_invalid", f"ε is less than a millionth for each of {self._features + 1} tables")
        if schema.groups:
            raise InputError("setting_invalid", "vertical trust counts single values; give a schema without groups")
        powers = tests * len(schema.label.classes) * (settings.nodes + 1)
        if settings.engine == "device" and tests > SLOW_QUERIES:
            slow = (
                f"the engine device computes {powers} powers for {tests} test records in every trial, about "
                f"{powers * FAST_SECONDS:.0f} s, or {powers * SLOW_SECONDS:.0f} s without gmpy2; the engine vector has "
                "tables of the same law, and opens nothing"
            )
            self.warnings = (slow,)

    def collect(self, lab: Lab, part: Part, shared: None) -> Trial:
        """Count the learning part once with noise, and classify the test part (:meth:`Trust.collect`).

        Raises InputError ``no_labels``; ``product_overflow``, from the engine ``device``: too many features for their
        products to fit.
        """
        del shared
        settings, schema, randomness = lab.settings, part.schema, lab.randomness
        people, test = part.fleet(settings.devices), part.split.test
        labels = label_codes(test, schema.label)
        known = labels != MISSING
        if not known.any():
            raise InputError("no_labels", "no test record has a known label")
        codes = recognise(test, schema).codes[known]
        queries, first, places = np.unique(codes, axis=0, return_index=True, return_inverse=True)
        share = self._share(settings)
        if settings.engine == "device":
            terms = VerticalTerms(randomness.entropy(32), 0, share, len(people))
            parties = divided_among(schema, people, settings.nodes or 0, terms, randomness)
            found = parties.classify(test[known].iloc[first], schema.label.name)
        else:
            learned = label_codes(people, schema.label, substitute=True)
            owners = np.zeros(len(people), np.int64)
            exact = exact_sums(discrete_subjects(schema), observe(people, schema), learned, owners, 1)[0]
            terms = VerticalTerms(bytes(32), 0, share, len(people))
            found = predict(draw_tables(exact, schema, terms, randomness.noise), queries)
        accuracy = float((found[places.ravel()] == labels[known]).mean())
        products = len(queries) * len(schema.label.classes)
        measured = {"accuracy": accuracy, "devices": len(people), "reports": products, "rejected": {}}
        return trial_of(part, people, schema, Fit(DISCRETE, ""), **measured)

    def _share(self, settings: Settings) -> int:
        return micro_epsilon(settings.epsilon) // (self._features + 1)

    def summary(self, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
        """Return the means of the accuracies, the cost of all tables together, and the settings."""
        features, share = self._features, self._share(settings)
        assert settings.nodes is not None
        return {
            "trust": "vertical",
            **accuracies(trials, settings.repeats),
            "epsilon_total": (features + 1) * share / MICRO,
            "epsilon_per_count": share / MICRO,
            "adjacency": ADD_REMOVE,
            "epsilon_change": 2 * (features + 1) * share / MICRO,
            "delta_total": 0.0,
            "nodes": settings.nodes,
            "node_features": [features // settings.nodes, -(-features // settings.nodes)],
            "family": "discrete",
            "engine": settings.engine,
            "records": trials[0].devices,
            "test_records": trials[0].test_records,
            "products": sum(trial.reports for trial in trials),
            "repeats": settings.repeats,
            "trials": len(trials),
        }


def draw_tables(exact: Integers, schema: Schema, terms: VerticalTerms, rng: np.random.Generator) -> Tables:
    """Return the class counts and the tables of all features with noise, in the public range.

    Args:
        exact: shape (M,) int64, the exact class counts, then the counts by value and class of all features.
        terms: ε of every count, and the public bound.
    """
    noisy = exact + discrete_laplace(terms.epsilon_micro / MICRO, exact.shape, rng)
    subjects, classes = discrete_subjects(schema), len(schema.label.classes)
    ends = np.cumsum([subject.size for subject in subjects])
    parts = np.split(noisy, ends[:-1])
    return Tables(parts[0], tuple(np.clip(part, 0, terms.largest).reshape(-1, classes) for part in parts[1:]))


def predict(tables: Tables, codes: Integers) -> Integers:
    """Return the predicted class of every record, shape (n,) int64, by exact integers.

    ``codes``: shape (n, features) int64, value codes, -1 for a missing value.
    """
    weights = class_weights(tables.counts.tolist(), [len(table) for table in tables.tables])
    scores = np.tile(np.array(weights, object), (len(codes), 1))
    for table, column in zip(tables.tables, codes.T, strict=True):
        smoothed = table.astype(object) + 1
        scores *= np.vstack([smoothed, smoothed.sum(axis=0)])[column]  # the code -1 is the last row: the sums
    found: Integers = np.argmax(scores, axis=1).astype(np.int64)
    return found


class Parties(NamedTuple):
    """The parties of one trial, the indices of each one's features by table, and the aggregator's opener."""

    parties: tuple[VerticalParty, ...]
    features: tuple[tuple[int, ...], ...]
    opener: ProductOpener

    def classify(self, records: pd.DataFrame, label: str) -> Integers:
        """Return the predicted class of every record, shape (n,) int64.

        For every record and class each party encrypts one number. ``records``: n typed records with the column
        ``label``, which is not used.
        """
        found = [
            self.opener.classify([party.encrypt(record, query) for party in self.parties], query)
            for query, (record, _) in enumerate(records_of(records, label))
        ]
        return np.array(found, np.int64)


def divided_among(
    schema: Schema, people: pd.DataFrame, nodes: int, terms: VerticalTerms, randomness: Randomness
) -> Parties:
    """Divide the features among parties at random, in equal shares, and let each party count its tables once.

    Args:
        schema: all features and the label, without groups and projection.
        nodes: number of parties, from 2 to the number of features.
        randomness: for keys and noise, and for the division of the features.
    """
    order = randomness.noise.permutation(len(schema.features)).tolist()
    shares = tuple(tuple(sorted(order[party::nodes])) for party in range(nodes))
    keys = product_keys(nodes, randomness.entropy)
    label = schema.label.name
    parties: list[VerticalParty] = []
    for share, secret in zip(shares, keys.secrets, strict=True):
        own = build_schema(schema.label, [schema.features[feature] for feature in share])
        records = labelled_records(people, label)
        seed = randomness.entropy(SEED_BYTES)
        parties.append(VerticalParty(own, records, terms, secret, seed, with_classes=not parties))
    weights = class_weights(parties[0].class_counts, [feature.size for feature in schema.features])
    bounds = tuple(party.bound for party in parties)
    return Parties(
        tuple(parties), shares, ProductOpener(terms.campaign, terms.period, keys.aggregator, bounds, weights)
    )
