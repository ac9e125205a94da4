"""Methods that release a mean and a variance for every number and class, in place of sums.

A mean needs the size of its class, so class sizes are public: only the adjacency ``change-features`` is covered.
Source: Vaidya, Shafiq, Basu, Hong (2013); Zafarani, Clifton (2020); docs/math.md, section 7.
"""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from math import inf, isinf
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.curator.accounting import Cost, Share, cost_of
from aggregator.curator.methods.base import Method, statistics_of
from aggregator.curator.methods.sums import exact_sums, vector_epsilons
from aggregator.curator.records import Records
from aggregator.curator.terms import FitTerms
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import NoisySum
from protocol.documents.campaign import DISCRETE
from protocol.errors import InputError
from protocol.noise.sums import Vector, summed_subjects, with_noise
from protocol.questions import CELL, CHANGE_FEATURES, CLASS, MOMENT, PRESENT, SQUARE, Subject
from protocol.schema import Schema, may_be_missing
from protocol.stream import Stream

LEAST = 2
"""Smallest class of which a mean and a variance are released."""


class Moments(NamedTuple):
    """Noisy mean and mean square of a number in one class, their noise's variances, and the integers as released."""

    mean: float
    square: float
    mean_noise: float
    square_noise: float
    released: tuple[int, int]

    @classmethod
    def of_variance(
        cls, mean: float, variance: float, mean_noise: float, variance_noise: float, released: tuple[int, int]
    ) -> Moments:
        """Return moments from a noisy mean m̃ and a noisy variance: the mean square is the variance plus m̃².

        With v the variance of the mean's noise, the mean square's noise has that of the variance's noise plus 4m̃²v +
        5v² (Laplace noise; an upper bound for lighter tails). A fit subtracts the square of the same mean again.
        """
        square_noise = inf if isinf(mean_noise) else variance_noise + 4 * mean**2 * mean_noise + 5 * mean_noise**2
        return cls(mean, variance + mean**2, mean_noise, square_noise, released)


class PerClass(Method):
    """A method that releases two numbers per numeric feature and class. A subclass says which two, and how."""

    adjacencies = (CHANGE_FEATURES,)

    def check(self, schema: Schema, terms: FitTerms) -> None:
        """Raise an error if the method does not cover the terms, or if a number may be missing.

        Raises InputError ``substitute_needed``: a number may be missing, so the number of its values is not public; and
        those of :meth:`aggregator.curator.methods.base.Method.check`.
        """
        super().check(schema, terms)
        if terms.family != DISCRETE and any(may_be_missing(schema.ungrouped[index]) for index in schema.numeric):
            raise InputError(
                "substitute_needed",
                f"'{self.name}' needs a number in every record; give each number a substitute, or take 'sums'",
            )

    def cost(self, schema: Schema, terms: FitTerms) -> Cost:
        """Return the cost: ε of tables, means and variances add up; the disjoint classes share it."""
        self.check(schema, terms)
        return cost_of(vector_epsilons(schema, terms))

    def check_records(self, records: Records, terms: FitTerms) -> None:
        """Raise ``class_too_small`` (``InputError``) if a class, whose size is public, has fewer than two records."""
        sizes = np.bincount(records.labels, minlength=len(records.schema.label.classes))
        if terms.family != DISCRETE and sizes.min() < LEAST:
            raise InputError("class_too_small", "a mean and a variance need two records of every class; take 'sums'")

    def release(self, records: Records, terms: FitTerms, stream: Stream) -> Statistics:
        """Return exact class counts, noisy tables, and noisy moments as sums over the records of each class."""
        schema = records.schema
        cost = self.cost(schema, terms)
        self.check_records(records, terms)
        classes = len(schema.label.classes)
        sizes = np.bincount(records.labels, minlength=classes)
        shares = self.shares(schema, terms)
        sums = [
            _table(records, subject, share.epsilon_micro, stream)
            for subject, share in shares.items()
            if subject.kind != MOMENT
        ]
        by_power: dict[int, list[NoisySum]] = {1: [], SQUARE: []}
        for feature in schema.numeric if terms.family != DISCRETE else ():
            subjects = [Subject(MOMENT, feature, classes, power) for power in (1, SQUARE)]
            first, second = (shares[subject] for subject in subjects)
            found = [
                self.moments(records.numbers[records.labels == of_class, feature], (first, second), terms, stream)
                for of_class in range(classes)
            ]
            sums.append(_presence(feature, sizes))
            for subject in subjects:
                by_power[subject.power or 1].append(_as_sum(subject, found, sizes))
        return statistics_of([*sums, *by_power[1], *by_power[SQUARE]], records.rows, schema, terms, cost)

    def shares(self, schema: Schema, terms: FitTerms) -> dict[Subject, Share]:
        """Return ε and δ of every vector; δ, if there is any, is divided equally among means and variances."""
        subjects = summed_subjects(schema, terms.family)
        means = sum(subject.kind == MOMENT for subject in subjects)
        return {
            subject: Share(epsilon_micro, terms.delta / means if subject.kind == MOMENT else Fraction(0))
            for subject, epsilon_micro in zip(subjects, vector_epsilons(schema, terms), strict=True)
        }

    @abstractmethod
    def moments(self, values: Integers, shares: tuple[Share, Share], terms: FitTerms, stream: Stream) -> Moments:
        """Return noisy moments of one number in one class, n ≥ 2 ``values``; ``shares``: ε, δ of the two."""


def _table(records: Records, subject: Subject, epsilon_micro: int, stream: Stream) -> NoisySum:
    """Return the exact class counts, or the noisy counts of one table."""
    assert subject.kind in (CLASS, CELL)
    exact = Vector(subject, exact_sums(records, [subject])[0], 0 if subject.kind == CLASS else 2, epsilon_micro)
    noisy = with_noise(exact, stream)
    return NoisySum(subject, np.array(noisy.values, np.float64), np.full(subject.size, noisy.variance), noisy.values)


def _presence(feature: int, sizes: Integers) -> NoisySum:
    """Return the class sizes as the numbers of records that have a number, by which fits divide moments."""
    estimate = np.concatenate([np.zeros(len(sizes)), sizes])
    subject = Subject(PRESENT, feature, 2 * len(sizes))
    counts = tuple(int(count) for count in estimate)
    return NoisySum(subject, estimate, np.zeros(subject.size), counts, is_repeated=True)


def _as_sum(subject: Subject, found: list[Moments], sizes: Integers) -> NoisySum:
    """Return means times the sizes of the classes, (k,) int64: the sums that statistics hold."""
    place = 0 if subject.power == 1 else 1
    means = np.array([one[place] for one in found], np.float64)
    noise = np.array([one[place + 2] for one in found], np.float64)
    released = tuple(one.released[place] for one in found)
    return NoisySum(subject, sizes * means, sizes.astype(np.float64) ** 2 * noise, released)
