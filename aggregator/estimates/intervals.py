"""95 % intervals for the numbers behind one question's counts: one function per family of mechanisms.

An interval speaks for the devices that were asked or for the population that they are drawn from: it covers
the noise of the mechanism and the chance of who was asked. ``aggregator.estimates.recurrence`` says which is which.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aggregator.estimates.debias import Z95, Law, noise_law, sign_size
from protocol.errors import InputError
from protocol.mechanisms import FrequencyMechanism, Mechanism
from protocol.mechanisms.numeric import CoinMechanism, NumericMechanism
from protocol.mechanisms.she import SummedHistogram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """Lower and upper ends, shape (K,) each, of n times the shares or means."""

    low: Floats
    high: Floats

    def between(self, least: float, most: float) -> Interval:
        """The ends brought into a range, for print: outside it there is no truth."""
        return Interval(np.clip(self.low, least, most), np.clip(self.high, least, most))


def normal_interval(estimate: Floats, sd: Floats) -> Interval:
    """Estimate ∓ z·sd: right where the estimate is nearly normal, as a sum of many noises is."""
    return Interval(estimate - Z95 * sd, estimate + Z95 * sd)


@singledispatch
def count_interval(mechanism: Mechanism, n: int, estimate: Floats, dependence: Floats | float = 1.0) -> Interval | None:
    """Intervals from the law of one question's counts. Run by the aggregator.

    Args:
        mechanism: how the answers were perturbed.
        n: answers counted, at least one.
        estimate: shape (K,), unbiased, as :func:`aggregator.estimates.debias.debias` has it.
        dependence: D, how many times as much as n different people would have it the true values of those
            asked scatter: scalar or shape (K,), at least 0.

    Returns:
        None where the counts of this family follow no law that is simple enough:
        :func:`normal_interval` is for those.

    Raises:
        InputError: ``mechanism_incomplete``: its family has no interval here.
    """
    del n, estimate, dependence
    raise InputError("mechanism_incomplete", f"there is no interval for answers of '{mechanism.name}'")


@count_interval.register(NumericMechanism)
def no_score_interval(
    mechanism: NumericMechanism, n: int, estimate: Floats, dependence: Floats | float = 1.0
) -> Interval | None:
    """``piecewise``, ``hybrid``, ``laplace``: sums of many noises, for which :func:`normal_interval` is right."""
    del mechanism, n, estimate, dependence
    return None


@count_interval.register(FrequencyMechanism)
def pure_interval(
    mechanism: FrequencyMechanism, n: int, estimate: Floats, dependence: Floats | float = 1.0
) -> Interval:
    """Pure protocols: the score interval, which is Wilson's where D = 1.

    A device drawn at random holds value i with probability f, so its answer supports i with probability
    λ = q + f(p − q), noise and sampling together, and the number of supports is binomial(n, λ) where every
    answer is another device's. Where n ≥ 50 and nλ, n(1 − λ) ≥ 10 the interval then holds the truth with
    probability 0.93 to 0.97; where n ≥ 20 and nλ, n(1 − λ) ≥ 1 with 0.91 to 0.985; where less
    than one answer is expected to support a value, or not to, with 0.82 or more if n ≥ 2. (Estimate ∓ z·sd
    falls to 0.6 and below: of a value that nobody named it is sure that nobody holds it.)

    Source: Wilson, JASA 22 (1927), 209-212.
    """
    found = score_interval(estimate / n, n, Law.pure(mechanism.p, mechanism.q), dependence)
    return Interval(n * found.low, n * found.high)


@count_interval.register(SummedHistogram)
def histogram_interval(
    mechanism: SummedHistogram, n: int, estimate: Floats, dependence: Floats | float = 1.0
) -> Interval:
    """``she``: the score interval with its own noise; below 0 and above n there is no scatter but the noise."""
    law = noise_law(mechanism)
    assert law is not None
    found = score_interval(estimate / n, n, law, dependence, is_binomial=False)
    return Interval(n * found.low, n * found.high)


@count_interval.register(CoinMechanism)
def sign_interval(mechanism: CoinMechanism, n: int, estimate: Floats, dependence: Floats | float = 1.0) -> Interval:
    """One bit about a number of mean m: a pure protocol about the share f = (1 + m)/2.

    An answer is 1 with probability λ = ½ + m/(2B) = q + f(p − q), p = ½ + 1/(2B), q = 1 − p, so the counts are
    binomial again, whatever the numbers.
    """
    size = sign_size(mechanism)
    gain = 1 / (2 * size)
    found = score_interval((1 + estimate / n) / 2, n, Law.pure(1 / 2 + gain, 1 / 2 - gain), dependence)
    return Interval(n * (2 * found.low - 1), n * (2 * found.high - 1))


def score_interval(
    share: Floats, n: float, law: Law, dependence: Floats | float = 1.0, *, is_binomial: bool = True
) -> Interval:
    """All shares f that a score test at 5 % does not reject: (f̂ − f)² ≤ z² V(f).

        V(f) = [φ(f) + D f(1 − f)]/n        φ(f) = φ₀ + f(φ₁ − φ₀), the noise variance of one answer

    which is a quadratic inequality. For a pure protocol with D = 1 nV(f) = λ(1 − λ)/(p − q)², and the interval
    is Wilson's for λ. Unlike an interval with the variance at f̂, or Wilson's with n scaled by it, it stays
    honest where f̂ is 0 and few devices answered often: the scatter is that of the f tested.

    Outside [0, 1], where no share is, f(1 − f) is negative and D has no meaning: there D counts as 1 at most
    (0 if the counts are not binomial), and the interval is the hull of what is left.

    Args:
        share: f̂, of any shape.
        n: answers.
        law: of the noise.
        dependence: D, of a shape that fits.
        is_binomial: whether the counts are, at D = 1.
    """
    beyond = np.minimum(dependence, 1.0) if is_binomial else 0.0
    ends = [_roots(share, n, law, scatter) for scatter in (np.asarray(dependence), np.asarray(beyond))]
    return Interval(np.minimum(ends[0].low, ends[1].low), np.maximum(ends[0].high, ends[1].high))


def _roots(share: Floats, n: float, law: Law, scatter: Floats) -> Interval:
    """The ends of {f : (f̂ − f)² ≤ z² V(f)} for one D; none (∞, −∞) where it is empty."""
    k = Z95**2 / n
    square = 1 + k * scatter
    middle = (share + k * (law.at_one - law.at_zero + scatter) / 2) / square
    inside = middle**2 - (share**2 - k * law.at_zero) / square
    half = np.sqrt(np.maximum(inside, 0))
    return Interval(np.where(inside < 0, np.inf, middle - half), np.where(inside < 0, -np.inf, middle + half))
