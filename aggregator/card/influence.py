"""How much each feature tells about the class, under a model's published parameters, in bits.

    I(V; C) = Σ_c p_c Σ_v P(v | c) log₂(P(v | c)/P(v)),   P(v) = Σ_c p_c P(v | c)

is the mutual information of a feature V and the class C. For a number, the sum over v is an integral over a grid.
Noise alone gives a positive value, and how large it is depends on the post-processing: one that draws values together
shows less. So tables of noise are drawn: cells with the shares P(v) p_c of a feature that tells nothing, plus the noise
and sampling of the question's answers. The model is fitted to :data:`DRAWS` such draws, and the largest I over them is
stated beside the feature's own: a feature that tells nothing exceeds it about once in 20 times.

For a number nothing is stated: its bits also hold the noise of variances, which no simple formula follows.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.models.gaussian import NormalParameters
from aggregator.models.published import fitted_parameters
from protocol.questions import CELL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aggregator.estimates.question_estimate import QuestionEstimate
    from aggregator.estimates.statistics import Statistics

    Floats = NDArray[np.float64]

_GRID = 800
_REACH = 8.0
"""The grid of a number ends so many standard deviations beyond the outermost means."""
DRAWS = 20
"""Number of models that are fitted to drawn noise."""
_LEAST_SHARE = 1e-6


class Influence(NamedTuple):
    """What one feature tells about the class, in bits.

    Attributes:
        name: name of the feature.
        bits: mutual information of feature and class under the published parameters.
        noise: the most that noise alone would show in 19 of 20 cases, about; None for a number, and where no error is
            stated.
    """

    name: str
    bits: float
    noise: float | None


def influences(statistics: Statistics, postprocess: str) -> tuple[Influence, ...]:
    """The influence of every observed feature, largest first.

    Args:
        statistics: statistics from which a model can be made.
        postprocess: how estimates become probabilities.

    Raises:
        InputError: ``postprocess_unknown``, ``not_fittable``.
    """
    log_prior, terms = fitted_parameters(statistics, postprocess)
    prior = np.exp(log_prior)
    asked = [one for one in statistics.questions if one.subject.kind == CELL and one.n]
    is_known = all(one.has_interval and np.isfinite(one.variance).all() for one in asked)
    tables = _noise_of_tables(statistics, postprocess, prior) if asked and is_known else {}
    found = []
    for index, feature in enumerate(statistics.schema.observed):
        term = terms[index]
        bits = _bits_of_number(prior, term) if isinstance(term, NormalParameters) else _bits(prior, np.exp(term))
        found.append(Influence(feature.name, bits, tables.get(index)))
    return tuple(sorted(found, key=lambda one: -one.bits))


def _bits(prior: Floats, given: Floats) -> float:
    """Mutual information in bits of P(class), shape (k,), and P(value | class), shape (values, k)."""
    joint = given * prior
    total = joint.sum()
    if not total > 0:
        return 0.0
    joint = joint / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    seen = joint > 0
    return max(0.0, float((joint[seen] * np.log2(joint[seen] / apart[seen])).sum()))


def _bits_of_number(prior: Floats, term: NormalParameters) -> float:
    """Mutual information in bits of the class and a number with a normal distribution in each class."""
    mean, deviation = np.asarray(term.mean), np.sqrt(np.asarray(term.variance))
    # Each class has a grid of its own, so that a narrow distribution beside a wide one is not missed.
    steps = np.linspace(-_REACH, _REACH, _GRID)
    places = np.unique(mean + steps[:, None] * deviation)
    density = np.exp(-(((places[:, None] - mean) / deviation) ** 2) / 2) / deviation
    width = np.gradient(places)
    mass = density * width[:, None]
    return _bits(prior, mass / np.maximum(mass.sum(axis=0), np.finfo(float).tiny))


def _noise_of_tables(statistics: Statistics, postprocess: str, prior: Floats) -> dict[int, float]:
    """Feature with a table → largest bits over fits to drawn noise.

    The statistics' id seeds the draws, so the same statistics give the same card.
    """
    generator = np.random.default_rng(np.frombuffer(statistics.statistics_id, np.uint32))
    found: dict[int, float] = {}
    for _ in range(DRAWS):
        questions = tuple(_of_noise(one, prior, generator) for one in statistics.questions)
        shares, drawn = fitted_parameters(replace(statistics, questions=questions), postprocess)
        for one in questions:
            place = one.subject.feature
            if one.subject.kind == CELL and place is not None:
                bits = _bits(np.exp(shares), np.exp(np.asarray(drawn[place])))
                found[place] = max(found.get(place, 0.0), bits)
    return found


def _of_noise(one: QuestionEstimate, prior: Floats, generator: np.random.Generator) -> QuestionEstimate:
    """A question about a table with answers, drawn as if its feature told nothing; any other question as it is.

    P(v) is the raw estimate: a fitted one is drawn to equal values, which show less noise than unequal ones.
    """
    if one.subject.kind != CELL or one.subject.feature is None or not one.n:
        return one
    values = np.maximum(one.estimate.reshape(-1, len(prior)).sum(axis=1), _LEAST_SHARE * one.n)
    mean = one.n * np.outer(values / values.sum(), prior).ravel()
    error = one.sd * generator.standard_normal(len(mean))
    if one.adds_up:  # The sum of the estimates is always n, and fixing it takes a part 1/K of the variance away.
        error *= sqrt(len(mean) / (len(mean) - 1))
        error -= error.sum() * one.variance / one.variance.sum()
    return replace(one, estimate=mean + error)
