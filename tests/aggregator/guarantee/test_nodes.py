"""The guarantee sheet of a campaign for nodes: no lie within the accepted ranges moves a class's share further."""

from __future__ import annotations

import itertools

import pytest
from support.failures import reason
from support.publisher import DAY, NOW, small_schema

from aggregator.guarantee.nodes import node_guarantee
from protocol.document import Header
from protocol.documents.campaign import Fit, build_payload, parse_campaign
from protocol.epsilon import MICRO
from protocol.nodes.terms import NodeTerms, ranges


def asking(epsilon_micro=MICRO, max_records=1000, sensitivity="global"):
    payload = build_payload(
        Header("sums", 1, NOW, NOW, NOW + 30 * DAY),
        small_schema(),
        (),
        epsilon_micro=epsilon_micro,
        purpose="sums",
        contact="someone",
        time_precision=DAY,
        min_batch_size=1,
        fit=Fit("gaussian", "posterior", 10_000),
        nodes=NodeTerms("clinics", max_records, epsilon_micro, sensitivity),
    )
    return parse_campaign(payload)


@pytest.mark.parametrize("epsilon_micro", [MICRO, 20_000])
@pytest.mark.parametrize("honest", [[500, 500], [0, 1000], [1000, 0], [3, 7]])
def test_no_claim_of_two_liars_among_twenty_nodes_moves_a_share_further(epsilon_micro, honest):
    found = asking(epsilon_micro)
    low, high = ranges(found)[0]
    told = node_guarantee(found, nodes=20, records=sum(honest), liars=[0.1]).reach[0].moved[0.1]
    total = [18 * count for count in honest]
    share = total[0] / sum(total)
    largest = 0.0
    for claim in itertools.product((low, 0, high), repeat=2):
        with_lies = [count + 2 * lie for count, lie in zip(total, claim, strict=True)]
        if sum(with_lies) > 0:
            largest = max(largest, abs(min(1.0, max(0.0, with_lies[0] / sum(with_lies))) - share))
    assert largest <= told + 1e-12
    if 0 in honest:
        assert largest == pytest.approx(told)  # the bound is reached


def test_what_a_node_books_in_a_campaign_s_life():
    spent = node_guarantee(asking(), liars=[0.1]).spending
    assert (spent.period, spent.day, spent.answered) == (2 * MICRO, 2 * MICRO, 31)
    assert spent.life == 62 * MICRO


def test_a_campaign_of_smooth_sensitivity_books_what_it_covers():
    sheet = node_guarantee(asking(sensitivity="smooth"), liars=[0.1])
    assert sheet.privacy.booked_micro == {"change-features": MICRO}
    assert sheet.spending.period == MICRO


@pytest.mark.parametrize("changes", [{"nodes": 0}, {"records": 0}, {"liars": [0]}, {"liars": [1]}])
def test_arguments_out_of_range_are_refused(changes):
    assert reason(lambda: node_guarantee(asking(), **({"liars": [0.1]} | changes))) == "argument_invalid"
