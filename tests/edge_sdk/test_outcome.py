"""Private evaluation on a device: of one model its label and prediction together, of several whether one is right.

What is asked of several models is one bit about the model that the id assigns, from devices that have them all.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from itertools import permutations, product

import pytest
from support.commands import edge
from support.failures import failure, reason
from support.publisher import CAMPAIGN_KEY, DAY, NOW, Publisher
from support.sources import Source

from edge_sdk import Device, Policy
from edge_sdk.answering.answer import answer
from edge_sdk.sync import sync
from protocol.batches.report import decode_answer, decode_report
from protocol.documents import model as evaluation
from protocol.documents.campaign import Series, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.epsilon import exp_below
from protocol.features import Categorical, Numeric
from protocol.schema import Component, Label, Projection, build_schema


def evaluation_of(publisher, model, micro=16_000_000, **changes):
    """A campaign that evaluates one model."""
    return publisher.sign("campaign", publisher.evaluation_payload(model, micro, **changes))


def comparison(publisher, models=None, micro=16_000_000, **changes):
    """A campaign that compares models, by default the three of this file."""
    return publisher.sign("campaign", publisher.comparison_payload(models or MODELS, micro, **changes))


def installed(device, *models):
    for model in models:
        device.install(model)
    return device


@pytest.fixture
def generous(tmp_path, publisher, clock):
    """A device whose owner allows ε = 16 in a period, and 10,000 in all."""
    policy = Policy.of(epsilon_per_period=16, epsilon_lifetime=10_000)
    options = {"clock": clock, "policy": policy, "entropy": random.Random(5).randbytes}
    with Device.provision(tmp_path / "other", trust=publisher.root(), **options) as opened:
        yield opened


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
        (None, "hiv"),
    ],
)
def test_a_model_that_reads_what_the_owner_keeps_is_refused_everywhere(tmp_path, publisher, clock, hidden, read):
    if hidden is None:
        models = {**MODELS, "odor": other_model(name="odor")}
        raw, which = comparison(publisher, models, 1_000_000), "its model 'odor'"
    else:
        models = {"": other_model(**hidden)}
        raw, which = evaluation_of(publisher, models[""], 1_000_000), "the model that it evaluates"
    said = f"{which} reads '{read}', about which the owner does not answer (features)"
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        found = installed(device, *models.values()).enrol(raw)  # this owner has not said what is private
        device.report(found.id, {"hiv": "yes"}, label="e")
    clock.now += DAY
    (tmp_path / "policy.toml").write_text('features = ["odor", "width", "label"]\n')
    with Device.open(tmp_path, clock=clock) as device:
        assert said in device.explain(raw)
        for refused in (lambda: device.enrol(raw), lambda: device.report(found.id, {"hiv": "yes"}, label="e")):
            error = failure(refused)
            assert (error.reason, error.detail) == ("policy_refused", said)
        assert device.status().spent_micro == 1_000_000


def test_explain_says_that_a_prediction_is_told_and_what_the_model_reads(device, publisher):
    """Not what the campaign lists."""
    secret = other_model()
    text = device.explain(evaluation_of(publisher, secret), model=secret)
    assert "predicts from 'hiv':" in text
    assert "'odor'" not in text
    raw = evaluation_of(publisher, publisher.model())
    for text in (device.explain(raw, model=publisher.model()), installed(device, publisher.model()).explain(raw)):
        assert "its 'label' together with what the installed model predicts from 'odor', 'width'" in text
        assert "The model is 'mushrooms', version 1" in text


def test_a_model_that_is_not_there_yet_is_asked_for(device, generous, publisher):
    raw = evaluation_of(publisher, publisher.model(), micro=1_000_000)
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
    assert installed(device, publisher.model()).enrol(raw)
    several = comparison(publisher)
    given = [*MODELS.values(), publisher.model(name="another")]
    assert reason(device.explain, several, model=given) == "model_unknown"
    for name, model in MODELS.items():
        for refused in (generous.enrol, generous.explain):
            error = failure(refused, several)
            assert (error.reason, repr(name) in error.detail) == ("model_unknown", True)
        generous.install(model)
    assert generous.enrol(several).model_names == tuple(MODELS)


def test_the_command_line_explains_with_a_model_that_is_not_installed(tmp_path, publisher):
    publisher.now = 1
    model = publisher.model(lifetime=1 << 33)
    (tmp_path / "c.hsc").write_bytes(evaluation_of(publisher, model, expires=1 << 33))
    (tmp_path / "m.hsm").write_bytes(model)
    Device.provision(tmp_path / "state", trust=publisher.root(lifetime=1 << 33)).close()
    command = ("--state", tmp_path / "state", "explain", tmp_path / "c.hsc")
    assert edge(*command)[2].startswith("model_unknown: ")
    assert "predicts from 'odor', 'width'" in edge(*command, "--model", tmp_path / "m.hsm")[1]


def test_sync_fetches_models_before_the_campaigns_that_evaluate_them(tmp_path, device, publisher):
    raw = evaluation_of(publisher, publisher.model(), micro=1_000_000)
    source = Source({"campaigns/outcome.hsc": raw, "models/mushrooms.hsm": publisher.model()})
    outcome = sync(device, source, campaigns=["outcome"])
    assert [(each.step, each.reason) for each in outcome.refusals] == [("campaigns/outcome.hsc", "model_unknown")]
    outcome = sync(device, source, campaigns=["outcome"], models=["mushrooms"])
    assert (outcome.refusals, outcome.campaigns, outcome.models) == ((), (("outcome", 1),), (("mushrooms", 1),))
    for number in (2, 3):  # a device that takes part in the campaign that makes the model need not name the model
        source.places["models/mushrooms.hsm"] = publisher.model(version=number)
        source.places["campaigns/mushrooms.hsc"] = publisher.campaign(version=number)
        raw = evaluation_of(publisher, publisher.model(version=number), micro=1_000_000, version=number)
        source.places["campaigns/outcome.hsc"] = raw
        outcome = sync(device, source, campaigns=["mushrooms"])
        assert outcome.refusals == ()
        assert {("mushrooms", number), ("outcome", number)} == {*outcome.campaigns}


NARROW = Publisher(schema=build_schema(Label("label", ["e", "p"]), [Categorical("odor", ["a", "n", "f"])]))
"""A publisher of models that read the odor alone."""
TURNED = Publisher(schema=build_schema(Label("label", ["e", "p"]), [Categorical("odor", ["a", "f", "n"])]))
"""A publisher of models that are wrong where the others are right: the odors n and f have changed places."""
MODELS = {
    "all": Publisher().model(name="all"),
    "odor": NARROW.model(name="odor"),
    "turned": TURNED.model(name="turned"),
}


def read(campaign, report):
    """Number of the question, and the bit."""
    _, _, number, field = decode_report(campaign.layout, report)
    return number, decode_answer(campaign.questions[number].mechanism, field, campaign.layout)


def test_the_bit_says_whether_the_assigned_model_is_right(generous, publisher, clock):
    """With another seed it fails by a lie in 40 answers at ε = 16, 5e-6, or if 40 ids never assign a model, 3e-7.

    A missing label counts as the substitute class, e, as in every campaign. An expired model is compared like others.
    """
    models = {**MODELS, "odor": NARROW.model(name="odor", lifetime=2 * DAY)}
    found = installed(generous, *models.values()).enrol(comparison(publisher, models))
    asked = Counter()
    for number in range(40):
        odor, label = ("n", "f")[number % 2], ("e", "p", None)[number // 2 % 3]
        model, bit = read(found, generous.report(found.id, {"odor": odor}, label=label))
        said = {"n": "e", "f": "p"}[odor] == (label or "e")
        assert bit == (said if model < 2 else not said), (model, odor, label)
        asked[model] += 1
        clock.now += DAY
    assert asked.keys() == {0, 1, 2}


@pytest.mark.parametrize("weights", [None, [1, 2, 5]])
@pytest.mark.parametrize("micro", [1_000, 1_000_000, 16_000_000])
def test_the_whole_answer_tells_two_records_apart_by_no_more_than_epsilon(publisher, micro, weights):
    """All answers (index, bit) of a uniform id, for all 8 ways in which three models can be right: enumerated."""
    campaign = parse_campaign(publisher.comparison_payload(MODELS, micro, weights=weights))
    tables = []
    for predicted in product(range(2), repeat=3):
        table = {}
        for number, question in enumerate(campaign.questions):
            low, high = campaign.assignment.interval(number, 0)
            value = question.input_of(None, 1, 2, predicted[question.subject.model])
            for bit, chance in question.mechanism.distribution(value).items():
                table[number, bit] = Fraction(high - low, 1 << 32) * chance
        assert sum(table.values()) == 1
        tables.append(table)
    worst = max(one[said] / other[said] for one, other in permutations(tables, 2) for said in one)
    assert worst == campaign.privacy_loss().ratio <= exp_below(micro)
    assert float(worst) == pytest.approx(math.exp(micro / 1e6), rel=2e-3)


def test_neither_the_model_nor_the_noise_looks_at_the_record(publisher):
    """The same secret and seed: other records change the bit, and neither the id, the model nor the flip."""
    campaign = parse_campaign(publisher.comparison_payload(MODELS))
    observation = campaign.schema.observe({"odor": "n"})
    for turn in range(20):
        secret, seed, asked = bytes([turn]) * 32, bytes([turn + 1]) * 32, []

        def predict(index, asked=asked):
            asked.append(index)
            return 0

        said = [answer(campaign, observation, code, secret, 7, [seed], predict)[0] for code in (0, 1)]
        fields = [decode_report(campaign.layout, each) for each in said]
        assert fields[0][:3] == fields[1][:3]
        assert asked == [fields[0][2]] * 2, "one prediction, of the assigned model"
        bits = [read(campaign, each)[1] for each in said]
        assert bits[0] != bits[1]


def test_a_device_that_lacks_a_model_never_answers_whatever_it_is_asked(generous, publisher, clock):
    """A refusal pays nothing: the device answers another campaign of the series."""
    series = Series("pilot", NOW)
    found = installed(generous, *MODELS.values()).enrol(comparison(publisher, series=series))
    generous.enrol(evaluation_of(publisher, MODELS["odor"]))
    assert [each.missing_models for each in generous.status().campaigns] == [(), ()]
    generous.install(NARROW.model(name="odor", version=2))
    for _ in range(10):  # a device that answered where the assigned model is there would answer in two of three periods
        error = failure(generous.report, found.id, {"odor": "n"}, label="e")
        assert error.reason == "model_unknown"
        assert (
            "compares 3 models, and these are not installed here in the version that it names: 'odor'" in error.detail
        )
        clock.now += DAY
    status = generous.status()
    assert status.spent_micro == 0
    compared, single = status.campaigns
    assert (compared.missing_models, [len(each) for each in single.missing_models]) == (("odor",), [16])
    assert status.to_json()["campaigns"][0]["missing_models"] == ["odor"]
    other = generous.enrol(publisher.campaign(series=series))
    assert generous.report(other.id, {"odor": "n"}, label="e")


def test_explain_names_models_chances_and_all_features_that_they_read(device, publisher):
    payload = publisher.comparison_payload(MODELS, weights=[2, 1, 1])
    text = device.explain(publisher.sign("campaign", payload), model=list(MODELS.values()))
    assert "the device answers with one bit whether a model is right about its own 'label'." in text
    assert "Which model is picked by chance and not by the record:" in text
    assert "- 50%  'all', version 1, which reads 2 features: one of 2 values, the true one 73% of the time" in text
    assert "- 25%  'odor', version 1, which reads 1 feature:" in text
    assert "Together the models read 'odor', 'width'." in text
    assert device.status().models == (), "to explain a campaign installs nothing"


def test_a_check_and_the_counts_are_of_what_the_models_read(generous, publisher):
    several = installed(generous, *MODELS.values(), other_model()).enrol(comparison(publisher, micro=10**6))
    one = generous.enrol(evaluation_of(publisher, other_model(), micro=10**6))
    record = {"odor": "zzz", "hiv": "perhaps", "label": "e"}
    assert generous.check(several.id, record)[:2] == (("width",), ("odor",))
    assert generous.check(one.id, record)[:2] == ((), ("hiv",))
    assert generous.check(one.id, {"hiv": "no"}, label=None)[:2] == (("label",), ())
    for campaign in (several, one):
        generous.report(campaign.id, record)
    assert [each[1:] for each in generous.status().unread] == [(1, {"width": 1}, {"odor": 1}), (1, {}, {"hiv": 1})]
    assert failure(generous.check, bytes(32), record).reason == "campaign_unknown"


def test_a_model_is_read_once_for_its_features_and_a_missing_one_is_still_noticed(
    generous, publisher, clock, monkeypatch
):
    read = []

    def noted(header, schema, original=evaluation.Evaluated):
        read.append(header)
        return original(header, schema)

    monkeypatch.setattr(evaluation, "Evaluated", noted)
    found = installed(generous, *MODELS.values()).enrol(comparison(publisher))
    for _ in range(3):
        generous.report(found.id, {"odor": "n"}, label="e")
        clock.now += DAY
    assert len(read) == 3
    generous.install(NARROW.model(name="odor", version=2))
    assert reason(generous.report, found.id, {"odor": "n"}, label="e") == "model_unknown"
