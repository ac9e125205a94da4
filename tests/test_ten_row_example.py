"""The ten people of the sources' worked example: Yilmaz, Al-Rubaie, Chang 2019, section 2.2, and the book.

For a young woman of medium income both texts print P(C₂)·… = 0.055. It is 6/10·1/6·1/6·2/6 = 0.00556,
less than 4/10·2/4·1/4·2/4 = 0.025: she is predicted to miss a payment (docs/math.md, section 8.2).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.estimated import summed
from support.publisher import NOW, Publisher

from aggregator.models.fitting import fit
from edge_sdk import Device
from protocol.documents import model
from protocol.documents.campaign import parse_campaign
from protocol.features import Categorical
from protocol.schema import Label, build_schema

PEOPLE = [
    # age, income, gender, payment
    ("young", "low", "male", "missed"),
    ("young", "high", "female", "missed"),
    ("medium", "high", "male", "paid"),
    ("old", "medium", "male", "paid"),
    ("old", "high", "male", "paid"),
    ("old", "low", "female", "missed"),
    ("medium", "low", "female", "paid"),
    ("medium", "medium", "male", "missed"),
    ("young", "low", "male", "paid"),
    ("old", "high", "female", "paid"),
]
SHE = {"age": "young", "income": "medium", "gender": "female"}


def ten_row_schema():
    columns = {"age": ["young", "medium", "old"], "income": ["low", "medium", "high"], "gender": ["male", "female"]}
    features = [Categorical(name, values, substitute=0) for name, values in columns.items()]
    return build_schema(Label("payment", ["missed", "paid"]), features)


def exact_statistics(campaign):
    """What an aggregator would estimate without any noise: every count as it is."""
    found = [[0] * question.size for question in campaign.questions]
    for counts, question in zip(found, campaign.questions, strict=True):
        for *values, payment in PEOPLE:
            seen = campaign.schema.observe(dict(zip(("age", "income", "gender"), values, strict=True)))
            counts[question.input_of(seen, campaign.schema.label.code(payment), 2)] += 1
    return summed(campaign, found, 10)


def test_the_young_woman_of_medium_income_is_predicted_to_miss_a_payment(tmp_path):
    publisher = Publisher(schema=ten_row_schema())
    campaign = parse_campaign(publisher.campaign_payload())
    parameters = fit(exact_statistics(campaign), "paper")
    # Every count that matters here is positive, so "negatives become 1" changes none of them.
    assert np.exp(parameters.log_prior).tolist() == pytest.approx([4 / 10, 6 / 10])
    age, income, gender = (np.exp(table) for table in parameters.terms)
    assert age[0].tolist() == pytest.approx([2 / 4, 1 / 6])
    assert income[1].tolist() == pytest.approx([1 / 4, 1 / 6])
    assert gender[1].tolist() == pytest.approx([2 / 4, 2 / 6])

    document = model.DiscreteModel(
        header=publisher.header("payments"),
        campaign=campaign.id,
        schema=campaign.schema,
        log_prior=tuple(parameters.log_prior.tolist()),
        log_likelihood=tuple(tuple(map(tuple, table.tolist())) for table in parameters.terms),
        statistics_id=bytes(32),
        previous=None,
        card={},
    )
    with Device.provision(tmp_path, trust=publisher.root(), clock=lambda: NOW) as device:
        classifier = device.install(publisher.sign("model", model.build_payload(document)))
    missed, paid = (math.exp(score) for score in classifier.scores(SHE))
    assert missed == pytest.approx(0.025, abs=5e-6)
    assert paid == pytest.approx(0.00556, abs=5e-6)
    assert classifier.predict(SHE) == "missed"
