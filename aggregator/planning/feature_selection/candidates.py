"""Make candidate sets of features, and choose the best by private accuracies.

Private answers about single features do not show which carry the same information, so private evaluations decide
between sets. The best of many estimates is too high by its noise, so all are shrunk to their mean. Source: decision 65.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt, tanh
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.models.postprocess.joint_tables import Tables
from protocol.epsilon import MICRO

Subset = tuple[int, ...]
"""Indices of observed features, rising."""

RECORDS = 4000
"""Number of simulated records of the greedy selection."""
NEIGHBOURS = 8
"""Number of the strongest other features that are tried as additions; a set larger than this has none removed."""
_ALL = "all"
_PLANS: tuple[tuple[str, int], ...] = (
    (_ALL, 0),
    ("top", 2),
    ("top", 1),
    ("top", 4),
    ("greedy", 3),
    ("top", 8),
    ("greedy", 2),
    ("top", 3),
    ("greedy", 5),
)
"""The candidates in the order in which they are worth an evaluation: how a set is made, and its number of features."""
MOST_CANDIDATES = len(_PLANS)
SPREAD = 0.05
"""τ, standard deviation of the candidates' true accuracies around their common mean."""
MALUS = 0.3
"""Number of posterior standard deviations that are subtracted before candidates are compared."""
TOLL = 0.01
"""Accuracy that is subtracted for each of at most :data:`TOLLED` features before candidates are compared."""
TOLLED = 10
CLEARLY = 0.5
"""A set must be better than all features by this number of standard errors times (number of classes − 1)."""


def strengths(tables: Tables) -> Floats:
    """Return the mutual information of each feature and the class, in nats: shape (features,) float64.

        Σ_{a,c} P(c) P(a | c) log [P(a | c) / Σ_d P(d) P(a | d)]

    a is a value and c, d are classes. ``tables`` are posterior means, shrunk to independence by noise, so a weak
    feature with few answers does not look strong by chance.
    """
    found = []
    for table in tables.likelihood:
        joint = table * tables.prior
        found.append(float((joint * np.log(table / joint.sum(axis=1, keepdims=True))).sum()))
    return np.array(found, np.float64)


def strongest(tables: Tables) -> list[int]:
    """Return the indices of all features by falling :func:`strengths`; equal features keep their order."""
    return [int(index) for index in np.argsort(-strengths(tables), kind="stable")]


def greedy(tables: Tables, most: int, rng: np.random.Generator) -> list[int]:
    """Return at most ``most`` features in the order of a forward selection.

    Each step adds the feature with which a model is most often right on simulated records, whose features are
    independent given the class, with the probabilities of ``tables``: on average the largest P(class | record).
    """
    labels = rng.choice(len(tables.prior), RECORDS, p=tables.prior)
    gains = []
    for table in tables.likelihood:
        ends = np.cumsum(table, axis=0)[:, labels]
        values = np.minimum((rng.random(RECORDS) > ends).sum(axis=0), len(table) - 1)
        gains.append(np.log(table)[values])
    chosen: list[int] = []
    score = np.tile(np.log(tables.prior), (RECORDS, 1))
    left = list(range(len(gains)))
    while left and len(chosen) < most:
        best = max(left, key=lambda index: _sure(score + gains[index]))
        left.remove(best)
        chosen.append(best)
        score = score + gains[best]
    return chosen


def _sure(score: Floats) -> float:
    return float((1 / np.exp(score - score.max(axis=1, keepdims=True)).sum(axis=1)).mean())


def candidates(tables: Tables, number: int, rng: np.random.Generator) -> list[Subset]:
    """Return at most ``number`` different sets of features to be evaluated; the first is the set of all features."""
    ways = {"top": strongest(tables), "greedy": greedy(tables, max(size for _, size in _PLANS), rng)}
    ways[_ALL] = list(range(len(tables.likelihood)))
    return list(dict.fromkeys(as_subset(ways[way][: size or None]) for way, size in _PLANS))[:number]


def neighbours(subset: Subset, order: Sequence[int], known: Iterable[Subset]) -> list[Subset]:
    """Return the sets that differ from ``subset`` by one feature and are not ``known``. ``order``: the strongest first.

    One of the :data:`NEIGHBOURS` strongest other features is added, or one feature is removed. None is removed from a
    set of one feature, or of more than :data:`NEIGHBOURS`.
    """
    others = [index for index in order if index not in subset][:NEIGHBOURS]
    found = [as_subset([*subset, index]) for index in others]
    if 1 < len(subset) <= NEIGHBOURS:
        found += [tuple(index for index in subset if index != gone) for gone in subset]
    seen = set(known)
    return [each for each in found if each not in seen]


def as_subset(indices: Iterable[int]) -> Subset:
    """Return the indices in rising order, each once."""
    return tuple(sorted(set(indices)))


def unit_error(epsilon_micro: int) -> float:
    """Return c, the largest standard error of a private accuracy from one answer at ε = ``epsilon_micro``/10⁶."""
    return 0.5 / tanh(epsilon_micro / MICRO / 2)


class Measurement(NamedTuple):
    """A private accuracy: the estimated share of right predictions, and the largest variance of the estimate."""

    right: float
    variance: float

    @classmethod
    def of_answers(cls, n: int, right: float, epsilon_micro: int) -> Measurement:
        """Return an accuracy by n ≥ 1 answers of one bit: its variance is at most c²/n (:func:`unit_error`)."""
        return cls(right, unit_error(epsilon_micro) ** 2 / n)

    def plus(self, other: Measurement) -> Measurement:
        """Return both measurements together, weighted by the inverse variances."""
        total = self.variance + other.variance
        return Measurement(
            (other.variance * self.right + self.variance * other.right) / total, self.variance * other.variance / total
        )


class Rating(NamedTuple):
    """A candidate's features, with the posterior mean and posterior standard deviation (``error``) of its accuracy."""

    features: Subset
    mean: float
    error: float

    @property
    def cautious(self) -> float:
        """Posterior mean minus :data:`MALUS` standard deviations and :data:`TOLL` per feature; it ranks candidates."""
        return self.mean - MALUS * self.error - TOLL * min(len(self.features), TOLLED)


def ratings(measured: Mapping[Subset, Measurement]) -> list[Rating]:
    """Return all candidates, at least one, the best first; of equally good ones the smaller set is first.

    Candidate i has the estimate x_i with variance v_i, and a normal prior with mean m and standard deviation τ =
    :data:`SPREAD`; m is the mean of all x_i weighted by 1/(v_i + τ²).

        mean = (τ² x_i + v_i m)/(τ² + v_i)        error² = τ² v_i/(τ² + v_i)
    """
    subsets = list(measured)
    x = np.array([measured[each].right for each in subsets])
    v = np.array([measured[each].variance for each in subsets])
    prior = SPREAD**2
    weight = 1 / (v + prior)
    middle = float(weight @ x / weight.sum())
    means = (prior * x + v * middle) / (prior + v)
    errors = np.sqrt(prior * v / (prior + v))
    found = [Rating(*each) for each in zip(subsets, means.tolist(), errors.tolist(), strict=True)]
    return sorted(found, key=lambda each: (-each.cautious, len(each.features), each.features))


class Choice(NamedTuple):
    """The features of the final model (``features``), and the ratings of the best candidate and of all features."""

    features: Subset
    best: Rating
    everything: Rating

    @property
    def gain(self) -> float:
        """Posterior mean of the best candidate's accuracy minus that of all features."""
        return self.best.mean - self.everything.mean

    @property
    def error(self) -> float:
        """Standard error of :attr:`gain`."""
        return sqrt(self.best.error**2 + self.everything.error**2)


def choose(measured: Mapping[Subset, Measurement], everything: Subset, classes: int) -> Choice:
    """Choose the best candidate if it is clearly better than the set ``everything`` of all features; else that set.

    The gain must be at least (k − 1)/2 standard errors for k classes: with more classes one feature tells less about
    all of them, and a small set looks best by chance more often (decision 97).
    """
    ranking = ratings(measured)
    (of_all,) = (each for each in ranking if each.features == everything)
    found = Choice(everything, ranking[0], of_all)
    is_clear = found.gain >= CLEARLY * (classes - 1) * found.error
    return found._replace(features=found.best.features) if is_clear else found
