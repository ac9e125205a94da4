"""Campaigns for nodes, lists of nodes, summaries and sets of summaries."""

import pytest
from support.failures import reason, refusal
from support.nodes import NODE_KEYS, PERIOD, TERMS, node_campaign, plain_sums, signed_list, summary_of
from support.publisher import NOW, ROOT_KEY, Publisher, key

from protocol import SCALE, canonical
from protocol.documents import trust
from protocol.documents.campaign import DISCRETE, GAUSSIAN, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.nodes.summary import UNDERSTOOD as LIST_KEYS
from protocol.nodes.summary import (
    build_summary,
)
from protocol.nodes.terms import cost_micro
from protocol.questions import ADD_REMOVE, CHANGE, CHANGE_FEATURES

PUBLISHER = Publisher()
CAMPAIGN = node_campaign()


@pytest.mark.parametrize("family", [DISCRETE, GAUSSIAN])
def test_a_campaign_for_nodes_asks_nothing_and_has_not_ended(family):
    campaign = node_campaign(family)
    assert build_summary(campaign, NODE_KEYS[0], PERIOD, plain_sums(campaign)) == summary_of(campaign)
    wrong = [*plain_sums(campaign)[:-1], 1257 * SCALE]
    assert refusal(build_summary, campaign, NODE_KEYS[0], PERIOD, wrong) == "value_out_of_domain"
    assert campaign.nodes == TERMS
    assert not campaign.ended
    assert (campaign.questions, campaign.answers, campaign.epsilon_micro) == ((), 0, 1_000_000)
    assert campaign.header.crit == ("nodes",)
    assert [each.name for each in campaign.schema.observed] == ["odor", "width"]
    assert not campaign.privacy_loss().exceeds(campaign.epsilon_micro)


def test_the_cost_depends_on_the_adjacency():
    assert [cost_micro(CAMPAIGN, one) for one in (ADD_REMOVE, CHANGE, CHANGE_FEATURES)] == [10**6, 2 * 10**6, 2 * 10**6]
    smooth = node_campaign(terms=TERMS._replace(sensitivity="smooth"))
    assert cost_micro(smooth, CHANGE_FEATURES, 500_000) == 500_000
    assert refusal(cost_micro, smooth, CHANGE) == "adjacency_uncovered"
    of_devices = parse_campaign(PUBLISHER.campaign_payload())
    assert refusal(cost_micro, of_devices, CHANGE) == "campaign_for_devices"


@pytest.mark.parametrize(("campaign_key", "model_key", "kept"), [(7, 3, False), (2, 8, True)])
def test_a_list_s_version_floor_goes_with_the_keys_of_campaigns(campaign_key, model_key, kept):
    """The new root keeps the floor if it keeps the keys that sign lists. It is signed by the same root key."""
    state = trust.pin(PUBLISHER.root(), NOW)
    state = trust.verify(state, signed_list(PUBLISHER, version=2), "nodes", NOW, LIST_KEYS).state
    keys = {"root": ROOT_KEY, "campaign": key(campaign_key), "model": key(model_key)}
    roles = {name: trust.Role(frozenset([one.public]), 1) for name, one in keys.items()}
    payload = canonical.pack(trust.Root(PUBLISHER.header("workspace", 2), roles).to_payload())
    rotated = trust.install_roots(state, [PUBLISHER.sign("root", payload)], NOW)
    assert (("nodes", "wards") in rotated.floors) == kept
    older = PUBLISHER.sign("nodes", read_envelope(signed_list(PUBLISHER), "nodes").payload, keys["campaign"])
    assert reason(trust.verify, rotated, older, "nodes", NOW, LIST_KEYS) == ("rollback" if kept else None)
