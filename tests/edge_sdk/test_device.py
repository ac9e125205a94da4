"""The facade: one answer per period, sealed batches, verified documents, the owner's limits."""

from __future__ import annotations

import os
import threading

import pytest
from support.publisher import CAMPAIGN_KEY, DAY, MODEL_KEY, NOW, Publisher, key

from edge_sdk import Device, DocumentError, HearsayError, InputError, Policy, PolicyError, StorageError
from protocol import canonical
from protocol.batches import batch
from protocol.batches.report import decode_report

RECORD = {"odor": "n", "width": 3.2}


def reason_of(action, *arguments, **options):
    with pytest.raises(HearsayError) as caught:
        action(*arguments, **options)
    assert str(caught.value).startswith(caught.value.reason + ": ")
    return caught.value.reason


def test_a_campaign_and_a_model_have_their_name_and_version_at_hand(device, publisher):
    for found in (device.enrol(publisher.campaign(version=3)), device.install(publisher.model(version=2))):
        assert (found.name, found.version) in {("mushrooms", 3), ("mushrooms", 2)}


def test_two_reports_in_one_period_are_one_whatever_the_second_input(device, publisher):
    campaign = device.enrol(publisher.campaign())
    first = device.report(campaign.id, RECORD, label="e")
    for other in (RECORD, {}, {"odor": "f", "width": None}, {"odor": 2.5}):
        assert device.report(campaign.id, other, label="p") == first
    assert device.status().spent_micro == 1_000_000
    assert device.status().spooled == 1


def test_the_stored_bytes_are_returned_after_a_restart_and_after_draining(tmp_path, publisher, clock):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        first = device.report(campaign.id, RECORD, label="e")
        device.drain(tmp_path / "a.hsr")
        assert device.ack(tmp_path / "a.hsr") == 1
    with Device.open(tmp_path, clock=clock) as device:
        assert device.report(campaign.id, {"odor": "f"}) == first
        assert device.drain(tmp_path / "b.hsr") == 0
        assert not (tmp_path / "b.hsr").exists()


def test_each_period_is_one_answer_and_costs_its_epsilon(device, publisher, clock):
    campaign = device.enrol(publisher.campaign())
    reports = set()
    for _ in range(5):
        reports.add(device.report(campaign.id, RECORD, label="e"))
        clock.now += DAY
    assert len(reports) == 5
    assert device.status().spent_micro == 5_000_000


def test_a_clock_that_goes_back_never_opens_an_earlier_period(device, publisher, clock):
    campaign = device.enrol(publisher.campaign())
    clock.now += 10 * DAY
    late = device.report(campaign.id, RECORD)
    clock.now -= 5 * DAY
    assert device.report(campaign.id, RECORD) == late
    assert device.status().spent_micro == 1_000_000


def test_a_clock_in_1970_is_lifted_to_the_time_floor(tmp_path, publisher):
    device = Device.provision(tmp_path, trust=publisher.root(), clock=lambda: 0)
    campaign = device.enrol(publisher.campaign())
    report = device.report(campaign.id, RECORD)
    _, period, _, _ = decode_report(campaign.layout, report)
    assert period == NOW // DAY
    device.close()


def test_several_answers_come_from_different_strata_and_cost_the_total(device, publisher):
    campaign = device.enrol(publisher.campaign(answers=3, epsilon_micro=1_500_000))
    reports = device.report(campaign.id, RECORD, label="e")
    length = campaign.layout.record_length
    records = [reports[start : start + length] for start in range(0, len(reports), length)]
    numbers = [decode_report(campaign.layout, record)[2] for record in records]
    assert [campaign.questions[number].stratum for number in numbers] == [0, 1, 2]
    assert device.status().spent_micro == 1_500_000


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
    assert reason_of(device.drain, tmp_path / "x.hsr") == "file_exists"
    assert (tmp_path / "x.hsr").read_bytes() == b"not sent yet"
    assert reason_of(device.drain, tmp_path / "absent" / "x.hsr") == "io_failed"
    with pytest.raises(StorageError, match="make it first"):
        device.drain(tmp_path / "absent" / "x.hsr")
    assert device.status().spooled == 1
    assert device.drain(tmp_path / "y.hsr") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "x.hsr", "y.hsr"]


def test_enrolment_follows_versions(device, publisher):
    first = publisher.campaign(version=1)
    second = publisher.campaign(version=2)
    old = device.enrol(first)
    new = device.enrol(second)
    assert [campaign.id for campaign in device.campaigns()] == [new.id]
    assert reason_of(device.enrol, first) == "rollback"
    assert reason_of(device.report, old.id, RECORD) == "campaign_unknown"
    assert device.enrol(second).id == new.id
    assert reason_of(device.enrol, publisher.campaign(version=2, epsilon_micro=500_000)) == "equivocation"


def test_a_campaign_that_spends_more_than_it_declares_is_refused(device, publisher):
    honest = canonical.unpack(publisher.campaign_payload())
    assert reason_of(device.enrol, publisher.campaign({"epsilon_micro": 900_000})) == "epsilon_understated"
    assert reason_of(device.enrol, publisher.campaign({"epsilon_micro": 1_100_000})) == "invalid_campaign"
    honest["questions"][0]["mechanism"]["keep"] += 1 << 20
    assert reason_of(device.enrol, publisher.campaign({"questions": honest["questions"]})) == "epsilon_understated"
    assert device.campaigns() == []


def test_documents_by_the_wrong_key_or_of_the_wrong_role_are_refused(device, publisher):
    payload = publisher.campaign_payload()
    assert reason_of(device.enrol, publisher.sign("campaign", payload, MODEL_KEY)) == "bad_signature"
    assert reason_of(device.enrol, publisher.sign("campaign", payload, key(9))) == "bad_signature"
    assert reason_of(device.enrol, publisher.model()) == "wrong_role"
    assert reason_of(device.install, publisher.campaign()) == "wrong_role"
    assert reason_of(device.install, publisher.sign("model", payload, CAMPAIGN_KEY)) == "bad_signature"


def test_an_expired_campaign_stops_reporting_and_an_expired_model_still_classifies(device, publisher, clock):
    campaign = device.enrol(publisher.campaign(lifetime=3 * DAY))
    model = device.install(publisher.model(lifetime=3 * DAY))
    assert not model.expired
    clock.now += 3 * DAY
    assert reason_of(device.report, campaign.id, RECORD) == "expired"
    assert model.expired
    assert device.model().predict({"odor": "n"}) == "e"
    assert device.model().expired
    assert reason_of(device.enrol, publisher.campaign(name="late", lifetime=3 * DAY)) == "expired"


def test_an_expired_root_admits_nothing_new_but_the_model_classifies(tmp_path, publisher, clock):
    device = Device.provision(tmp_path, trust=publisher.root(lifetime=2 * DAY), clock=clock)
    device.install(publisher.model())
    clock.now += 2 * DAY
    assert reason_of(device.enrol, publisher.campaign()) == "expired"
    assert device.model().predict({"odor": "f"}) == "p"
    assert device.status().root_expired
    device.close()


def test_the_owners_limits_hold(tmp_path, publisher, clock):
    policy = Policy.of(epsilon_per_period="1.0", epsilon_lifetime="2.5")
    device = Device.provision(tmp_path, trust=publisher.root(), clock=clock, policy=policy)
    assert reason_of(device.enrol, publisher.campaign(name="greedy", epsilon_micro=1_000_001)) == "policy_refused"
    campaign = device.enrol(publisher.campaign())
    for _ in range(2):
        device.report(campaign.id, RECORD)
        clock.now += DAY
    assert reason_of(device.report, campaign.id, RECORD) == "budget_exhausted"
    assert device.status().spent_micro == 2_000_000
    assert device.status().left_micro == 500_000
    device.close()


def test_a_tightened_policy_stops_a_campaign_that_was_accepted_before(tmp_path, publisher, clock):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
    (tmp_path / "policy.toml").write_text('epsilon_per_period = "0.5"\n')
    with Device.open(tmp_path, clock=clock) as device:
        assert reason_of(device.report, campaign.id, RECORD) == "policy_refused"


@pytest.mark.parametrize(
    "text",
    [
        "epsilon_lifetime = nan",
        "epsilon_per_year = 1",
        "shortest_period = 0",
        'features = "odor"',
        'spool_days = "1"',
        "window_days = true",
        "epsilon_lifetime =",
        "epsilon_lifetime = -1",
        "\x00",
    ],
)
def test_a_policy_that_can_not_be_read_is_never_ignored(tmp_path, publisher, text):
    (tmp_path / "policy.toml").write_text(text)
    assert reason_of(Device.provision, tmp_path, trust=publisher.root()) == "policy_invalid"


def test_reporting_does_not_depend_on_the_record(device, publisher, clock):
    campaign = device.enrol(publisher.campaign())
    odd = [
        {},
        {"odor": None, "width": None},
        {"odor": 2.5, "width": "8"},
        {"odor": "never listed", "width": float("nan")},
        {"odor": b"n", "width": float("inf")},
        {"odor": ["n"], "width": object(), "unknown": 1},
        {"odor": True, "width": 10**400},
    ]
    for record in odd:
        for label in ("e", None, "no such class", 3.5, float("nan")):
            assert len(device.report(campaign.id, record, label=label)) == 18
            clock.now += DAY
            if device.status().left_micro < 1_000_000:
                return
    assert device.status().spooled == len(odd) * 5


def test_a_record_that_is_no_mapping_is_the_callers_mistake_and_costs_nothing(device, publisher):
    campaign = device.enrol(publisher.campaign())
    for record in (None, 7, "odor", [("odor", "n")]):
        assert reason_of(device.report, campaign.id, record) == "record_invalid"
    assert device.status().spent_micro == 0


def test_unlisted_values_are_refused_only_where_the_campaign_says_so(tmp_path, clock):
    from protocol.features import Categorical
    from protocol.schema import Label, build_schema

    schema = build_schema(Label("label", ["e", "p"]), [Categorical("odor", ["a", "n"], unlisted="refuse")])
    publisher = Publisher(schema=schema)
    device = Device.provision(tmp_path, trust=publisher.root(), clock=clock, policy=Policy(allow_refuse=True))
    campaign = device.enrol(publisher.campaign())
    assert reason_of(device.report, campaign.id, {"odor": "z"}) == "value_refused"
    assert device.status().spent_micro == 0
    assert device.report(campaign.id, {"odor": None})
    device.close()


def test_a_state_needs_provisioning_and_is_not_made_by_looking(tmp_path):
    assert reason_of(Device.open, tmp_path / "nowhere") == "not_provisioned"
    assert not (tmp_path / "nowhere").exists()


def test_a_pinned_root_that_fails_leaves_no_provisioned_state(tmp_path, publisher):
    broken = bytearray(publisher.root())
    broken[-1] ^= 1
    assert reason_of(Device.provision, tmp_path, trust=bytes(broken)) == "bad_signature"
    assert reason_of(Device.open, tmp_path) == "not_provisioned"


def test_state_by_newer_software_or_of_something_else_is_refused_and_kept(tmp_path, publisher):
    import sqlite3

    Device.provision(tmp_path, trust=publisher.root()).close()
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (tmp_path / "state.db").read_bytes()
    assert reason_of(Device.open, tmp_path) == "state_newer"
    assert (tmp_path / "state.db").read_bytes() == before
    (tmp_path / "state.db").write_bytes(b"this is no database, whatever its name says" * 50)
    assert reason_of(Device.provision, tmp_path, trust=publisher.root()) == "state_lost"


def test_the_state_is_private_to_its_owner(tmp_path, publisher):
    Device.provision(tmp_path / "state", trust=publisher.root()).close()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    assert (tmp_path / "state" / "state.db").stat().st_mode & 0o077 == 0


def test_threads_share_one_answer(device, publisher):
    campaign = device.enrol(publisher.campaign())
    seen = set()
    threads = [
        threading.Thread(target=lambda: seen.add(device.report(campaign.id, RECORD, label="e"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 1
    assert device.status().spent_micro == 1_000_000


def test_processes_share_one_answer(tmp_path, publisher, clock):
    device = Device.provision(tmp_path, trust=publisher.root(), clock=clock)
    campaign = device.enrol(publisher.campaign())
    readers = []
    for _ in range(4):
        read_end, write_end = os.pipe()
        if os.fork() == 0:
            try:
                os.write(write_end, device.report(campaign.id, RECORD, label="e"))
            finally:
                os._exit(0)
        os.close(write_end)
        readers.append(read_end)
    answers = {os.read(read_end, 100) for read_end in readers}
    for read_end in readers:
        os.close(read_end)
        os.wait()
    assert answers == {device.report(campaign.id, RECORD)}
    assert device.status().spent_micro == 1_000_000
    device.close()


def test_no_entropy_means_no_report_and_no_cost(tmp_path, publisher, clock):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())

    def not_ready(count):
        raise StorageError("entropy_unavailable", "not yet")

    with Device.open(tmp_path, clock=clock, entropy=not_ready) as device:
        assert reason_of(device.report, campaign.id, RECORD) == "entropy_unavailable"
        assert device.status().spent_micro == 0
    with Device.open(tmp_path, clock=clock) as device:
        assert device.report(campaign.id, RECORD)


def test_a_full_disk_or_a_read_only_state_is_a_clear_refusal(tmp_path, publisher, clock, monkeypatch):
    import sqlite3

    device = Device.provision(tmp_path, trust=publisher.root(), clock=clock)
    campaign = device.enrol(publisher.campaign())
    device._state._connection.execute("PRAGMA max_page_count = 1")
    pages = device._state._connection.execute("PRAGMA page_count").fetchone()[0]
    device._state._connection.execute(f"PRAGMA max_page_count = {pages}")
    refused = None
    for _ in range(200):
        try:
            device.report(campaign.id, RECORD)
        except StorageError as error:
            refused = error.reason
            break
        clock.now += DAY
        if device.status().left_micro == 0:
            device._reporting.allowed = lambda: Policy.of(epsilon_lifetime="999999")
    assert refused == "disk_full"
    spent = device.status().spent_micro
    assert spent == 1_000_000 * device.status().spooled
    assert isinstance(sqlite3.sqlite_version, str)
    device.close()


def test_explain_says_what_it_costs_and_changes_nothing(device, publisher):
    raw = publisher.campaign(name="greedy", epsilon_micro=5_000_000)
    text = device.explain(raw)
    for part in ("greedy", "tell edible from poisonous", "ε = 5 per day", "policy refuses it. policy_refused"):
        assert part in text
    assert device.campaigns() == []
    assert "allows it, for at most 100 more" in device.explain(publisher.campaign())
    assert reason_of(device.explain, publisher.campaign({"epsilon_micro": 1})) == "epsilon_understated"


def test_models_are_found_by_name(device, publisher):
    assert reason_of(device.model) == "model_unknown"
    device.install(publisher.model(name="a"))
    assert device.model().name == "a"
    device.install(publisher.model(name="b"))
    assert reason_of(device.model) == "model_ambiguous"
    assert device.model("b").name == "b"
    assert reason_of(device.model, "c") == "model_unknown"


def test_classifier_follows_the_formula_and_leaves_missing_features_out(device, publisher):
    model = device.install(publisher.model())
    both = model.predict_proba({"odor": "n", "width": 1})
    assert both["e"] == pytest.approx(8 / 9, abs=1e-6)
    for missing in ({}, {"odor": None}, {"odor": "never listed"}, {"width": float("nan")}):
        assert model.predict_proba(missing)["e"] == pytest.approx(0.5)
        assert model.predict(missing) == "e"  # the first of equally probable classes
    assert sum(both.values()) == pytest.approx(1)


def test_policy_error_is_not_a_document_error():
    assert not issubclass(PolicyError, DocumentError)
    assert issubclass(InputError, ValueError)


@pytest.mark.parametrize("wrong", ["root.hst", None, 7, bytearray(b"x")])
def test_a_path_or_anything_else_in_the_place_of_bytes_is_named(device, tmp_path, wrong):
    for action in (device.enrol, device.install, device.explain):
        assert reason_of(action, wrong) == "argument_invalid"
    assert reason_of(device.report, wrong, {}) == ("campaign_unknown" if wrong == "root.hst" else "argument_invalid")
    if wrong is not None:
        assert reason_of(Device.provision, tmp_path / "other", trust=wrong) == "argument_invalid"


@pytest.mark.parametrize("wrong", [None, 7, b"x", "a\0b"])
def test_a_path_that_is_none_is_named(device, wrong):
    assert reason_of(device.drain, wrong) == "argument_invalid"


def test_explain_warns_of_a_high_epsilon_and_says_when_everything_is_asked(device, publisher):
    text = device.explain(publisher.campaign(epsilon_micro=30_000_000, answers=3))
    assert "above ε = 20" in text
    assert "answers all of these questions:" in text
