"""Numbers of set bits of honest reports: their law, tests against it, and what the best test can find.

The law (distribution) is that of ``Mechanism.set_bits_law``. No test of set bits finds liars who vote for one value
better than one of the number of answers with exactly one set bit. Source: docs/math.md, section 3; decision 58.
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
    """How many of ``answers`` are ``seen`` with exactly one set bit; ``chance``: that an honest answer has one."""

    seen: float
    answers: float
    chance: float


@lru_cache(maxsize=256)
def set_bits_law(mechanism: Mechanism) -> Floats | None:
    """Return the probability of each number of set bits in an honest answer of A bits, (A + 1,) float64, or None."""
    law = mechanism.set_bits_law() if mechanism.layout == BITS else None
    return None if law is None else np.array(law, np.float64)


def one_bit_p_value(found: Iterable[OneBitCount]) -> float:
    """Return the p-value of a one-sided test whether too many answers have exactly one set bit.

    An answer with one set bit counts ln(1 + λ(1/P − 1)), the logarithm of its likelihood ratio, with λ =
    :data:`LYING_SHARE`; the sum is compared with a normal law. Questions for which few such answers are expected are
    tested apart, by a binomial law.
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
    return sum(_weight(one.chance) ** 2 * one.answers * one.chance * (1 - one.chance) for one in found)


class Power(NamedTuple):
    """The mean probability P of exactly one set bit in an honest answer, and the power of the best test of set bits."""

    chance: float
    found: float


def power(campaign: Campaign, reports: int, false_alarms: float) -> Power | None:
    """Return the power of the best test of set bits against a share :data:`LYING_SHARE` of lies with one set bit each.

    The number of answers with one set bit is taken as normal. ``false_alarms``: share of honest campaigns in which the
    test may raise an alarm. None if no mechanism of the campaign has a law of set bits.
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
    """Return the p-value of the χ² test of numbers of set bits against their law; None if there are not two bins.

    ``counts``: (K + 1,) int64, number of answers with each number of set bits of K; ``law``: their probabilities.
    Neighbouring numbers are joined into bins of at least :data:`_LEAST_EXPECTED` expected answers.
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
