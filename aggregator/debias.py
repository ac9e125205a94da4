"""From the counts of one question to unbiased estimates: one function per family of mechanisms.

Source: docs/math.md, section 1. The integers are those that the devices used, and stay integers until
the last division, so rounding adds no bias.

A new family registers its function with :data:`debias` (and, if its answers also say something about
sums of several values, with :data:`marginal`); nothing else needs to know it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, singledispatch
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from protocol import SCALE
from protocol.epsilon import exp_below
from protocol.errors import InputError
from protocol.mechanisms import BITS, FrequencyMechanism, Mechanism
from protocol.mechanisms.bits import Bits
from protocol.mechanisms.duchi import Duchi
from protocol.mechanisms.laplace import Laplace
from protocol.mechanisms.noise import GRID
from protocol.mechanisms.numeric import NumericMechanism
from protocol.mechanisms.she import SummedHistogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_UNIT = 1 << 128


class Debiased(NamedTuple):
    """Estimates of how many of those asked hold each value.

    Attributes:
        estimate: shape (K,), unbiased, in reports; may be negative or exceed the number asked.
        noise_variance: shape (K,), of the mechanism's noise alone, given who was asked.
        holds_sampling: the variance is that of noise and sampling together (numeric mechanisms).
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
    return Debiased(estimate, _noise(p, q, n, np.clip(estimate / n, 0, 1)))


def _noise(p: Fraction, q: Fraction, n: int, share: Floats) -> Floats:
    """The noise variance of values with these true shares."""
    other, own = float(q * (1 - q)), float(p * (1 - p))
    return np.asarray(n * (other + share * (own - other)) / float(p - q) ** 2, np.float64)


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
        estimate: shape (groups,), unbiased, in reports.
        noise_variance: shape (groups,), of the noise alone, given who was asked.
        planned_variance: what the noise variance would be if all values had the same share: known
            before any answer, so weights made of it add no bias.
    """

    estimate: Floats
    noise_variance: Floats
    planned_variance: float


@singledispatch
def marginal(mechanism: Mechanism, n: int, counts: Sequence[int], groups: int) -> Marginal | None:
    """Estimates for groups of values: group g holds every value a·``groups`` + g. Run by the aggregator.

    Of a cell question with ``groups`` = k classes, this is the number of each class; n is positive.
    None where the mechanism has no such estimator.
    """
    del mechanism, n, counts, groups
    return None


@marginal.register(FrequencyMechanism)
def marginal_pure(mechanism: FrequencyMechanism, n: int, counts: Sequence[int], groups: int) -> Marginal:
    """Pure protocols, with s = K/``groups`` values in a group.

    ``direct``: an answer supports a group with probability p' = p + (s − 1)q if the true value is in
    it, else q' = s q: a pure protocol again, with p' − q' = p − q. (The sum of the cells' variances
    would be wrong: one answer names one cell, so cells are correlated.)

    Unary: the bits are independent given the values, so estimates and noise variances add up.
    """
    members = len(counts) // groups
    p, q = mechanism.p, mechanism.q
    if mechanism.layout == BITS:
        cells = debias_pure(mechanism, n, counts)
        planned = members * _noise(p, q, n, np.array([1 / len(counts)]))
        shape = (members, groups)
        return Marginal(
            cells.estimate.reshape(shape).sum(axis=0), cells.noise_variance.reshape(shape).sum(axis=0), planned.item()
        )
    totals = [sum(counts[group::groups]) for group in range(groups)]
    p, q = p + (members - 1) * q, members * q
    found = _supports(p, q, n, totals)
    return Marginal(found.estimate, found.noise_variance, _noise(p, q, n, np.array([1 / groups])).item())


@marginal.register(SummedHistogram)
def marginal_histogram(mechanism: SummedHistogram, n: int, counts: Sequence[int], groups: int) -> Marginal:
    """``she``: components are independent, so estimates and noise variances of a group add up."""
    members = len(counts) // groups
    totals = _held(mechanism, n, [sum(counts[group::groups]) for group in range(groups)], members)
    variance = n * members * noise_variance(mechanism)
    return Marginal(np.array(totals), np.full(groups, variance), variance)


@debias.register(NumericMechanism)
def debias_single_number(mechanism: NumericMechanism, n: int, counts: Sequence[int]) -> Debiased:
    """``bit``, ``piecewise``, ``hybrid``: count i is the number of answers i; the estimate is Σ x̂/S.

        Σ_i c_i x̂_i / S,   Var = Σ_i c_i x̂_i²/S² − (Σ_i c_i x̂_i/S)²/n

    where x̂_i is the unbiased estimate that answer i stands for: the empirical variance of the answers,
    which holds noise and sampling together.
    """
    if n == 0:
        return Debiased(np.zeros(1), np.full(1, np.inf), holds_sampling=True)
    values = [mechanism.estimate(answer) / SCALE for answer in range(mechanism.answers)]
    total = sum((count * value for count, value in zip(counts, values, strict=True)), Fraction(0))
    squares = sum((count * value**2 for count, value in zip(counts, values, strict=True)), Fraction(0))
    return Debiased(np.array([float(total)]), np.array([float(squares - total**2 / n)]), holds_sampling=True)


@debias.register(Bits)
@debias.register(Duchi)
def debias_signs(mechanism: Bits | Duchi, n: int, counts: Sequence[int]) -> Debiased:
    """``bits`` and ``duchi``: count i is how often coordinate i was answered 1; the estimate is Σ x̂/S.

        B(2c_i − n),   Var = nB² − (B(2c_i − n))²/n

    where ±B is the estimate that one answer stands for, in units of S.
    """
    if n == 0:
        return Debiased(np.zeros(len(counts)), np.full(len(counts), np.inf), holds_sampling=True)
    size = mechanism.estimate((1,))[0] / SCALE
    totals = [size * (2 * count - n) for count in counts]
    variances = [n * size**2 - total**2 / n for total in totals]
    return Debiased(np.array(list(map(float, totals))), np.array(list(map(float, variances))), holds_sampling=True)


@debias.register(Laplace)
def debias_laplace(mechanism: Laplace, n: int, counts: Sequence[int]) -> Debiased:
    """``laplace``: count i is the sum of coordinate i over all answers; the estimate is Σ/M.

        Var ≤ n·[2q/((1 − q)²M²) + 1/(4M²)] + n(1 − x̄²)

    noise, rounding, and at most so much sampling, since the answers' squares are not counted and a
    number in [−1, 1] with mean x̄ has at most that variance.
    """
    if n == 0:
        return Debiased(np.zeros(len(counts)), np.full(len(counts), np.inf), holds_sampling=True)
    totals = np.array([count / GRID for count in counts])
    leave = -np.expm1(-mechanism.s / mechanism.t)
    noise = 2 * (1 - leave) / (leave * GRID) ** 2 + 0.25 / GRID**2
    return Debiased(totals, n * (noise + 1 - np.clip(totals / n, -1, 1) ** 2), holds_sampling=True)
