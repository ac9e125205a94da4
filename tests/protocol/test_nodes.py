"""Campaigns for nodes, lists of nodes, summaries and sets of summaries."""

import pytest
from support.failures import reason, refusal
from support.nodes import NODE_KEYS, PERIOD, TERMS, node_campaign, node_payload, plain_sums, signed_list, summary_of
from support.publisher import DAY, NOW, ROOT_KEY, Publisher, key

from protocol import SCALE, canonical
from protocol.documents import trust
from protocol.documents.campaign import DISCRETE, GAUSSIAN, UNDERSTOOD, parse_campaign
from protocol.documents.envelope import keyid, read_envelope, seal
from protocol.documents.payload import check_understood, read_payload
from protocol.nodes.summary import (
    SUMMARY_PAYLOAD_TYPE,
    build_node_list,
    build_summary,
    judge_summary,
    parse_node_list,
    read_summary,
)
from protocol.nodes.summary import UNDERSTOOD as LIST_KEYS
from protocol.nodes.terms import cost_micro, ranges, released_vectors, shares
from protocol.questions import ADD_REMOVE, CHANGE, CHANGE_FEATURES

PUBLISHER = Publisher()
CAMPAIGN = node_campaign()
LIST = parse_node_list(
    trust.verify(trust.pin(PUBLISHER.root(), NOW), signed_list(PUBLISHER), "nodes", NOW, LIST_KEYS).payload
)


def judge(raw, campaign=CAMPAIGN, nodes=LIST, now=NOW):
    return judge_summary(raw, campaign, nodes, now)


@pytest.mark.parametrize("family", [DISCRETE, GAUSSIAN])
def test_a_campaign_for_nodes_asks_nothing_and_has_not_ended(family):
    campaign = node_campaign(family)
    assert campaign.nodes == TERMS
    assert not campaign.ended
    assert (campaign.questions, campaign.answers, campaign.epsilon_micro) == ((), 0, 1_000_000)
    assert campaign.header.crit == ("nodes",)
    assert [each.name for each in campaign.schema.observed] == ["odor", "width"]
    assert not campaign.privacy_loss().exceeds(campaign.epsilon_micro)


def test_a_reader_that_does_not_know_nodes_refuses_the_campaign():
    _, header = read_payload(node_payload(PUBLISHER))
    check_understood(header, UNDERSTOOD)
    assert refusal(check_understood, header, UNDERSTOOD - {"nodes"}) == "unknown_crit"


def test_every_released_vector_has_an_equal_share_and_a_range():
    # classes; odor; width: sum, sum of squares
    vectors = released_vectors(CAMPAIGN)
    assert [(one.kind, one.size) for one in vectors] == [
        ("class", 2), ("cell", 8), ("moment", 2), ("moment", 2),
    ]  # fmt: skip
    assert shares(CAMPAIGN) == (250_000,) * 4
    reach = 64 * 4
    assert ranges(CAMPAIGN) == [
        *[(-reach, 1000 + reach)] * 2,
        (-(1000 + reach) * SCALE, (1000 + reach) * SCALE),
        (-reach * SCALE, (1000 + reach) * SCALE),
    ]
    assert shares(CAMPAIGN, 100_001) == (25_000,) * 4
    assert [refusal(shares, CAMPAIGN, wrong) for wrong in (99_999, 1_000_001)] == ["epsilon_invalid"] * 2


def test_the_cost_depends_on_the_adjacency():
    assert [cost_micro(CAMPAIGN, one) for one in (ADD_REMOVE, CHANGE, CHANGE_FEATURES)] == [10**6, 2 * 10**6, 2 * 10**6]
    smooth = node_campaign(terms=TERMS._replace(sensitivity="smooth"))
    assert cost_micro(smooth, CHANGE_FEATURES, 500_000) == 500_000
    assert refusal(cost_micro, smooth, CHANGE) == "adjacency_uncovered"
    of_devices = parse_campaign(PUBLISHER.campaign_payload())
    assert refusal(cost_micro, of_devices, CHANGE) == "campaign_for_devices"


def test_the_role_of_campaigns_signs_a_list_whose_versions_rise():
    state = trust.pin(PUBLISHER.root(), NOW)
    verdict = trust.verify(state, signed_list(PUBLISHER, version=2), "nodes", NOW, LIST_KEYS)
    assert parse_node_list(verdict.payload).nodes == {keyid(one.public): one.public for one in NODE_KEYS}
    payload = build_node_list(PUBLISHER.header("wards"), [NODE_KEYS[0].public])
    for raw, expected in (
        (signed_list(PUBLISHER, version=1), "rollback"),
        (signed_list(PUBLISHER, NODE_KEYS[:2], version=2), "equivocation"),
        (PUBLISHER.sign("nodes", payload, NODE_KEYS[0]), "bad_signature"),
        (PUBLISHER.campaign(), "wrong_role"),
    ):
        assert refusal(trust.verify, verdict.state, raw, "nodes", NOW, LIST_KEYS) == expected


def test_a_summary_is_judged_completely():
    assert judge(summary_of(CAMPAIGN)).sums == tuple(plain_sums(CAMPAIGN))
    other = node_campaign(DISCRETE)
    listed = LIST._replace(nodes={hint: one for hint, one in LIST.nodes.items() if hint != keyid(NODE_KEYS[0].public)})
    payload = read_summary(summary_of(CAMPAIGN))[0].payload

    damaged = bytearray(summary_of(CAMPAIGN))
    damaged[-1] ^= 1
    assert refusal(judge, b"") == "malformed"
    assert refusal(judge, summary_of(other)) == "unrecognized_campaign"
    assert refusal(judge, summary_of(CAMPAIGN), nodes=listed) == "node_not_listed"
    assert refusal(judge, bytes(damaged)) == "bad_signature"
    for changes, expected in (
        ({"epsilon_micro": 1_000_001}, "epsilon_out_of_range"),
        ({"epsilon_micro": 99_999}, "epsilon_out_of_range"),
        ({"sums": {"dt": "<i8", "sh": [1], "b": bytes(8)}}, "value_out_of_domain"),
        ({"period": (NOW + 366 * DAY) // DAY}, "report_too_late"),
        ({"period": PERIOD - 2}, "report_too_early"),
        ({"period": PERIOD + 1}, "report_too_early"),
        ({"node": keyid(NODE_KEYS[1].public)}, "malformed"),
    ):
        forged = canonical.pack({**canonical.unpack(payload), **changes})
        assert refusal(judge, seal(SUMMARY_PAYLOAD_TYPE, forged, [NODE_KEYS[0]])) == expected
    beyond = [*plain_sums(CAMPAIGN)[:-1], 1257 * SCALE]
    assert refusal(build_summary, CAMPAIGN, NODE_KEYS[0], PERIOD, beyond) == "value_out_of_domain"


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
