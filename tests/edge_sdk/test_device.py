"""The facade: one answer per period, sealed batches, verified documents, the owner's limits."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import product

import pytest
from support.failures import failure, reason, refusal
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, Policy, StorageError
from protocol.batches import batch
from protocol.batches.report import decode_report

RECORD = {"odor": "n", "width": 3.2}


def test_the_stored_bytes_are_returned_after_a_restart_after_draining_and_to_a_clock_that_goes_back(
    tmp_path, publisher, clock
):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        clock.now += 10 * DAY
        first = device.report(campaign.id, RECORD, label="e")
        device.drain(tmp_path / "a.hsr")
        assert device.ack(tmp_path / "a.hsr") == 1
    clock.now -= 5 * DAY
    with Device.open(tmp_path, clock=clock) as device:
        for other in ({"odor": "f"}, {}, {"odor": 2.5, "width": None}):
            assert device.report(campaign.id, other, label="p") == first
        assert device.drain(tmp_path / "b.hsr") == 0
        assert not (tmp_path / "b.hsr").exists()
        assert device.status().spent_micro == 1_000_000


def test_a_clock_in_1970_is_lifted_to_the_time_floor(tmp_path, publisher):
    with Device.provision(tmp_path, trust=publisher.root(), clock=lambda: 0) as device:
        campaign = device.enrol(publisher.campaign())
        assert decode_report(campaign.layout, device.report(campaign.id, RECORD))[1] == NOW // DAY


def test_a_drained_batch_is_proven_and_holds_every_campaign(device, publisher, tmp_path):
    ids = {device.enrol(publisher.campaign(name=name)).id for name in ("one", "two")}
    for campaign_id in ids:
        device.report(campaign_id, RECORD, label="e")
    assert device.drain(tmp_path / "x.hsr") == 2
    found = list(batch.read_batches((tmp_path / "x.hsr").read_bytes()))
    assert {one.header.campaign for one in found} == ids
    assert all(one.proven for one in found)
    assert device.status().spooled == 2
    assert device.ack(tmp_path / "x.hsr") == 2
    assert device.status().spooled == 0


def test_drain_never_overwrites_and_keeps_the_spool_when_it_can_not_write(device, publisher, tmp_path):
    campaign = device.enrol(publisher.campaign())
    device.report(campaign.id, RECORD, label="e")
    (tmp_path / "x.hsr").write_bytes(b"not sent yet")
    assert refusal(device.drain, tmp_path / "x.hsr") == "file_exists"
    assert (tmp_path / "x.hsr").read_bytes() == b"not sent yet"
    error = failure(device.drain, tmp_path / "absent" / "x.hsr")
    assert (error.reason, "make it first" in error.detail) == ("io_failed", True)
    assert device.status().spooled == 1
    assert device.drain(tmp_path / "y.hsr") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "x.hsr", "y.hsr"]


def test_an_expired_campaign_stops_reporting_and_an_expired_model_still_classifies(tmp_path, publisher, clock):
    with Device.provision(tmp_path, trust=publisher.root(lifetime=9 * DAY), clock=clock) as device:
        campaign = device.enrol(publisher.campaign(lifetime=3 * DAY))
        model = device.install(publisher.model(lifetime=3 * DAY))
        assert not model.expired
        clock.now += 3 * DAY
        assert reason(device.report, campaign.id, RECORD) == "expired"
        assert model.expired
        assert device.model().predict({"odor": "n"}) == "e"
        assert device.model().expired
        assert reason(device.enrol, publisher.campaign(name="late", lifetime=3 * DAY)) == "expired"
        clock.now += 6 * DAY  # an expired root admits nothing new
        assert reason(device.enrol, Publisher(now=clock.now).campaign(name="new")) == "expired"
        assert device.model().predict({"odor": "f"}) == "p"
        assert device.status().root_expired


def test_reporting_does_not_depend_on_the_record(publisher, clock):
    odd = [
        {},
        {"odor": None, "width": None},
        {"odor": 2.5, "width": "8"},
        {"odor": "never listed", "width": float("nan")},
        {"odor": b"n", "width": float("inf")},
        {"odor": ["n"], "width": object(), "unknown": 1},
        {"odor": True, "width": 10**400},
    ]
    with Device.open(None, publisher.root(), policy=Policy.of(epsilon_lifetime=999), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        for record, label in product(odd, ("e", None, "no such class", 3.5, float("nan"))):
            assert len(device.report(campaign.id, record, label=label)) == 18
            clock.now += DAY
        assert device.status().spooled == len(odd) * 5


def test_a_record_that_is_no_mapping_is_the_callers_mistake_and_costs_nothing(device, publisher):
    campaign = device.enrol(publisher.campaign())
    for record in (None, 7, "odor", [("odor", "n")]):
        assert reason(device.report, campaign.id, record) == "record_invalid"
    assert device.status().spent_micro == 0


def test_state_by_newer_or_older_software_or_of_something_else_is_refused_and_kept(tmp_path, publisher):
    Device.provision(tmp_path / "state", trust=publisher.root()).close()
    file = tmp_path / "state" / "state.db"
    assert (file.stat().st_mode | file.parent.stat().st_mode) & 0o077 == 0, "the state is its owner's alone"
    for version, expected in ((99, "state_newer"), (5, "state_older")):  # the first release writes version 6
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        before = file.read_bytes()
        assert refusal(Device.open, file.parent) == expected
        assert file.read_bytes() == before
    file.write_bytes(b"this is no database, whatever its name says" * 50)
    assert refusal(Device.provision, file.parent, trust=publisher.root()) == "state_lost"


def test_no_entropy_means_no_report_and_no_cost(tmp_path, publisher, clock):
    def not_ready(count):
        raise StorageError("entropy_unavailable", "not yet")

    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
    with Device.open(tmp_path, clock=clock, entropy=not_ready) as device:
        assert reason(device.report, campaign.id, RECORD) == "entropy_unavailable"
        assert device.status().spent_micro == 0
    with Device.open(tmp_path, clock=clock) as device:
        assert device.report(campaign.id, RECORD)


def test_explain_says_what_it_costs_and_changes_nothing(device, publisher):
    raw = publisher.campaign(name="greedy", epsilon_micro=5_000_000)
    text = device.explain(raw)
    for part in ("greedy", "tell edible from poisonous", "ε = 5 per day", "policy refuses it. policy_refused"):
        assert part in text
    assert device.campaigns() == []
    assert "allows it, for at most 100 more" in device.explain(publisher.campaign())
    assert reason(device.explain, publisher.campaign({"epsilon_micro": 1})) == "epsilon_understated"
    text = device.explain(publisher.campaign(epsilon_micro=30_000_000, answers=3))
    assert "above ε = 20" in text
    assert "answers all of these questions:" in text


def test_models_are_found_by_name(device, publisher):
    assert reason(device.model) == "model_unknown"
    device.install(publisher.model(name="a"))
    assert device.model().name == "a"
    device.install(publisher.model(name="b"))
    assert reason(device.model) == "model_ambiguous"
    assert device.model("b").name == "b"
    assert reason(device.model, "c") == "model_unknown"


def test_classifier_follows_the_formula_and_leaves_missing_features_out(device, publisher):
    model = device.install(publisher.model())
    both = model.predict_proba({"odor": "n", "width": 1})
    assert both["e"] == pytest.approx(8 / 9, abs=1e-6)
    for missing in ({}, {"odor": None}, {"odor": "never listed"}, {"width": float("nan")}):
        assert model.predict_proba(missing)["e"] == pytest.approx(0.5)
        assert model.predict(missing) == "e"  # the first of equally probable classes
    assert sum(both.values()) == pytest.approx(1)


@pytest.mark.parametrize("wrong", ["root.hst", None, 7, bytearray(b"x")])
def test_a_path_or_anything_else_in_the_place_of_bytes_is_named(device, tmp_path, wrong):
    for action in (device.enrol, device.install, device.explain):
        assert reason(action, wrong) == "argument_invalid"
    assert reason(device.report, wrong, {}) == ("campaign_unknown" if wrong == "root.hst" else "argument_invalid")
    if wrong is not None:
        assert reason(Device.provision, tmp_path / "other", trust=wrong) == "argument_invalid"
    if wrong != "root.hst":
        assert reason(device.drain, wrong) == reason(device.drain, "a\0b") == "argument_invalid"
