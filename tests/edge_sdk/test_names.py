"""Names, paths and keys as they are printed; campaigns by name; the public names of the package."""

from __future__ import annotations

import subprocess
import sys
import time
from urllib.parse import quote

import pytest
from support.failures import failure
from support.publisher import DAY, NOW, Publisher

import edge_sdk
from edge_sdk import Device, Policy
from edge_sdk.cli.main import main
from edge_sdk.explaining import Names
from protocol import VERSION
from protocol.document import is_seen, quoted, shown
from protocol.features import Categorical, Numeric
from protocol.questions import MOMENT, Subject
from protocol.schema import Label, build_schema

FORGED = "odor' together with nothing"
UNSEEN = "odor\u3164"


@pytest.mark.parametrize("name", [FORGED, UNSEEN, "odor\\"])
@pytest.mark.parametrize("where", ["feature", "label", "campaign"])
def test_no_name_forges_a_line_or_looks_like_another(device, name, where):
    label = Label(name if where == "label" else "class", ["e", "p"])
    feature = Categorical(name if where == "feature" else "cap", ["a", "b"])
    publisher = Publisher(schema=build_schema(label, [feature]))
    text = device.explain(publisher.campaign(name=name if where == "campaign" else "mushrooms"))
    assert f"'{name}'" not in text
    assert quoted(name) in text
    assert is_seen(text.replace("\n", " "))


def test_a_class_is_shown_between_quotes():
    schema = build_schema(Label("class", ["e, else 0; and nothing", "p"]), [Numeric("w", "0", "1", [0], substitute=0)])
    subject = Subject(MOMENT, 0, 1, 1, 0)
    text = Names(schema).subject(subject)
    assert text == "'w' if its 'class' is 'e, else 0; and nothing', else 0"


def test_what_shows_nothing_is_escaped_and_nothing_else():
    for code in (
        0x3164,
        0x115F,
        0x2800,
        0xFE0F,
        0xFFA0,
        0x34F,
        0xE0100,
        0x13441,
        0x13442,
        0xFFFC,
        0x2D7F,
        0x1107F,
        0x1B,
        0x0A,
        0x200B,
    ):
        assert shown(f"a{chr(code)}b").isascii()
        assert is_seen(shown(f"a{chr(code)}b"))
    assert shown("Größe → 3 µm 水 👍") == "Größe → 3 µm 水 👍"
    assert quoted("it's") == r"'it\'s'"
    assert quoted("\\'") != quoted("'")


def test_no_path_or_key_reaches_the_terminal_raw(tmp_path, capsys):
    assert main(["--state", str(tmp_path / "s"), "provision", str(tmp_path / "a\x1b[2J\nok: b.hst")]) == 1
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert said.count("\n") == 1
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "policy.toml").write_text('"a\\u001b[2J\\nb" = 1\n')
    (tmp_path / "root.hst").write_bytes(Publisher().root())
    assert main(["--state", str(tmp_path / "t"), "provision", str(tmp_path / "root.hst")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("policy_invalid: policy.toml")
    assert "\x1b" not in said
    assert said.count("\n") == 1


WRONG = {
    "epsilon_per_period": "0",
    "epsilon_per_day": "much",
    "epsilon_per_window": "0.0000001",
    "epsilon_lifetime": "1000000",
    "window_days": 0,
    "shortest_period": "1w",
    "smallest_batch": -1,
    "report_bytes": 1 << 41,
    "features": "odor",
    "campaigns": [3],
    "spool_reports": 1.5,
    "spool_bytes": "8MB",
    "spool_days": True,
    "allow_refuse": "yes",
    "node_adjacency": "add",
    "allow_masked": 1,
    "delta_per_period": "1e-13",
    "delta_lifetime": "1",
}


def test_every_key_of_the_policy_says_its_name_and_what_it_takes():
    from edge_sdk.policy import ENTRIES

    assert set(WRONG) == set(ENTRIES)
    for key, value in WRONG.items():
        error = failure(Policy.of, **{key: value})
        assert error.reason == "policy_invalid"
        assert key in error.detail
        assert len(error.detail) > len(key) + 10
    assert "below 1000000" in failure(Policy.of, epsilon_lifetime="1000000").detail


def test_what_one_period_may_take_is_the_owners_to_say(tmp_path, publisher, clock):
    raw = publisher.campaign(mechanism="she", answers=3)
    policy = Policy.of(report_bytes=100)
    with Device.provision(tmp_path / "state", trust=publisher.root(), policy=policy, clock=clock) as device:
        error = failure(device.enrol, raw)
        assert (error.reason, "report_bytes" in error.detail) == ("policy_refused", True)
        assert "report_bytes" in device.explain(raw)
        assert device.enrol(publisher.campaign()).report_bytes == 18


def test_a_closed_device_says_that_it_is_closed(tmp_path, publisher, clock):
    for place in (tmp_path / "state", None):
        device = Device.provision(place, trust=publisher.root(), clock=clock)
        device.close()
        device.close()
        for act in (device.status, device.campaigns, device.history):
            assert failure(act).reason == "state_closed"
        assert failure(device.enrol, publisher.campaign()).reason == "state_closed"


def test_campaigns_go_by_name_as_well_as_by_id(device, publisher, clock):
    campaign = device.enrol(publisher.campaign())
    other = device.enrol(publisher.campaign(name="ferns"))
    for called in ("mushrooms", campaign.id, campaign.id.hex()[:10].upper()):
        assert device.campaign(called) == campaign
        assert len(device.report(called, {"odor": "n"}, label="e")) == 18
        assert [line.id for line in device.history(called)][:1] == [campaign.id]
        clock.now += DAY
    device.report("ferns", {"odor": "n"})
    assert [line.id for line in device.history("ferns")] == [other.id]
    assert device.history("absent") == []
    for called in ("", "absent", bytes(32)):
        assert failure(device.campaign, called).reason == "campaign_unknown"


def test_the_package_gives_what_its_calls_return(device, publisher):
    assert isinstance(device.enrol(publisher.campaign()), edge_sdk.Campaign)
    assert isinstance(device.install(publisher.model()), edge_sdk.Classifier)
    assert isinstance(device.status(), edge_sdk.Status)
    assert issubclass(edge_sdk.Node, edge_sdk.Device)
    assert set(edge_sdk.__all__) <= {*dir(edge_sdk)}
    assert all(getattr(edge_sdk, name).__doc__ for name in edge_sdk.__all__)
    with pytest.raises(AttributeError):
        edge_sdk.Nothing  # noqa: B018


def test_the_version_is_told(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "edge_sdk.cli.main", "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (run.returncode, run.stdout) == (0, f"hearsay-edge {VERSION}\n")


def test_history_of_one_campaign_from_a_shell(tmp_path, publisher, capsys):
    with Device.provision(tmp_path / "state", trust=publisher.root(), clock=lambda: NOW) as device:
        for name in ("mushrooms", "ferns"):
            device.report(device.enrol(publisher.campaign(name=name)).id, {"odor": "n"})
    assert main(["--state", str(tmp_path / "state"), "history", "--campaign", "ferns"]) == 0
    said = capsys.readouterr().out
    assert "ferns" in said
    assert "mushrooms" not in said


def test_makers_of_campaigns_refuse_what_shows_nothing():
    from aggregator.publishing.campaigns import CampaignParameters, build_campaign

    terms = CampaignParameters("mushrooms", 1_000_000, "direct")
    plain = build_schema(Label("class", ["e", "p"]), [Categorical("cap", ["a", "b"])])
    assert build_campaign(plain, terms, 1, NOW)
    hidden = [
        build_schema(Label(UNSEEN, ["e", "p"]), [Categorical("cap", ["a", "b"])]),
        build_schema(Label("class", ["e", "e\ufe0f"]), [Categorical("cap", ["a", "b"])]),
        build_schema(Label("class", ["e", "p"]), [Categorical(UNSEEN, ["a", "b"])]),
        build_schema(Label("class", ["e", "p"]), [Categorical("cap", ["a", "a\u3164"])]),
    ]
    for schema in hidden:
        assert failure(build_campaign, schema, terms, 1, NOW).reason == "schema_invalid"
    assert failure(build_campaign, plain, terms._replace(name=UNSEEN), 1, NOW).reason == "schema_invalid"


def test_no_name_of_a_document_forges_an_entry_of_a_table(tmp_path, capsys):
    forged = "a  version 1; name pilot  version 7"
    publisher = Publisher(now=int(time.time()))
    state = ["--state", str(tmp_path / "state")]
    with Device.provision(tmp_path / "state", trust=publisher.root()) as device:
        other = device.enrol(publisher.campaign(name="counted as spent when the state was reset"))
        device.report(other.id, {"odor": "n"})
    source = tmp_path / "source"
    for folder, suffix, raw in (
        ("campaigns", "hsc", publisher.campaign(name=forged)),
        ("models", "hsm", publisher.model(name=forged)),
    ):
        (source / folder).mkdir(parents=True)
        (source / folder / f"{quote(forged, safe='')}.{suffix}").write_bytes(raw)
    for command in (["sync", str(source), "--campaign", forged, "--model", forged], ["status"]):
        assert main([*state, *command]) == 0
        said = capsys.readouterr().out
        assert said.count(quoted(forged)) == 2
        assert forged not in said.replace(quoted(forged), "")
    assert main([*state, "history"]) == 0
    assert "'counted as spent when the state was reset'" in capsys.readouterr().out
