"""Estimates of one question: unbiased numbers with variances and intervals, the same for every kind of source.

Source: docs/math.md, section 1; decision 52.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Z95, Law, Pairs
from aggregator.estimates.intervals import Interval, quantile95, relative_kurtosis, score_interval
from aggregator.estimates.ratios import cell_variance, ratio_interval
from protocol.questions import MOMENT, MOMENTS, SQUARE, Subject


class Sample(NamedTuple):
    """All answers to one stratum, a group of questions of which a device is asked one in each period.

    ``people``: index of the set of devices; samples with different indices share no device. ``answers``: N, to all
    questions of the stratum; ``concentration``: c = ΣT²/(ΣT)², T the number of answers of each device.
    """

    people: int
    stratum: int
    answers: int
    concentration: float


class SampleWeight(NamedTuple):
    """All answers to one stratum, and the weight that estimates from them have in a combined estimate."""

    sample: Sample
    weight: float


class Vote(NamedTuple):
    """Estimated shares of the classes by one question; the votes of several questions are combined by weights.

    ``sample``: the answers to the question's stratum; ``share``: shape (k,) float64, unbiased; ``law``: noise variance
    of one answer as a function of a class's share; ``is_counted``: False if n is itself the noisy sum of the classes'
    counts.
    """

    sample: Sample
    n: int
    share: Floats
    law: Law
    is_counted: bool = True

    @property
    def planned_variance(self) -> float:
        """Variance of a class's estimated share at equal shares of all classes; no answer changes it."""
        equal = 1 / len(self.share)
        noise = self.n * float(self.law.at(np.array(equal)))
        return noise / self.n**2 + equal * (1 - equal) / self.n


class Right(NamedTuple):
    """Estimated ``share`` of a model's right predictions, unbiased; ``law``: noise variance of one answer."""

    share: float
    law: Law


@dataclass(frozen=True, eq=False)
class QuestionEstimate:
    """Estimates of one question, in reports (or records): n times a share or mean.

    What is named ``devices_…`` is about the devices that answered, each weighted by its number of answers. The others
    are about the population of the devices; they also cover the chance of which devices take part.

    Attributes:
        subject: what the question asks: a kind, and a feature, power and class if it has them.
        n: number of answers, or of asked records; at least 1 if it is noisy.
        estimate: shape (K,) float64, unbiased; may be negative or exceed ``n``. Zeros if n = 0.
        noise_variance: shape (K,) float64, variance of the noise, given the asked devices. Infinite if n = 0.
        spread: shape (K,) float64, s², the variance of the true value between devices: f(1 − f) for a share f, with
            the estimated share clipped to [0, 1].
        devices_scatter, scatter: sampling variance, in multiples of n·s²; ``scatter`` is 1 if n different devices were
            asked.
        interval, devices_interval: 95 % intervals for n times the shares or means; without finite ends if n = 0.
        planned_variance: variance of a share or mean at equal shares or uniform numbers, which no answer changes.
            Infinite if n = 0, or if the mechanism states no variance.
        law: noise variance of one answer as a linear function of (x − least)/(1 − least), where x is a share or mean
            and least its smallest possible value; None if the variance is not linear.
        pairs: noise covariances of one answer's estimates of two values; None if they are not known.
        is_binomial: whether the counts are binomial.
        adds_up: whether the estimates always sum to ``n``.
        samples: the answers to the question's stratum, one entry per joined source, with weights that sum to 1; empty
            if they are not known.
        classes: estimated shares of the classes, one vote per source with answers; empty if the question is not
            about classes, or if the mechanism has no estimator for groups of values.
        right: for an ``outcome`` or ``right`` question with answers, the share of right predictions, if the mechanism
            has an estimator for groups of values; else None.
        kurtosis: excess kurtosis of the noise: 0 for the noise of many answers, 3 for one Laplace noise.
        has_interval: False if no interval may be stated (:meth:`without_interval`); then no interval has finite ends,
            and the variances are estimates for fits only.
        noisy_n: None if n is known. Else the noisy number of records from which n was made; it may be below 1.
        parts: the estimates of the joined sources that have answers; empty for one source.
    """

    subject: Subject
    n: int
    estimate: Floats
    noise_variance: Floats
    spread: Floats
    devices_scatter: float
    scatter: float
    interval: Interval
    devices_interval: Interval
    planned_variance: float
    law: Law | None = None
    pairs: Pairs | None = None
    is_binomial: bool = False
    adds_up: bool = False
    samples: tuple[SampleWeight, ...] = ()
    classes: tuple[Vote, ...] = ()
    right: Right | None = None
    kurtosis: float = 0.0
    has_interval: bool = True
    noisy_n: int | None = None
    parts: tuple[QuestionEstimate, ...] = ()

    def without_interval(self) -> QuestionEstimate:
        """Return the same estimates without intervals, for errors whose distribution is not known."""
        endless = np.full(len(self.estimate), np.inf)
        none = Interval(-endless, endless)
        return replace(self, interval=none, devices_interval=none, has_interval=False)

    def with_intervals(self) -> QuestionEstimate:
        """Return the same estimates with the 95 % intervals that follow from ``law`` and the scatters.

        Without a law they are the estimate ∓ z standard deviations: z = 1.96, or more for noise of heavy tails.
        """
        return replace(
            self, interval=self._interval(self.scatter), devices_interval=self._interval(self.devices_scatter)
        )

    def _interval(self, scatter: float) -> Interval:
        n, least = self.n, self.least
        sampling = n * self.spread * scatter
        z = quantile95(relative_kurtosis(self.kurtosis, self.noise_variance, sampling))
        if self.law is None:
            sd = np.sqrt(self.noise_variance + sampling)
            return Interval(self.estimate - z * sd, self.estimate + z * sd)
        dependence: Floats | float = scatter
        if not self.is_share:
            dependence = 1 + (scatter - 1) * relative_spread(n, self.estimate, self.spread, least=least)
        width = 1 - least
        share = (self.estimate / n - least) / width
        ends = score_interval(share, n, self.law, dependence, is_binomial=self.is_binomial, z=float(z.max()))
        return Interval(n * (least + width * ends.low), n * (least + width * ends.high))

    @property
    def stated_n(self) -> int:
        """The n that people and programs are shown: ``noisy_n`` unless that is None, so it may be below 1."""
        return self.n if self.noisy_n is None else self.noisy_n

    @property
    def possible(self) -> tuple[float, float]:
        """Smallest and largest true value, to which shown intervals are cut; no largest if ``n`` is noisy."""
        if self.noisy_n is None:
            return self.least * self.n, self.n
        return 0.0 if self.least == 0 else -inf, inf

    @property
    def is_share(self) -> bool:
        """Whether the estimates are n times shares of the records, and not n times means of a number."""
        return is_share(self.subject)

    @property
    def least(self) -> int:
        """Smallest possible true value: 0 for shares and for squares of single numbers, −1 for other numbers."""
        return 0 if self.is_share or is_stretched(self.subject) else -1

    @property
    def sampling_variance(self) -> Floats:
        """Shape (K,) float64: variance because the asked devices are a random sample of the population."""
        return np.asarray(self.n * self.spread * self.scatter)

    @property
    def variance(self) -> Floats:
        """Shape (K,) float64: variance of ``estimate`` for the population: noise variance plus sampling variance."""
        return self.noise_variance + self.sampling_variance

    @property
    def devices_variance(self) -> Floats:
        """Variance of ``estimate`` for the devices that answered, of noise and the choice of question: (K,)."""
        return np.asarray(self.noise_variance + self.n * self.spread * self.devices_scatter)

    @property
    def sd(self) -> Floats:
        """Shape (K,) float64: standard deviation of ``estimate`` for the population, √variance."""
        return np.sqrt(self.variance)

    @property
    def devices_sd(self) -> Floats:
        """Shape (K,) float64: standard deviation of ``estimate`` for the devices that answered."""
        return np.sqrt(self.devices_variance)

    @property
    def low(self) -> Floats:
        """Shape (K,) float64: lower ends of the 95 % intervals for the population (:attr:`interval`)."""
        return self.interval.low

    @property
    def high(self) -> Floats:
        """Shape (K,) float64: upper ends of the 95 % intervals for the population (:attr:`interval`)."""
        return self.interval.high


def is_share(subject: Subject) -> bool:
    """Return whether questions about ``subject`` estimate shares of the records, and not moments of numbers."""
    return subject.kind not in (MOMENT, MOMENTS)


def is_stretched(subject: Subject) -> bool:
    """Return whether devices perturb 2v − S in place of v in [0, S], as they do with a single square."""
    return subject.of_class is not None and subject.power == SQUARE


def relative_spread(n: int, estimate: Floats, spread: Floats, *, least: int) -> Floats:
    """Return s² of numbers in [``least``, 1] over the largest s² possible at their mean: shape (K,), in [0, 1].

    ``estimate``, shape (K,), is n ≥ 1 times the means; ``spread`` is s², the variance of the true numbers.
    """
    mean = estimate / n
    room = np.maximum((mean - least) * (1 - mean), np.finfo(float).tiny)
    return np.clip(spread / room, 0, 1)


class Pool(NamedTuple):
    """Estimated shares of the classes, combined from several questions, with the parts of their variance.

    The variance of a share f is noise(f) + f(1 − f)·``scatter`` for the population, with ``scatter`` = ``chosen`` (by
    the random choice of a device's question) + ``people`` (of the devices); ``chosen`` alone for the devices that
    answered. ``share``: shape (k,) float64. ``by_sample``: all answers to a stratum → sum of the weights of its
    questions. ``is_counted``: False if a number of answers is a noisy sum; intervals are then for ratios of shares to
    their sum.
    """

    share: Floats
    answers: int
    noise: Law
    chosen: float
    people: float
    by_sample: dict[Sample, float]
    is_counted: bool = True

    @property
    def total(self) -> float:
        """The divisor that makes ``share`` shares of all answers: 1, or their sum if ``is_counted`` is False."""
        return 1.0 if self.is_counted else float(self.share.sum())

    @property
    def scatter(self) -> float:
        """Sampling variance for the population, in multiples of f(1 − f)."""
        return self.chosen + self.people

    def interval(self, scatter: float, z: float = Z95) -> Interval:
        """Return intervals, (k,), for the population with this ``scatter``; for ratios to the sum if n is noisy."""
        if not self.is_counted:
            one = np.ones_like(self.share)
            variance = cell_variance(one, 1.0, self.noise, Pairs(0.0, 0.0), len(self.share), scatter)
            found = ratio_interval(self.share, self.total * one, variance, z=z)
            return Interval(found.low, found.high)
        return score_interval(self.share, 1, self.noise, scatter, is_binomial=False, z=z)

    @property
    def likely(self) -> Floats:
        """Shape (k,) float64 in [0, 1]: middles of the population's intervals, where variances are evaluated."""
        interval = self.interval(self.scatter)
        return np.clip((interval.low + interval.high) / 2, 0, 1)


class VoteSums:
    """Sums over at least one vote on the shares of the classes, combined with or without those of one question."""

    def __init__(self, votes: Sequence[Vote]) -> None:
        self._number = len(votes)
        self._all = _added(votes)
        self._is_counted = all(vote.is_counted for vote in votes)

    def pool(self, without: Sequence[Vote] = ()) -> Pool | None:
        """Combine the votes but those of ``without``, or return None if no vote is left.

            chosen = Σ_j w_j²/n_j − Σ_s W_s²/N_s     answers to a question are drawn from a stratum without replacement
            people = Σ_d (Σ_{s of d} W_s √c_s)²      devices may answer in several strata and periods

        :func:`aggregator.estimates.class_shares.class_shares` binds the letters.
        """
        if len(without) == self._number:
            return None
        added, own = self._all, _added(without)
        total = added.weight - own.weight
        by_sample = {
            sample: (weight - own.by_sample.get(sample, 0.0)) / total for sample, weight in added.by_sample.items()
        }
        by_devices: dict[int, float] = {}
        for sample, weight in by_sample.items():
            by_devices[sample.people] = by_devices.get(sample.people, 0.0) + weight * sqrt(sample.concentration)
        drawn = sum(weight**2 / sample.answers for sample, weight in by_sample.items())
        return Pool(
            np.asarray((added.share - own.share) / total, np.float64),
            added.answers - own.answers,
            Law(*(float(one) for one in (added.noise - own.noise) / total**2)),
            (added.squares - own.squares) / total**2 - drawn,
            sum(part**2 for part in by_devices.values()),
            by_sample,
            self._is_counted,
        )


class _Added(NamedTuple):
    """Sums over votes, each weighted by a = 1/planned variance.

    ``weight``: Σ a. ``share``: Σ a·share. ``squares``: Σ a²/n. ``noise``: Σ a²·law/n. ``by_sample``: sample → Σ a.
    """

    weight: float
    share: Floats | float
    squares: float
    noise: Floats
    by_sample: dict[Sample, float]
    answers: int


def _added(votes: Sequence[Vote]) -> _Added:
    by_sample: dict[Sample, float] = {}
    if not votes:
        return _Added(0.0, 0.0, 0.0, np.zeros(2), by_sample, 0)
    weights = [1 / vote.planned_variance for vote in votes]
    for weight, vote in zip(weights, votes, strict=True):
        by_sample[vote.sample] = by_sample.get(vote.sample, 0.0) + weight
    squares = np.array([weight**2 / vote.n for weight, vote in zip(weights, votes, strict=True)])
    share = np.asarray(np.array(weights) @ np.array([vote.share for vote in votes]), np.float64)
    noise = np.asarray(squares @ np.array([tuple(vote.law) for vote in votes]), np.float64)
    return _Added(sum(weights), share, float(squares.sum()), noise, by_sample, sum(vote.n for vote in votes))


def pooled(votes: Sequence[Vote]) -> Pool:
    """Return at least one vote combined by inverse variance (formulas: :meth:`VoteSums.pool`)."""
    found = VoteSums(votes).pool()
    assert found is not None
    return found
