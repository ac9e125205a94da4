"""Private evaluation on a device: label and prediction leave it only together and perturbed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.failures import failure, reason, reason_of
from support.publisher import CAMPAIGN_KEY, DAY, NOW, Publisher
from support.sources import Source

from edge_sdk import Device, HearsayError
from edge_sdk.sync import sync
from protocol import canonical
from protocol.batches.report import decode_answer, decode_report
from protocol.documents.envelope import read_envelope
from protocol.features import Categorical, Numeric
from protocol.mechanisms import from_micro
from protocol.schema import Component, Label, Projection, build_schema


def outcome_payload(publisher, model_bytes, micro=16_000_000, **changes):
    return publisher.evaluation_payload(model_bytes, micro, **changes)


@pytest.fixture
def generous(tmp_path, publisher, clock):
    from edge_sdk import Device, Policy

    policy = Policy.of(epsilon_per_period=16, epsilon_lifetime=100)
    with Device.provision(tmp_path / "other", trust=publisher.root(), clock=clock, policy=policy) as opened:
        yield opened


@pytest.mark.parametrize(("odor", "label", "expected"), [("n", "e", 0), ("n", "p", 2), ("f", "e", 1), ("f", "p", 3)])
def test_the_answer_is_true_times_classes_plus_predicted(generous, publisher, odor, label, expected):
    """At ε = 16 a lie has a chance of 3.4e-7."""
    generous.install(publisher.model())
    found = generous.enrol(publisher.sign("campaign", outcome_payload(publisher, publisher.model())))
    _, period, number, field = decode_report(found.layout, generous.report(found.id, {"odor": odor}, label=label))
    assert (number, period) == (0, NOW // 86_400)
    assert decode_answer(found.questions[0].mechanism, field, found.layout) == expected


def test_without_the_very_model_there_is_no_answer_and_no_cost(generous, publisher):
    generous.install(publisher.model())
    found = generous.enrol(publisher.sign("campaign", outcome_payload(publisher, publisher.model())))
    generous.install(publisher.model(version=2))
    assert reason(generous.report, found.id, {"odor": "n"}, label="e") == "model_unknown"
    assert generous.status().spent_micro == 0


def test_explain_says_that_a_prediction_is_told(generous, publisher):
    raw = publisher.sign("campaign", outcome_payload(publisher, publisher.model()))
    for text in (generous.explain(raw, model=publisher.model()), installed(generous, publisher).explain(raw)):
        assert "its 'label' together with what the installed model predicts from 'odor', 'width'" in text
        assert "The model is 'mushrooms', version 1" in text


def installed(device, publisher):
    device.install(publisher.model())
    return device


def other_model(label="label", classes=("e", "p"), features=(), projection=None, **options):
    """A publisher of models that read other keys than the campaign lists."""
    schema = build_schema(Label(label, classes), features or [Categorical("hiv", ["no", "yes"])], projection)
    return Publisher(schema=schema).model(**options)


PROJECTED = build_schema(
    Label("label", ["e", "p"]),
    [Categorical("odor", ["a", "n"]), Numeric("hiv", "0", "10", [0], substitute=0)],
    Projection((1,), ((65536,),), (0,), 16, (Component("PC1", -65536, 65536, (0,)),)),
)


@pytest.mark.parametrize(
    ("hidden", "read"),
    [
        ({}, "hiv"),
        ({"label": "disease", "features": [Categorical("odor", ["a", "n"])]}, "disease"),
        ({"features": [Numeric("hiv", "0", "10", [0])]}, "hiv"),
        ({"features": PROJECTED.features, "projection": PROJECTED.projection}, "hiv"),
    ],
)
def test_a_model_that_reads_what_the_owner_keeps_is_refused_everywhere(tmp_path, publisher, clock, hidden, read):
    secret = other_model(**hidden)
    raw = publisher.sign("campaign", outcome_payload(publisher, secret, micro=1_000_000))
    said = f"the model that it evaluates reads '{read}', about which the owner does not answer (features)"
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        device.install(secret)
        found = device.enrol(raw)  # this owner has not said what is private
        device.report(found.id, {"hiv": "yes"}, label="e")
    clock.now += DAY
    (tmp_path / "policy.toml").write_text('features = ["odor", "width", "label"]\n')
    with Device.open(tmp_path, clock=clock) as device:
        assert said in device.explain(raw)
        for refused in (lambda: device.enrol(raw), lambda: device.report(found.id, {"hiv": "yes"}, label="e")):
            error = failure(refused)
            assert (error.reason, error.detail) == ("policy_refused", said)
        assert device.status().spent_micro == 1_000_000


def test_explain_tells_what_the_model_reads_and_not_what_the_campaign_lists(device, publisher):
    secret = other_model()
    text = device.explain(publisher.sign("campaign", outcome_payload(publisher, secret)), model=secret)
    assert "predicts from 'hiv':" in text
    assert "'odor'" not in text


def test_a_check_and_the_counts_are_of_what_the_model_reads(generous, publisher):
    model = other_model()
    generous.install(model)
    found = generous.enrol(publisher.sign("campaign", outcome_payload(publisher, model)))
    record = {"odor": "zzz", "hiv": "perhaps", "label": "e"}
    assert generous.check(found.id, record)[:2] == ((), ("hiv",))
    assert generous.check(found.id, {"hiv": "no"}, label=None)[:2] == (("label",), ())
    generous.report(found.id, record)
    assert [each[1:] for each in generous.status().unread] == [(1, {}, {"hiv": 1})]
    assert failure(generous.check, bytes(32), record).reason == "campaign_unknown"


def test_a_model_that_is_not_there_yet_is_asked_for(device, publisher):
    raw = publisher.sign("campaign", outcome_payload(publisher, publisher.model(), micro=1_000_000))
    for refused in (device.explain, device.enrol):
        error = failure(refused, raw)
        assert error.reason == "model_unknown"
        assert "install that very model first" in error.detail
    assert device.campaigns() == []
    assert reason(device.explain, raw, model=publisher.model(version=2)) == "model_unknown"
    forged = publisher.sign("model", read_envelope(publisher.model(), "model").payload, CAMPAIGN_KEY)
    assert reason(device.explain, raw, model=forged) == "bad_signature"
    assert device.explain(raw, model=publisher.model())
    assert device.status().models == (), "to explain a campaign installs nothing"
    assert reason(device.enrol, raw) == "model_unknown"
    assert installed(device, publisher).enrol(raw)


def test_classes_that_are_not_the_models_are_found_at_once(device, publisher):
    strange = other_model(classes=("e", "q"))
    device.install(strange)
    assert reason(device.enrol, publisher.sign("campaign", outcome_payload(publisher, strange))) == "invalid_campaign"


def test_the_end_of_an_evaluation_needs_no_model(generous, publisher):
    """Else a device whose model was replaced could not end the campaign, and would continue once the model returns."""
    first = outcome_payload(publisher, publisher.model())
    installed(generous, publisher).enrol(publisher.sign("campaign", first))
    generous.install(publisher.model(version=2))
    end = {**canonical.unpack(first), "version": 2, "questions": [], "answers": 0, "epsilon_micro": 0}
    raw = publisher.sign("campaign", canonical.pack(end))
    assert "asks nothing" in generous.explain(raw)
    assert generous.enrol(raw).ended


def test_the_command_line_explains_with_a_model_that_is_not_installed(tmp_path, publisher):
    publisher.now = 1
    model = publisher.model(lifetime=1 << 33)
    body = canonical.unpack(outcome_payload(publisher, model))
    (tmp_path / "c.hsc").write_bytes(publisher.sign("campaign", canonical.pack({**body, "expires": 1 << 33})))
    (tmp_path / "m.hsm").write_bytes(model)
    Device.provision(tmp_path / "state", trust=publisher.root(lifetime=1 << 33)).close()
    command = [sys.executable, "-m", "edge_sdk.cli.main", "--state", "state", "explain", "c.hsc"]
    refused, told = (
        subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, check=False)
        for more in ([], ["--model", "m.hsm"])
    )
    assert refused.stderr.startswith("model_unknown: ")
    assert "predicts from 'odor', 'width'" in told.stdout


def test_sync_fetches_models_before_the_campaigns_that_evaluate_them(tmp_path, device, publisher):
    raw = publisher.sign("campaign", outcome_payload(publisher, publisher.model(), micro=1_000_000))
    source = Source({"campaigns/outcome.hsc": raw, "models/mushrooms.hsm": publisher.model()})
    outcome = sync(device, source, campaigns=["outcome"])
    assert [(each.step, each.reason) for each in outcome.refusals] == [("campaigns/outcome.hsc", "model_unknown")]
    outcome = sync(device, source, campaigns=["outcome"], models=["mushrooms"])
    assert (outcome.refusals, outcome.campaigns, outcome.models) == ((), (("outcome", 1),), (("mushrooms", 1),))
    for number in (2, 3):  # a device that takes part in the campaign that makes the model need not name the model
        source.places["models/mushrooms.hsm"] = publisher.model(version=number)
        source.places["campaigns/mushrooms.hsc"] = publisher.campaign(version=number)
        payload = outcome_payload(publisher, publisher.model(version=number), micro=1_000_000, version=number)
        source.places["campaigns/outcome.hsc"] = publisher.sign("campaign", payload)
        outcome = sync(device, source, campaigns=["mushrooms"])
        assert outcome.refusals == ()
        assert {("mushrooms", number), ("outcome", number)} == {*outcome.campaigns}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": b"short"},
        {"model": None},
        {"fit": {"family": "discrete", "postprocess": "paper"}},
        {"fit": {"family": "gaussian", "postprocess": "paper", "variance_floor_micro": 1}},
    ],
)
def test_an_evaluation_names_one_model_and_asks_one_kind_of_question(generous, publisher, changes):
    assert (
        reason_of(
            HearsayError,
            generous.enrol,
            publisher.sign("campaign", outcome_payload(publisher, publisher.model(), **changes)),
        )
        == "invalid_campaign"
    )


def test_other_campaigns_name_no_model(generous, publisher):
    assert reason_of(HearsayError, generous.enrol, publisher.campaign({"model": bytes(32)})) == "invalid_campaign"


def test_a_bitmap_is_no_answer_to_an_evaluation(generous, publisher):
    body = canonical.unpack(outcome_payload(publisher, publisher.model()))
    body["questions"][0]["mechanism"] = from_micro("oue", 16_000_000, 4).to_dict()
    assert (
        reason_of(HearsayError, generous.enrol, publisher.sign("campaign", canonical.pack(body))) == "invalid_campaign"
    )
