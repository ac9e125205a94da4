"""The decrypted totals of a masked campaign, drawn by numpy: exact sums of all records, and the noise of all parties.

The noise has the law of the parties' noise together. The sum of n independent parts of shape 1/h is a negative binomial
number of shape n/h, and the number of whole copies among n parties that each add one with probability β is binomial. So
one draw per number is enough, whatever the number of parties. The randomness is numpy's and has a seed, so nothing here
is private; it is for simulations alone.

Source: docs/math.md, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggregator.nodes.federation import divided, noisy_sum
from aggregator.nodes.federation import statistics_of as of_nodes
from aggregator.nodes.totals import Total
from protocol.masked.noise import COIN, noise_of
from protocol.nodes.terms import released_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from aggregator.estimates.statistics import Statistics
    from protocol.documents.campaign import Campaign
    from protocol.masked.noise import PartyNoise

    Integers = NDArray[np.int64]


def noise_of_all(noise: PartyNoise, parties: int, size: int, rng: np.random.Generator) -> Integers:
    """The sum of the noise of all parties for ``size`` numbers: shape (size,) int64.

    Args:
        noise: law of one party's noise, the same for all parties.
        parties: number of parties, at least 1.
        size: number of released numbers with this law.
        rng: numpy's randomness.
    """
    stop = -np.expm1(-float(noise.rate))
    if noise.chance is None:
        shape = parties / noise.honest
        return rng.negative_binomial(shape, stop, size) - rng.negative_binomial(shape, stop, size)
    copies = rng.binomial(parties, noise.chance / COIN, size)
    shapes = np.maximum(copies, 1)  # numpy refuses the shape 0, of which the number is always 0
    drawn = rng.negative_binomial(shapes, stop) - rng.negative_binomial(shapes, stop)
    return np.where(copies > 0, drawn, 0)


def totals(exact: Integers, campaign: Campaign, parties: int, rng: np.random.Generator) -> Integers:
    """The totals that the aggregator decrypts: exact sums with the noise of all parties, shape (M,) int64.

    Args:
        exact: shape (M,) int64, the sums over the records of all parties.
        campaign: a masked campaign.
        parties: n. Every party reported, and has the number u = n in the key book, as after a setup.
        rng: numpy's randomness.
    """
    laws = zip(released_vectors(campaign), noise_of(campaign, parties), strict=True)
    noise = np.concatenate([noise_of_all(law, parties, subject.size, rng) for subject, law in laws])
    return np.asarray(exact + noise, np.int64)


def statistics_of(values: Integers, campaign: Campaign, parties: int, period: int) -> Statistics:
    """Statistics of decrypted totals, with the noise of all parties together.

    Args:
        values: shape (M,) int64.
        campaign: a masked campaign.
        parties: number of parties.
        period: number of the period.
    """
    numbers, subjects = tuple(values.tolist()), released_vectors(campaign)
    sums = []
    for subject, part, noise in zip(subjects, divided(numbers, subjects), noise_of(campaign, parties), strict=True):
        variance = parties * noise.variance
        kurtosis = parties * noise.fourth_cumulant / variance**2
        sums.append(noisy_sum(subject, part, np.full(subject.size, variance), kurtosis))
    records = {period: sum(numbers[: subjects[0].size])}
    return of_nodes(campaign, Total(campaign.id, parties, {campaign.epsilon_micro: parties}, records, numbers), sums)
