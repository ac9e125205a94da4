"""From the counts of one question to unbiased estimates: one function per family of mechanisms.

A question has K values or is about K numbers (scaled to [−S, S], S = :data:`protocol.SCALE`). An answer of a *pure
protocol* supports the true value with probability p, any other with q. Source: docs/math.md, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import Floats
from protocol import SCALE
from protocol.documents.memory_terms import Remembered
from protocol.epsilon import exp_below
from protocol.errors import InputError
from protocol.mechanisms import SINGLE, FrequencyMechanism, Mechanism
from protocol.mechanisms.bit import Bit
from protocol.mechanisms.by_family import ByFamily
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.laplace import Laplace
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import CoinMechanism, NumericMechanism, SingleNumberMechanism
from protocol.mechanisms.she import SummedHistogram
from protocol.mechanisms.subset import Subset
from protocol.mechanisms.unary import UnaryMechanism

_UNIT = 1 << 128
"""Denominator to which :func:`lower_mean` is rounded for ``she``."""

_ROUNDING = 1e-9
"""Largest part of a variance that is taken for a rounding error of floats."""

Z95 = 1.959963984540054
"""Half the width of a 95 % interval in standard deviations: the 0.975 quantile of the normal distribution."""


class Estimates(NamedTuple):
    """Estimates of one question: how many of the asked devices hold each value, or the sum of each number over them.

    ``estimate`` and ``noise_variance`` (given the asked devices): shape (K,) float64, in reports, unbiased.
    ``holds_sampling``: ``noise_variance`` includes the sampling variance, each answer being taken to be from another
    device.
    """

    estimate: Floats
    noise_variance: Floats
    holds_sampling: bool = False


@overload
def support_counts(mechanism: Mechanism, counts: Sequence[int]) -> Sequence[int]: ...
@overload
def support_counts(mechanism: Mechanism, counts: NDArray[np.int64]) -> NDArray[np.int64]: ...
def support_counts(
    mechanism: Mechanism, counts: Sequence[int] | NDArray[np.int64]
) -> Sequence[int] | NDArray[np.int64]:
    """Return the K integers that :func:`debias` reads, from a question's counts in the tally; rows of K for an array.

    They are the tally's counts, or, for a pure protocol whose answer may support several values
    (:meth:`FrequencyMechanism.supports`), the numbers of answers that support each value.
    """
    table = _support_table(mechanism)
    if table is None:
        return counts
    if isinstance(counts, np.ndarray):
        return np.asarray(counts @ table, np.int64)
    found: list[int] = (np.asarray(counts) @ table).tolist()
    return found


def supports_by_set(mechanism: Mechanism) -> bool:
    """Return whether the mechanism lets one answer (an integer) support a set of values in place of one value."""
    return (
        isinstance(mechanism, FrequencyMechanism)
        and mechanism.layout == SINGLE
        and type(mechanism).supports is not FrequencyMechanism.supports
    )


@lru_cache(maxsize=64)
def _support_table(mechanism: Mechanism) -> NDArray[np.int64] | None:
    """Return int64 of shape (answers, K): 1 where an answer supports a value. None if answer i supports i alone."""
    if not supports_by_set(mechanism):
        return None
    assert isinstance(mechanism, FrequencyMechanism)
    rows = [
        [mechanism.supports(answer, value) for value in range(mechanism.size)] for answer in range(mechanism.answers)
    ]
    return np.array(rows, np.int64)


@ByFamily
def debias(mechanism: Mechanism, n: int, counts: Sequence[int]) -> Estimates:
    """Return unbiased estimates from one question's counts. Run by the aggregator.

    ``n``: number of answers; without any, every estimate is 0 with infinite variance. ``counts``: the K integers of
    :func:`support_counts`. Raises InputError ``mechanism_unknown``: the mechanism's family has no registered estimator.
    """
    del n, counts
    raise InputError("mechanism_unknown", f"there is no estimator for answers of '{mechanism.name}'")


@debias.register(FrequencyMechanism)
def debias_pure(mechanism: FrequencyMechanism, n: int, counts: Sequence[int]) -> Estimates:
    """Implement :func:`debias` for pure protocols (``direct`` and the unary encodings).

        Ê_i = (c_i − m q)/(p − q)      Var = m [ q(1−q) + f (p(1−p) − q(1−q)) ] / (p − q)²

    m: number of answers; c_i: those that support value i; f = Ê_i/m, clipped to [0, 1], for the unknown share of i.
    """
    return _supports(mechanism.p, mechanism.q, n, counts)


@debias.register(Remembered)
def debias_remembered(mechanism: Remembered, n: int, counts: Sequence[int]) -> Estimates:
    """Implement :func:`debias` for reports of kept answers: as a pure protocol, with the noise of :func:`noise_law`."""
    found = _supports(mechanism.p, mechanism.q, n, counts)
    if not n:
        return found
    return found._replace(noise_variance=n * noise_law_remembered(mechanism).at(np.clip(found.estimate / n, 0, 1)))


def _supports(p: Fraction, q: Fraction, n: int, counts: Sequence[int]) -> Estimates:
    """Return estimates and variances by the formulas of :func:`debias_pure`, where p and q are defined; p > q."""
    if n == 0:
        return Estimates(np.zeros(len(counts)), np.full(len(counts), np.inf))
    scale = p.denominator * q.denominator
    per_other = q.numerator * p.denominator
    gain = p.numerator * q.denominator - per_other
    # One division of integers gives the nearest float to the exact rational estimate.
    estimate = np.array([(count * scale - n * per_other) / gain for count in counts])
    return Estimates(estimate, n * Law.pure(p, q).at(np.clip(estimate / n, 0, 1)))


class Law(NamedTuple):
    """Noise variance of one answer in a value's estimated share: if no device holds the value, if every device does."""

    at_zero: float
    at_one: float

    @classmethod
    @lru_cache(maxsize=256)  # fractions are slow, and campaigns have few laws
    def pure(cls, p: Fraction | float, q: Fraction | float) -> Law:
        """Return the law of a pure protocol: q(1 − q)/(p − q)² at share 0 and p(1 − p)/(p − q)² at share 1."""
        return cls(float(q * (1 - q) / (p - q) ** 2), float(p * (1 - p) / (p - q) ** 2))

    def at(self, share: Floats) -> Floats:
        """Return the noise variance of one answer at the true shares ``share``; argument and result have one shape."""
        return np.asarray(self.at_zero + share * (self.at_one - self.at_zero), np.float64)


@ByFamily
def noise_law(mechanism: Mechanism) -> Law | None:
    """Return the noise variance that one answer adds to the estimate of a value's share, as a :class:`Law`.

    Return None if the mechanism's family has registered none, as those for numbers, which estimate no shares.
    """
    del mechanism
    return None


@noise_law.register(FrequencyMechanism)
def noise_law_pure(mechanism: FrequencyMechanism) -> Law:
    """Return the law of a pure protocol from its probabilities p and q (:meth:`Law.pure`)."""
    return Law.pure(mechanism.p, mechanism.q)


@noise_law.register(Remembered)
def noise_law_remembered(mechanism: Remembered) -> Law:
    """Return the law a(φ − φ₁) + bφ₁ of the mean of a device's reports: φ of one report, φ₁ of a kept answer.

    a and b: the parts of fresh noise and of the kept answer's noise that are left (``mechanism.left``).
    """
    report, kept = Law.pure(mechanism.p, mechanism.q), Law.pure(mechanism.permanent.p, mechanism.permanent.q)
    return Law(*_left(mechanism, report, kept))


def _left(mechanism: Remembered, report: tuple[float, float], kept: tuple[float, float]) -> list[float]:
    fresh, permanent = mechanism.left
    return [fresh * (both - one) + permanent * one for both, one in zip(report, kept, strict=True)]


@noise_law.register(SummedHistogram)
def noise_law_histogram(mechanism: SummedHistogram) -> Law:
    """Return the law of ``she`` (summed histograms): the noise variance is the same for every share."""
    variance = noise_variance(mechanism)
    return Law(variance, variance)


@debias.register(SummedHistogram)
def debias_histogram(mechanism: SummedHistogram, n: int, counts: Sequence[int]) -> Estimates:
    """Implement :func:`debias` for ``she``; count i is Σ, the sum over all answers of component i clipped to [0, M].

        Ê_i = (Σ − m b)/(M − 2b),   Var = m v/(M − 2b)²,   q = e^{−s/t}
        b = q(1 − q^M)/(1 − q²),   v = Σ_{k=1…M} (2k − 1) q^k/(1 + q) − b²

    M: number of steps of the grid; s/t: rate of the noise; m: number of answers; b: mean of a component whose value is
    not held, M − b of one that is; v: variance of both. Source: docs/math.md, section 1; decision 37.
    """
    if n == 0:
        return Estimates(np.zeros(len(counts)), np.full(len(counts), np.inf))
    estimate = np.array(_holders(mechanism, n, counts))
    return Estimates(estimate, np.full(len(counts), n * noise_variance(mechanism)))


def _holders(mechanism: SummedHistogram, n: int, sums: Sequence[int], members: int = 1) -> list[float]:
    """Return the estimated holders, (Σ − n·members·b)/(M − 2b), of every sum Σ; b, M: :func:`debias_histogram`."""
    mean = round(lower_mean(mechanism.s, mechanism.t) * _UNIT)
    return [(total * _UNIT - n * members * mean) / (GRID * _UNIT - 2 * mean) for total in sums]


@lru_cache(maxsize=1024)
def lower_mean(s: int, t: int) -> Fraction:
    """Return the mean b of discrete Laplace noise of rate s/t, clipped to [0, M], to 40 digits.

    b = q(1 − q^M)/(1 − q²), q = e^{−s/t}, M: number of steps of the grid of ``she``
    """
    q, power, square = (1 / exp_below(steps * s, t) for steps in (1, GRID, 2))
    return q * (1 - power) / (1 - square)


def noise_variance(mechanism: SummedHistogram) -> float:
    """Return the noise variance v/(M − 2b)² that one answer of ``she`` adds to a share (:func:`debias_histogram`)."""
    rate = mechanism.s / mechanism.t
    steps = np.arange(1, GRID + 1)
    q = np.exp(-rate)
    tail = np.exp(-rate * steps) / (1 + q)
    gain = (-2 * np.expm1(-rate * steps) + np.expm1(-rate)).sum() / (1 + q)
    spread = ((2 * steps - 1) * tail).sum() - tail.sum() ** 2
    return float(spread / gain**2)


class Pairs(NamedTuple):
    """Noise covariance of one answer in two values' shares: if the device has neither value, if it has one of them."""

    at_zero: float
    at_one: float


@ByFamily
def pairs_of(mechanism: Mechanism) -> Pairs | None:
    """Return the covariances of one answer's noise; without them conditional probabilities have no intervals.

    Return None if a covariance depends on which third value a device holds, or if the family has registered none.
    """
    del mechanism
    return None


@pairs_of.register(UnaryMechanism)
@pairs_of.register(SummedHistogram)
def independent_pairs(mechanism: Mechanism) -> Pairs:
    """Return covariances of 0 for unary encodings and ``she``: the noises of two components are independent."""
    del mechanism
    return Pairs(0.0, 0.0)


@pairs_of.register(Direct)
def direct_pairs(mechanism: Direct) -> Pairs:
    """Return −q²/(p − q)² and −pq/(p − q)² for ``direct``: one answer supports one value (multinomial distribution)."""
    return _single_pairs(mechanism)


@pairs_of.register(Remembered)
def remembered_pairs(mechanism: Remembered) -> Pairs:
    """Return the covariances of the mean of a device's reports, by the formula of :func:`noise_law_remembered`."""
    if mechanism.layout != SINGLE:
        return Pairs(0.0, 0.0)
    return Pairs(*_left(mechanism, _single_pairs(mechanism), _single_pairs(mechanism.permanent)))


def _single_pairs(mechanism: FrequencyMechanism) -> Pairs:
    p, q = float(mechanism.p), float(mechanism.q)
    return Pairs(-((q / (p - q)) ** 2), -p * q / (p - q) ** 2)


@pairs_of.register(Subset)
def subset_pairs(mechanism: Subset) -> Pairs:
    """Return the covariances for ``subset``, whose rows have exactly w ones.

    ((w − 2p)(w − 1)/((K − 1)(K − 2)) − q²)/(p − q)²        (p(w − 1)/(K − 1) − pq)/(p − q)²
    """
    p, q, w, others = float(mechanism.p), float(mechanism.q), mechanism.ones, mechanism.size - 1
    both = (w - 2 * p) * (w - 1) / (others * max(1, others - 1))  # of two values a device has one
    return Pairs((both - q * q) / (p - q) ** 2, (p * (w - 1) / others - p * q) / (p - q) ** 2)


class Marginal(NamedTuple):
    """Unbiased estimate, (groups,), of how many devices hold a value of each group, and the noise of one answer."""

    estimate: Floats
    law: Law


@ByFamily
def marginal(mechanism: Mechanism, n: int, counts: Sequence[int], groups: int) -> Marginal | None:
    """Return estimates for groups of values: group g has the values a·``groups`` + g, a = 0, 1, …. For the aggregator.

    Of a question about a feature and the class, ``groups`` = k gives the devices in each class. ``n``: at least 1;
    ``counts``: from :func:`support_counts`. None if the mechanism's family has no such estimator.
    """
    del mechanism, n, counts, groups
    return None


@marginal.register(FrequencyMechanism)
def marginal_pure(mechanism: FrequencyMechanism, n: int, counts: Sequence[int], groups: int) -> Marginal | None:
    """Implement :func:`marginal` for pure protocols, with s = K/``groups`` values in a group.

        at share 0: s φ₀ + s(s − 1) γ₀        at share 1: φ₁ + (s − 1) φ₀ + 2(s − 1) γ₁ + (s − 1)(s − 2) γ₀

    These are the noise variances of one answer for a group; φ₀ and φ₁ those for one value (:func:`noise_law`), γ₀ and
    γ₁ the covariances for two (:func:`pairs_of`). Return None for a mechanism without covariances.
    """
    pairs = pairs_of(mechanism)
    if pairs is None:
        return None
    members = len(counts) // groups
    cells = debias_pure(mechanism, n, counts).estimate.reshape(members, groups)
    law = noise_law(mechanism)
    assert law is not None
    at_zero, at_one = law
    apart = members - 1
    return Marginal(
        cells.sum(axis=0),
        Law(
            members * at_zero + members * apart * pairs.at_zero,
            members * at_zero + at_one - at_zero + 2 * apart * pairs.at_one + apart * (apart - 1) * pairs.at_zero,
        ),
    )


@lru_cache(maxsize=256)
def adds_up(mechanism: Mechanism) -> bool:
    """Return whether the estimates of all values always sum to the number of answers: for ``direct`` and ``subset``."""
    whole = marginal(mechanism, 1, [0] * mechanism.size, 1) if isinstance(mechanism, FrequencyMechanism) else None
    law = noise_law(mechanism)
    return whole is not None and law is not None and abs(whole.law.at_one) < _ROUNDING * mechanism.size * law.at_zero


@marginal.register(Direct)
def marginal_direct(mechanism: Direct, n: int, counts: Sequence[int], groups: int) -> Marginal:
    """Implement :func:`marginal` for ``direct`` (GRR, k-ary randomised response), s = K/``groups`` values in a group.

    An answer supports the group of the true value with probability p' = p + (s − 1)q, and any other group with
    probability q' = s q: again a pure protocol, with p' − q' = p − q.
    """
    members = len(counts) // groups
    p, q = mechanism.p, mechanism.q
    totals = [sum(counts[group::groups]) for group in range(groups)]
    p, q = p + (members - 1) * q, members * q
    return Marginal(_supports(p, q, n, totals).estimate, Law.pure(p, q))


@marginal.register(SummedHistogram)
def marginal_histogram(mechanism: SummedHistogram, n: int, counts: Sequence[int], groups: int) -> Marginal:
    """Implement :func:`marginal` for ``she``: components are independent, so estimates and variances add up."""
    members = len(counts) // groups
    totals = _holders(mechanism, n, [sum(counts[group::groups]) for group in range(groups)], members)
    variance = members * noise_variance(mechanism)
    return Marginal(np.array(totals), Law(variance, variance))


@debias.register(SingleNumberMechanism)
@debias.register(Bit)  # Bit is a CoinMechanism, but its counts are the numbers of answers 0 and 1, not sums of bits.
def debias_single_number(mechanism: SingleNumberMechanism, n: int, counts: Sequence[int]) -> Estimates:
    """Implement :func:`debias` for ``bit``, ``piecewise`` and ``hybrid``: estimate the sum of the devices' numbers.

        Σ_i c_i x̂_i / S,   Var by :func:`_answers_variance` from Σ_i c_i x̂_i/S and Σ_i c_i x̂_i²/S²

    c_i: number of answers i; x̂_i: the unbiased estimate of a device's number from answer i. The estimate is in units
    of S, and the variance holds noise and sampling together.
    """
    if n == 0:
        return Estimates(np.zeros(1), np.full(1, np.inf), holds_sampling=True)
    weights, unit = _integer_estimates(mechanism)
    answered = [(count, weight) for count, weight in zip(counts, weights, strict=True) if count]
    total = sum(count * weight for count, weight in answered)
    squares = sum(count * weight * weight for count, weight in answered)
    # One division of integers each gives the nearest floats to the exact rational numbers.
    estimate = np.array([total / unit])
    variance = _answers_variance(mechanism, n, estimate, np.array([squares / (unit * unit)]))
    return Estimates(estimate, variance, holds_sampling=True)


def _answers_variance(mechanism: NumericMechanism, n: int, total: Floats, squares: Floats) -> Floats:
    """Return the variance of the sum of n answers, from the scatter of the answers and the mechanism's own variance.

        n·V,   V = (squares + z² W)/(n + z²) − m², clipped to [N, W],   m = total/(n + z²), clipped to [−1, 1],
        W = max E x̂²,   N = min Var x̂   for inputs in [−S, S],   z = 1.96

    The plain scatter is 0 if all answers are equal, and inaccurate if there are few; so z² imagined answers of mean 0
    and mean square W are added. ``total``, ``squares``: sums over the answers of x̂/S, the estimate of a number, and
    its square.
    """
    worst, least = _law_ends(mechanism)
    pull = Z95**2
    middle = np.clip(total / (n + pull), -1, 1)
    return np.asarray(n * np.clip((squares + pull * worst) / (n + pull) - middle**2, least, worst), np.float64)


@lru_cache(maxsize=64)
def _law_ends(mechanism: NumericMechanism) -> tuple[float, float]:
    """Return the largest mean square W and the smallest variance N of one answer's estimate x̂ of an input x.

    Both E x̂² and Var x̂ are parabolas in x, so that their extremes are at x = 0 and at the end of the range, x = S.
    """
    ends = [(x, mechanism.variance(x)) for x in (0, SCALE)]
    squares = [float((variance + x * x) / SCALE**2) for x, variance in ends]
    return max(squares), min(float(variance / SCALE**2) for _, variance in ends)


@lru_cache(maxsize=64)
def _integer_estimates(mechanism: SingleNumberMechanism) -> tuple[tuple[int, ...], int]:
    """Return the numerators of x̂_i/S for every answer i, and their common denominator; cached, fractions are slow."""
    values = [mechanism.estimate(answer) / SCALE for answer in range(mechanism.answers)]
    unit = lcm(*(value.denominator for value in values))
    return tuple(int(value * unit) for value in values), unit


def sign_size(mechanism: CoinMechanism) -> float:
    """Return B > 1, in units of S: answer 1 gives the estimate +B of the device's number, answer 0 the estimate −B."""
    return float(_exact_size(mechanism))


def _exact_size(mechanism: CoinMechanism) -> Fraction:
    one = mechanism.estimate(1) if mechanism.layout == SINGLE else mechanism.estimate((1,))[0]
    return Fraction(one) / SCALE


@debias.register(CoinMechanism)
def debias_signs(mechanism: CoinMechanism, n: int, counts: Sequence[int]) -> Estimates:
    """Implement :func:`debias` for ``bits`` and ``duchi``: each estimate is the sum of one number over all devices.

        B(2c_i − n),   Var by :func:`_answers_variance` with the sum of squares nB²

    c_i: number of answers with a 1 in coordinate i; one answer is the estimate +B or −B of a number, in units of S.
    """
    if n == 0:
        return Estimates(np.zeros(len(counts)), np.full(len(counts), np.inf), holds_sampling=True)
    size = _exact_size(mechanism)
    estimate = np.array([float(size * (2 * count - n)) for count in counts])
    variance = _answers_variance(mechanism, n, estimate, np.full(len(counts), float(n * size**2)))
    return Estimates(estimate, variance, holds_sampling=True)


@debias.register(Laplace)
def debias_laplace(mechanism: Laplace, n: int, counts: Sequence[int]) -> Estimates:
    """Implement :func:`debias` for ``laplace``: Σ/M, where count i is Σ, the sum of coordinate i over all n answers.

        Var = n·[2q/((1 − q)²M²) + 1/(4M²)],   q = e^{−s/t}

    The first term is the variance of the noise, of rate s/t; the second the largest variance of the rounding to the
    grid of M steps. How much the numbers differ is estimated in :mod:`aggregator.estimates.spread`.
    """
    if n == 0:
        return Estimates(np.zeros(len(counts)), np.full(len(counts), np.inf))
    totals = np.array([count / GRID for count in counts])
    leave = -np.expm1(-mechanism.s / mechanism.t)
    noise = 2 * (1 - leave) / (leave * GRID) ** 2 + 0.25 / GRID**2
    return Estimates(totals, np.full(len(counts), n * noise))
