"""Private evaluation on a device: its label and prediction never leave it, but perturbed together."""

from __future__ import annotations

import pytest
from support.publisher import NOW

from edge_sdk import HearsayError
from protocol import campaign, canonical
from protocol.envelope import read_envelope
from protocol.mechanisms import from_micro
from protocol.questions import build_questions, outcome_subjects
from protocol.report import decode_answer, decode_report


def outcome_payload(publisher, model_bytes, **changes):
    from hashlib import sha256

    digest = sha256(read_envelope(model_bytes, "model").payload).digest()
    questions = build_questions(
        outcome_subjects(publisher.schema), 1, lambda s: from_micro("direct", 16_000_000, s.size)
    )
    payload = campaign.build_payload(
        publisher.header("outcome"),
        publisher.schema,
        questions,
        epsilon_micro=16_000_000,
        purpose="is it right?",
        contact="someone",
        time_precision=86_400,
        min_batch_size=1,
        fit=campaign.Fit("outcome", "none"),
        model=digest,
    )
    return canonical.pack({**canonical.unpack(payload), **changes}) if changes else payload


@pytest.fixture
def generous(tmp_path, publisher, clock):
    from edge_sdk import Device, Policy

    policy = Policy.of(epsilon_per_period=16, epsilon_lifetime=100)
    with Device.open(tmp_path / "other", trust=publisher.root(), clock=clock, policy=policy) as opened:
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
    found = generous.enrol(publisher.sign("campaign", outcome_payload(publisher, publisher.model())))
    generous.install(publisher.model(version=2))
    with pytest.raises(HearsayError) as caught:
        generous.report(found.id, {"odor": "n"}, label="e")
    assert caught.value.reason == "model_unknown"
    assert generous.status().spent_micro == 0


def test_explain_says_that_a_prediction_is_told(generous, publisher):
    text = generous.explain(publisher.sign("campaign", outcome_payload(publisher, publisher.model())))
    assert "its 'label' together with what the installed model predicts from 'odor', 'width'" in text


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
    with pytest.raises(HearsayError) as caught:
        generous.enrol(publisher.sign("campaign", outcome_payload(publisher, publisher.model(), **changes)))
    assert caught.value.reason == "invalid_campaign"


def test_other_campaigns_name_no_model(generous, publisher):
    with pytest.raises(HearsayError) as caught:
        generous.enrol(publisher.campaign({"model": bytes(32)}))
    assert caught.value.reason == "invalid_campaign"


def test_a_bitmap_is_no_answer_to_an_evaluation(generous, publisher):
    body = canonical.unpack(outcome_payload(publisher, publisher.model()))
    body["questions"][0]["mechanism"] = from_micro("oue", 16_000_000, 4).to_dict()
    with pytest.raises(HearsayError) as caught:
        generous.enrol(publisher.sign("campaign", canonical.pack(body)))
    assert caught.value.reason == "invalid_campaign"
