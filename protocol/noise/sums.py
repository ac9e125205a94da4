"""Exact vectors of counts and sums, and the same vectors with discrete Laplace noise.

A *vector* is one list of integers that is released with noise. Its sensitivity Δ is the largest Σ|difference| between
neighbouring data sets. Noise of rate ε'/Δ on every entry gives the vector ε'-differential privacy.
Source: Ghosh, Roughgarden, Sundararajan (2009) for the discrete noise; docs/math.md, sections 5 and 7.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp, expm1
from typing import TYPE_CHECKING, NamedTuple

from protocol.epsilon import MICRO
from protocol.mechanisms.noise import discrete_laplace
from protocol.questions import ONE_PER_CLASS, discrete_subjects, gaussian_subjects

if TYPE_CHECKING:
    from protocol.questions import Subject
    from protocol.schema import Schema
    from protocol.stream import Stream

_DISCRETE = "discrete"
"""The name, in campaigns and in terms of a curator, of the family of models that needs no moments."""


class Vector(NamedTuple):
    """One exact vector and its share of the budget.

    Attributes:
        subject: the property of records that the entries count or sum.
        values: the exact integers.
        sensitivity: Δ, the largest Σ|difference| between neighbours of the release's adjacency; 0 if they never differ.
        epsilon_micro: ε of the vector in millionths; 0 if Δ is 0.
    """

    subject: Subject
    values: tuple[int, ...]
    sensitivity: int
    epsilon_micro: int


class Noisy(NamedTuple):
    """A vector with noise: its subject, its integers, and the variance of the noise of one entry."""

    subject: Subject
    values: tuple[int, ...]
    variance: float


def summed_subjects(schema: Schema, family: str) -> list[Subject]:
    """Return the subjects of the vectors that a model of the given family needs. The class counts are first.

    A ``discrete`` model needs the classes and the cells (value-class pairs) of every feature. A ``gaussian`` or
    ``truncated-gaussian`` model needs the classes, the cells of categorical features, the presence of numbers that may
    be missing, the sums of all numbers, and the sums of all squares. Raises InputError ``no_numbers``: the family is
    not ``discrete``, and the schema has no numeric feature.
    """
    if family == _DISCRETE:
        return discrete_subjects(schema)
    return gaussian_subjects(schema, ONE_PER_CLASS)


def rate(epsilon_micro: int, sensitivity: int) -> Fraction:
    """Return the rate ε'/Δ of a vector's noise: a noise m has P(m) ∝ e^{−|m|·rate}; Δ = ``sensitivity`` > 0."""
    return Fraction(epsilon_micro, MICRO * sensitivity)


def with_noise(vector: Vector, stream: Stream) -> Noisy:
    """Return the vector with noise of its :func:`rate` on every entry, or unchanged if its sensitivity is 0."""
    if not vector.sensitivity:
        return Noisy(vector.subject, vector.values, 0.0)
    s, t = rate(vector.epsilon_micro, vector.sensitivity).as_integer_ratio()
    values = tuple(value + discrete_laplace(stream, s, t) for value in vector.values)
    return Noisy(vector.subject, values, laplace_variance(Fraction(s, t)))


def laplace_variance(rate: Fraction) -> float:
    """Return the variance 2q/(1 − q)², q = e^{−rate}, of an integer m with P(m) ∝ e^{−|m|·rate}."""
    return 2 * exp(-float(rate)) / expm1(-float(rate)) ** 2
