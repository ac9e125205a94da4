"""How much answers tell apart two inputs: the law of one answer, by patterns of its probabilities.

The bound of shuffled reports (:mod:`aggregator.cards.shuffling`) needs, for the two inputs that an answer tells apart
best, only the probabilities of an answer for the one and the other input, and in the *blanket*: a part of the law of
every device, for whichever input. Answers with the same ratios of these three are one pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import exp
from typing import NamedTuple

from protocol.mechanisms import Mechanism
from protocol.mechanisms.base import ONE
from protocol.mechanisms.by_family import ByFamily
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.subset import Subset
from protocol.mechanisms.unary import UnaryMechanism
from protocol.questions import Question


class Pattern(NamedTuple):
    """Probabilities of the answers of one pattern: for one input, for another one, and in the blanket.

    An answer's probability in the blanket is at most that for any input. The patterns of a law sum to 1, 1 and less.
    """

    own: Fraction
    other: Fraction
    blanket: Fraction


def yes_or_no(ratio: Fraction) -> tuple[Pattern, ...]:
    """Return the law of an answer yes or no whose truth is ``ratio`` times as likely as the lie.

    No mechanism with this worst ratio of two probabilities tells two inputs apart better.
    """
    lie = 1 / (ratio + 1)
    return Pattern(1 - lie, lie, lie), Pattern(lie, 1 - lie, lie)


@ByFamily
def patterns(mechanism: Mechanism) -> tuple[Pattern, ...]:
    """Return the law of an answer for the two inputs that it tells apart best; by default the worst of all laws."""
    return yes_or_no(Fraction(exp(mechanism.privacy_loss())))


@patterns.register(Direct)
def _direct(mechanism: Direct) -> tuple[Pattern, ...]:
    p, q = mechanism.p, mechanism.q
    rest = (mechanism.size - 2) * q
    return Pattern(p, q, q), Pattern(q, p, q), Pattern(rest, rest, rest)


@patterns.register(UnaryMechanism)
def _unary(mechanism: UnaryMechanism) -> tuple[Pattern, ...]:
    """By the bits of the two inputs. In the blanket all bits are those of other values, times (1 − p)/(1 − q)."""
    p, q = mechanism.p, mechanism.q
    least = (1 - p) / (1 - q)
    return (
        Pattern(p * (1 - q), q * (1 - p), q * (1 - q) * least),
        Pattern(q * (1 - p), p * (1 - q), q * (1 - q) * least),
        Pattern(p * q, p * q, q * q * least),
        Pattern((1 - p) * (1 - q), (1 - p) * (1 - q), (1 - q) ** 2 * least),
    )


@patterns.register(Subset)
def _subset(mechanism: Subset) -> tuple[Pattern, ...]:
    """By which of the two inputs are in the set. In the blanket a set is as likely as for an input outside of it."""
    p, size, ones = mechanism.p, mechanism.size, mechanism.ones
    rest = (1 - p) / (size - 1)
    one, lacking, neither = p * (size - ones) / (size - 1), rest * ones, rest * (size - 1 - ones)
    both, hidden = p * (ones - 1) / (size - 1), lacking * (ones - 1) / (size - ones)
    return (
        Pattern(one, lacking, lacking),
        Pattern(lacking, one, lacking),
        Pattern(both, both, hidden),
        Pattern(neither, neither, neither),
    )


def patterns_of(stratum: Sequence[Question]) -> tuple[Pattern, ...]:
    """Return the law of an answer to one of the questions of a stratum, in order; all inputs of the two differ."""
    shares: Counter[Mechanism] = Counter()
    last = 0
    for question in stratum:
        shares[question.mechanism] += question.bound - last
        last = question.bound
    return tuple(
        Pattern(*(Fraction(share, ONE) * part for part in each))
        for mechanism, share in shares.items()
        for each in patterns(mechanism)
    )
