"""Records of a data set as nodes see them, with splits, and statistics of noisy sums by the vector engine."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.curator.fitting import fit, model_of
from aggregator.curator.records import Records
from aggregator.curator.terms import FitTerms
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import EncodedFrame, label_codes, observe, recognise
from aggregator.models.scoring import Model
from aggregator.nodes.campaigns.campaigns import NODE_FIELDS
from benchmarks.shared.reference import mixed_data, training_rows
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Campaign, Fit, build_payload, parse_campaign
from protocol.documents.masked_terms import MaskedTerms
from protocol.documents.payload import Header
from protocol.epsilon import micro_epsilon
from protocol.nodes.terms import GLOBAL, MAX_RECORDS, NodeTerms, released_vectors
from protocol.questions import ADD_REMOVE
from protocol.schema import Schema, build_schema
from simulation.drawn import deal, exact_sums, released, statistics_of

NAMES = ("adult", "accelerometer", "skin", "mushroom", "votes", "spect")
LEFT_OUT = {"accelerometer": ("pctid",)}
"""Columns that the reference leaves out: the paper used x, y and z of the accelerometer alone."""
FLOOR_MICRO: int = NODE_FIELDS["variance_floor_micro"]
"""Smallest variance of a scaled number, in millionths: the default of campaigns for nodes."""
TEST_SHARE = 10
"""A random test part is one of so many parts."""
_DAY = 86_400
PERIOD = 20_000
"""Number of the days since 1970 in which every simulated campaign runs."""


class Split(NamedTuple):
    """Row numbers of the learning part and of the test part: shape (n,) int64 and (m,) int64."""

    learning: Integers
    test: Integers


class Data(NamedTuple):
    """One data set.

    Attributes:
        labels: shape (rows,) int64, class codes.
        training: number of rows of the predefined training part, which are the first ones; None without such parts.
    """

    name: str
    schema: Schema
    observed: EncodedFrame
    recognised: EncodedFrame
    labels: Integers
    training: int | None

    @classmethod
    def load(cls, name: str) -> Data:
        """Read the data set ``name``."""
        frame, schema = mixed_data(name)
        kept = [feature for feature in schema.features if feature.name not in LEFT_OUT.get(name, ())]
        schema = build_schema(schema.label, kept)
        return cls.of(name, frame, schema, training_rows(name))

    @classmethod
    def of(cls, name: str, frame: pd.DataFrame, schema: Schema, training: int | None = None) -> Data:
        """Return the records of a frame, for fits and for scoring."""
        labels = label_codes(frame, schema.label, substitute=True)
        return cls(name, schema, observe(frame, schema), recognise(frame, schema), labels, training)

    def split(self, rng: np.random.Generator) -> Split:
        """Return the predefined parts, or without these a random tenth of the rows for tests."""
        rows = len(self.labels)
        if self.training is not None:
            return Split(np.arange(self.training), np.arange(self.training, rows))
        order = rng.permutation(rows)
        return Split(order[rows // TEST_SHARE :], order[: rows // TEST_SHARE])

    @property
    def family(self) -> str:
        """``gaussian`` if there is a number, else ``discrete``."""
        return GAUSSIAN if self.schema.numeric else DISCRETE

    def campaign(
        self, epsilon: str, most: int = MAX_RECORDS // (1 << 16), masked: MaskedTerms | None = None
    ) -> Campaign:
        """Return an unsigned campaign for nodes.

        Args:
            epsilon: ε of a summary or of an encrypted message.
            masked: terms of encrypted sums; None for sums in the clear.
        """
        micro = micro_epsilon(epsilon)
        payload = build_payload(
            Header("federated", 1, PERIOD * _DAY, PERIOD * _DAY, (PERIOD + 9) * _DAY),
            self.schema,
            (),
            epsilon_micro=micro,
            purpose="a benchmark",
            contact="nobody",
            time_precision=_DAY,
            min_batch_size=1,
            fit=Fit(self.family, "floored", FLOOR_MICRO),
            nodes=NodeTerms("nodes", most, micro, GLOBAL),
            masked=masked,
        )
        return parse_campaign(payload)

    def exact(
        self, campaign: Campaign, rows: Integers, nodes: int, rng: np.random.Generator, owners: Integers | None = None
    ) -> Integers:
        """Return M exact sums for each of N nodes: shape (N, M) int64.

        Args:
            rows: shape (n,) int64, row numbers of the records.
            nodes: N, number of nodes.
            owners: shape (n,) int64, the node of every record; None deals the records at random.
        """
        encoded = part(self.observed, rows)
        owners = deal(len(rows), nodes, rng) if owners is None else owners
        return exact_sums(released_vectors(campaign), encoded, self.labels[rows], owners, nodes)

    def noisy(self, campaign: Campaign, rows: Integers, nodes: int, rng: np.random.Generator) -> Statistics:
        """Return statistics of the noisy sums of nodes to which the records are dealt (:meth:`exact`)."""
        return statistics_of(released(self.exact(campaign, rows, nodes, rng), campaign, rng), campaign, PERIOD)

    @property
    def records(self) -> Records:
        """Return all rows as records of a curator, with whom the nodes are compared."""
        return Records(self.schema, self.labels, self.observed.codes, self.observed.numbers, {}, ())

    def curator_accuracy(self, epsilon: str, split: Split, postprocess: str) -> float:
        """Return the accuracy of a curator's fit with the method ``sums``, at ε for adding or removing a record."""
        terms = FitTerms(
            "sums", micro_epsilon(epsilon), adjacency=ADD_REMOVE, family=self.family, variance_floor_micro=FLOOR_MICRO
        )
        return self.accuracy(
            fit(self.records.part(split.learning), terms, os.urandom(32)).statistics, postprocess, split.test
        )

    def accuracy(self, statistics: Statistics, postprocess: str, test: Integers) -> float:
        """Return the share of the test rows that a model of the statistics classifies rightly."""
        return self.accuracy_of(model_of(statistics, postprocess), test)

    def accuracy_of(self, model: Model, test: Integers) -> float:
        """Return the share of the test rows that a model classifies rightly."""
        scores = model.scores_of(part(self.recognised, test))
        return float((scores.argmax(axis=1) == self.labels[test]).mean())


def part(encoded: EncodedFrame, rows: Integers) -> EncodedFrame:
    """Return some rows of an encoded frame."""
    return EncodedFrame(encoded.codes[rows], encoded.numbers[rows])
