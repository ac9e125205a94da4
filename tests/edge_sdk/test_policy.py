"""The owner's policy file: when the defaults hold, and what campaigns that refuse values need."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import failure, reason
from support.publisher import DAY, Publisher, installed

from edge_sdk import Device, Policy
from edge_sdk.carriers import open_transport
from edge_sdk.policy import ENTRIES, _matches, load_policy
from edge_sdk.storage.marker import read_marker
from edge_sdk.sync import sync
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema, refusing


def publisher_with(strict):
    how = {name: {"unlisted": "refuse"} if name in strict else {} for name in ("label", "odor", "width")}
    features = [Categorical("odor", ["a", "n"], **how["odor"]), Numeric("width", "0", "10", [0], **how["width"])]
    return Publisher(schema=build_schema(Label("label", ["e", "p"], **how["label"]), features))


@pytest.mark.parametrize("strict", [("label",), ("odor",), ("width",), ("label", "odor", "width")])
def test_a_campaign_whose_reports_tell_by_being_there_needs_the_owners_leave(tmp_path, clock, strict):
    publisher = publisher_with(strict)
    assert refusing(publisher.schema) == strict
    raw = publisher.campaign()
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        text = device.explain(raw)
        assert f"({', '.join(map(repr, strict))})" in text
        assert "refuses it. policy_refused: the campaign refuses unlisted values" in text
        assert reason(device.enrol, raw) == "policy_refused"
        assert device.campaigns() == []
    (tmp_path / "policy.toml").write_text("allow_refuse = true\n")
    with Device.open(tmp_path, clock=clock) as device:
        campaign = device.enrol(raw)
        assert "Warning" in device.explain(raw)
        assert reason(device.report, campaign.id, dict.fromkeys(("odor", "width"), "z"), "z") == "value_refused"
        assert device.status().spent_micro == 0
        assert device.report(campaign.id, {})
    clock.now += DAY
    (tmp_path / "policy.toml").write_text("# defaults\n")
    with Device.open(tmp_path, clock=clock) as device:  # the permission was withdrawn: no record gives a report
        for record, label in (({"odor": "z", "width": "z"}, "z"), ({"odor": "a", "width": 1}, "e")):
            assert reason(device.report, campaign.id, record, label) == "policy_refused"


def test_only_a_file_that_is_not_there_at_all_gives_the_defaults(tmp_path):
    path = tmp_path / "policy.toml"
    assert load_policy(str(path)) == Policy()
    path.symlink_to(tmp_path / "mount" / "policy.toml")
    assert reason(load_policy, str(path)) == "policy_invalid"
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "policy.toml").write_text('epsilon_lifetime = "1"\n')
    assert load_policy(str(path)) == Policy(lifetime_micro=1_000_000)


RULES = [
    ('epsilon_per_period = "0.5"', "epsilon_per_period"),
    ('epsilon_per_day = "0.5"', "epsilon_per_day"),
    ('epsilon_per_window = "0.999999"', "epsilon_per_window"),
    ('shortest_period = "2d"', "shortest_period"),
    ("shortest_period = 86401", "shortest_period"),
    ("smallest_batch = 2", "smallest_batch"),
    ("report_bytes = 17", "report_bytes"),
    ('features = ["odor", "label"]', "features"),
    ('features = ["odor", "width"]', "features"),
    ('campaigns = ["forest", "mush-*"]', "campaigns"),
    ("campaigns = []", "campaigns"),
]


@pytest.mark.parametrize(("line", "rule"), RULES)
def test_every_rule_refuses_and_says_so(tmp_path, publisher, clock, line, rule):
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
    (tmp_path / "policy.toml").write_text(line + "\n")
    with Device.open(tmp_path, clock=clock) as device:
        assert f"({rule})" in device.explain(publisher.campaign())
        for refused in (lambda: device.enrol(publisher.campaign(version=2)), lambda: device.report(campaign.id, {})):
            error = failure(refused)
            assert error.reason == "policy_refused"
            assert f"({rule})" in error.detail
        assert device.status().spent_micro == 0


def test_what_the_rules_name_is_allowed(tmp_path, publisher, clock):
    (tmp_path / "policy.toml").write_text(
        'epsilon_per_period = "1"\nepsilon_per_day = 1\nepsilon_per_window = 1\nwindow_days = 1\n'
        'shortest_period = "1d"\nsmallest_batch = 1\nfeatures = ["odor", "width", "label", "more"]\n'
        'campaigns = ["mush*"]\nspool_reports = 1\nreport_bytes = 18\n'
    )
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        assert device.report(campaign.id, {})
        text = device.explain(publisher.campaign())
        assert "allows ε = 1 in any 24 hours; 1 was spent" in text
        assert "allows ε = 1 in any 1 day; 1 was spent" in text
        assert "budget_paused" in text
        assert "Warning" not in text
    (tmp_path / "policy.toml").write_text('shortest_period = "1s"\n')
    with Device.open(tmp_path, clock=clock) as device:
        device.enrol(publisher.campaign(name="short", time_precision=1, lifetime=10**6))


def test_all_rules_that_refuse_are_listed(tmp_path, publisher, clock):
    (tmp_path / "policy.toml").write_text("\n".join(line for line, _ in RULES[:4] + RULES[5:8] + RULES[9:10]) + "\n")
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        text = device.explain(publisher.campaign())
    assert text.count("policy_refused: ") == 8


WRONG = [
    *('epsilon_per_period = "0"', 'epsilon_per_day = "much"', "epsilon_per_day = true"),
    *('epsilon_per_window = "0.0000001"', 'epsilon_lifetime = "1000000"', "epsilon_lifetime = nan"),
    *("epsilon_lifetime = -1", "window_days = 0", "window_days = true", "shortest_period = 0"),
    *('shortest_period = "1w"', 'shortest_period = "h"', 'shortest_period = "-1h"', 'shortest_period = "²h"'),
    *("smallest_batch = -1", "smallest_batch = 0", "smallest_batch = 1.5", f"report_bytes = {1 << 41}"),
    *('collectors = "ab"', 'collectors = ["ab"]', f'collectors = ["{"G" * 64}"]'),
    *('features = "odor"', "features = [1]", "campaigns = [3]", "campaigns = 7"),
    *("spool_reports = 1.5", "spool_reports = -1", 'spool_bytes = "8MB"', "spool_bytes = true"),
    *("spool_days = true", 'spool_days = "1"', 'allow_refuse = "yes"', "allow_refuse = 1", "allow_refuse = []"),
    *('node_adjacency = "add"', "allow_masked = 1", 'delta_per_period = "1e-13"', 'delta_lifetime = "1"'),
]


def test_every_key_says_its_name_and_what_it_takes(tmp_path):
    path = tmp_path / "policy.toml"
    assert {line.split()[0] for line in WRONG} == set(ENTRIES)
    for line in WRONG:
        path.write_text(line + "\n")
        error = failure(load_policy, str(path))
        key = line.split()[0]
        assert (error.reason, key in error.detail) == ("policy_invalid", True), line
        assert len(error.detail) > len(f"policy.toml: {key}") + 10
    for line in ("epsilon_per_year = 1", "[spool]\nreports = 1", "epsilon_lifetime =", "\x00"):
        path.write_text(line + "\n")
        assert reason(load_policy, str(path)) == "policy_invalid"
    assert reason(Device.provision, tmp_path, trust=Publisher().root()) == "policy_invalid"
    assert "below 1000000" in failure(Policy.of, epsilon_lifetime="1000000").detail


@given(st.text("ab*?[", max_size=8), st.text("ab?[", max_size=8))
def test_only_the_star_is_a_wildcard(pattern, name):
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL)
    assert _matches(name, (pattern,)) == (expected is not None)


def test_a_running_device_obeys_a_policy_that_was_tightened(tmp_path, publisher, clock):
    path = tmp_path / "policy.toml"
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        for text, expected in (
            ('campaigns = ["none"]', "policy_refused"),
            ('epsilon_lifetime = "0.5"', "budget_exhausted"),
            ("nonsense = 1", "policy_invalid"),
        ):
            path.write_text(text)
            assert reason(device.report, campaign.id, {}) == expected
            with Device.open(tmp_path, clock=clock) as another:
                assert reason(another.report, campaign.id, {}) == expected
        path.write_text('epsilon_lifetime = "300"')
        assert device.status().left_micro == 300_000_000
        assert read_marker(str(tmp_path / "installed")).lifetime_micro == 0  # nothing was answered under it
        path.unlink()
        assert reason(device.report, campaign.id, {}) == "policy_missing"
        path.write_text("# defaults\n")
        assert device.report(campaign.id, {})
        assert read_marker(str(tmp_path / "installed")).lifetime_micro == 100_000_000
        assert device.policy == Policy()


def test_a_policy_that_is_gone_is_not_an_owner_who_says_nothing(tmp_path, publisher, clock):
    """The defaults would allow more than the owner did."""
    path, raw = tmp_path / "policy.toml", publisher.campaign()
    for folder, policy in product((tmp_path / "other", None), (None, Policy())):
        with installed(Device, folder, publisher.root(), policy=policy, clock=clock) as device:
            origin = "application" if policy else "defaults"
            assert device.status().to_json()["policy"] == device.status().policy == origin
    path.write_text('epsilon_lifetime = "2"\ncampaigns = ["nothing"]\n')
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        assert device.status().policy == "policy.toml"
        assert reason(device.enrol, raw) == "policy_refused"
    path.rename(tmp_path / "policy.tom")
    with Device.open(tmp_path, clock=clock) as device:
        for call in (device.enrol, device.explain):
            assert reason(call, raw) == "policy_missing"
        status = device.status()
        assert (status.policy.partition(":")[0], status.left_micro) == ("policy_missing", 0)
    assert reason(Device.reset, tmp_path, publisher.root(), clock=clock) == "policy_missing"
    path.write_text("# defaults\n")
    with Device.open(tmp_path, clock=clock) as device:
        assert device.enrol(raw)


def test_a_typing_error_in_the_policy_keeps_no_owner_from_opting_out(tmp_path, publisher, clock):
    """And revocations arrive, and what was answered is sent; nothing new is accepted or answered."""
    state, path = tmp_path / "s", tmp_path / "s" / "policy.toml"
    (tmp_path / "tree" / "roots").mkdir(parents=True)
    (tmp_path / "tree" / "roots" / "2.hst").write_bytes(publisher.root(2))
    (tmp_path / "tree" / "campaigns").mkdir()
    (tmp_path / "tree" / "campaigns" / "other.hsc").write_bytes(publisher.campaign(name="other"))
    with Device.provision(state, trust=publisher.root(), clock=clock) as device:
        campaign = device.enrol(publisher.campaign())
        device.report(campaign.id, {})
        clock.now += 86_400
    path.write_text("epsilon_lifetime = much\n")
    with Device.open(state, clock=clock) as device:
        done = sync(device, open_transport(str(tmp_path / "tree")), campaigns=["other"])
        assert (done.root_version, done.sent, done.released, done.campaigns) == (2, 1, 1, ())
        assert [(each.step, each.reason) for each in done.refusals] == [
            ("policy", "policy_invalid"),
            ("campaigns/other.hsc", "policy_invalid"),
        ]
        assert reason(device.report, campaign.id, {}) == "policy_invalid"
        assert len(device.history()) == 1
        assert (device.status().policy.partition(":")[0], device.status().left_micro) == ("policy_invalid", 0)
        device.disable()
        assert device.status().disabled
    assert reason(Device.reset, state, publisher.root(2), clock=clock) == "policy_invalid"


def test_a_byte_order_mark_of_an_editor_is_no_part_of_the_policy(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('epsilon_lifetime = "3"\n', encoding="utf-8-sig")
    assert load_policy(str(path)).lifetime_micro == 3_000_000
    path.write_text("\n", encoding="utf-8-sig")
    assert "is empty" in str(failure(load_policy, str(path)))
