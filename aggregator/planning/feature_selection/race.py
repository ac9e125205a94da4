"""The race of candidate models: private accuracies, their posterior, and the choice.

An evaluation asks n devices whether a model is right, one bit each, by randomised response. The estimated accuracy has
a standard error of at most c/√n with

    c = ½ (e^ε + 1)/(e^ε − 1)

Many candidates are measured coarsely, so the best of the estimates is too good by its noise. All accuracies are
therefore shrunk to their common mean before they are compared, and an uncertain candidate gets a malus.

Source: docs/decisions/0065.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt, tanh
from typing import NamedTuple

import numpy as np

from aggregator.planning.feature_selection.feature_sets import Subset
from protocol.epsilon import MICRO

SPREAD = 0.05
"""τ, standard deviation of the candidates' true accuracies around their common mean."""
MALUS = 0.3
"""Number of posterior standard deviations that are subtracted before candidates are compared."""
TOLL = 0.01
"""Accuracy that is subtracted per feature, for up to :data:`TOLLED` features, before candidates are compared."""
TOLLED = 10
CLEARLY = 0.5
"""Number of standard errors of the difference by which a set must beat all features, for each class but one."""


def unit_error(epsilon_micro: int) -> float:
    """c, the largest standard error of a private accuracy of one answer at ε = ``epsilon_micro``/10⁶."""
    return 0.5 / tanh(epsilon_micro / MICRO / 2)


class Heard(NamedTuple):
    """Private answers about one candidate: their number n ≥ 1, and the estimated share of right predictions."""

    n: int
    right: float

    def plus(self, other: Heard) -> Heard:
        """Both together; the shares are weighted by the numbers of answers."""
        n = self.n + other.n
        return Heard(n, (self.n * self.right + other.n * other.right) / n)


class Rated(NamedTuple):
    """One candidate after shrinkage: its features, posterior mean and posterior standard deviation of the accuracy."""

    features: Subset
    mean: float
    error: float

    @property
    def cautious(self) -> float:
        """The rank: posterior mean, less :data:`MALUS` posterior standard deviations and :data:`TOLL` per feature."""
        return self.mean - MALUS * self.error - TOLL * min(len(self.features), TOLLED)


def rated(heard: Mapping[Subset, Heard], epsilon_micro: int) -> list[Rated]:
    """All candidates, the best first; of equal ones the smaller set is first.

    Candidate i has the estimate x_i with variance v_i = c²/n_i, and a normal prior with mean m and standard
    deviation τ = :data:`SPREAD`; m is the mean of all x_i weighted by 1/(v_i + τ²).

        mean = (τ² x_i + v_i m)/(τ² + v_i)        error² = τ² v_i/(τ² + v_i)

    Args:
        heard: the answers about each candidate, at least one candidate.
        epsilon_micro: ε of one answer, in millionths.
    """
    subsets = list(heard)
    x = np.array([heard[each].right for each in subsets])
    v = unit_error(epsilon_micro) ** 2 / np.array([heard[each].n for each in subsets])
    prior = SPREAD**2
    weight = 1 / (v + prior)
    middle = float(weight @ x / weight.sum())
    means = (prior * x + v * middle) / (prior + v)
    errors = np.sqrt(prior * v / (prior + v))
    found = [Rated(*each) for each in zip(subsets, means.tolist(), errors.tolist(), strict=True)]
    return sorted(found, key=lambda each: (-each.cautious, len(each.features), each.features))


class Choice(NamedTuple):
    """The features of the final model.

    Attributes:
        features: the chosen set.
        best: the best candidate; it is not chosen if it does not beat ``everything`` clearly.
        everything: the candidate of all features.
    """

    features: Subset
    best: Rated
    everything: Rated

    @property
    def gain(self) -> float:
        """Posterior mean of the best candidate's accuracy minus that of all features."""
        return self.best.mean - self.everything.mean

    @property
    def error(self) -> float:
        """Standard error of :attr:`gain`."""
        return sqrt(self.best.error**2 + self.everything.error**2)


def choose(heard: Mapping[Subset, Heard], everything: Subset, classes: int, epsilon_micro: int) -> Choice:
    """The best candidate if it beats the model of all features clearly; else all.

    The gain is to be (k − 1)/2 standard errors, k the number of classes. The more classes there are, the less one
    feature tells of all of them, and the more often a small set looks best by chance (decision 97).

    Args:
        heard: the answers about each candidate; ``everything`` is one of them.
        everything: all features.
        classes: k, number of classes.
        epsilon_micro: ε of one answer, in millionths.
    """
    ranking = rated(heard, epsilon_micro)
    (of_all,) = (each for each in ranking if each.features == everything)
    found = Choice(everything, ranking[0], of_all)
    return (
        found._replace(features=found.best.features) if found.gain >= CLEARLY * (classes - 1) * found.error else found
    )
