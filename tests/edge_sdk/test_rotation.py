"""Chains of roots, revoked keys, and publishers that sign contradictory documents."""

from __future__ import annotations

from itertools import permutations

import pytest
from support.failures import reason
from support.publisher import CAMPAIGN_KEY, DAY, MODEL_KEY, ROOT_KEY, key
from support.sources import Source

from edge_sdk import Device
from edge_sdk.sync import sync
from protocol import canonical
from protocol.documents.envelope import PAYLOAD_TYPES, seal
from protocol.documents.trust import Role, Root

RECORD = {"odor": "n"}
OTHER = key(9)


def root(publisher, version, signers, *, campaign=CAMPAIGN_KEY, model=MODEL_KEY, owners=(ROOT_KEY,)):
    """A root in which the roles have these keys."""
    roles = {
        "root": Role(frozenset(owner.public for owner in owners), len(owners)),
        "campaign": Role(frozenset([campaign.public]), 1),
        "model": Role(frozenset([model.public]), 1),
    }
    payload = Root(publisher.header("workspace", version, 3650 * DAY), roles).to_payload()
    return seal(PAYLOAD_TYPES["root"], canonical.pack(payload), signers)


def test_roots_lead_on_in_whatever_order_they_come(tmp_path, publisher, clock):
    chain = [
        root(publisher, 2, [ROOT_KEY, OTHER], owners=(OTHER,)),
        root(publisher, 3, [OTHER], owners=(OTHER,)),
        root(publisher, 4, [OTHER], owners=(OTHER,)),
    ]
    for number, order in enumerate(permutations(chain)):
        with Device.provision(tmp_path / str(number), trust=publisher.root(), clock=clock) as device:
            assert device.rotate(order) == 4
            assert device.rotate(order) == 4
            assert device.status().root_version == 4
    with Device.open(tmp_path / "0", trust=publisher.root(), clock=clock) as device:  # the old pinned one is ignored
        assert device.status().root_version == 4


def test_a_gap_in_the_chain_changes_nothing(device, publisher):
    assert reason(device.rotate, [root(publisher, 3, [ROOT_KEY])]) == "bad_signature"
    assert reason(device.rotate, "a path") == "argument_invalid"
    assert device.status().root_version == 1


def test_a_revoked_campaign_key_ends_its_campaigns_and_a_new_signature_brings_them_back(device, publisher, clock):
    campaign = device.enrol(publisher.campaign())
    device.install(publisher.model())
    said = device.report(campaign.id, RECORD)
    assert device.rotate([root(publisher, 2, [ROOT_KEY], campaign=OTHER)]) == 2
    assert device.campaigns() == []
    assert reason(device.report, campaign.id, RECORD) == "campaign_unknown"
    assert reason(device.enrol, publisher.campaign()) == "bad_signature"
    assert device.model().predict(RECORD) == "e"
    again = device.enrol(publisher.sign("campaign", publisher.campaign_payload(), OTHER))
    assert again.id == campaign.id
    assert device.report(campaign.id, RECORD) == said
    clock.now += DAY
    assert device.report(campaign.id, RECORD) != said
    assert device.status().spent_micro == 2_000_000


def test_sync_brings_a_campaign_back_that_was_signed_again_after_the_rotation(tmp_path, publisher, clock):
    """A device whose only command is sync continues to report after a key was replaced."""
    place = "campaigns/mushrooms.hsc"
    source = Source({place: publisher.campaign()})
    folder = tmp_path / "state"
    with Device.provision(folder, trust=publisher.root(), clock=clock) as device:
        sync(device, source, campaigns=["mushrooms"])
        source.places["roots/2.hst"] = root(publisher, 2, [ROOT_KEY], campaign=OTHER)
        outcome = sync(device, source)  # the new root is there, and the new signature not yet
        assert [(each.step, each.reason) for each in outcome.refusals] == [(place, "bad_signature")]
        assert (device.campaigns(), device.status().unsigned) == ([], ("mushrooms",))
    source.places[place] = publisher.sign("campaign", publisher.campaign_payload(), OTHER)
    with Device.open(folder, clock=clock) as device:
        outcome = sync(device, source)
        assert (outcome.campaigns, outcome.refusals) == ((("mushrooms", 1),), ())
        assert (len(device.campaigns()), device.status().unsigned) == (1, ())
        device.report(device.campaigns()[0].id, RECORD)


def test_after_a_fast_forward_a_rotation_to_new_keys_resets_the_floors(device, publisher):
    device.enrol(publisher.campaign(version=(1 << 32) - 1))
    assert reason(device.enrol, publisher.campaign(version=2)) == "rollback"
    device.rotate([root(publisher, 2, [ROOT_KEY], campaign=OTHER)])
    device.enrol(publisher.sign("campaign", publisher.campaign_payload(version=2), OTHER))
    assert [(one.name, one.version) for one in device.status().campaigns] == [("mushrooms", 2)]


@pytest.mark.parametrize("role", ["campaign", "model"])
def test_a_publisher_that_contradicts_itself_leaves_proof(device, publisher, role):
    act, make = (device.enrol, publisher.campaign) if role == "campaign" else (device.install, publisher.model)
    first, second, third = (make(lifetime=days * DAY) for days in (300, 301, 302))
    act(first)
    for _ in range(3):
        assert reason(act, second) == "equivocation"
    assert device.evidence() == [(role, first, second)]
    assert reason(act, third) == "equivocation"
    assert device.evidence() == [(role, first, second), (role, first, third)]
    assert device.status().contradictions == 2
    assert reason(act, make(lifetime=299 * DAY)[:-1]) == "malformed"
    assert device.status().contradictions == 2
    for days in range(310, 330):
        assert reason(act, make(lifetime=days * DAY)) == "equivocation"
    assert device.status().contradictions == 8


def test_two_roots_of_one_version_are_proof_too(device, publisher):
    first, second = root(publisher, 2, [ROOT_KEY]), root(publisher, 2, [ROOT_KEY], campaign=OTHER)
    device.rotate([first])
    assert reason(device.rotate, [second]) == "equivocation"
    assert device.evidence() == [("root", first, second)]


def test_a_version_that_ends_the_campaign_ends_it(device, publisher, clock):
    campaign = device.enrol(publisher.campaign())
    device.report(campaign.id, RECORD)
    payload = canonical.unpack(publisher.campaign_payload(version=2))
    end = publisher.sign("campaign", canonical.pack({**payload, "questions": [], "answers": 0, "epsilon_micro": 0}))
    assert "the publisher ends the campaign" in device.explain(end)
    ended = device.enrol(end)
    assert ended.ended
    clock.now += DAY
    assert reason(device.report, ended.id, RECORD) == "campaign_ended"
    assert reason(device.report, campaign.id, RECORD) == "campaign_unknown"
    assert [one.state for one in device.status().campaigns] == ["ended"]
    assert reason(device.enrol, publisher.campaign()) == "rollback"


@pytest.mark.parametrize("given", [["2.hst"], [None], b"a root", [bytearray(b"a root")]])
def test_roots_are_given_as_bytes_to_both_calls(device, given):
    for call in (device.rotate, device.follow):
        assert reason(call, given) == "argument_invalid"
