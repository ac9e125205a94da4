"""Tails of the noise of a few summaries, and the test of homogeneity that uses them."""

from __future__ import annotations

from dataclasses import replace
from math import erfc, exp, sqrt

import numpy as np
import pytest
from support.node_fleets import noisy, true_sums
from support.nodes import PERIOD, node_campaign

from aggregator.estimates.homogeneity import homogeneity
from aggregator.estimates.intervals import quantile95, relative_kurtosis, two_sided_tail
from aggregator.estimates.joining import joined_question
from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.totals import Total

CAMPAIGN = node_campaign()


@pytest.mark.parametrize("size", [0.0, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_the_tail_is_that_of_laplace_and_of_normal_noise_at_the_ends(size):
    assert two_sided_tail(size, 3.0) == pytest.approx(exp(-sqrt(2) * size))
    assert two_sided_tail(size, 0.0) == pytest.approx(erfc(size / sqrt(2)))
    assert two_sided_tail(size, 1e-5) == pytest.approx(erfc(size / sqrt(2)), rel=0.01)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
def test_the_tail_of_a_mixture_is_that_of_drawn_noise(share):
    """Half a million draws, a fixed seed; within five standard errors."""
    generator = np.random.default_rng(2)
    drawn = generator.laplace(0, sqrt(share / 2), 500_000) + generator.normal(0, sqrt(1 - share), 500_000)
    for size in (0.5, 1.5, 3.0, 4.0):
        tail = two_sided_tail(size, 3 * share**2)
        assert (abs(drawn) > size).mean() == pytest.approx(tail, abs=5 * sqrt(tail / 500_000))


def test_the_quantile_grows_with_the_share_of_the_noise():
    kurtosis = relative_kurtosis(3.0, np.array([0.0, 1.0, 1.0, np.inf]), np.array([1.0, 1.0, 0.0, 1.0]))
    assert kurtosis.tolist() == pytest.approx([0, 0.75, 3, 3])
    assert quantile95(kurtosis)[[0, 3]].tolist() == pytest.approx([1.96, 2.166], abs=0.001)


def _statistics(exact, epsilon_micro, generator):
    numbers = tuple(noisy(CAMPAIGN, exact, epsilon_micro, generator))
    return federated(CAMPAIGN, Total(CAMPAIGN.id, 1, {epsilon_micro: 1}, {PERIOD: sum(numbers[:2])}, numbers))


def _rejected(fleets, *, kurtosis):
    """How often two single nodes with noise of ε = 0.3 and 0.4 and equal sums are told from one population."""
    generator = np.random.default_rng(3)
    exact = true_sums(CAMPAIGN, 4000, generator)
    count = 0
    for _ in range(fleets):
        parts = [_statistics(exact, epsilon, generator) for epsilon in (300_000, 400_000)]
        questions = [[one if kurtosis else replace(one, kurtosis=0.0) for one in part.questions] for part in parts]
        count += homogeneity(list(zip(*questions, strict=True)), CAMPAIGN.schema, 2).differs
    return count


@pytest.mark.slow
def test_two_nodes_of_one_population_are_rarely_told_apart():
    """At most 5 % of 100, the level, and two standard errors; the seed is fixed. Normal tails reject 13 of them."""
    assert _rejected(100, kurtosis=True) <= 5 + 2 * sqrt(5)
    assert _rejected(100, kurtosis=False) > 5 + 2 * sqrt(5)


def test_joined_noise_has_the_kurtosis_of_its_parts():
    generator = np.random.default_rng(4)
    exact = true_sums(CAMPAIGN, 400, generator)
    parts = [_statistics(exact, 1_000_000, generator).questions[0] for _ in range(2)]
    joined = joined_question(parts, disjoint=True)
    assert 1.5 <= joined.kurtosis < 1.6, "of two noises of almost equal weight, half of that of one"
