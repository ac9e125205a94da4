"""Campaigns that evaluate models: what they state of models with few features, other bins and projections."""

from __future__ import annotations

import pytest
from support.publisher import NOW, Publisher, small_schema
from support.reports import opened

from aggregator.publishing.campaigns import EvaluationParameters, publish_evaluation
from edge_sdk import Device
from protocol.documents.envelope import read_envelope
from protocol.epsilon import MICRO
from protocol.features import Categorical, Numeric
from protocol.schema import Component, Label, Projection, build_schema

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


def signed(work, name):
    payload = read_envelope(Publisher(schema=SCHEMAS[name]).model(name=name), "model").payload
    return work.publish("model", name, NOW, lambda *_: payload)


def answered(work, raw, models):
    """The parsed campaign, after a device that has the models took part and answered."""
    with Device.open(None, trust=work.root_bytes, clock=lambda: NOW) as device:
        for model in models:
            device.install(model)
        device.answer(device.enrol(raw).id, {"odor": "n", "weight": 2}, label="e")
    return opened(raw)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_model_of_any_schema_can_be_evaluated(work, name):
    model = signed(work, name)
    raw = publish_evaluation(work, model, EvaluationParameters(MICRO), NOW)
    assert [each.name for each in answered(work, raw, [model]).schema.features] == [
        each.name for each in SCHEMAS[name].features
    ]


def test_models_of_all_these_schemas_can_be_compared(work):
    models = [signed(work, name) for name in SCHEMAS]
    raw = publish_evaluation(work, models, EvaluationParameters(MICRO), NOW)
    campaign = answered(work, raw, models)
    assert [each.name for each in campaign.schema.features] == ["odor", "width", "weight"]
    assert campaign.schema.features[1].to_dict() == SCHEMAS["all"].features[1].to_dict()
    assert campaign.purpose.endswith(
        "'all' version 1, 'narrow' version 1, 'other bins' version 1, 'projected' version 1"
    )


def test_names_too_long_for_the_purpose_are_left_out(work):
    names = [f"{letter * 600}" for letter in "ab"]
    models = [
        work.publish(
            "model", name, NOW, lambda *_, name=name: read_envelope(Publisher().model(name=name), "model").payload
        )
        for name in names
    ]
    raw = publish_evaluation(work, models, EvaluationParameters(MICRO, name="short"), NOW)
    campaign = answered(work, raw, models)
    assert campaign.purpose == "find out which of 2 models is right most often"
    assert campaign.model_names == tuple(names)
