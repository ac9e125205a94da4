"""The four discrete data sets of the first source, the splits of its code, and the accuracies that it released."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from aggregator.models.population import Population
from benchmarks.shared import reference
from protocol.schema import Schema

DATA = ("car", "chess", "mushroom", "connect-4")
MECHANISMS = ("direct", "sue", "oue", "she", "the")
RANDOM, FIFTH, RELEASED = "random 6 %", "random 20 %", "the source's"
"""How the records are divided into those of the people who answer, and those to test on."""
TEST_SHARE = 0.2
RELEASED_TEST_SHARE = 0.06
RELEASED_SEEDS = {"car": 496, "chess": 117, "mushroom": 10, "connect-4": 9999}
"""The seeds in the source's code. Each of its curves is measured on one split of the records."""
DROPPED = {"mushroom": "stalk-root"}
"""The source's copy of a data set lacks this feature."""


class Sample(NamedTuple):
    """A data set: its records, and their schema."""

    people: Population
    schema: Schema

    def split(self, name: str, kind: str, rng: np.random.Generator) -> tuple[Population, Population]:
        """Return the people whose devices answer, and the people to test on.

        ``kind``: :data:`FIFTH` or :data:`RANDOM`, a random share of the records to test on, or :data:`RELEASED`, the
        one split of the source's code. That code reads the first record as a header, and loses it.
        """
        if kind == RELEASED:
            order = 1 + np.random.RandomState(RELEASED_SEEDS[name]).permutation(len(self.people.labels) - 1)
            count = int((1 - RELEASED_TEST_SHARE) * len(order))
            return self.people.take(order[:count]), self.people.take(order[count:])
        order = rng.permutation(len(self.people.labels))
        count = round((TEST_SHARE if kind == FIFTH else RELEASED_TEST_SHARE) * len(order))
        return self.people.take(order[count:]), self.people.take(order[:count])


@lru_cache(maxsize=2)
def sample(name: str) -> Sample:
    """Return a data set with all columns as categorical features."""
    frame, schema = reference.categorical_data(name)
    return Sample(Population.of_frame(frame, schema), schema)


def released_answers(name: str) -> int:
    """Return k·n + 1, the number of answers of a person in the source's experiments with a data set."""
    schema = sample(name).schema
    return len(schema.label.classes) * (len(schema.features) - (name in DROPPED)) + 1


def published(name: str) -> Iterator[tuple[str, float, float]]:
    """Yield the released accuracies of a data set: (mechanism, ε per answer, accuracy)."""
    with (reference.FOLDER / "reference" / "published.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["data"] == name:
                yield row["mechanism"], float(row["epsilon_per_answer"]), float(row["accuracy"]) / 100
