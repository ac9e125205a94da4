"""95 % intervals for the numbers behind one question's counts: one function per family of mechanisms.

An interval speaks for a fleet from which the devices asked are a random sample: it covers the noise of
the mechanism and the chance of who was asked.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from protocol.mechanisms import FrequencyMechanism, Mechanism

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Z95 = 1.959963984540054
"""Half the width of a 95 % interval in standard deviations: the 0.975 quantile of the normal law."""


class Interval(NamedTuple):
    """Lower and upper ends, shape (K,) each, of n times the fleet's shares."""

    low: Floats
    high: Floats


def normal_interval(estimate: Floats, sd: Floats) -> Interval:
    """Estimate ∓ z·sd: right where the estimate is nearly normal, as a sum of many noises is."""
    return Interval(estimate - Z95 * sd, estimate + Z95 * sd)


@singledispatch
def count_interval(mechanism: Mechanism, n: int, counts: Sequence[int]) -> Interval | None:
    """Intervals from the exact law of one question's counts. Run by the aggregator.

    Args:
        mechanism: how the answers were perturbed.
        n: answers counted, at least one.
        counts: the question's sums, as in a tally.

    Returns:
        None where the counts of this family follow no law that is simple enough:
        :func:`normal_interval` is for those.
    """
    del mechanism, n, counts
    return None


@count_interval.register(FrequencyMechanism)
def pure_interval(mechanism: FrequencyMechanism, n: int, counts: Sequence[int]) -> Interval:
    """Pure protocols: Wilson's score interval for λ, mapped to n f = n(λ − q)/(p − q).

    A device drawn at random holds value i with probability f, so its answer supports i with probability
    λ = q + f(p − q), noise and sampling together, and count c_i is binomial(n, λ). With c = c_i, z = 1.96:

        λ ∈ [ c + z²/2 ∓ z √(c(n − c)/n + z²/4) ] / (n + z²)

    all λ that a score test at 5 % does not reject. Where n ≥ 50 and nλ, n(1 − λ) ≥ 10 it holds the
    truth with probability 0.93 to 0.97; where n ≥ 20 and nλ, n(1 − λ) ≥ 1 with 0.91 to 0.985; where less
    than one answer is expected to support a value, or not to, with 0.82 or more if n ≥ 2. (Estimate ∓ z·sd
    falls to 0.6 and below: of a value that nobody named it is sure that nobody holds it.)

    Source: Wilson, JASA 22 (1927), 209-212.
    """
    return wilson(float(mechanism.p), float(mechanism.q), n, counts)


def wilson(p: float, q: float, n: int, counts: Sequence[int]) -> Interval:
    """The interval of :func:`pure_interval` for any two probabilities p > q that an answer supports a value."""
    count = np.array(counts, np.float64)
    square = Z95**2
    half = Z95 * np.sqrt(count * (n - count) / n + square / 4)
    centre = count + square / 2
    low, high = ((end / (n + square) - q) * n / (p - q) for end in (centre - half, centre + half))
    return Interval(low, high)
