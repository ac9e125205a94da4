"""From the counts of one question to unbiased estimates: one function per family of mechanisms.

Source: docs/math.md, section 1. The integers are those that the devices used, and stay integers until
the last division, so rounding adds no bias.

A new family registers its function with :data:`debias`, and with :data:`noise_law` and :data:`marginal` if its
answers speak of shares of values and of sums of several values. docs/extending.md lists the other parts of a family.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, singledispatch
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from protocol import SCALE
from protocol.epsilon import exp_below
from protocol.errors import InputError
from protocol.mechanisms import SINGLE, FrequencyMechanism, Mechanism
from protocol.mechanisms.bit import Bit
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.laplace import Laplace
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import CoinMechanism, NumericMechanism, SingleNumberMechanism
from protocol.mechanisms.she import SummedHistogram
from protocol.mechanisms.unary import UnaryMechanism

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_UNIT = 1 << 128

Z95 = 1.959963984540054
"""Half the width of a 95 % interval in standard deviations: the 0.975 quantile of the normal law."""


class Debiased(NamedTuple):
    """Estimates of how many of those asked hold each value.

    Attributes:
        estimate: shape (K,), unbiased, in reports; may be negative or exceed the number asked.
        noise_variance: shape (K,), of the mechanism's noise alone, given who was asked.
        holds_sampling: the variance is that of noise and sampling together, as the answers themselves show
            it if every one came of another device.
    """

    estimate: Floats
    noise_variance: Floats
    holds_sampling: bool = False


@singledispatch
def debias(mechanism: Mechanism, n: int, counts: Sequence[int]) -> Debiased:
    """Unbiased estimates from one question's counts. Run by the aggregator.

    Args:
        mechanism: how the answers were perturbed.
        n: answers counted, m in the formulas.
        counts: the question's sums, as in a tally.

    With n = 0 nothing is known: every estimate is 0 with infinite variance.

    Raises:
        InputError: ``mechanism_unknown``: its family has no estimator here.
    """
    del n, counts
    raise InputError("mechanism_unknown", f"there is no estimator for answers of '{mechanism.name}'")


@debias.register(FrequencyMechanism)
def debias_pure(mechanism: FrequencyMechanism, n: int, counts: Sequence[int]) -> Debiased:
    """Pure protocols (``direct`` and unary encodings): count i is the number of answers that support i.

        Ê_i = (c_i − m q)/(p − q)      Var = m [ q(1−q) + f (p(1−p) − q(1−q)) ] / (p − q)²

    where p, q are the probabilities that an answer supports the true and any given other value, and
    f = Ê_i/m, brought into [0, 1], stands for the true share of value i.
    """
    return _supports(mechanism.p, mechanism.q, n, counts)


def _supports(p: Fraction, q: Fraction, n: int, counts: Sequence[int]) -> Debiased:
    """The estimator and variance above for any two probabilities p > q."""
    if n == 0:
        return Debiased(np.zeros(len(counts)), np.full(len(counts), np.inf))
    scale = p.denominator * q.denominator
    per_other = q.numerator * p.denominator
    gain = p.numerator * q.denominator - per_other
    # Integers divided once: the nearest float to the exact rational estimate.
    estimate = np.array([(count * scale - n * per_other) / gain for count in counts])
    return Debiased(estimate, n * Law.pure(p, q).at(np.clip(estimate / n, 0, 1)))


class Law(NamedTuple):
    """The noise variance of one answer, as the estimate of a value's share has it: a line in the true share.

    Attributes:
        at_zero: if nobody holds the value.
        at_one: if everybody does.
    """

    at_zero: float
    at_one: float

    @classmethod
    def pure(cls, p: Fraction | float, q: Fraction | float) -> Law:
        """Of a pure protocol: q(1 − q)/(p − q)² and p(1 − p)/(p − q)²."""
        return cls(float(q * (1 - q) / (p - q) ** 2), float(p * (1 - p) / (p - q) ** 2))

    def at(self, share: Floats) -> Floats:
        """If so many hold it; of the same shape."""
        return np.asarray(self.at_zero + share * (self.at_one - self.at_zero), np.float64)


@singledispatch
def noise_law(mechanism: Mechanism) -> Law | None:
    """The law of one answer's noise about a value's share; None where values have no shares (numbers)."""
    del mechanism
    return None


@noise_law.register(FrequencyMechanism)
def noise_law_pure(mechanism: FrequencyMechanism) -> Law:
    """As :meth:`Law.pure`."""
    return Law.pure(mechanism.p, mechanism.q)


@noise_law.register(SummedHistogram)
def noise_law_histogram(mechanism: SummedHistogram) -> Law:
    """The same for every share."""
    variance = noise_variance(mechanism)
    return Law(variance, variance)


@debias.register(SummedHistogram)
def debias_histogram(mechanism: SummedHistogram, n: int, counts: Sequence[int]) -> Debiased:
    """``she``: count i is Σ, the sum over all answers of component i brought into [0, M].

        Ê_i = (Σ − m b)/(M − 2b),   Var = m v/(M − 2b)²,   q = e^{−s/t}
        b = q(1 − q^M)/(1 − q²),   v = Σ_{k=1…M} (2k − 1) q^k/(1 + q) − b²

    A component of a value that is not held has the mean b, that of the value held has M − b. The two are each
    other's mirror image about M/2, so both have the variance v, and Var does not depend on f. The devices'
    own bounds lie outside [0, M], so they change nothing here.
    Source: docs/math.md, section 1; docs/decisions/0037.
    """
    if n == 0:
        return Debiased(np.zeros(len(counts)), np.full(len(counts), np.inf))
    estimate = np.array(_held(mechanism, n, counts))
    return Debiased(estimate, np.full(len(counts), n * noise_variance(mechanism)))


def _held(mechanism: SummedHistogram, n: int, sums: Sequence[int], members: int = 1) -> list[float]:
    """(Σ − n·members·b)/(M − 2b) for sums over ``members`` components each.

    b is rounded to a multiple of 2⁻¹²⁸ from 49 digits; all the rest are integers, divided once.
    """
    mean = round(lower_mean(mechanism.s, mechanism.t) * _UNIT)
    return [(total * _UNIT - n * members * mean) / (GRID * _UNIT - 2 * mean) for total in sums]


@lru_cache(maxsize=1024)
def lower_mean(s: int, t: int) -> Fraction:
    """Mean of noise of rate s/t brought into [0, M]: b = q(1 − q^M)/(1 − q²), q = e^{−s/t}; to 40 digits."""
    q, power, square = (1 / exp_below(steps * s, t) for steps in (1, GRID, 2))
    return q * (1 - power) / (1 - square)


def noise_variance(mechanism: SummedHistogram) -> float:
    """v/(M − 2b)² of :func:`debias_histogram`: the variance of one component, in units of the value.

    Both parts are summed term by term, of which none is negative, so that no digits cancel at a small ε.
    """
    rate = mechanism.s / mechanism.t
    steps = np.arange(1, GRID + 1)
    q = np.exp(-rate)
    tail = np.exp(-rate * steps) / (1 + q)
    gain = (-2 * np.expm1(-rate * steps) + np.expm1(-rate)).sum() / (1 + q)
    spread = ((2 * steps - 1) * tail).sum() - tail.sum() ** 2
    return float(spread / gain**2)


class Marginal(NamedTuple):
    """Estimates of how many of those asked hold a value of each group.

    Attributes:
        n: answers.
        estimate: shape (groups,), unbiased, in reports.
        law: of one answer about a group's share.
    """

    n: int
    estimate: Floats
    law: Law

    @property
    def noise_variance(self) -> Floats:
        """Shape (groups,): of the noise alone, given who was asked, at the estimated shares."""
        return self.n * self.law.at(np.clip(self.estimate / self.n, 0, 1))

    @property
    def planned_variance(self) -> float:
        """What the noise variance would be if all groups had the same share.

        It is known before any answer, so weights made of it add no bias.
        """
        return self.n * float(self.law.at(np.array(1 / len(self.estimate))))


@singledispatch
def marginal(mechanism: Mechanism, n: int, counts: Sequence[int], groups: int) -> Marginal | None:
    """Estimates for groups of values: group g holds every value a·``groups`` + g. Run by the aggregator.

    Of a cell question with ``groups`` = k classes, this is the number of each class; n is positive.
    None where the mechanism has no such estimator.
    """
    del mechanism, n, counts, groups
    return None


@marginal.register(UnaryMechanism)
def marginal_unary(mechanism: UnaryMechanism, n: int, counts: Sequence[int], groups: int) -> Marginal:
    """Unary encodings, with s = K/``groups`` values in a group.

    The bits are independent given the values, so estimates and noise variances add up, and the variances of
    s cells depend on their shares by their sum alone. Other pure protocols that answer with bits have no such
    independence, and need a function of their own.
    """
    members = len(counts) // groups
    cells = debias_pure(mechanism, n, counts).estimate.reshape(members, groups)
    at_zero, at_one = Law.pure(mechanism.p, mechanism.q)
    return Marginal(n, cells.sum(axis=0), Law(members * at_zero, members * at_zero + at_one - at_zero))


@marginal.register(Direct)
def marginal_direct(mechanism: Direct, n: int, counts: Sequence[int], groups: int) -> Marginal:
    """``direct``, with s = K/``groups`` values in a group.

    An answer supports a group with probability p' = p + (s − 1)q if the true value is in it, else q' = s q: a
    pure protocol again, with p' − q' = p − q. (The sum of the cells' variances would be wrong: one answer names
    one cell, so cells are correlated.)
    """
    members = len(counts) // groups
    p, q = mechanism.p, mechanism.q
    totals = [sum(counts[group::groups]) for group in range(groups)]
    p, q = p + (members - 1) * q, members * q
    return Marginal(n, _supports(p, q, n, totals).estimate, Law.pure(p, q))


@marginal.register(SummedHistogram)
def marginal_histogram(mechanism: SummedHistogram, n: int, counts: Sequence[int], groups: int) -> Marginal:
    """``she``: components are independent, so estimates and noise variances of a group add up."""
    members = len(counts) // groups
    totals = _held(mechanism, n, [sum(counts[group::groups]) for group in range(groups)], members)
    variance = members * noise_variance(mechanism)
    return Marginal(n, np.array(totals), Law(variance, variance))


@debias.register(SingleNumberMechanism)
@debias.register(Bit)  # a coin and a single number: its answers are values, not rows of bits
def debias_single_number(mechanism: SingleNumberMechanism, n: int, counts: Sequence[int]) -> Debiased:
    """``bit``, ``piecewise``, ``hybrid``: count i is the number of answers i; the estimate is Σ x̂/S.

        Σ_i c_i x̂_i / S,   Var by :func:`_answers_variance` of both Σ_i c_i x̂_i/S and Σ_i c_i x̂_i²/S²

    where x̂_i is the unbiased estimate that answer i stands for. The variance holds noise and sampling together.
    """
    if n == 0:
        return Debiased(np.zeros(1), np.full(1, np.inf), holds_sampling=True)
    weights, unit = _integer_estimates(mechanism)
    answered = [(count, weight) for count, weight in zip(counts, weights, strict=True) if count]
    total = sum(count * weight for count, weight in answered)
    squares = sum(count * weight * weight for count, weight in answered)
    # Integers divided once: the nearest floats to the exact rational numbers.
    estimate = np.array([total / unit])
    variance = _answers_variance(mechanism, n, estimate, np.array([squares / (unit * unit)]))
    return Debiased(estimate, variance, holds_sampling=True)


def _answers_variance(mechanism: NumericMechanism, n: int, total: Floats, squares: Floats) -> Floats:
    """The variance of the sum of n answers, from what they are and from the mechanism's law.

        n·V,   V = (squares + z² W)/(n + z²) − m² within [N, W],   m = total/(n + z²) within [−1, 1],
        W = max E x̂²,   N = min Var x̂   for inputs in [−S, S]

    with the answers' sum and sum of squares. Their own scatter, squares/n − (total/n)², is 0 where all are alike,
    and far off where they are few. m is the middle of the score interval for the mean, as of z² more answers
    of mean 0; they have the largest mean square W that the mechanism gives, and no population has V outside [N, W]. So
    one answer has nearly the mechanism's own variance, and many have what they show.
    """
    worst, least = _law_ends(mechanism)
    pull = Z95**2
    middle = np.clip(total / (n + pull), -1, 1)
    return np.asarray(n * np.clip((squares + pull * worst) / (n + pull) - middle**2, least, worst), np.float64)


@lru_cache(maxsize=64)
def _law_ends(mechanism: NumericMechanism) -> tuple[float, float]:
    """W and N: E x̂² and Var x̂ are parabolas in x, with their ends at 0 and S."""
    ends = [(x, mechanism.variance(x)) for x in (0, SCALE)]
    squares = [float((variance + x * x) / SCALE**2) for x, variance in ends]
    return max(squares), min(float(variance / SCALE**2) for _, variance in ends)


@lru_cache(maxsize=64)
def _integer_estimates(mechanism: SingleNumberMechanism) -> tuple[tuple[int, ...], int]:
    """x̂_i/S of every answer i as integers w_i over one denominator: w_i/``unit``.

    Kept: thousands of cells' fractions take long, and the questions of a campaign share few mechanisms.
    """
    values = [mechanism.estimate(answer) / SCALE for answer in range(mechanism.answers)]
    unit = lcm(*(value.denominator for value in values))
    return tuple(int(value * unit) for value in values), unit


def sign_size(mechanism: CoinMechanism) -> float:
    """B: one answer of a single bit stands for ±B, in units of S."""
    return float(_exact_size(mechanism))


def _exact_size(mechanism: CoinMechanism) -> Fraction:
    one = mechanism.estimate(1) if mechanism.layout == SINGLE else mechanism.estimate((1,))[0]
    return Fraction(one) / SCALE


@debias.register(CoinMechanism)
def debias_signs(mechanism: CoinMechanism, n: int, counts: Sequence[int]) -> Debiased:
    """``bits`` and ``duchi``: count i is how often coordinate i was answered 1; the estimate is Σ x̂/S.

        B(2c_i − n),   Var by :func:`_answers_variance`, of which Σ x̂²/S² is nB²

    where ±B is the estimate that one answer stands for, in units of S.
    """
    if n == 0:
        return Debiased(np.zeros(len(counts)), np.full(len(counts), np.inf), holds_sampling=True)
    size = _exact_size(mechanism)
    estimate = np.array([float(size * (2 * count - n)) for count in counts])
    variance = _answers_variance(mechanism, n, estimate, np.full(len(counts), float(n * size**2)))
    return Debiased(estimate, variance, holds_sampling=True)


@debias.register(Laplace)
def debias_laplace(mechanism: Laplace, n: int, counts: Sequence[int]) -> Debiased:
    """``laplace``: count i is the sum of coordinate i over all answers; the estimate is Σ/M.

        Var = n·[2q/((1 − q)²M²) + 1/(4M²)]

    noise, and rounding at its most. The answers' squares are not counted, so how much the numbers
    themselves differ is not known from this question (``aggregator.estimates.spread``).
    """
    if n == 0:
        return Debiased(np.zeros(len(counts)), np.full(len(counts), np.inf))
    totals = np.array([count / GRID for count in counts])
    leave = -np.expm1(-mechanism.s / mechanism.t)
    noise = 2 * (1 - leave) / (leave * GRID) ** 2 + 0.25 / GRID**2
    return Debiased(totals, np.full(len(counts), n * noise))
