"""Simulations of ``vertical`` trust: parties hold different features of the same records, and know all labels.

The features are divided among N parties at random, in equal shares. Every party counts its features' values by class
and adds discrete Laplace noise once; the class counts get noise once, too. Every count has ε_q = ⌊ε/(F + 1)⌋, so adding
or removing a record costs ε for F features. For a record to classify the aggregator opens a product per class and
compares the classes (:mod:`research.vertical`).

The engine ``device`` runs the parties' code with real ciphertexts, each distinct record once; ``vector`` multiplies the
same numbers by numpy. Equal tables give equal predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.models.baselines import fit_majority, fit_plain
from aggregator.models.encoding import MISSING, label_codes, observe, recognise
from aggregator.publishing.workspace import Workspace
from protocol.epsilon import MICRO, micro_epsilon
from protocol.errors import InputError
from protocol.questions import discrete_subjects
from protocol.schema import Schema
from protocol.sums.adjacency import ADD_REMOVE
from research.vertical import VerticalTerms, class_weights
from simulation.design import Design, Split
from simulation.experiment import Trial
from simulation.federation.vector import discrete_laplace, exact_sums
from simulation.masked import product_parties
from simulation.running import OfRecords, Randomness, RunTrial, accuracies, run_prepared
from simulation.settings import Settings

SLOW_QUERIES = 200
"""Above this number of test records the engine ``device`` is announced as slow."""
FAST_SECONDS, SLOW_SECONDS = 0.006, 0.05
"""About how long a processor takes for one power of 2048 bits, with gmpy2 and without."""


class Tables(NamedTuple):
    """Noisy counts of a trial, after negative ones became 0 and none is above its public bound.

    Attributes:
        counts: shape (k,) int64, records per class; may be negative.
        tables: per feature, shape (values, k) int64, records per value and class.
    """

    counts: Integers
    tables: tuple[Integers, ...]


class PreparedVertical(OfRecords):
    """A simulation of vertical trust that is ready to run. The settings have a number of parties."""

    def run(
        self, *, split_seed: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> tuple[dict[str, Any], list[Trial]]:
        """Run the simulation. No trial has a model: all parties classify together.

        Raises:
            InputError: the records can not be divided; ``no_labels``; ``product_overflow``, from the engine
                ``device``: too many features for their products to fit.
        """

        def trial_in(_: Workspace, randomness: Randomness) -> RunTrial:
            def trial(schema: Schema, split: Split, people: pd.DataFrame, _: int) -> Trial:
                return _trial(schema, split._replace(people=people), self.settings, randomness)

            return trial

        trials = run_prepared(self, trial_in, split_seed, progress)
        return self._summary(trials), trials

    def _summary(self, trials: list[Trial]) -> dict[str, Any]:
        """Means of the accuracies, the cost of all tables together, and the settings."""
        settings, features = self.settings, len(self.design.template_schema().observed)
        assert settings.nodes is not None
        share = micro_epsilon(settings.epsilon) // (features + 1)
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


def check_vertical(settings: Settings, design: Design, tests: int) -> tuple[str, ...]:
    """Refuse settings that no vertical simulation can have. Returns warnings for the analyst.

    Args:
        settings: the settings.
        design: how to make the schema.
        tests: number of records to classify in a trial.

    Raises:
        InputError: ``setting_invalid``: no number of parties, a single party, more parties than features, or groups of
            values; ``epsilon_invalid``: ε is too small to be divided.
    """
    schema = design.template_schema()
    features = len(schema.observed)
    if settings.nodes is None:
        raise InputError("setting_invalid", "vertical trust needs a number of parties (--nodes)")
    if not 2 <= settings.nodes <= features:
        raise InputError(
            "setting_invalid",
            f"vertical trust has 2 to {features} parties, since each holds one of {features} features",
        )
    if micro_epsilon(settings.epsilon) <= features:
        raise InputError("epsilon_invalid", f"ε is less than a millionth for each of {features + 1} tables")
    if schema.groups:
        raise InputError("setting_invalid", "vertical trust counts single values; give a schema without groups")
    powers = tests * len(schema.label.classes) * (settings.nodes + 1)
    if settings.engine == "vector" or tests <= SLOW_QUERIES:
        return ()
    fast, slow = powers * FAST_SECONDS, powers * SLOW_SECONDS
    said = (
        f"the engine device computes {powers} powers for {tests} test records in every trial, about {fast:.0f} s, or "
        f"{slow:.0f} s without gmpy2; the engine vector has tables of the same law, and opens nothing"
    )
    return (said,)


def draw_tables(exact: Integers, schema: Schema, terms: VerticalTerms, rng: np.random.Generator) -> Tables:
    """The class counts and the tables of all features with noise, in the public range.

    Args:
        exact: shape (M,) int64, the exact class counts and the cells of all features.
        schema: features and label.
        terms: ε_q and the public bound.
        rng: numpy's randomness.
    """
    noisy = exact + discrete_laplace(Fraction(terms.epsilon_micro, MICRO), exact.shape, rng)
    subjects, classes = discrete_subjects(schema), len(schema.label.classes)
    ends = np.cumsum([subject.size for subject in subjects])
    parts = np.split(noisy, ends[:-1])
    return Tables(parts[0], tuple(np.clip(part, 0, terms.largest).reshape(-1, classes) for part in parts[1:]))


def predict(tables: Tables, codes: Integers) -> Integers:
    """The predicted class of every record, shape (n,) int64, by exact integers.

    Args:
        tables: noisy counts.
        codes: shape (n, features) int64, value codes, -1 for a missing value.
    """
    weights = class_weights(tables.counts.tolist(), [len(table) for table in tables.tables])
    scores = np.tile(np.array(weights, object), (len(codes), 1))
    for table, column in zip(tables.tables, codes.T, strict=True):
        smoothed = table.astype(object) + 1
        scores *= np.vstack([smoothed, smoothed.sum(axis=0)])[column]  # the code -1 is the last row: the sums
    found: Integers = np.argmax(scores, axis=1).astype(np.int64)
    return found


def _trial(schema: Schema, split: Split, settings: Settings, randomness: Randomness) -> Trial:
    """Count the learning part once with noise, and classify the test part by opened products.

    Raises:
        InputError: ``no_labels``: no test record has a known label.
    """
    people, labels = split.people, label_codes(split.test, schema.label)
    known = labels != MISSING
    if not known.any():
        raise InputError("no_labels", "no test record has a known label")
    codes = recognise(split.test, schema).codes[known]
    queries, first, places = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    share = micro_epsilon(settings.epsilon) // (len(schema.observed) + 1)
    if settings.engine == "device":
        terms = VerticalTerms(randomness.entropy(32), 0, share, len(people))
        parties = product_parties.gather(schema, people, settings.nodes or 0, terms, randomness)
        found = parties.classify(split.test[known].iloc[first], schema.label.name)
    else:
        learned = label_codes(people, schema.label, substitute=True)
        owners = np.zeros(len(people), np.int64)
        exact = exact_sums(discrete_subjects(schema), observe(people, schema), learned, owners, 1)[0]
        terms = VerticalTerms(bytes(32), 0, share, len(people))
        found = predict(draw_tables(exact, schema, terms, randomness.noise), queries)
    return Trial(
        accuracy=float((found[places.ravel()] == labels[known]).mean()),
        accuracy_nonprivate=fit_plain(people, schema).accuracy(split.test),
        accuracy_majority=fit_majority(people, schema).accuracy(split.test),
        devices=len(people),
        reports=len(queries) * len(schema.label.classes),
        rejected={},
        test_records=int(known.sum()),
    )
