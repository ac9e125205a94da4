"""Sums of nodes, decrypted masked totals and totals of two collectors, drawn by numpy: exact sums, noise, statistics.

The sums equal those of real nodes, and their noise has the same law: discrete Laplace, P(k) ∝ e^{−r|k|} with a rate r.
The noise of a masked total has the law of the parties' summed noise (:mod:`protocol.masked.noise`), and no party's
noise is drawn by itself. The randomness is numpy's and has a seed, so nothing here is private; it is for simulations
alone. Source: docs/math.md, section 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from aggregator.collectors.draws import SharedNoise
from aggregator.collectors.statistics import Shared
from aggregator.common.arrays import Floats, Integers
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import NO_NUMBER, EncodedFrame
from aggregator.nodes.campaigns.numbering import first_numbers
from aggregator.nodes.statistics import federation
from aggregator.nodes.statistics.robust import Rule, robust_statistics
from aggregator.nodes.statistics.totals import Total, column_sums
from aggregator.publishing.mechanisms.draws import discrete_laplace, inputs_of
from protocol import SCALE
from protocol.documents.campaign import Campaign
from protocol.documents.masked_terms import DIVIDED
from protocol.masked.costs import delta_share, honest_parties, masked_terms_of, rates
from protocol.nodes.summary import Summary
from protocol.nodes.terms import ranges, released_vectors, sensitivity, shares
from protocol.noise.sums import laplace_variance, rate
from protocol.questions import CELL, CLASS, PRESENT, SQUARE, Subject
from protocol.shared.report import terms_of


def deal(records: int, nodes: int, rng: np.random.Generator) -> Integers:
    """Deal records to nodes at random: return the node of each record, (records,) int64.

    Node sizes differ by at most one.
    """
    return rng.permutation(np.arange(records, dtype=np.int64) % nodes)


def exact_sums(
    subjects: Sequence[Subject], encoded: EncodedFrame, labels: Integers, owners: Integers, nodes: int
) -> Integers:
    """Return the exact sums of every node, before noise.

    Args:
        subjects: what each released vector is about, the class first.
        encoded: codes and numbers of n records, from :func:`aggregator.models.encoding.observe`.
        labels: shape (n,) int64, class codes.
        owners: shape (n,) int64, the node of every record.
        nodes: N, number of nodes.

    Returns:
        Shape (N, M) int64: for each node its M sums, all vectors joined.
    """
    classes = subjects[0].size
    return np.hstack([_of_subject(subject, encoded, labels, owners, nodes, classes) for subject in subjects])


def _of_subject(
    subject: Subject, encoded: EncodedFrame, labels: Integers, owners: Integers, nodes: int, classes: int
) -> Integers:
    """Return every node's sums for one vector of K numbers: shape (N, K) int64."""
    if subject.kind == CLASS:
        places, weights = labels, None
    else:
        assert subject.feature is not None
        numbers = encoded.numbers[:, subject.feature]
        there = numbers != NO_NUMBER
        if subject.kind == CELL:
            places, weights = encoded.codes[:, subject.feature] * classes + labels, None
        elif subject.kind == PRESENT:
            places, weights = there * classes + labels, None
        else:
            places, known = labels, np.where(there, numbers, 0)
            weights = known * known // SCALE if subject.power == SQUARE else known
    # Sums of up to 2^36 records of size 2^16 stay below 2^53, which doubles hold exactly.
    found = np.bincount(owners * subject.size + places, weights, nodes * subject.size)
    return found.astype(np.int64).reshape(nodes, subject.size)


def released(exact: Integers, campaign: Campaign, rng: np.random.Generator) -> Integers:
    """Return what nodes send: exact sums, (N, M) int64, with noise at the campaign's ε, cut to the public ranges."""
    subjects = released_vectors(campaign)
    noisy, start = np.empty_like(exact), 0
    for subject, share, (low, high) in zip(subjects, shares(campaign), ranges(campaign), strict=True):
        part = slice(start, start + subject.size)
        noise = discrete_laplace(float(rate(share, sensitivity(subject))), exact[:, part].shape, rng)
        noisy[:, part] = np.clip(exact[:, part] + noise, low, high)
        start = part.stop
    return noisy


def statistics_of(values: Integers, campaign: Campaign, period: int, rule: Rule | None = None) -> Statistics:
    """Return statistics of the sums that nodes sent in one period, as a store makes them of the nodes' summaries.

    Args:
        values: shape (N, M) int64, M noisy sums of each of N nodes.
        rule: a robust rule; None for plain addition.

    Raises PolicyError ``nodes_too_few``: the rule needs more nodes.
    """
    nodes = len(values)
    if rule is not None:
        return robust_statistics(campaign, _summaries(values, campaign, period), rule)
    numbers = tuple(column_sums(values))
    classes = released_vectors(campaign)[0].size
    summaries, records = {campaign.epsilon_micro: nodes}, {period: sum(numbers[:classes])}
    return federation.federated(campaign, Total(campaign.id, nodes, summaries, records, numbers))


def _summaries(values: Integers, campaign: Campaign, period: int) -> list[Summary]:
    """Return unsigned summaries of the nodes 0, 1, …, for rules that compare nodes."""
    return [
        Summary(
            campaign.id, node.to_bytes(8, "big"), period, campaign.epsilon_micro, tuple(row), node.to_bytes(32, "big")
        )
        for node, row in enumerate(values.tolist())
    ]


@lru_cache(maxsize=16)
def numbers_of_setup(parties: int) -> Mapping[int, int]:
    """Return how many parties get each number u, which sets a party's part of the noise, in the first setup."""
    return Counter(first_numbers(party.to_bytes(8, "big") for party in range(parties)).values())


class TotalNoise(NamedTuple):
    """The distribution of the summed noise of all parties in one number.

    Attributes:
        rate: a whole copy of noise is a discrete Laplace number k, P(k) ∝ e^{−|k|·rate}.
        shape: of ``divided`` noise Σ 1/h over the parties (each adds 1/h of a copy); None for ``diluted`` noise.
        parties: of ``diluted`` noise, shape (groups,) int64: number of parties for each chance.
        chances: of ``diluted`` noise, shape (groups,) float64: β, the chance that a party adds a whole copy.
    """

    rate: float
    shape: float | None
    parties: Integers
    chances: Floats

    @property
    def copies(self) -> float:
        """The expected number of whole copies of noise in the total."""
        return float((self.parties * self.chances).sum()) if self.shape is None else self.shape

    @property
    def variance(self) -> float:
        """The variance of the noise: ``copies`` times that of a whole copy."""
        return self.copies * laplace_variance(Fraction(self.rate))

    @property
    def kurtosis(self) -> float:
        """The excess kurtosis of the noise: the sum of the parties' fourth cumulants over the squared variance.

        With v the variance of a whole copy, Σ (3v² + v)/h, or Σ [β(6v² + v) − 3β²v²].
        """
        v = laplace_variance(Fraction(self.rate))
        if self.shape is None:
            fourth = self.copies * (6 * v**2 + v) - 3 * v**2 * float((self.parties * self.chances**2).sum())
        else:
            fourth = self.copies * (3 * v**2 + v)
        return fourth / self.variance**2 if self.variance**2 else 0.0

    def draw(self, size: int, rng: np.random.Generator) -> Integers:
        """Draw ``size`` independent noise numbers, shape (size,) int64."""
        stop = -np.expm1(-self.rate)
        if self.shape is not None:
            return rng.negative_binomial(self.shape, stop, size) - rng.negative_binomial(self.shape, stop, size)
        groups = (len(self.parties), size)
        copies = rng.binomial(self.parties[:, None], self.chances[:, None], groups).sum(axis=0)
        shapes = np.maximum(copies, 1)  # numpy refuses the shape 0, whose number is always 0
        drawn = rng.negative_binomial(shapes, stop) - rng.negative_binomial(shapes, stop)
        return np.where(copies > 0, drawn, 0)


def noise_of_total(campaign: Campaign, numbers: Mapping[int, int]) -> list[TotalNoise]:
    """Return the distribution of a total's noise for every released vector, in the order of the vectors.

    The chances β are real numbers here, and multiples of 2^−32 at a party. ``numbers``: number u of a party in the key
    book → how many parties have this u.
    """
    terms = masked_terms_of(campaign)
    honest = np.array([honest_parties(terms, u) for u in numbers], np.float64)
    parties = np.array(list(numbers.values()), np.int64)
    shape, chances = None, np.empty(0)
    if terms.noise == DIVIDED:
        shape = float((parties / honest).sum())
    else:
        chances = -np.expm1(np.log(float(delta_share(campaign))) / honest)
    return [TotalNoise(float(rate), shape, parties, chances) for rate in rates(campaign)]


def totals(exact: Integers, campaign: Campaign, numbers: Mapping[int, int], rng: np.random.Generator) -> Integers:
    """Return the totals that the aggregator decrypts: exact sums with all parties' noise, shape (M,) int64.

    Args:
        exact: shape (M,) int64, the sums over the records of all parties.
        numbers: number u of a party in the key book → how many parties have this u; every party reported.
    """
    laws = zip(released_vectors(campaign), noise_of_total(campaign, numbers), strict=True)
    noise = np.concatenate([law.draw(subject.size, rng) for subject, law in laws])
    return np.asarray(exact + noise, np.int64)


def total_statistics(values: Sequence[int], campaign: Campaign, numbers: Mapping[int, int], period: int) -> Statistics:
    """Return the statistics of decrypted totals, with the noise of all parties together.

    Args:
        values: the totals, M integers.
        numbers: number u of a party in the key book → how many parties have this u; every party reported.
    """
    subjects, parties, sums = released_vectors(campaign), sum(numbers.values()), []
    laws = noise_of_total(campaign, numbers)
    for subject, part, law in zip(subjects, federation.divided(values, subjects), laws, strict=True):
        sums.append(federation.noisy_sum(subject, part, np.full(subject.size, law.variance), law.kurtosis))
    records = {period: sum(values[: subjects[0].size])}
    total = Total(campaign.id, parties, {campaign.epsilon_micro: parties}, records, tuple(values))
    return federation.statistics_of(campaign, total, sums)


def collected(
    campaign: Campaign,
    encoded: EncodedFrame,
    labels: Integers,
    period: int,
    rng: np.random.Generator,
    predicted: Sequence[Integers] = (),
) -> Shared:
    """Return the total of a shared campaign: exact counts, with noise of both collectors' law.

    Args:
        campaign: a shared campaign.
        encoded: codes of n devices' records by the campaign's schema.
        labels: shape (n,) int64, class codes.
        period: number of the period.
        rng: numpy's randomness.
        predicted: (n,) int64 for each evaluated model, the class codes that it predicts.
    """
    terms, blocks = terms_of(campaign), campaign.blocks
    cells = cells_of(campaign, encoded, labels, predicted)
    exact = np.concatenate([np.bincount(cells[:, at], minlength=block.size) for at, block in enumerate(blocks)])
    noise = SharedNoise(campaign.epsilon_micro, terms.delta_pico, terms.noise).draw(len(blocks), len(exact), rng)
    total = tuple((exact + noise).tolist())
    return Shared(campaign, {period: total}, {period: len(labels)})


def cells_of(
    campaign: Campaign, encoded: EncodedFrame, labels: Integers, predicted: Sequence[Integers] = ()
) -> Integers:
    """Return the cell of each of n records in every block of a shared campaign: (n, blocks) int64.

    The arguments are those of :func:`collected`.
    """
    found = []
    for block in campaign.blocks:
        own = predicted[block.model or 0] if block.feature is None else None
        found.append(inputs_of(campaign.schema, block, encoded, labels, own))
    return np.stack(found, axis=1)
