"""The decrypted totals of a masked campaign, drawn by numpy: exact sums of all records, and the noise of all parties.

The noise has the law of the parties' noise together. Independent parts of shape 1/h_i add up to a negative binomial
number of shape Σ 1/h_i, and the whole copies of parties that each add one with probability β_i are counted by a sum of
binomial numbers, one for each β. So no party's noise is drawn by itself. The randomness is numpy's and has a seed, so
nothing here is private; it is for simulations alone.

Source: docs/math.md, section 6.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from aggregator.masked.numbering import first_numbers
from aggregator.nodes.federation import divided, noisy_sum
from aggregator.nodes.federation import statistics_of as of_nodes
from aggregator.nodes.totals import Total
from protocol.masked.noise import COIN, noise_of
from protocol.nodes.terms import released_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from aggregator.estimates.statistics import Statistics
    from protocol.documents.campaign import Campaign
    from protocol.masked.noise import PartyNoise

    Integers = NDArray[np.int64]


@lru_cache(maxsize=16)
def numbers_of_setup(parties: int) -> Mapping[int, int]:
    """The numbers u of n parties after the dealer's first setup: u → number of parties that have it."""
    return Counter(first_numbers(party.to_bytes(8, "big") for party in range(parties)).values())


def noise_of_all(laws: Sequence[tuple[PartyNoise, int]], size: int, rng: np.random.Generator) -> Integers:
    """The sum of the noise of all parties for ``size`` numbers: shape (size,) int64.

    Args:
        laws: pairs of a law of one party's noise and the number of parties with it. All have one rate and one kind.
        size: number of released numbers with these laws.
        rng: numpy's randomness.
    """
    stop = -np.expm1(-float(laws[0][0].rate))
    if laws[0][0].chance is None:
        shape = sum(count / noise.honest for noise, count in laws)
        return rng.negative_binomial(shape, stop, size) - rng.negative_binomial(shape, stop, size)
    copies = np.zeros(size, np.int64)
    for noise, count in laws:
        copies += rng.binomial(count, (noise.chance or 0) / COIN, size)
    shapes = np.maximum(copies, 1)  # numpy refuses the shape 0, of which the number is always 0
    drawn = rng.negative_binomial(shapes, stop) - rng.negative_binomial(shapes, stop)
    return np.where(copies > 0, drawn, 0)


def laws_of(campaign: Campaign, numbers: Mapping[int, int]) -> list[list[tuple[PartyNoise, int]]]:
    """For every released vector the laws of the parties' noise, with the number of parties of each.

    Args:
        campaign: a masked campaign.
        numbers: u → number of parties that have it.
    """
    by_number = [(noise_of(campaign, u), count) for u, count in numbers.items()]
    return [[(laws[place], count) for laws, count in by_number] for place in range(len(released_vectors(campaign)))]


def copies_of(campaign: Campaign, numbers: Mapping[int, int]) -> float:
    """The expected number of whole copies of noise in a total."""
    return float(sum(noise.copies * count for noise, count in laws_of(campaign, numbers)[0]))


def totals(exact: Integers, campaign: Campaign, numbers: Mapping[int, int], rng: np.random.Generator) -> Integers:
    """The totals that the aggregator decrypts: exact sums with the noise of all parties, shape (M,) int64.

    Args:
        exact: shape (M,) int64, the sums over the records of all parties.
        campaign: a masked campaign.
        numbers: u → number of parties that have it; every party reported.
        rng: numpy's randomness.
    """
    laws = zip(released_vectors(campaign), laws_of(campaign, numbers), strict=True)
    noise = np.concatenate([noise_of_all(own, subject.size, rng) for subject, own in laws])
    return np.asarray(exact + noise, np.int64)


def statistics_of(values: Sequence[int], campaign: Campaign, numbers: Mapping[int, int], period: int) -> Statistics:
    """Statistics of decrypted totals, with the noise of all parties together.

    Args:
        values: M integers.
        campaign: a masked campaign.
        numbers: u → number of parties that have it; every party reported.
        period: number of the period.
    """
    subjects, parties, sums = released_vectors(campaign), sum(numbers.values()), []
    for subject, part, laws in zip(subjects, divided(values, subjects), laws_of(campaign, numbers), strict=True):
        variance = sum(noise.variance * count for noise, count in laws)
        kurtosis = sum(noise.fourth_cumulant * count for noise, count in laws) / variance**2
        sums.append(noisy_sum(subject, part, np.full(subject.size, variance), kurtosis))
    records = {period: sum(values[: subjects[0].size])}
    total = Total(campaign.id, parties, {campaign.epsilon_micro: parties}, records, tuple(values))
    return of_nodes(campaign, total, sums)
