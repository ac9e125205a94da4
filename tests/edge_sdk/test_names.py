"""Names, paths and keys as they are printed; campaigns by name; the public names of the package."""

from __future__ import annotations

import time
from urllib.parse import quote

import pytest
from support.commands import edge
from support.failures import failure
from support.publisher import DAY, NOW, Publisher

import edge_sdk
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from edge_sdk import Device
from edge_sdk.explaining import Names
from protocol.documents.payload import is_seen, quoted, shown
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
    unseen = (0x3164, 0x115F, 0x2800, 0xFE0F, 0xFFA0, 0x34F, 0xE0100, 0x13441, 0x13442, 0xFFFC, 0x2D7F, 0x1107F)
    for code in (*unseen, 0x1B, 0x0A, 0x200B):
        assert shown(f"a{chr(code)}b").isascii()
        assert is_seen(shown(f"a{chr(code)}b"))
    assert shown("Größe → 3 µm 水 👍") == "Größe → 3 µm 水 👍"
    assert quoted("it's") == r"'it\'s'"
    assert quoted("\\'") != quoted("'")


def test_no_path_or_key_reaches_the_terminal_raw(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "policy.toml").write_text('"a\\u001b[2J\\nb" = 1\n')
    (tmp_path / "root.hst").write_bytes(Publisher().root())
    for folder, root, start in (("s", "a\x1b[2J\nok: b.hst", ""), ("t", "root.hst", "policy_invalid: policy.toml")):
        status, _, said = edge("--state", tmp_path / folder, "provision", tmp_path / root)
        assert (status, said.count("\n"), "\x1b" in said) == (1, 1, False)
        assert said.startswith(start)


def test_a_closed_device_says_that_it_is_closed(tmp_path, publisher, clock):
    for place in (tmp_path / "state", None):
        device = Device.provision(place, trust=publisher.root(), clock=clock)
        assert repr(device) == "<Device with 0 campaigns, 0 unsent reports>"
        device.close()
        assert repr(device) == "<Device whose state is closed or can not be read>"
        device.close()
        for act in (device.status, device.campaigns, device.history):
            assert failure(act).reason == "state_closed"
        assert failure(device.enrol, publisher.campaign()).reason == "state_closed"


def test_campaigns_go_by_name_as_well_as_by_id(device, publisher, clock):
    campaign = device.enrol(publisher.campaign())
    other = device.enrol(publisher.campaign(name="ferns"))
    for called in ("mushrooms", campaign.id, campaign.id.hex()[:10].upper()):
        assert device.campaign(called) == campaign
        assert device.check(called, {"odor": "?"}) == campaign.check({"odor": "?"})
        assert len(device.report(called, {"odor": "n"}, label="e")) == 18
        assert [line.id for line in device.history(called)][:1] == [campaign.id]
        clock.now += DAY
    device.report("ferns", {"odor": "n"})
    assert [line.id for line in device.history("ferns")] == [other.id]
    assert device.history("absent") == []
    status, said, _ = edge("--state", device.folder, "history", "--campaign", "ferns")
    assert (status, "ferns" in said, "mushrooms" in said) == (0, True, False)
    for called in ("", "absent", bytes(32)):
        assert failure(device.campaign, called).reason == "campaign_unknown"


def test_the_package_gives_what_its_calls_return(device, publisher):
    campaign, model = device.enrol(publisher.campaign(version=3)), device.install(publisher.model(version=2))
    assert isinstance(campaign, edge_sdk.Campaign)
    assert isinstance(model, edge_sdk.Classifier)
    assert [(found.name, found.version) for found in (campaign, model)] == [("mushrooms", 3), ("mushrooms", 2)]
    assert isinstance(device.status(), edge_sdk.Status)
    assert issubclass(edge_sdk.Node, edge_sdk.Device)
    assert issubclass(edge_sdk.InputError, ValueError)
    assert all(getattr(edge_sdk, name).__doc__ for name in edge_sdk.__all__)
    with pytest.raises(AttributeError):
        edge_sdk.Nothing  # noqa: B018


def test_makers_of_campaigns_refuse_what_shows_nothing():
    def made(label="class", values=("e", "p"), feature="cap", kinds=("a", "b"), name="mushrooms"):
        schema = build_schema(Label(label, values), [Categorical(feature, kinds)])
        return build_campaign(schema, CampaignParameters(name, 1_000_000, "direct"), 1, NOW)

    assert made()
    for hidden in (
        {"label": UNSEEN},
        {"values": ("e", "e\ufe0f")},
        {"feature": UNSEEN},
        {"kinds": ("a", "a\u3164")},
        {"name": UNSEEN},
    ):
        assert failure(made, **hidden).reason == "schema_invalid"


def test_no_name_of_a_document_forges_an_entry_of_a_table(tmp_path):
    forged = "a  version 1; name pilot  version 7"
    publisher, state, source = Publisher(now=int(time.time())), tmp_path / "state", tmp_path / "source"
    with Device.provision(state, trust=publisher.root()) as device:
        device.report(device.enrol(publisher.campaign(name="counted as spent when the state was reset")).id, {})
    for place, raw in (
        (f"campaigns/{quote(forged, safe='')}.hsc", publisher.campaign(name=forged)),
        (f"models/{quote(forged, safe='')}.hsm", publisher.model(name=forged)),
    ):
        (source / place).parent.mkdir(parents=True)
        (source / place).write_bytes(raw)
    for command in (["sync", source, "--campaign", forged, "--model", forged], ["status"]):
        status, said, _ = edge("--state", state, *command)
        assert (status, said.count(quoted(forged))) == (0, 2)
        assert forged not in said.replace(quoted(forged), "")
    status, said, _ = edge("--state", state, "history")
    assert (status, "'counted as spent when the state was reset'" in said) == (0, True)
