"""Several models compared on a device: one bit about the model that the id assigns, from devices that have them all."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from itertools import permutations, product

import pytest
from support.failures import failure, reason
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, Policy
from edge_sdk.answering.answer import answer
from protocol import canonical
from protocol.batches.report import decode_answer, decode_report
from protocol.documents import model as evaluation
from protocol.documents.campaign import Series, parse_campaign
from protocol.epsilon import exp_below
from protocol.features import Categorical
from protocol.schema import Label, build_schema

NARROW = Publisher(schema=build_schema(Label("label", ["e", "p"]), [Categorical("odor", ["a", "n", "f"])]))
"""A publisher of models that read the odor alone."""
TURNED = Publisher(schema=build_schema(Label("label", ["e", "p"]), [Categorical("odor", ["a", "f", "n"])]))
"""A publisher of models that are wrong where the others are right: the odors n and f have changed places."""
MODELS = {
    "all": Publisher().model(name="all"),
    "odor": NARROW.model(name="odor"),
    "turned": TURNED.model(name="turned"),
}


@pytest.fixture
def generous(tmp_path, publisher, clock):
    policy = Policy.of(epsilon_per_period=16, epsilon_lifetime=10_000)
    options = {"clock": clock, "policy": policy, "entropy": random.Random(5).randbytes}
    with Device.provision(tmp_path / "other", trust=publisher.root(), **options) as opened:
        yield opened


def comparison(publisher, models=MODELS, micro=16_000_000, **changes):
    return publisher.sign("campaign", publisher.comparison_payload(models, micro, **changes))


def installed(device, models=MODELS):
    for model in models.values():
        device.install(model)
    return device


def read(campaign, report):
    """Number of the question, and the bit."""
    _, _, number, field = decode_report(campaign.layout, report)
    return number, decode_answer(campaign.questions[number].mechanism, field, campaign.layout)


def test_the_bit_says_whether_the_assigned_model_is_right(generous, publisher, clock):
    """With another seed it fails by a lie in 40 answers at ε = 16, 5e-6, or if 40 ids never assign a model, 3e-7."""
    found = installed(generous).enrol(comparison(publisher))
    asked = Counter()
    for number in range(40):
        odor, label = ("n", "f")[number % 2], ("e", "p")[number // 2 % 2]
        model, bit = read(found, generous.report(found.id, {"odor": odor}, label=label))
        said = {"n": "e", "f": "p"}[odor] == label
        assert bit == (said if model < 2 else not said), (model, odor, label)
        asked[model] += 1
        clock.now += DAY
    assert asked.keys() == {0, 1, 2}


def test_a_missing_label_counts_as_the_substitute_class_as_in_every_campaign(generous, publisher):
    found = installed(generous).enrol(comparison(publisher))
    model, bit = read(found, generous.report(found.id, {"odor": "n"}, label=None))
    assert bit == (model < 2), "the substitute class is e, which the first two models predict from n"


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
    found = installed(generous).enrol(comparison(publisher))
    generous.install(NARROW.model(name="odor", version=2))
    for _ in range(10):  # a device that answered where the assigned model is there would answer in two of three periods
        error = failure(generous.report, found.id, {"odor": "n"}, label="e")
        assert error.reason == "model_unknown"
        assert (
            "compares 3 models, and these are not installed here in the version that it names: 'odor'" in error.detail
        )
        clock.now += DAY
    assert generous.status().spent_micro == 0
    (shown,) = generous.status().campaigns
    assert shown.missing_models == ("odor",)
    assert generous.status().to_json()["campaigns"][0]["missing_models"] == ["odor"]


def test_status_names_the_models_that_are_missing(generous, publisher):
    installed(generous).enrol(comparison(publisher))
    generous.enrol(publisher.sign("campaign", publisher.evaluation_payload(MODELS["all"])))
    assert [each.missing_models for each in generous.status().campaigns] == [(), ()]
    generous.install(Publisher().model(name="all", version=2))
    compared, single = generous.status().campaigns
    assert compared.missing_models == ("all",)
    assert [len(each) for each in single.missing_models] == [16]


def test_a_comparison_is_refused_until_all_models_are_there(generous, publisher):
    raw = comparison(publisher)
    for name, model in MODELS.items():
        for refused in (generous.enrol, generous.explain):
            error = failure(refused, raw)
            assert error.reason == "model_unknown"
            assert repr(name) in error.detail
        generous.install(model)
    assert generous.enrol(raw).model_names == tuple(MODELS)


def test_the_owners_features_hold_for_every_model(tmp_path, publisher, clock):
    hidden = Publisher(schema=build_schema(Label("label", ["e", "p"]), [Categorical("hiv", ["no", "yes"])]))
    models = {**MODELS, "odor": hidden.model(name="odor")}
    raw = comparison(publisher, models, 1_000_000)
    with Device.provision(tmp_path, trust=publisher.root(), clock=clock) as device:
        found = installed(device, models).enrol(raw)
        device.report(found.id, {"hiv": "yes"}, label="e")
    clock.now += DAY
    (tmp_path / "policy.toml").write_text('features = ["odor", "width", "label"]\n')
    said = "its model 'odor' reads 'hiv', about which the owner does not answer (features)"
    with Device.open(tmp_path, clock=clock) as device:
        assert said in device.explain(raw)
        for refused in (lambda: device.enrol(raw), lambda: device.report(found.id, {"hiv": "yes"}, label="e")):
            error = failure(refused)
            assert (error.reason, error.detail) == ("policy_refused", said)
        assert device.status().spent_micro == 1_000_000


def test_explain_names_models_chances_and_all_features_that_they_read(device, publisher):
    payload = publisher.comparison_payload(MODELS, weights=[2, 1, 1])
    text = device.explain(publisher.sign("campaign", payload), model=list(MODELS.values()))
    assert "the device answers with one bit whether a model is right about its own 'label'." in text
    assert "Which model is picked by chance and not by the record:" in text
    assert "- 50%  'all', version 1, which reads 2 features: one of 2 values, the true one 73% of the time" in text
    assert "- 25%  'odor', version 1, which reads 1 feature:" in text
    assert "Together the models read 'odor', 'width'." in text
    assert device.status().models == (), "to explain a campaign installs nothing"


def test_a_model_that_is_not_one_of_those_compared_does_not_explain(device, publisher):
    given = [*MODELS.values(), publisher.model(name="another")]
    assert reason(device.explain, comparison(publisher), model=given) == "model_unknown"


def test_a_check_and_the_counts_are_of_what_any_of_the_models_reads(generous, publisher):
    found = installed(generous).enrol(comparison(publisher))
    assert generous.check(found.id, {"odor": "zzz"}, label="e")[:2] == (("width",), ("odor",))
    generous.report(found.id, {"odor": "zzz"}, label="e")
    assert [each[1:] for each in generous.status().unread] == [(1, {"width": 1}, {"odor": 1})]


def test_a_hostile_index_beyond_the_models_never_reaches_a_device(generous, publisher):
    body = canonical.unpack(publisher.comparison_payload(MODELS))
    for index in (3, 15, 16, 65535, -1, True, "all", None):
        questions = [{**each, "model": place or index} for place, each in enumerate(body["questions"])]
        raw = publisher.sign("campaign", canonical.pack({**body, "questions": questions}))
        assert reason(installed(generous).enrol, raw) == "invalid_campaign"


def test_a_reader_that_does_not_know_the_key_refuses_it(generous, publisher, monkeypatch):
    from edge_sdk.answering import acceptance
    from protocol.documents import campaign

    before = campaign.UNDERSTOOD - {"models", "model_names"}
    monkeypatch.setattr(acceptance.campaigns, "UNDERSTOOD", before)
    assert reason(installed(generous).enrol, comparison(publisher)) == "unknown_crit"


def test_the_end_of_a_comparison_needs_no_model(generous, publisher):
    first = publisher.comparison_payload(MODELS)
    installed(generous).enrol(publisher.sign("campaign", first))
    generous.install(NARROW.model(name="odor", version=2))
    end = {**canonical.unpack(first), "version": 2, "questions": [], "answers": 0, "epsilon_micro": 0}
    raw = publisher.sign("campaign", canonical.pack(end))
    assert "asks nothing" in generous.explain(raw)
    assert generous.enrol(raw).ended
    assert generous.status().campaigns[0].missing_models == ()


def test_an_expired_model_is_compared_like_any_other(generous, publisher, clock):
    models = {**MODELS, "odor": NARROW.model(name="odor", lifetime=2 * DAY)}
    found = installed(generous, models).enrol(comparison(publisher, models))
    clock.now = NOW + 10 * DAY
    for _ in range(5):
        assert generous.report(found.id, {"odor": "n"}, label="e")
        clock.now += DAY


def test_a_comparison_in_a_series_takes_the_one_answer_of_the_series(generous, publisher, clock):
    series = Series("pilot", NOW)
    raw = publisher.sign("campaign", publisher.comparison_payload(MODELS, series=series))
    found = installed(generous).enrol(raw)
    other = generous.enrol(publisher.campaign(series=series))
    assert "Which model is picked by chance" in generous.explain(raw)
    assert generous.report(found.id, {"odor": "n"}, label="e")
    for _ in range(3):
        assert reason(generous.report, other.id, {"odor": "n"}, label="e") == "series_answered"
        clock.now += DAY
        assert reason(generous.report, found.id, {"odor": "n"}, label="e") == "series_answered"
    assert generous.status().spent_micro == 1_000_000


def test_a_device_without_all_models_keeps_its_answer_in_the_series(generous, publisher):
    """A refusal pays nothing: the device answers another campaign of the series."""
    series = Series("pilot", NOW)
    found = installed(generous).enrol(publisher.sign("campaign", publisher.comparison_payload(MODELS, series=series)))
    other = generous.enrol(publisher.campaign(series=series))
    generous.install(Publisher().model(name="all", version=2))
    assert reason(generous.report, found.id, {"odor": "n"}, label="e") == "model_unknown"
    assert generous.report(other.id, {"odor": "n"}, label="e")


def test_a_model_is_read_once_for_its_features_and_a_missing_one_is_still_noticed(
    generous, publisher, clock, monkeypatch
):
    read = []

    def noted(header, schema, original=evaluation.Evaluated):
        read.append(header)
        return original(header, schema)

    monkeypatch.setattr(evaluation, "Evaluated", noted)
    found = installed(generous).enrol(comparison(publisher))
    for _ in range(3):
        generous.report(found.id, {"odor": "n"}, label="e")
        clock.now += DAY
    assert len(read) == 3
    generous.install(NARROW.model(name="odor", version=2))
    assert reason(generous.report, found.id, {"odor": "n"}, label="e") == "model_unknown"
