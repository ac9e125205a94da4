"""Estimates of one question: unbiased numbers with variances and intervals, the same for every kind of source.

Source: docs/math.md, section 1; docs/decisions/0052.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np

from aggregator.common.arrays import Floats
from aggregator.estimates.debias import Law, Pairs
from aggregator.estimates.intervals import Interval
from protocol.questions import MOMENT, MOMENTS, SQUARE, Subject


class Sample(NamedTuple):
    """All answers to one stratum. The answers to one question are a part of them, drawn without replacement.

    Attributes:
        people: number of the set of devices: samples with equal numbers are from the same devices, samples with
            different numbers share no device.
        stratum: stratum of the campaign. If every record answers every question, each question has its own stratum.
        answers: N, the number of answers to all questions of the stratum.
        concentration: c = ΣT²/(ΣT)², T the number of answers of each device; 1/N if N devices answered once.
    """

    people: int
    stratum: int
    answers: int
    concentration: float


class Weighted(NamedTuple):
    """A sample, and the weight of the estimates from its answers in a combined estimate."""

    sample: Sample
    weight: float


class Vote(NamedTuple):
    """Estimated shares of the classes from one question.

    Attributes:
        sample: the stratum's answers, which the question's answers are a part of.
        n: number of answers, at least 1.
        share: shape (k,) float64, unbiased shares of the classes; may be negative.
        law: noise variance of one answer as a function of a class's share.
        is_counted: True if n is known; False if n is itself the noisy sum of the classes' counts.
    """

    sample: Sample
    n: int
    share: Floats
    law: Law
    is_counted: bool = True

    @property
    def planned_variance(self) -> float:
        """Variance of a class's estimated share, computed as if all classes had equal shares.

        It depends on the mechanism and the number of answers, and not on any answer.
        """
        equal = 1 / len(self.share)
        noise = self.n * float(self.law.at(np.array(equal)))
        return noise / self.n**2 + equal * (1 - equal) / self.n


class Right(NamedTuple):
    """Estimated share of a model's right predictions, from an ``outcome`` or ``right`` question.

    Attributes:
        share: share of right predictions, unbiased; may be negative.
        law: noise variance of one answer as a function of that share.
    """

    share: float
    law: Law


@dataclass(frozen=True, eq=False)
class QuestionEstimate:
    """Estimates of one question, in reports (or records): n times a share or mean.

    Each estimate has two variances and two intervals. The first ones (``devices_…``) are about the devices that
    answered, each weighted by its number of answers. The second ones are about the population of the devices, and so
    also hold the chance of which devices take part.

    Attributes:
        subject: subject of the question.
        n: number of answers, or of asked records; at least 1 if it is noisy.
        estimate: shape (K,) float64, unbiased; may be negative or exceed ``n``. Zeros if n = 0.
        noise_variance: shape (K,) float64, variance of the noise, given the asked devices. Infinite if n = 0.
        spread: shape (K,) float64, s², the variance of the true value between devices: f(1 − f) for a share f, with
            the estimated share clipped to [0, 1].
        devices_scatter: sampling variance for the devices that answered, in multiples of n·s².
        scatter: sampling variance for the population, in multiples of n·s²; 1 if n different devices were asked.
        interval: 95 % intervals for n times the population's shares or means; without finite ends if n = 0.
        devices_interval: 95 % intervals for the devices that answered.
        planned_variance: variance of a share or mean, assuming equal shares or uniform numbers. It does not depend
            on any answer. Infinite if n = 0, or if the mechanism states no variance.
        law: noise variance of one answer as a linear function of (x − least)/(1 − least), x a share or mean; None if
            the variance is not linear.
        pairs: noise covariances of one answer's estimates of two values; None if they are not known.
        is_binomial: whether the counts are binomial.
        adds_up: whether the estimates always sum to ``n``.
        samples: the answers that the question's answers are a part of, with their weights, which sum to 1: one sample,
            or one per joined source; empty if they are not known.
        classes: estimated shares of the classes, one vote per source with answers; empty if the question is not
            about classes, or if the mechanism has no estimator for groups of values.
        right: for an ``outcome`` or ``right`` question, the share of right predictions; None for others, if n = 0,
            or if the mechanism has no estimator for groups of values.
        kurtosis: excess kurtosis of the noise: 0 for the noise of many answers, 3 for one Laplace noise.
        has_interval: False if no interval may be stated (:meth:`without_interval`); then no interval has finite ends,
            and the variances are estimates for fits only.
        noisy_n: None if n is known. Else the noisy number of records from which n was made; it may be below 1.
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
    samples: tuple[Weighted, ...] = ()
    classes: tuple[Vote, ...] = ()
    right: Right | None = None
    kurtosis: float = 0.0
    has_interval: bool = True
    noisy_n: int | None = None

    def without_interval(self) -> QuestionEstimate:
        """The same estimates without intervals, for estimates whose errors have no known law."""
        endless = np.full(len(self.estimate), np.inf)
        none = Interval(-endless, endless)
        return replace(self, interval=none, devices_interval=none, has_interval=False)

    @property
    def stated_n(self) -> int:
        """What is shown as n to people and programs: the noisy number itself if n is noisy, so it may be below 1."""
        return self.n if self.noisy_n is None else self.noisy_n

    @property
    def possible(self) -> tuple[float, float]:
        """Smallest and largest possible true value of an estimate, to which shown intervals are cut.

        A noisy number of records bounds nothing: a true count may well be larger than it.
        """
        if self.noisy_n is None:
            return self.least * self.n, self.n
        return 0.0 if self.least == 0 else -inf, inf

    @property
    def is_share(self) -> bool:
        """Whether the estimates are fractions of the records (times n), and not means of a number (times n)."""
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
        """Shape (K,) float64: variance of ``estimate`` for the devices that answered.

        It is the noise variance plus the variance from the random choice of the answers that are about this question.
        """
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
    """Whether questions about ``subject`` estimate fractions of the records, and not means of a number.

    False for moments of numeric features. True for all other subjects: classes, a feature's values, presence of a
    number, and a model's outcomes.
    """
    return subject.kind not in (MOMENT, MOMENTS)


def is_stretched(subject: Subject) -> bool:
    """Whether devices perturb 2v − S in place of the value v, which is so for the square v of a single number.

    A square v is in [0, S], so 2v − S uses the whole range [−S, S] of the mechanism.
    """
    return subject.of_class is not None and subject.power == SQUARE


def relative_spread(n: int, estimate: Floats, spread: Floats, *, least: int) -> Floats:
    """Spread of numbers in [``least``, 1], divided by the largest spread that is possible at the numbers' mean.

    Args:
        n: number of answers, at least 1.
        estimate: shape (K,) float64, n times the means.
        spread: shape (K,) float64, s².
        least: smallest possible number.

    Returns:
        Shape (K,) float64, in [0, 1].
    """
    mean = estimate / n
    room = np.maximum((mean - least) * (1 - mean), np.finfo(float).tiny)
    return np.clip(spread / room, 0, 1)
