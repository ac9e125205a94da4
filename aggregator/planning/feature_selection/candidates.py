"""Candidate sets of features, and the race between them: private accuracies, their posterior, and the choice.

Private answers about one feature at a time show how strongly each feature depends on the class. They can not show
which features repeat each other. So the candidates are sets of strong features of several sizes, and private
evaluations decide between them.

An evaluation asks n devices whether a model is right, one bit each, by randomised response. The estimated accuracy has
a standard error of at most c/√n with

    c = ½ (e^ε + 1)/(e^ε − 1)

Many candidates are measured coarsely, so the best of the estimates is too good by its noise. All accuracies are
therefore shrunk to their common mean before they are compared, and an uncertain candidate gets a malus.

Source: decision 65.
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
"""Number of features that a local round tries to add. A set with more features than this loses none."""
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
"""Accuracy that is subtracted per feature, for up to :data:`TOLLED` features, before candidates are compared."""
TOLLED = 10
CLEARLY = 0.5
"""Number of standard errors of the difference by which a set must beat all features, for each class but one."""


def strengths(tables: Tables) -> Floats:
    """Mutual information of each feature and the class, in nats: shape (features,) float64.

        Σ_{a,c} P(c) P(a | c) log [P(a | c) / Σ_d P(d) P(a | d)]

    a is a value and c, d are classes. ``tables`` are posterior means, which are shrunk towards independence as far as
    the noise hides a dependence (:mod:`aggregator.models.postprocess.posterior`). A weak feature with few answers is
    therefore not strong by chance.
    """
    found = []
    for table in tables.likelihood:
        joint = table * tables.prior
        found.append(float((joint * np.log(table / joint.sum(axis=1, keepdims=True))).sum()))
    return np.array(found, np.float64)


def strongest(tables: Tables) -> list[int]:
    """Indices of all features, the strongest first. Of equal features the first is first."""
    return [int(index) for index in np.argsort(-strengths(tables), kind="stable")]


def greedy(tables: Tables, most: int, rng: np.random.Generator) -> list[int]:
    """Features in the order of a forward selection, at most ``most``.

    Each step adds the feature with which a model is most often right on records simulated with ``rng``. The records
    have independent features given the class, with the probabilities of ``tables``, so the chance that a prediction is
    right is the largest posterior probability of a class.
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
    """Mean over the records of the largest P(class | record). ``score``: shape (records, k) float64, logarithms."""
    return float((1 / np.exp(score - score.max(axis=1, keepdims=True)).sum(axis=1)).mean())


def candidates(tables: Tables, number: int, rng: np.random.Generator) -> list[Subset]:
    """At most ``number`` different sets of features to be evaluated; the first is the set of all features.

    ``rng`` is the source of the greedy selection's records.
    """
    ways = {"top": strongest(tables), "greedy": greedy(tables, max(size for _, size in _PLANS), rng)}
    ways[_ALL] = list(range(len(tables.likelihood)))
    return list(dict.fromkeys(as_subset(ways[way][: size or None]) for way, size in _PLANS))[:number]


def neighbours(subset: Subset, order: Sequence[int], known: Iterable[Subset]) -> list[Subset]:
    """Sets that differ from ``subset`` by one feature and are not yet ``known``.

    One of the :data:`NEIGHBOURS` strongest other features is added, or a feature is removed. A single feature is not
    removed, and none of a set of more than :data:`NEIGHBOURS` features. ``order``: all features, the strongest first.
    """
    others = [index for index in order if index not in subset][:NEIGHBOURS]
    found = [as_subset([*subset, index]) for index in others]
    if 1 < len(subset) <= NEIGHBOURS:
        found += [tuple(index for index in subset if index != gone) for gone in subset]
    seen = set(known)
    return [each for each in found if each not in seen]


def as_subset(indices: Iterable[int]) -> Subset:
    """The indices in rising order, each once."""
    return tuple(sorted(set(indices)))


def unit_error(epsilon_micro: int) -> float:
    """c, the largest standard error of a private accuracy of one answer at ε = ``epsilon_micro``/10⁶."""
    return 0.5 / tanh(epsilon_micro / MICRO / 2)


class Measurement(NamedTuple):
    """Private answers about one candidate: their number n ≥ 1, and the estimated share of right predictions."""

    n: int
    right: float

    def plus(self, other: Measurement) -> Measurement:
        """Both together; the shares are weighted by the numbers of answers."""
        n = self.n + other.n
        return Measurement(n, (self.n * self.right + other.n * other.right) / n)


class Rating(NamedTuple):
    """One candidate after shrinkage: its features, posterior mean and posterior standard deviation of the accuracy."""

    features: Subset
    mean: float
    error: float

    @property
    def cautious(self) -> float:
        """The rank: posterior mean, less :data:`MALUS` posterior standard deviations and :data:`TOLL` per feature."""
        return self.mean - MALUS * self.error - TOLL * min(len(self.features), TOLLED)


def ratings(measured: Mapping[Subset, Measurement], epsilon_micro: int) -> list[Rating]:
    """All candidates, at least one, the best first; of equal ones the smaller set is first.

    Candidate i has the estimate x_i with variance v_i = c²/n_i, and a normal prior with mean m and standard
    deviation τ = :data:`SPREAD`; m is the mean of all x_i weighted by 1/(v_i + τ²).

        mean = (τ² x_i + v_i m)/(τ² + v_i)        error² = τ² v_i/(τ² + v_i)
    """
    subsets = list(measured)
    x = np.array([measured[each].right for each in subsets])
    v = unit_error(epsilon_micro) ** 2 / np.array([measured[each].n for each in subsets])
    prior = SPREAD**2
    weight = 1 / (v + prior)
    middle = float(weight @ x / weight.sum())
    means = (prior * x + v * middle) / (prior + v)
    errors = np.sqrt(prior * v / (prior + v))
    found = [Rating(*each) for each in zip(subsets, means.tolist(), errors.tolist(), strict=True)]
    return sorted(found, key=lambda each: (-each.cautious, len(each.features), each.features))


class Choice(NamedTuple):
    """The features of the final model.

    Attributes:
        features: the chosen set.
        best: the best candidate; it is not chosen if it does not beat ``everything`` clearly.
        everything: the candidate of all features.
    """

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


def choose(measured: Mapping[Subset, Measurement], everything: Subset, classes: int, epsilon_micro: int) -> Choice:
    """The best candidate if it beats the model of all features (``everything``) clearly; else all.

    The gain is to be (k − 1)/2 standard errors, k the number of classes. The more classes there are, the less one
    feature tells of all of them, and the more often a small set looks best by chance (decision 97).
    """
    ranking = ratings(measured, epsilon_micro)
    (of_all,) = (each for each in ranking if each.features == everything)
    found = Choice(everything, ranking[0], of_all)
    is_clear = found.gain >= CLEARLY * (classes - 1) * found.error
    return found._replace(features=found.best.features) if is_clear else found
