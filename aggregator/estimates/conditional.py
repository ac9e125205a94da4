"""Intervals for what a model publishes: P(class), P(value | class), and means of numbers given the class.

Out: for each parameter a raw ratio of unbiased estimates, and intervals (:mod:`aggregator.estimates.ratios`), clipped
to the possible range. A published value may lie outside. Source: docs/math.md, section 1; decision 57.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Z95, Law
from aggregator.estimates.intervals import Interval, quantile95, relative_kurtosis
from aggregator.estimates.question_estimate import Pool, QuestionEstimate, VoteSums, pooled
from aggregator.estimates.ratios import ALONE, Others, Ratio, Variance, cell_variance, own_weight, ratio_interval
from protocol.questions import CELL, MOMENT, MOMENTS, PRESENT, Subject
from protocol.schema import Schema

Published = Mapping[Subject, Floats]


PRIOR = "prior"
"""Kind that stands in a ``Subject`` for the class shares that are pooled from all questions."""


class Conditional(NamedTuple):
    """Probabilities or means that a model uses, from one question: one for each of its K estimates, in their order.

    ``place``: index of the question; None for the pooled shares of the classes, whose subject has the kind
    :data:`PRIOR`. ``raw``: shape (K,) float64, ratio of the unbiased estimates, not clipped; NaN if the divisor is not
    positive. ``devices`` and ``population`` are intervals for the devices that answered, and for their population.
    """

    place: int | None
    subject: Subject
    n: int
    raw: Floats
    devices: Ratio
    population: Ratio


def conditionals(questions: Sequence[QuestionEstimate], schema: Schema, z: float = Z95) -> tuple[Conditional, ...]:
    """Return the pooled class shares, then one entry per question with probabilities or means given the class.

    P(value | class) is the share of value and class over the class's share, by this and all other questions. E[x^power
    | class] is the mean of x^power·[y = c] (y: the record's class) over P(c), or over P(number present, c) if asked.
    ``z``: normal quantile of the intervals' level.
    """
    classes = len(schema.label.classes)
    votes = [vote for question in questions for vote in question.classes]
    pool = pooled(votes) if votes else None
    sums = VoteSums(votes) if votes and _is_known(questions) else None
    found = []
    if pool is not None or any(one.subject.kind == CELL for one in questions):
        found.append(_prior(pool, classes, z, is_known=_is_known(questions)))
    for place, one in enumerate(questions):
        if one.subject.kind in (CELL, PRESENT):
            found.append(_table(one, place, sums, classes, z))
        elif one.subject.kind in (MOMENT, MOMENTS):
            found.append(_means(one, place, questions, schema, pool, z))
    return tuple(found)


def _is_known(questions: Sequence[QuestionEstimate]) -> bool:
    """Return whether the pooled class shares may have intervals: if each question about the classes may have them."""
    return all(one.has_interval for one in questions if one.classes)


def _prior(pool: Pool | None, classes: int, z: float, *, is_known: bool) -> Conditional:
    """Return P(class) with intervals at the quantile ``z``; without them unless ``is_known`` (:func:`_is_known`)."""
    subject = Subject(PRIOR, None, classes)
    if pool is None:
        return _undetermined(None, subject, 0, np.full(classes, np.nan))
    raw = _divided(pool.share, np.full(classes, pool.total))
    if not is_known:
        return _undetermined(None, subject, pool.answers, raw)
    ends = [_clipped(pool.interval(scatter, z)) for scatter in (pool.chosen, pool.scatter)]
    return Conditional(None, subject, pool.answers, raw, *ends)


def _undetermined(place: int | None, subject: Subject, n: int, raw: Floats, least: float = 0.0) -> Conditional:
    """Return raw estimates with the intervals [``least``, 1], marked as not determined."""
    nothing = Ratio(np.full(len(raw), least), np.ones(len(raw)), np.zeros(len(raw), np.bool_))
    return Conditional(place, subject, n, raw, nothing, nothing)


def _clipped(interval: Interval) -> Ratio:
    """Return the intervals of shares clipped to [0, 1]; an interval that contains 0 and 1 is not determined."""
    return Ratio(*interval.between(0, 1), ~((interval.low <= 0) & (interval.high >= 1)))


def _table(found: QuestionEstimate, place: int, sums: VoteSums | None, classes: int, z: float) -> Conditional:
    """Return P(value | class), or P(present | class), of one question; value a and class c have the index a·k + c."""
    n, size = found.n, len(found.estimate)
    if not n:
        return _undetermined(place, found.subject, n, np.full(size, np.nan))
    cells = found.estimate.reshape(-1, classes) / n
    elsewhere = _elsewhere(found, sums)
    own = 1.0 if elsewhere is None else own_cells_weight(found, elsewhere, classes)
    share = cells.sum(axis=0)
    if elsewhere is not None:
        share = own * share + (1 - own) * elsewhere.share
    divisors = np.broadcast_to(share, cells.shape)
    raw = _divided(cells, divisors).ravel()
    if found.law is None or found.pairs is None or not found.has_interval:
        return _undetermined(place, found.subject, n, raw)
    tails = _tails(found).reshape(2, *cells.shape)
    both = ratio_interval(cells, divisors, table_variance(found, share, own, elsewhere), z=z * tails)
    return Conditional(place, found.subject, n, raw, _part(both, 0), _part(both, 1))


def _tails(found: QuestionEstimate) -> Floats:
    """Return the factors, 1 to 1.1, by which heavy tails widen intervals, (2, K): of the devices, of the population."""
    scatters = np.array([[found.devices_scatter], [found.scatter]])
    sampling = found.n * found.spread * scatters
    return quantile95(relative_kurtosis(found.kurtosis, found.noise_variance, sampling)) / Z95


def _elsewhere(found: QuestionEstimate, sums: VoteSums | None) -> Pool | None:
    """Return the classes' shares by all questions but ``found``, as their noise is independent of its noise.

    Return None if there is no other question, if the distribution of the noise is not known, or if ``found`` has no
    estimated shares of the classes: its counts may then repeat another question's, with the same noise.
    """
    is_known = found.law is not None and found.pairs is not None and found.has_interval
    return sums.pool(found.classes) if sums is not None and found.classes and is_known else None


def own_cells_weight(found: QuestionEstimate, elsewhere: Pool, classes: int) -> float:
    """Return the weight of the question's own estimates in the shares of the classes, planned at equal shares."""
    equal = np.array([1 / classes])
    return own_weight(lambda own: table_variance(found, equal, own, elsewhere))


def table_variance(found: QuestionEstimate, share: Floats, own: float, elsewhere: Pool | None) -> Variance:
    """Return V(ρ) of :func:`aggregator.estimates.ratios.cell_variance` for all cells of a question's table.

    The coefficients have the shape (2, 1, k) float64, the devices that answered first, then the population; or (k,) if
    they hold no sampling variance.

    Args:
        found: the question, with at least one answer, a law and its covariances.
        share: shape (k,) float64, shares of the classes at which the variance is taken.
        own: weight of the question's own cells in the class shares that its cells are divided by.
        elsewhere: the shares of the classes by all other questions.
    """
    law, pairs = found.law, found.pairs
    assert law is not None
    assert pairs is not None
    scatters = np.array([found.devices_scatter, found.scatter])[:, None, None]
    others = ALONE
    if elsewhere is not None:
        own_scatters = np.array([elsewhere.chosen, elsewhere.scatter])[:, None, None]
        joint = np.array(joint_scatters(found, elsewhere))[:, None, None]
        others = Others(elsewhere.noise.at(np.clip(share, 0, 1)), own_scatters, joint)
    members = len(found.estimate) // len(share)
    return cell_variance(share, found.n, law, pairs, members, scatters, own, others)


def _part(found: Ratio, place: int) -> Ratio:
    return Ratio(found.low[place].ravel(), found.high[place].ravel(), found.determined[place].ravel())


def _divided(numerator: Floats, denominator: Floats) -> Floats:
    positive = denominator > 0
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), np.nan)


def _means(
    found: QuestionEstimate,
    place: int,
    questions: Sequence[QuestionEstimate],
    schema: Schema,
    pool: Pool | None,
    z: float,
) -> Conditional:
    """Return E[x^power | c] of all numbers x and classes c of one question.

    With m̂ the estimated mean of x^power·[y = c], p̂ the class's estimated share, and μ a tested mean, m̂ − μ p̂ has

        V(μ) = noise of m̂ + s² D/n − 2μ S C + μ² [noise of p̂ + p(1 − p)·(scatter of p̂)]

    s²: the variance of the true values; D/n: the scatter of m̂; p: the middle of p̂'s interval; S = m̂(1 − p): the
    covariance of the true values with [y = c]; C: the result of :func:`joint_scatters`.
    """
    n, least = found.n, float(found.least)
    size = len(found.estimate)
    divisors = [_divisor(cell, found.subject, questions, schema, pool) for cell in range(size)]
    share = np.array([np.nan if one is None else one.share for one in divisors])
    raw = _divided(found.estimate / n, share) if n else np.full(size, np.nan)
    given = [(one.pool, one.column) for one in divisors if one is not None and one.pool is not None]
    if not n or len(given) < size or not found.has_interval:
        return _undetermined(place, found.subject, n, raw, least)
    both = ratio_interval(found.estimate / n, share, _mean_variance(found, given), least, 1.0, z)
    return Conditional(place, found.subject, n, raw, _part(both, 0), _part(both, 1))


class _Divisor(NamedTuple):
    """The ``share`` that divides a mean, and its ``column`` in ``pool``, which has variances (None: no interval)."""

    share: float
    pool: Pool | None
    column: int


def _divisor(
    place: int, subject: Subject, questions: Sequence[QuestionEstimate], schema: Schema, pool: Pool | None
) -> _Divisor | None:
    """Return the share of the class, or of its records with the number, that divides a mean; None if unknown."""
    classes = len(schema.label.classes)
    feature = schema.numeric[place // classes] if subject.kind == MOMENTS else subject.feature
    column = place % classes if subject.of_class is None else subject.of_class
    for other in questions:
        if other.subject.kind == PRESENT and other.subject.feature == feature and other.n:
            place = classes + column
            single = None if other.law is None or not other.has_interval else _single(other, other.law)
            return _Divisor(float(other.estimate[place]) / other.n, single, place)
    return None if pool is None else _Divisor(float(pool.share[column]), pool if _is_known(questions) else None, column)


def _single(found: QuestionEstimate, law: Law) -> Pool:
    """Return the shares that one question estimates, in the form of a pool. ``law``: noise variance of one answer."""
    n = found.n
    chosen = found.devices_scatter / n
    people = found.scatter / n - chosen
    noise = Law(law.at_zero / n, law.at_one / n)
    return Pool(found.estimate / n, n, noise, chosen, people, {one.sample: one.weight for one in found.samples})


def _mean_variance(found: QuestionEstimate, given: list[tuple[Pool, int]]) -> Variance:
    """Return V(μ) of :func:`_means` for devices and population. ``given``: per mean, a pool and its column."""
    n = found.n
    likely = {id(pool): pool.likely for pool, _ in given}
    share = np.array([likely[id(pool)][column] for pool, column in given])
    mean = np.clip(found.estimate / n, -share, share)
    noise = np.array([float(pool.noise.at(part)) for (pool, _), part in zip(given, share, strict=True)])
    own = np.array([[pool.chosen for pool, _ in given], [pool.scatter for pool, _ in given]])
    joint = {id(pool): joint_scatters(found, pool) for pool, _ in given}
    together = np.array([joint[id(pool)] for pool, _ in given]).T
    scatter = np.array([[found.devices_scatter], [found.scatter]]) / n
    return Variance(
        found.noise_variance / n**2 + scatter * found.spread,
        -2 * mean * (1 - share) * together,
        noise + own * share * (1 - share),
    )


def joint_scatters(found: QuestionEstimate, pool: Pool) -> tuple[float, float]:
    """Return the sampling covariance of a mean and a class share, in multiples of the covariance of the true values.

        −Σ_s w_s W_s/N_s                                        for the devices that answered
        −Σ_s w_s W_s/N_s + Σ_d (Σ_s w_s √c_s)(Σ_s W_s √c_s)      for the population

    w_s, W_s: the weights of stratum s in the mean and in the class share; N_s, c_s: the stratum's answers and their
    concentration; d: a set of devices. The answers to two questions of a stratum are drawn from it without replacement,
    so the first term is negative.
    """
    chosen = people = 0.0
    own: dict[int, float] = {}
    for sample, weight in found.samples:
        chosen -= weight * pool.by_sample.get(sample, 0.0) / max(sample.answers, 1)
        own[sample.people] = own.get(sample.people, 0.0) + weight * sqrt(sample.concentration)
    for sample, weight in pool.by_sample.items():
        people += own.get(sample.people, 0.0) * weight * sqrt(sample.concentration)
    return chosen, chosen + people
