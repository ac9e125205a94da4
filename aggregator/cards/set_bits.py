"""Numbers of set bits of honest reports: their law, tests against it, and what the best test can find.

Every mechanism whose answers are rows of bits states the law (distribution) of the number of set bits, or that there is
none (``Mechanism.set_bits_law`` in protocol). An honest answer of a unary encoding of K values has B + B' set bits,
B ~ Bernoulli(p), B' ~ Bin(K − 1, q), whatever the true value is; p and q are the probabilities of a 1 at the true and
at any other value. A liar who votes for one value only sets exactly one bit. Let P be the probability of exactly one
set bit in an honest answer. If a share λ of n answers are such lies, the likelihood depends only on how many answers
have exactly one set bit. So no test of set bits is more powerful than a test of that number, whose mean the lies raise
by nλ(1 − P).
Source: docs/math.md, section 3; decision 58.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import erfc, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from aggregator.cards.binomial import upper_tail
from aggregator.cards.manipulation import weights_of
from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.homogeneity import chi_square_tail
from protocol.documents.campaign import Campaign
from protocol.mechanisms import BITS, Mechanism

LYING_SHARE = 0.01
"""λ, the share of lying answers that :func:`one_bit_p_value` is made to find."""
_LEAST_EXPECTED = 20.0
"""Smallest expected number of reports in one bin, and in the normal part of a sum."""


class OneBitCount(NamedTuple):
    """How many answers to one question have exactly one set bit, and how many are expected.

    Attributes:
        seen: number of answers with exactly one set bit.
        answers: number of all answers to the question.
        chance: P, the probability that an honest answer has exactly one set bit.
    """

    seen: float
    answers: float
    chance: float


@lru_cache(maxsize=256)
def set_bits_law(mechanism: Mechanism) -> Floats | None:
    """Return the probability of each number of set bits in an honest answer of A bits: (A + 1,) float64.

    None if the answers are no rows of bits, or if the probabilities depend on the record
    (:meth:`Mechanism.set_bits_law`).
    """
    law = mechanism.set_bits_law() if mechanism.layout == BITS else None
    return None if law is None else np.array(law, np.float64)


def one_bit_p_value(found: Iterable[OneBitCount]) -> float:
    """Return the p-value of a one-sided test whether too many answers have exactly one set bit.

    An answer with one set bit counts ln(1 + λ(1/P − 1)), the logarithm of its likelihood ratio; λ is
    :data:`LYING_SHARE`, and P the probability of one set bit in an honest answer. The sum is compared with a normal
    law. Questions for which few such answers are expected are tested apart: their plain number is compared with a
    binomial law.
    """
    found = list(found)
    frequent = [each for each in found if each.answers * each.chance >= _LEAST_EXPECTED]
    rare = [each for each in found if each.answers * each.chance < _LEAST_EXPECTED]
    ps = []
    if frequent:
        excess = sum(_weight(each.chance) * (each.seen - each.answers * each.chance) for each in frequent)
        ps.append(erfc(excess / sqrt(2 * _variance(frequent))) / 2)
    if rare:
        total = sum(each.answers for each in rare)
        expected = sum(each.answers * each.chance for each in rare)
        ps.append(float(upper_tail(sum(each.seen for each in rare), total, expected / total)))
    return min(1.0, len(ps) * min(ps))


def _weight(chance: float) -> float:
    return log(1 + LYING_SHARE * (1 / chance - 1))


def _variance(found: Iterable[OneBitCount]) -> float:
    """Return the variance of the sum over honest answers with one set bit, each counted by its weight."""
    return sum(_weight(one.chance) ** 2 * one.answers * one.chance * (1 - one.chance) for one in found)


class Power(NamedTuple):
    """How likely it is that the best test of set bits finds lies.

    Attributes:
        chance: P, the mean probability over the questions that an honest answer has exactly one set bit.
        found: the largest probability with which any test of set bits raises an alarm if there are lies.
    """

    chance: float
    found: float


def power(campaign: Campaign, reports: int, false_alarms: float) -> Power | None:
    """Return the power of the best test of set bits against a share :data:`LYING_SHARE` of lies with one set bit each.

    The number of answers with one set bit is taken as normal.

    Args:
        reports: number of reports in all.
        false_alarms: share of honest campaigns in which the test may raise an alarm.

    Returns:
        The power, or None if no mechanism of the campaign has a law of set bits (:func:`set_bits_law`).
    """
    strata = campaign.answers
    laws = [set_bits_law(question.mechanism) for question in campaign.questions]
    planned = [
        OneBitCount(0, reports / strata * weight, float(law[1]))
        for law, weight in zip(laws, weights_of(campaign), strict=True)
        if law is not None and 0 < law[1] < 1
    ]
    if not planned:
        return None
    lied = [one._replace(chance=one.chance + LYING_SHARE * (1 - one.chance)) for one in planned]
    pairs = list(zip(planned, lied, strict=True))
    shift = sum(_weight(one.chance) * one.answers * (other.chance - one.chance) for one, other in pairs)
    spread = sum(_weight(one.chance) ** 2 * one.answers * other.chance * (1 - other.chance) for one, other in pairs)
    normal = NormalDist()
    limit = normal.inv_cdf(1 - false_alarms) * sqrt(_variance(planned))
    answers = sum(one.answers for one in planned)
    return Power(sum(one.answers * one.chance for one in planned) / answers, normal.cdf((shift - limit) / sqrt(spread)))


def law_p_value(counts: Integers, law: Floats) -> float | None:
    """Return the p-value of the χ² test of numbers of set bits against their law.

    Neighbouring numbers are joined into bins of at least :data:`_LEAST_EXPECTED` expected answers.

    Args:
        counts: (K + 1,) int64, number of answers with each number of set bits of K.
        law: (K + 1,) float64, the probability of each number of set bits.

    Returns:
        The p-value, or None if there are fewer than two bins.
    """
    n, bins, expected = int(counts.sum()), [0], [0.0]
    for count, chance in zip(counts.tolist(), law.tolist(), strict=True):
        if expected[-1] >= _LEAST_EXPECTED:
            bins.append(0)
            expected.append(0.0)
        bins[-1] += count
        expected[-1] += n * chance
    if len(bins) > 1 and expected[-1] < _LEAST_EXPECTED:
        last, rest = bins.pop(), expected.pop()
        bins[-1] += last
        expected[-1] += rest
    if len(bins) < 2:
        return None
    square = sum((c - e) ** 2 / e for c, e in zip(bins, expected, strict=True))
    return chi_square_tail(square, len(bins) - 1)
