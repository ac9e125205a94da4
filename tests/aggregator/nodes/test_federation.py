"""Variances and intervals of totals: noise of several ε, its kurtosis, and records of several periods."""

from __future__ import annotations

import numpy as np
import pytest
from support.node_fleets import keys, noisy, summaries_of, true_sums
from support.nodes import PERIOD, node_campaign

from aggregator.nodes.federation import federated, noise_variances
from aggregator.nodes.totals import Total, Totals
from protocol import SCALE
from protocol.nodes.summary import read_summary
from protocol.nodes.terms import released_vectors

CAMPAIGN = node_campaign()


def parsed(raws):
    return [read_summary(raw)[1] for raw in raws]


def test_noise_variances_of_several_epsilons_add_up():
    first = parsed(summaries_of(CAMPAIGN, keys(3)))
    second = parsed(summaries_of(CAMPAIGN, keys(5)[3:], epsilon_micro=200_000))
    statistics = federated(CAMPAIGN, Totals.of(CAMPAIGN, [*first, *second]).total())
    own, other = noise_variances(CAMPAIGN, 1_000_000), noise_variances(CAMPAIGN, 200_000)
    for place, one in enumerate(statistics.questions):
        unit = SCALE if one.subject.kind == "moment" else 1
        assert one.noise_variance == pytest.approx((3 * own[place] + 2 * other[place]) / unit**2)
    assert other[0] == pytest.approx(25 * own[0], rel=0.01)
    sums = np.array([summary.sums for summary in [*first, *second]]).sum(axis=0)
    assert statistics.questions[0].estimate.tolist() == sums[:2].tolist(), "weight one whatever ε"


@pytest.mark.parametrize(("nodes", "least", "most"), [(1, 0.93, 0.975), (4, 0.93, 0.975)])
def test_intervals_for_these_records_hold_as_often_as_they_say(nodes, least, most):
    """150 fleets, 14 numbers each: coverage of 95 % intervals of noise alone is within 0.93 and 0.975.

    The standard error is √(0.95·0.05/2100) = 0.5 %, so a right interval fails in less than one of 10,000 runs. An
    interval that forgets half of the noise variance covers about 0.85.
    """
    generator = np.random.default_rng(17)
    exact = true_sums(CAMPAIGN, 400, generator)
    hits = []
    for _ in range(150):
        numbers = np.array([noisy(CAMPAIGN, exact, 1_000_000, generator) for _ in range(nodes)]).sum(axis=0)
        total = Total(CAMPAIGN.id, nodes, {1_000_000: nodes}, {PERIOD: int(numbers[:2].sum())}, tuple(numbers.tolist()))
        statistics = federated(CAMPAIGN, total)
        truth, start = nodes * np.array(exact), 0
        for one, subject in zip(statistics.questions, released_vectors(CAMPAIGN), strict=True):
            unit = SCALE if subject.kind == "moment" else 1
            part = truth[start : start + subject.size] / unit
            start += subject.size
            own = one.devices_interval
            hits.append(((own.low <= part) & (part <= own.high)).mean())
    assert least < np.mean(hits) < most


def test_the_same_records_in_every_period_are_not_taken_for_more_people():
    one = parsed(summaries_of(CAMPAIGN, keys(4)))
    again = parsed(summaries_of(CAMPAIGN, keys(4), period=PERIOD + 1))
    single = federated(CAMPAIGN, Totals.of(CAMPAIGN, one).total()).questions[1]
    twice = federated(CAMPAIGN, Totals.of(CAMPAIGN, [*one, *again]).total()).questions[1]
    assert single.scatter == pytest.approx(1)
    assert twice.scatter == pytest.approx(2, rel=0.01)
    spread = twice.sampling_variance / twice.n**2
    np.testing.assert_allclose(spread, single.sampling_variance / single.n**2, rtol=0.15)
