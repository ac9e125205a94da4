"""A node: one paid, signed summary per campaign and period, sealed, sent and acknowledged as reports are."""

from __future__ import annotations

import pytest
from support.failures import failure, reason
from support.nodes import node_campaign
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, Node, Policy
from edge_sdk.explaining import as_text, cost_in_words
from edge_sdk.storage.documents import NODE
from protocol.documents.envelope import keyid, verified_by
from protocol.nodes.summary import check_summary, read_summaries, read_summary
from protocol.nodes.terms import NodeTerms

RECORDS = [{"odor": "n", "width": 3.2, "label": "e"}, {"odor": "f", "width": None, "label": "p"}]

UNREAD = object()
"""In the place of records. Reading it raises a TypeError."""


@pytest.fixture
def node(tmp_path, publisher, clock):
    with Node.provision(tmp_path / "state", trust=publisher.root(), clock=clock) as opened:
        yield opened


@pytest.fixture
def campaign(node, publisher):
    return node.enrol(publisher.node_campaign(least_epsilon_micro=100_000))


def test_a_summary_is_signed_sealed_and_acknowledged(node, campaign, tmp_path):
    found = node.summarise(campaign.id, RECORDS)
    envelope, summary = read_summary(found.raw)
    check_summary(summary, campaign, NOW)
    assert verified_by(envelope, [node.public_key])
    assert summary.node == node.node_id == keyid(node.public_key)
    assert (found.epsilon_micro, found.cost_micro, found.repeated) == (1_000_000, 2_000_000, False)
    assert node.drain(tmp_path / "out.hsn") == 1
    assert [piece.envelope for piece in read_summaries((tmp_path / "out.hsn").read_bytes())] == [found.raw]
    assert node.status().spooled == 1
    assert node.ack(tmp_path / "out.hsn") == 1
    assert node.status().spooled == 0


def test_one_summary_per_campaign_and_period(node, campaign, clock, tmp_path):
    first = node.summarise("clinics", RECORDS)
    again = node.summarise(campaign.id, UNREAD, epsilon="0.5")  # the records are not read, and the ε stays
    assert again == first._replace(repeated=True, unread=None)
    clock.now += DAY
    second = node.summarise(campaign.id, iter(RECORDS), epsilon="0.5")
    assert (second.period, second.epsilon_micro, second.cost_micro) == (first.period + 1, 500_000, 1_000_000)
    assert [line.epsilon_micro for line in node.history()] == [2_000_000, 1_000_000]
    assert node.status().spent_micro == 3_000_000
    node.drain(tmp_path / "out.hsn")
    assert (tmp_path / "out.hsn").read_bytes() == first.raw + second.raw


@pytest.mark.parametrize(
    ("adjacency", "micro"), [("change", 2_000_000), ("add-remove", 1_000_000), ("change-features", 2_000_000)]
)
def test_the_ledger_counts_the_neighbours_of_the_policy(tmp_path, publisher, clock, adjacency, micro):
    policy = Policy.of(node_adjacency=adjacency)
    with Node.provision(tmp_path / "state", publisher.root(), policy=policy, clock=clock) as node:
        campaign = node.enrol(publisher.node_campaign())
        assert node.summarise(campaign.id, RECORDS).cost_micro == micro
        assert node.status().spent_micro == micro


def test_the_first_summary_fixes_what_the_ledger_counts(tmp_path, publisher, clock):
    """ε of different adjacencies can not be added: another one is refused, also after a reset."""
    place, add, change = tmp_path / "state", Policy.of(node_adjacency="add-remove"), Policy.of(node_adjacency="change")
    with Node.provision(place, publisher.root(), policy=add, clock=clock) as node:
        campaign = node.enrol(publisher.node_campaign(version=1))
        assert node.status().adjacency is None
        first = node.summarise(campaign.id, RECORDS)
        assert node.status().to_json()["epsilon_counted_for"] == "add-remove"
    with Node.open(place, policy=change, clock=clock) as node:
        assert node.summarise(campaign.id, UNREAD).raw == first.raw
        clock.now += DAY
        error = failure(node.summarise, campaign.id, UNREAD)
        assert error.reason == "adjacency_fixed"
        assert "counts the ε of add-remove since its first summary, 1 so far" in error.detail
        told = node.explain(publisher.node_campaign(version=1))
        assert "the ledger count the ε of add-remove (node_adjacency)" in told
        assert "adjacency_fixed" in told
        assert (node.status().spent_micro, node.status().adjacency) == (1_000_000, "add-remove")
    with Node.open(place, policy=add, clock=clock) as node:
        assert node.summarise(campaign.id, RECORDS).cost_micro == 1_000_000
    Node.reset(place, publisher.root(), clock=clock)
    clock.now += DAY
    with Node.open(place, policy=change, clock=clock) as node:
        campaign = node.enrol(publisher.node_campaign(version=1))
        assert node.status().spent_micro >= 2_000_000
        assert reason(node.summarise, campaign.id, UNREAD) == "adjacency_fixed"


def test_a_limit_counts_what_the_policy_names(tmp_path, publisher, clock):
    """A campaign may be accepted for its least ε. A summary above the limit is refused unread."""
    policy = Policy.of(epsilon_per_period="1")
    with Node.provision(tmp_path / "state", publisher.root(), policy=policy, clock=clock) as node:
        assert reason(node.enrol, publisher.node_campaign()) == "policy_refused"
        campaign = node.enrol(publisher.node_campaign(least_epsilon_micro=500_000))
        error = failure(node.summarise, campaign.id, UNREAD)
        assert error.reason == "policy_refused"
        assert "ε = 2 per period; the owner allows 1 (epsilon_per_period)" in error.detail
        assert node.summarise(campaign.id, RECORDS, epsilon="0.5").cost_micro == 1_000_000
    policy = Policy.of(epsilon_lifetime="1.9")
    with Node.provision(tmp_path / "other", publisher.root(), policy=policy, clock=clock) as node:
        campaign = node.enrol(publisher.node_campaign())
        assert reason(node.summarise, campaign.id, UNREAD) == "budget_exhausted"


@pytest.mark.parametrize("epsilon", ["0.099999", "1.000001", "0", "much"])
def test_an_epsilon_that_the_campaign_does_not_allow(node, campaign, epsilon):
    expected = "epsilon_out_of_range" if epsilon.startswith(("0.0", "1.0")) else "epsilon_invalid"
    assert reason(node.summarise, campaign.id, UNREAD, epsilon=epsilon) == expected
    assert node.status().spent_micro == 0


def test_a_state_takes_one_kind_of_campaigns(tmp_path, publisher, clock):
    with Node.provision(tmp_path / "node", publisher.root(), clock=clock) as node:
        assert node.status().kind is None
        campaign = node.enrol(publisher.node_campaign())
        assert node.status().kind == NODE
        assert reason(node.enrol, publisher.campaign()) == "campaign_for_devices"
        assert reason(node.report, campaign.id, {}) == "campaign_for_nodes"
        assert [each.name for each in node.status().campaigns] == ["clinics"]
    with Device.provision(tmp_path / "device", publisher.root(), clock=clock) as device:
        device.enrol(publisher.campaign())
        assert reason(device.enrol, publisher.node_campaign()) == "campaign_for_nodes"
    with Node.open(tmp_path / "device", clock=clock) as node:
        assert reason(node.summarise, "mushrooms", UNREAD) == "campaign_for_devices"
    Device.reset(tmp_path / "device", publisher.root(), clock=clock)
    with Device.open(tmp_path / "device", clock=clock) as device:
        device.enrol(publisher.node_campaign())


def test_a_state_of_older_software_is_a_devices(tmp_path, publisher, clock):
    """Older software has not stored the kind."""
    with Device.provision(tmp_path / "device", publisher.root(), clock=clock) as device:
        device.enrol(publisher.campaign())
        with device._state.transaction():
            device._state.remove_meta("kind")
        assert device.status().kind == "device"
        assert reason(device.enrol, publisher.node_campaign()) == "campaign_for_nodes"
        device.report("mushrooms", {})
        assert device.drain(tmp_path / "out.hsr") == 1


def test_an_opt_out_makes_another_node(node, campaign, clock, tmp_path):
    before, _ = node.public_key, node.summarise(campaign.id, RECORDS)
    node.disable()
    assert reason(lambda: node.public_key) == "disabled"
    assert reason(node.summarise, campaign.id, UNREAD) == "disabled"
    assert node.drain(tmp_path / "out.hsn") == 0
    node.enable()
    assert node.public_key != before
    assert reason(node.summarise, campaign.id, UNREAD) == "period_answered"
    clock.now += DAY
    assert read_summary(node.summarise(campaign.id, RECORDS).raw)[1].node == node.node_id


def test_an_error_while_records_are_read_costs_nothing(node, campaign):
    def records():
        yield from RECORDS
        raise ConnectionResetError("the database is gone")

    with pytest.raises(ConnectionResetError):
        node.summarise(campaign.id, records())
    assert reason(node.summarise, campaign.id, [*RECORDS, "no mapping"]) == "record_invalid"
    assert node.status().spent_micro == 0
    assert not node.summarise(campaign.id, RECORDS).repeated


def test_without_any_record_the_summary_is_noise(node, campaign):
    summary = read_summary(node.summarise(campaign.id, []).raw)[1]
    assert any(summary.sums)


def test_nothing_is_summarised_before_an_expired_campaign_is_seen(node, campaign, clock):
    clock.now = campaign.header.expires
    assert reason(node.summarise, campaign.id, UNREAD) == "expired"


@pytest.mark.parametrize(("sensitivity", "covered"), [("global", "add-remove"), ("smooth", "change-features")])
def test_more_noise_is_explained_for_what_the_noise_covers(sensitivity, covered):
    found = node_campaign(terms=NodeTerms("wards", 1000, 100_000, sensitivity))
    assert f"  A node may ask for more noise: an ε from 0.1 to 1 of {covered}." in as_text(
        cost_in_words(found, Policy())
    )


def test_a_summary_that_was_overtaken_returns_the_first(tmp_path):
    """Another program answers while the records are read."""
    publisher = Publisher()
    with (
        Node.provision(tmp_path / "state", publisher.root(), clock=lambda: NOW) as node,
        Node.open(tmp_path / "state", clock=lambda: NOW) as other,
    ):
        node.enrol(publisher.node_campaign())
        seen = []

        def records():
            yield {"odor": "n"}
            seen.append(other.summarise("clinics", []))

        found = node.summarise("clinics", records())
        assert found.repeated
        assert found.raw == seen[0].raw
        assert node.status().spent_micro == 2_000_000
