"""Intervals for what a model publishes: P(class), P(value | class), and means of numbers given the class.

    P(c)            share of class c, pooled from all questions about it (``aggregator.estimates.class_shares``);
                    divided by the sum of the shares if the number of records is itself a noisy sum
    P(a | c)        cell (a, c) divided by the share of class c: the sum of the class's cells in the same question,
                    averaged with what all other questions say of the class
    E[x^power | c]  mean of x^power·[y = c] divided by P(c), or by P(number present, c) if that was asked

Each number has a raw estimate, and an interval for each of the two populations (``aggregator.estimates.recurrence``).
An interval is not determined where the law of an estimate's noise is not known, for example under a robust rule.
The intervals of ratios are Fieller's (``aggregator.estimates.ratios``). All are clipped to the possible range. A
fitted model's own values come from a post-processing and may lie outside the interval.

Source: docs/math.md, section 1; decision 57.
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
"""Kind of the subject of the class shares that are pooled from all questions."""


class Conditional(NamedTuple):
    """Probabilities or means of one subject, in the order of the subject's cells.

    Attributes:
        place: place of the question in the statistics; None for the pooled shares of the classes.
        subject: subject of the question; its kind is :data:`PRIOR` for the pooled shares of the classes.
        n: number of answers.
        raw: shape (K,) float64, ratio of the unbiased estimates, not clipped; NaN if the divisor is not positive.
        devices: intervals for these devices.
        population: intervals for the population of the devices.
    """

    place: int | None
    subject: Subject
    n: int
    raw: Floats
    devices: Ratio
    population: Ratio


def conditionals(questions: Sequence[QuestionEstimate], schema: Schema, z: float = Z95) -> tuple[Conditional, ...]:
    """Class shares first, then one entry per question with probabilities or means given the class.

    Questions about the class alone or about outcomes have no entry. Without answers nothing is determined.

    ``questions``: estimates of all questions of one source, or joined estimates. ``z``: normal quantile of the
    intervals' level.
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
    """Whether the pooled shares of the classes may have intervals: every question about classes may."""
    return all(one.has_interval for one in questions if one.classes)


def _prior(pool: Pool | None, classes: int, z: float, *, is_known: bool) -> Conditional:
    """P(class); ``is_known``: whether the laws of the votes' errors are known, so that there are intervals."""
    subject = Subject(PRIOR, None, classes)
    if pool is None:
        return _undetermined(None, subject, 0, np.full(classes, np.nan))
    raw = _divided(pool.share, np.full(classes, pool.total))
    if not is_known:
        return _undetermined(None, subject, pool.answers, raw)
    ends = [_clipped(pool.interval(scatter, z)) for scatter in (pool.chosen, pool.scatter)]
    return Conditional(None, subject, pool.answers, raw, *ends)


def _undetermined(place: int | None, subject: Subject, n: int, raw: Floats, least: float = 0.0) -> Conditional:
    """Raw estimates with the intervals [``least``, 1], which are not determined."""
    nothing = Ratio(np.full(len(raw), least), np.ones(len(raw)), np.zeros(len(raw), np.bool_))
    return Conditional(place, subject, n, raw, nothing, nothing)


def _clipped(interval: Interval) -> Ratio:
    """An interval of shares clipped to [0, 1]; not determined if it contains 0 and 1."""
    return Ratio(*interval.between(0, 1), ~((interval.low <= 0) & (interval.high >= 1)))


def _table(found: QuestionEstimate, place: int, sums: VoteSums | None, classes: int, z: float) -> Conditional:
    """P(value | class) of all cells, or P(present | class); the cell of value a and class c has the place a·k + c."""
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
    """How much wider than normal each cell's noise makes a 95 % interval: shape (2, K) float64, 1 for many answers.

    For the few Laplace noises of a curator or of nodes it is up to 1.1, also for x̂ − ρ ŷ, which has lighter tails.
    """
    scatters = np.array([[found.devices_scatter], [found.scatter]])
    sampling = found.n * found.spread * scatters
    return quantile95(relative_kurtosis(found.kurtosis, found.noise_variance, sampling)) / Z95


def _elsewhere(found: QuestionEstimate, sums: VoteSums | None) -> Pool | None:
    """The shares of the classes by all questions but one, whose noise is independent of that one's.

    None if there are none, if no law of their noise is known, or if the question itself has no vote: its counts may
    then be those of another question, with the same noise.
    """
    is_known = found.law is not None and found.pairs is not None and found.has_interval
    return sums.pool(found.classes) if sums is not None and found.classes and is_known else None


def own_cells_weight(found: QuestionEstimate, elsewhere: Pool, classes: int) -> float:
    """The weight of a question's own cells in the shares of the classes, planned as if all classes had equal shares."""
    equal = np.array([1 / classes])
    return own_weight(lambda own: table_variance(found, equal, own, elsewhere))


def table_variance(found: QuestionEstimate, share: Floats, own: float, elsewhere: Pool | None) -> Variance:
    """V(ρ) of all cells for both populations: coefficients of shape (2, 1, k) float64, or (k,) without sampling.

    Args:
        found: the question, with at least one answer, a law and its covariances.
        share: shape (k,) float64, shares of the classes at which the variance is taken.
        own: weight of the question's own cells in the shares that divide.
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
    """The intervals of one of several populations, which the first axis numbers: shape (K,) each."""
    return Ratio(found.low[place].ravel(), found.high[place].ravel(), found.determined[place].ravel())


def _divided(numerator: Floats, denominator: Floats) -> Floats:
    """The quotients of float64 arrays of one shape; NaN where the denominator is not positive."""
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
    """E[x^power | c] of all numbers of one question.

    With m̂ the estimated mean of x^power·[y = c], p̂ the estimated share of the class, and p the middle of its interval,
    m̂ − μ p̂ has the variance

        V(μ) = noise of m̂ + s² D/n − 2μ S C + μ² [noise of p̂ + p(1 − p)·(scatter of p̂)]

    where s² is the variance of the true values, D/n the scatter of m̂ (``devices_scatter`` or ``scatter`` over n),
    S = m̂(1 − p) the covariance of the true values with [y = c], and C the result of :func:`joint_scatters`.
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
    """What a mean is divided by.

    Attributes:
        share: estimated share of the mean's class, or of its records that have the number.
        pool: the shares with their variances; None if no law of their noise is known, so that there is no interval.
        column: place of ``share`` in the pool's shares.
    """

    share: float
    pool: Pool | None
    column: int


def _divisor(
    place: int, subject: Subject, questions: Sequence[QuestionEstimate], schema: Schema, pool: Pool | None
) -> _Divisor | None:
    """The share that divides the mean at ``place``: of the present numbers if that was asked, else of the class."""
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
    """The shares of one question's cells in the form of a pool; ``law``: noise variance of one answer."""
    n = found.n
    chosen = found.devices_scatter / n
    people = found.scatter / n - chosen
    noise = Law(law.at_zero / n, law.at_one / n)
    return Pool(found.estimate / n, n, noise, chosen, people, {one.sample: one.weight for one in found.samples})


def _mean_variance(found: QuestionEstimate, given: list[tuple[Pool, int]]) -> Variance:
    """V(μ) of :func:`_means`, for both populations: coefficients of shape (2, K) float64, or (K,) without sampling.

    ``given``: K pairs: the shares that divide the mean, and the place of the mean's class in them.
    """
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
    """Sampling covariance of a mean and a class share, in multiples of the covariance of the true values.

        −Σ_s w_s W_s/N_s                                        for these devices
        −Σ_s w_s W_s/N_s + Σ_d (Σ_s w_s √c_s)(Σ_s W_s √c_s)      for the population

    w_s and W_s are the weights of stratum s in the mean and in the class share, N_s is the stratum's number of answers
    and c_s their concentration. d numbers the sets of devices; the inner sums are over the strata of one set. The first
    term is negative because the answers to two questions of a stratum are drawn from it without replacement.
    """
    chosen = people = 0.0
    own: dict[int, float] = {}
    for sample, weight in found.samples:
        chosen -= weight * pool.by_sample.get(sample, 0.0) / max(sample.answers, 1)
        own[sample.people] = own.get(sample.people, 0.0) + weight * sqrt(sample.concentration)
    for sample, weight in pool.by_sample.items():
        people += own.get(sample.people, 0.0) * weight * sqrt(sample.concentration)
    return chosen, chosen + people
