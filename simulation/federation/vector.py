"""Summaries of all nodes at once, as arrays: exact sums by node, noise, and statistics of the totals.

The sums equal those of real nodes, and the noise has the same law: discrete Laplace, P(k) ∝ e^{−r|k|} for rate r. The
randomness is numpy's and has a seed, so nothing here is private; it is for simulations alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import NO_NUMBER, EncodedFrame
from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.robust import Rule, robust_statistics
from aggregator.nodes.statistics.totals import Total, column_sums
from protocol import SCALE
from protocol.documents.campaign import Campaign
from protocol.nodes.summary import Summary
from protocol.nodes.terms import ranges, released_vectors, sensitivity, shares
from protocol.questions import CELL, CLASS, PRESENT, SQUARE, Subject
from protocol.sums.vectors import rate


def deal(records: int, nodes: int, rng: np.random.Generator) -> Integers:
    """The node of every record, at random: shape (records,) int64. The sizes of the nodes differ by at most one."""
    return rng.permutation(np.arange(records, dtype=np.int64) % nodes)


def exact_sums(
    subjects: Sequence[Subject], encoded: EncodedFrame, labels: Integers, owners: Integers, nodes: int
) -> Integers:
    """The exact sums of every node, before noise.

    Args:
        subjects: of the released vectors, the class first.
        encoded: codes and numbers of n records, from :func:`aggregator.models.encoding.observe`.
        labels: shape (n,) int64, class codes.
        owners: shape (n,) int64, the node of every record.
        nodes: N, number of nodes.

    Returns:
        Shape (N, M) int64, all vectors joined.
    """
    classes = subjects[0].size
    return np.hstack([_of_subject(subject, encoded, labels, owners, nodes, classes) for subject in subjects])


def _of_subject(
    subject: Subject, encoded: EncodedFrame, labels: Integers, owners: Integers, nodes: int, classes: int
) -> Integers:
    """The sums of one vector of K numbers by node: shape (N, K) int64."""
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


def discrete_laplace(of_rate: Fraction, shape: tuple[int, ...], rng: np.random.Generator) -> Integers:
    """Integers k with P(k) ∝ e^{−r|k|}, r the rate: the difference of two geometric numbers. Int64 of ``shape``."""
    stop = -np.expm1(-float(of_rate))
    return rng.geometric(stop, shape) - rng.geometric(stop, shape)


def released(exact: Integers, campaign: Campaign, rng: np.random.Generator) -> Integers:
    """What nodes send: exact sums, shape (N, M) int64, with noise at the campaign's ε, clamped to the public ranges."""
    subjects = released_vectors(campaign)
    noisy, start = np.empty_like(exact), 0
    for subject, share, (low, high) in zip(subjects, shares(campaign), ranges(campaign), strict=True):
        part = slice(start, start + subject.size)
        noise = discrete_laplace(rate(share, sensitivity(subject)), exact[:, part].shape, rng)
        noisy[:, part] = np.clip(exact[:, part] + noise, low, high)
        start = part.stop
    return noisy


def statistics_of(values: Integers, campaign: Campaign, period: int, rule: Rule | None = None) -> Statistics:
    """Statistics of the numbers that nodes sent in one period, as a store makes them of the nodes' summaries.

    Args:
        values: shape (N, M) int64.
        campaign: a campaign for nodes.
        period: number of the period.
        rule: a robust rule; None for plain addition.

    Raises:
        PolicyError: ``nodes_too_few``: the rule needs more nodes.
    """
    nodes = len(values)
    if rule is not None:
        return robust_statistics(campaign, _summaries(values, campaign, period), rule)
    numbers = tuple(column_sums(values))
    classes = released_vectors(campaign)[0].size
    summaries, records = {campaign.epsilon_micro: nodes}, {period: sum(numbers[:classes])}
    return federated(campaign, Total(campaign.id, nodes, summaries, records, numbers))


def _summaries(values: Integers, campaign: Campaign, period: int) -> list[Summary]:
    """Unsigned summaries of the nodes 0, 1, …, for rules that compare nodes."""
    return [
        Summary(
            campaign.id, node.to_bytes(8, "big"), period, campaign.epsilon_micro, tuple(row), node.to_bytes(32, "big")
        )
        for node, row in enumerate(values.tolist())
    ]
