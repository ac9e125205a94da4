"""How much each feature tells about the class, under a model's published parameters, in bits.

    I(V; C) = Σ_c p_c Σ_v P(v | c) log₂(P(v | c)/P(v)),   P(v) = Σ_c p_c P(v | c)

is the mutual information of a feature V and the class C. For a number, the sum over v is an integral over a grid.
Noise alone gives a positive value: if the feature tells nothing, and s_vc is the standard error of P(v | c), the
expectation of I is, to second order,

    (1/(2 ln 2)) Σ_v (1/P(v)) Σ_c p_c(1 − p_c) s²_vc

(for a mean with the variance σ² within classes, 1/σ² takes the place of 1/P(v)). The card has both numbers, so that a
reader sees which features stand out of the noise.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.conditional import conditionals
from aggregator.estimates.debias import Z95
from aggregator.models.gaussian import NormalParameters
from aggregator.models.published import fitted_parameters
from protocol.questions import CELL, MOMENT, MOMENTS, SQUARE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aggregator.estimates.statistics import Statistics

    Floats = NDArray[np.float64]

_GRID = 800
_REACH = 8.0
"""The grid of a number ends so many standard deviations beyond the outermost means."""
_LEAST_SHARE = 1e-3
_WIDEST_ERROR = 0.5
"""Standard error of a share or mean that is not determined."""


class Influence(NamedTuple):
    """What one feature tells about the class, in bits.

    Attributes:
        name: name of the feature.
        bits: mutual information of feature and class under the published parameters.
        noise: about the mutual information that noise alone would show; None where no error is stated.
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
    errors = _errors(statistics)
    found = []
    for index, feature in enumerate(statistics.schema.observed):
        term = terms[index]
        bits = _bits_of_number(prior, term) if isinstance(term, NormalParameters) else _bits(prior, np.exp(term))
        noise = _noise(prior, term, errors[index]) if index in errors else None
        found.append(Influence(feature.name, bits, noise))
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


def _errors(statistics: Statistics) -> dict[int, Floats]:
    """Feature → standard errors of P(value | class), shape (values, k), or of E[x | class], shape (1, k), float64."""
    classes = len(statistics.schema.label.classes)
    found: dict[int, Floats] = {}
    for one in conditionals(statistics.questions, statistics.schema):
        width = np.where(one.population.determined, one.population.high - one.population.low, np.inf)
        error = np.minimum(width / (2 * Z95), _WIDEST_ERROR)
        if one.subject.kind == CELL and one.subject.feature is not None:
            found[one.subject.feature] = error.reshape(-1, classes)
        elif one.subject.kind == MOMENTS and one.subject.power != SQUARE:
            rows = error.reshape(len(statistics.schema.numeric), classes)
            found |= {index: row[None, :] for index, row in zip(statistics.schema.numeric, rows, strict=True)}
        elif one.subject.kind == MOMENT and one.subject.power != SQUARE and one.subject.feature is not None:
            row = found.setdefault(one.subject.feature, np.full((1, classes), _WIDEST_ERROR))
            if one.subject.of_class is None:
                row[0, :] = error
            else:
                row[0, one.subject.of_class] = error[0]
    return found


def _noise(prior: Floats, term: NormalParameters | Floats, errors: Floats) -> float:
    """About the bits that noise alone would show; at most what tells the class for sure."""
    if isinstance(term, NormalParameters):
        scale = np.array([float(prior @ np.asarray(term.variance))])
    else:
        scale = np.maximum(np.exp(term) @ prior, _LEAST_SHARE)
    scattered = (errors**2) @ (prior * (1 - prior))
    entropy = -float((prior[prior > 0] * np.log2(prior[prior > 0])).sum())
    return min(entropy, float((scattered / scale).sum()) / (2 * log(2)))
