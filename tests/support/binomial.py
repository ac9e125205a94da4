"""Exact binomial acceptance windows, and seeds that are the same on every machine."""

from collections import Counter
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from math import exp, lgamma, log

import numpy as np

_ARITHMETIC = Context(prec=50, Emin=-999999, Emax=999999)


@lru_cache(maxsize=4096)
def window(n, p, alpha):
    """The smallest and largest accepted count of Binomial(n, p).

    The counts below the window have total probability ≤ alpha/2, and so have the counts above. The tails are
    sums of exact probabilities in 50-digit arithmetic, not a normal approximation.
    """
    return _low(n, p, alpha / 2), n - _low(n, 1 - p, alpha / 2)


def probabilities(n, chance):
    """P(X = k) of Binomial(n, chance) for k = 0 … n, from logarithms."""
    ways = [lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) for k in range(n + 1)]
    return np.array([exp(ways[k] + k * log(chance) + (n - k) * log(1 - chance)) for k in range(n + 1)])


ALPHA = Fraction(1, 10**6)
"""The chance that :func:`agrees` says no of intervals whose true coverage is within its limits, over fresh seeds."""


def agrees(covered, repeats, least=93, most=97):
    """Whether ``covered`` of ``repeats`` intervals agree with a coverage of ``least`` to ``most`` per cent."""
    low, high = (window(repeats, Fraction(each, 100), ALPHA) for each in (least, most))
    return low[0] <= covered <= high[1]


def _low(n, p, tail):
    """The smallest k with P(X ≤ k) > tail."""
    context = _ARITHMETIC
    success, failure, bound = (context.divide(Decimal(x.numerator), Decimal(x.denominator)) for x in (p, 1 - p, tail))
    if failure == 0:
        return n
    odds = context.divide(success, failure)
    probability = context.power(failure, n)
    total = probability
    k = 0
    while total <= bound:
        probability = context.multiply(
            probability, context.divide(context.multiply(odds, Decimal(n - k)), Decimal(k + 1))
        )
        k += 1
        total = context.add(total, probability)
    return k


def seeds(purpose, count):
    """Fixed seeds: SHA-256 of the purpose and a counter."""
    stem = sha256(purpose.encode())
    for number in range(count):
        each = stem.copy()
        each.update(number.to_bytes(4, "big"))
        yield each.digest()


def violations(
    draw,
    expected,
    events,
    *,
    purpose,
    n,
    alpha,
):
    """Descriptions of the events whose counts are outside their windows; empty for a right sampler.

    Args:
        draw: one sample from one seed.
        expected: exact probability of every event in one sample.
        events: the events that one sample shows; one that is not expected at all is a violation.
        alpha: the chance that a right sampler has any violation at all is at most this (union bound).
    """
    counts = Counter()
    for seed in seeds(purpose, n):
        counts.update(events(draw(seed)))
    found = [f"{event} can not happen" for event in counts if event not in expected]
    share = alpha / len(expected)
    for event, probability in expected.items():
        low, high = window(n, probability, share)
        if not low <= counts[event] <= high:
            found.append(
                f"{event}: {counts[event]} of {n} is outside [{low}, {high}], false alarm ≤ {float(share):.0e}"
            )
    return found
