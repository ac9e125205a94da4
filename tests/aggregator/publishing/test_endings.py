"""The end of a campaign; campaigns that evaluate models; documents of a workspace by name and id."""

import errno

import pytest
from support.commands import mushrooms, run, told
from support.failures import reason
from support.publisher import NOW, Publisher, small_schema
from support.reports import batch, opened, report

import aggregator
from aggregator.common import files
from aggregator.operations.report_store import create_store
from aggregator.publishing.campaigns import (
    CampaignParameters,
    evaluations_ended,
    publish_campaign,
    publish_evaluation,
)
from aggregator.publishing.endings import end_campaign
from aggregator.publishing.naming import document_bytes
from aggregator.publishing.privacy import periods, privacy_sheet
from aggregator.publishing.workspace import open_workspace
from edge_sdk import Device
from protocol.documents.envelope import read_envelope
from protocol.documents.payload import DAY_SECONDS, read_payload
from protocol.epsilon import MICRO
from protocol.errors import InputError, StorageError
from protocol.features import Categorical, Numeric
from protocol.schema import Component, Label, Projection, build_schema
from protocol.words import to_words

TERMS = CampaignParameters(
    "mushrooms", MICRO, "direct", purpose="why", contact="who", period_seconds=3600, min_batch_size=9
)


def publish(work, now=NOW, **changes):
    return publish_campaign(work, small_schema(), TERMS._replace(**changes), now)


def named_model(work, name, version):
    payload = read_envelope(Publisher().model(name=name, version=version), "model").payload
    return work.publish("model", name, NOW, lambda *_: payload)


@pytest.mark.parametrize("mechanism", ["direct", "oue", "she"])
def test_the_end_says_what_was_said_before_and_asks_nothing(work, mechanism):
    raws = publish(work, mechanism=mechanism), end_campaign(work, "mushrooms", NOW + 5)
    before, end = map(opened, raws)
    assert end.ended
    assert not before.ended
    assert (end.questions, end.answers, end.epsilon_micro, end.epsilon_per_answer_micro) == ((), 0, 0, 0)
    assert (end.layout.kind, end.layout.record_length) == (1, 18)
    assert (end.header.version, end.header.issued_at) == (2, NOW + 5)
    bodies = [read_payload(read_envelope(raw, "campaign").payload)[0] for raw in raws]
    other = {"questions", "answers", "epsilon_micro", "layout", "record_length", "version", "issued_at", "not_before"}
    assert {name: bodies[0][name] for name in bodies[0].keys() - other} == {
        name: bodies[1][name] for name in bodies[1].keys() - other
    }
    assert end.header.expires == before.header.expires
    assert periods(end) == 0
    assert float(end.privacy_loss()) == 0


def test_the_end_lives_as_long_as_any_version_and_at_least_two_days(work):
    long = opened(publish(work, lifetime_seconds=90 * DAY_SECONDS)).header.expires
    publish(work, lifetime_seconds=3 * DAY_SECONDS)
    assert opened(end_campaign(work, "mushrooms", NOW + DAY_SECONDS)).header.expires == long
    publish(work, name="short", lifetime_seconds=2 * DAY_SECONDS)
    late = NOW + 7 * DAY_SECONDS
    assert opened(end_campaign(work, "short", late)).header.expires == late + 2 * DAY_SECONDS


def test_evaluations_can_be_ended_and_a_newer_version_of_any_model_ends_them(work):
    one, other = (named_model(work, name, 1) for name in ("one", "other"))
    publish_evaluation(work, one, CampaignParameters("", MICRO), NOW)
    publish_evaluation(work, [one, other], CampaignParameters("", MICRO), NOW)
    publish_evaluation(work, [one, other], CampaignParameters("kept", MICRO), NOW)
    alone, both = (opened(end_campaign(work, f"one-{kind}", NOW)) for kind in ("outcome", "comparison"))
    assert (alone.ended, alone.fit.family, alone.model is None) == (True, "outcome", False)
    assert (both.ended, both.model_names, both.header.crit) == (True, ("one", "other"), ("models",))
    assert evaluations_ended(work, "other", NOW) == []
    named_model(work, "other", 2)
    assert evaluations_ended(work, "other", NOW) == ["kept"]
    assert evaluations_ended(work, "one", NOW) == []
    first = named_model(work, "mushrooms", 1)
    for name in ("running", "over", "ended"):
        days = 2 if name == "over" else 30
        parameters = CampaignParameters(name, MICRO, lifetime_seconds=days * DAY_SECONDS)
        publish_evaluation(work, first, parameters, NOW)
    end_campaign(work, "ended", NOW + 1)
    publish(work)
    assert evaluations_ended(work, "mushrooms", NOW + 1) == []
    second = named_model(work, "mushrooms", 2)
    publish_evaluation(work, second, CampaignParameters("of the second", MICRO), NOW)
    assert evaluations_ended(work, "mushrooms", NOW + 1) == ["over", "running"]
    assert evaluations_ended(work, "mushrooms", NOW + 3 * DAY_SECONDS) == ["running"]
    assert evaluations_ended(work, "none", NOW) == []
    work.copy_path(work.latest("campaign", "running")).unlink()
    assert evaluations_ended(work, "mushrooms", NOW + 3 * DAY_SECONDS) == []


def test_a_campaign_ends_once_and_may_ask_again(work, tmp_path):
    publish(work)
    assert reason(end_campaign, work, "other", NOW) == "campaign_unknown"
    end = end_campaign(work, "mushrooms", NOW)
    assert reason(create_store, tmp_path / "store", end) == "campaign_ended"
    assert not (tmp_path / "store").exists()
    assert reason(end_campaign, work, "mushrooms", NOW) == "campaign_ended"
    assert not opened(publish(work)).ended
    assert opened(end_campaign(work, "mushrooms", NOW)).header.version == 4
    publish(work)
    next((work.path / "published").iterdir()).unlink()
    assert reason(end_campaign, work, "mushrooms", NOW) == "workspace_damaged"


def test_the_privacy_of_an_end_is_that_nothing_is_said(work):
    publish(work)
    body, _ = read_payload(read_envelope(end_campaign(work, "mushrooms", NOW), "campaign").payload)
    sheet = privacy_sheet(body)
    assert sheet.holds
    assert sheet.to_json()["total"] == {"worst_ratio": "1", "epsilon": 0.0}
    for changes in ({"answers": 1}, {"answers": -1}, {"questions": None}):
        assert reason(privacy_sheet, {**body, **changes}) == "invalid_campaign"


def test_a_device_takes_the_end_as_the_newest_version(work):
    first = publish(work)
    device = Device.open(None, trust=open_workspace(work.path).root_bytes, clock=lambda: NOW)
    device.enrol(first)
    assert device.enrol(end_campaign(work, "mushrooms", NOW)).ended
    assert reason(device.enrol, first) == "rollback"
    assert reason(device.report, opened(first).id, {"odor": "n"}, "e") is not None
    assert device.status().spooled == 0


# What evaluations state of models with few features, other bins and projections ----------------------

LABEL = Label("label", ["e", "p"])
SCHEMAS = {
    "all": small_schema(),
    "narrow": build_schema(LABEL, [Categorical("odor", ["a", "n", "f"])]),
    "other bins": build_schema(LABEL, [Categorical("odor", ["a", "n", "f"]), Numeric("width", "0", "20", [-9, 9])]),
    "projected": build_schema(
        LABEL,
        [Categorical("odor", ["a", "n", "f"]), Numeric("weight", "0", "10", [0], substitute=0)],
        Projection((1,), ((65536,),), (0,), 16, (Component("PC1", -65536, 65536, (0,)),)),
    ),
}


def signed(work, name, schema=None):
    payload = read_envelope(Publisher(schema=schema or SCHEMAS[name]).model(name=name), "model").payload
    return work.publish("model", name, NOW, lambda *_: payload)


def answered(work, raw, models):
    with Device.open(None, trust=work.root_bytes, clock=lambda: NOW) as device:
        for model in models:
            device.install(model)
        device.answer(device.enrol(raw).id, {"odor": "n", "weight": 2}, label="e")
    return opened(raw)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_model_of_any_schema_can_be_evaluated(work, name):
    model = signed(work, name)
    raw = publish_evaluation(work, model, CampaignParameters("", MICRO), NOW)
    assert [each.name for each in answered(work, raw, [model]).schema.features] == [
        each.name for each in SCHEMAS[name].features
    ]


def test_models_of_all_these_schemas_can_be_compared_and_long_names_are_left_out_of_the_purpose(work):
    models = [signed(work, name) for name in SCHEMAS]
    raw = publish_evaluation(work, models, CampaignParameters("", MICRO), NOW)
    campaign = answered(work, raw, models)
    assert [each.name for each in campaign.schema.features] == ["odor", "width", "weight"]
    assert campaign.schema.features[1].to_dict() == SCHEMAS["all"].features[1].to_dict()
    assert campaign.purpose.endswith(
        "'all' version 1, 'narrow' version 1, 'other bins' version 1, 'projected' version 1"
    )
    names = [letter * 600 for letter in "ab"]
    models = [signed(work, name, SCHEMAS["all"]) for name in names]
    raw = publish_evaluation(work, models, CampaignParameters("short", MICRO), NOW)
    campaign = answered(work, raw, models)
    assert campaign.purpose == "find out which of 2 models is right most often"
    assert campaign.model_names == tuple(names)


# Documents of a workspace by name and id -------------------------------------------------------------


SCHEMA = Publisher().schema


def signed_campaign(work, name, now):
    return publish_campaign(work, SCHEMA, CampaignParameters(name, 1_000_000, "direct"), now)


def test_a_name_is_its_newest_version_that_asks_anything(work):
    first, second = signed_campaign(work, "m", NOW), signed_campaign(work, "m", NOW + 1)
    assert document_bytes("campaign", "m", work) == second
    assert document_bytes("campaign", "m@1", work) == first
    ended = end_campaign(work, "m", NOW + 2)
    assert document_bytes("campaign", "m", work) == second
    assert document_bytes("campaign", "m@3", work) == ended
    third = signed_campaign(work, "m", NOW + 3)
    assert document_bytes("campaign", "m", work) == third


def test_an_id_is_hexadecimal_or_words(work):
    raws = [signed_campaign(work, name, NOW) for name in ("m", "n")]
    for raw in raws:
        found = opened(raw).id
        for given in (found.hex(), found.hex().upper(), found.hex()[:8], to_words(found)):
            assert document_bytes("campaign", given, work) == raw
        for given in (found.hex()[:7], found.hex() + "00", f"{found.hex()[:8]}@1"):
            with pytest.raises(InputError, match=r"^campaign_unknown: .*it signed: m, n$"):
                document_bytes("campaign", given, work)
    with pytest.raises(InputError, match=r"^model_unknown: .*it signed: none"):
        document_bytes("model", "m", work)


def test_a_name_that_looks_like_anothers_id_or_version_is_itself(work):
    first = signed_campaign(work, "m", NOW)
    digits = opened(first).id.hex()[:8]
    liar, versioned = signed_campaign(work, digits, NOW), signed_campaign(work, "m@1", NOW)
    assert document_bytes("campaign", digits, work) == liar
    assert document_bytes("campaign", "m@1", work) == versioned
    assert document_bytes("campaign", opened(first).id.hex(), work) == first


def test_a_file_comes_first_and_needs_no_workspace(work, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = signed_campaign(work, "m", NOW), signed_campaign(work, "n", NOW)
    (tmp_path / "m").write_bytes(other)
    assert document_bytes("campaign", "m", work) == other
    assert document_bytes("campaign", "m", None) == other
    (tmp_path / "m").unlink()
    assert document_bytes("campaign", "m", work) == one
    with pytest.raises(InputError, match=r"^file_not_found"):
        document_bytes("campaign", "m", None)


def test_commands_take_names_and_ids(tmp_path):
    run("init", tmp_path / "work", "--no-passphrase")
    given = ("--workspace", tmp_path / "work")
    (tmp_path / "s.toml").write_text(mushrooms())
    run("campaign", tmp_path / "s.toml", *given, "--epsilon", "1", "--mechanism", "direct", "-o", tmp_path / "c.hsc")
    campaign = opened((tmp_path / "c.hsc").read_bytes())
    period = campaign.period_at(campaign.header.issued_at)
    for name, devices in (("a", range(10)), ("b", range(5, 20))):
        records = [report(campaign, device, period=period) for device in devices]
        (tmp_path / f"{name}.hsr").write_bytes(batch(campaign, records))
    (tmp_path / "names").write_text("a\nb\n")
    run("fleet", "new", tmp_path / "names", "-o", tmp_path / "f", "--no-passphrase")
    names = ("mushrooms", "mushrooms@1", campaign.id.hex(), to_words(campaign.id), tmp_path / "c.hsc")
    for number, name in enumerate(names):
        merged = tmp_path / f"{number}.hsr"
        run("merge", tmp_path / "a.hsr", tmp_path / "b.hsr", "--campaign", name, *given, "-o", merged)
        assert told("ingest", name, merged, "--store", tmp_path / f"s{number}", *given)["proven"] == 20
        run("fleet", "ids", name, *given, "--fleet", tmp_path / "f" / "fleet.hsf", "--periods", period,
            "-o", tmp_path / f"{number}.hsi")  # fmt: skip
    run("publish", "--store", tmp_path / "s0", *given, "-o", tmp_path / "m.hsm")
    run("evaluate", "ask", "mushrooms", *given, "--epsilon", "1", "-o", tmp_path / "e.hsc")
    ended = told("campaign", "--end", campaign.id.hex()[:8], *given, "-o", tmp_path / "end.hsc")
    assert (ended["name"], ended["version"]) == ("mushrooms", 2)


def test_a_signed_campaign_that_can_not_be_saved_is_found_in_the_workspace(work, tmp_path, monkeypatch):
    made = aggregator.make_campaign(work, Publisher().schema, epsilon=1, mechanism="direct", name="m", now=NOW)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_begin", full)
    with pytest.raises(StorageError, match=r"^disk_full: .*there is no space left; version 1 is signed all") as caught:
        made.save(tmp_path / "c.hsc")
    place = caught.value.detail.split("copy it from ")[1].split()[0]
    assert (tmp_path / "work" / place).read_bytes() == made.raw
