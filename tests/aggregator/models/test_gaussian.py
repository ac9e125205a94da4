"""Gaussian models: exact moments give the exact fit; device and aggregator score alike; ``truncated-gaussian``."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from support.estimated import campaign_about, summed
from support.failures import reason_of
from support.publisher import NOW, Publisher

from aggregator.models.baselines import fit_plain, fit_plain_family, fit_plain_gaussian
from aggregator.models.encoding import observe
from aggregator.models.fitting import NormalParameters, fit
from aggregator.models.interchange import to_json, to_sklearn
from aggregator.models.reduction import fit_projection
from aggregator.models.scoring import Model
from aggregator.publishing.models import fitted_model
from edge_sdk.classifier import Classifier
from edge_sdk.device import Device
from protocol import SCALE
from protocol.documents import model
from protocol.documents.campaign import GAUSSIAN, Fit
from protocol.documents.model import GaussianModel, Normal, build_payload, log_mass, parse_model
from protocol.errors import DocumentError, InputError
from protocol.features import Categorical, Numeric
from protocol.questions import MOMENT, MOMENTS
from protocol.schema import Label, build_schema

LABEL = Label("y", ["n", "p", "q"])
FORMS = [("bits", None), ("bit", None), ("piecewise", None), ("hybrid", None), ("laplace", 1), ("laplace", 3),
         ("duchi", None)]  # fmt: skip
ROWS = 600


def schema_of(substitute=0):
    numbers = [Numeric(f"x{i}", "-4", "4", [-20000, 20000], substitute=substitute) for i in range(3)]
    return build_schema(LABEL, [numbers[0], Categorical("c", ["r", "b"], substitute=0), *numbers[1:]])


def people(*, missing=0.0, seed=1):
    """Records with numbers, a category and a label. Some numbers are missing, more often in one class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, ROWS)
    x = rng.normal(0, [0.5, 1, 1.5], (ROWS, 3)) + np.array([[0, 1, -1], [1, 0, 2], [-2, 0.5, 0]])[labels]
    x[rng.random((ROWS, 3)) < missing * (1 + (labels[:, None] == 1))] = np.nan
    colour = np.where(rng.random(ROWS) < 0.2 + 0.3 * labels, "r", "b")
    frame = pd.DataFrame(x, columns=["x0", "x1", "x2"])
    return frame.assign(c=colour, y=[LABEL.classes[label] for label in labels])


def campaign_of(schema, mechanism="bits", approach=None, **changes):
    return campaign_about(schema, mechanism, 4, family=GAUSSIAN, approach=approach, postprocess="paper", **changes)


def exact_statistics(campaign, frame):
    """Statistics without noise: for every question, the sum of the true inputs of all people."""
    classes = len(campaign.schema.label.classes)
    sums = [np.zeros(question.size) for question in campaign.questions]
    for record in frame.to_dict("records"):
        seen, label = campaign.schema.observe(record), campaign.schema.label.code(record["y"])
        for question, total in zip(campaign.questions, sums, strict=True):
            value = question.input_of(seen, label, classes)
            if question.kind in (MOMENT, MOMENTS):
                value = np.array(value, float) / SCALE
                single_square = question.subject.of_class is not None and question.subject.power == 2
                np.add(total, (value + 1) / 2 if single_square else value, out=total)
            else:
                total[value] += 1
    return summed(campaign, sums, len(frame))


@pytest.mark.parametrize(("mechanism", "approach"), FORMS)
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_exact_moments_give_the_plain_fit_in_every_form(mechanism, approach, missing):
    schema = schema_of(None if missing else 0)
    frame = people(missing=missing)
    found = fit(exact_statistics(campaign_of(schema, mechanism, approach), frame), "paper")
    plain = fit_plain_gaussian(frame, schema, 0.01)
    for index in schema.numeric:
        mean, variance = plain.terms[index]
        assert found.terms[index].mean == pytest.approx(mean, abs=1e-9)
        assert found.terms[index].variance == pytest.approx(variance, abs=1e-4)  # squares are rounded down
    assert np.exp(found.log_prior) == pytest.approx(np.bincount(frame["y"].map(LABEL.known_code)) / ROWS)
    assert np.exp(found.terms[1]).sum(axis=0) == pytest.approx(np.ones(3))


def test_a_missing_number_with_a_substitute_counts_as_it():
    frame, schema = people(missing=0.2), schema_of(20000)
    found = fit(exact_statistics(campaign_of(schema), frame), "paper")
    x = observe(frame, schema).numbers[:, 0] / SCALE
    assert (x == 20000 / SCALE).sum() > ROWS / 10
    for code, name in enumerate(LABEL.classes):
        assert found.terms[0].mean[code] == pytest.approx(x[frame["y"] == name].mean())


def test_the_variance_floor_is_the_campaigns():
    frame = people().assign(x0=1.0)
    for floor in (10_000, 250_000):
        found = fit(exact_statistics(campaign_of(schema_of(), variance_floor_micro=floor), frame), "paper")
        assert found.terms[0].variance.tolist() == [floor / 1e6] * 3


def test_moments_out_of_range_are_clipped():
    statistics = exact_statistics(campaign_of(schema_of(), "laplace", 1), people())
    wild = tuple(
        replace(item, estimate=item.estimate * (50 if item.subject.power == 1 else -50))
        if item.subject.kind == MOMENTS
        else item
        for item in statistics.questions
    )
    for term in fit(replace(statistics, questions=wild), "paper").terms:
        if isinstance(term, NormalParameters):
            assert (np.abs(term.mean) <= 1).all()
            assert term.variance.tolist() == [0.01] * 3


def document_of(schema, frame):
    statistics = exact_statistics(campaign_of(schema), frame)
    common = {
        "header": Publisher().header("g"),
        "campaign": statistics.campaign.id,
        "schema": schema,
        "statistics_id": bytes(32),
        "previous": None,
        "card": {"note": "made for a test"},
    }
    return fitted_model(statistics, "paper", common)


def variants():
    """Schemas with and without a projection, with and without substitutes."""
    for substitute in (0, None):
        yield schema_of(substitute)
        for method in ("pca", "dca"):
            yield fit_projection(people(missing=0.1), schema_of(substitute), method, 2).schema


@pytest.mark.parametrize("schema", list(variants()))
def test_a_device_scores_as_the_aggregator_does(schema):
    document = document_of(schema, people(missing=0.05))
    payload = model.build_payload(document)
    assert model.build_payload(model.parse_model(payload)) == payload
    signed = Publisher().sign("model", payload)
    frame = people(missing=0.2, seed=9).drop(columns="y").iloc[:150]
    frame.iloc[0] = [np.nan, np.nan, np.nan, "r"]
    frame.iloc[1] = [1e300, -1e300, 0.0, "unheard of"]
    with Device.open(None, trust=Publisher().root(), clock=lambda: NOW) as device:
        classifier = device.install(signed)
        records = frame.to_dict("records")
        scores = np.array([classifier.scores(record) for record in records])
        predicted = [classifier.predict(record) for record in records]
        loaded = Model.of(classifier.model)
    assert scores == pytest.approx(loaded.scores(frame), abs=1e-9, rel=1e-12)
    assert predicted == loaded.predict(frame).tolist()
    assert len(set(predicted)) == 3


def test_parameters_that_are_of_the_wrong_kind_are_refused():
    document = document_of(schema_of(), people())
    first, second, *others = document.terms
    for terms in ((model.Normal((0.0,) * 3, (0.0,) * 3), second, *others), (second, second, *others), (first, second)):
        assert reason_of(DocumentError, model.build_payload, document._replace(terms=terms)) == "invalid_model"


@pytest.mark.parametrize("family", ["discrete", "gaussian", "truncated-gaussian"])
def test_the_plain_model_has_the_family_and_the_floor_of_a_fit(family):
    frame, schema = people().assign(x0=1.0), schema_of(0)
    found = fit_plain_family(frame, schema, Fit(family, "paper", 0 if family == "discrete" else 250_000))
    expected = fit_plain(frame, schema) if family == "discrete" else fit_plain_gaussian(frame, schema, 0.25)
    assert [np.shape(term) for term in found.terms] == [np.shape(term) for term in expected.terms]
    assert np.array_equal(found.scores(frame), expected.scores(frame))


NUMBER = build_schema(Label("y", ["a", "b"]), [Numeric("x", "0", "10", [0], substitute=0)])


def truncated(mean, variance, *, is_truncated=True):
    term = Normal(mean, variance)
    prior = (math.log(0.5),) * 2
    common = (Publisher().header("m"), bytes(32), NUMBER, prior, (term,), bytes(32), None, {})
    return GaussianModel(*common, is_truncated=is_truncated)


@pytest.mark.parametrize("mean", [-1.0, -0.3, 0.0, 0.999, 1.0])
@pytest.mark.parametrize("variance", [1e-12, 0.01, 1.0, 1e6, 3e38])
def test_the_density_integrates_to_one(mean, variance):
    points = np.unique(np.concatenate([np.linspace(-1, 1, 20001), mean + np.linspace(-8, 8, 20001) * variance**0.5]))
    points = points[np.abs(points) <= 1]
    log_density = (
        -0.5 * math.log(2 * math.pi * variance) - log_mass(mean, variance) - (points - mean) ** 2 / 2 / variance
    )
    assert abs(np.trapezoid(np.exp(log_density), points) - 1) < 1e-4


def test_device_and_aggregator_score_alike_and_unlike_an_uncut_distribution():
    body = truncated((-0.9, 0.4), (0.5, 0.25))
    cut = parse_model(build_payload(body))
    assert cut.is_truncated
    frame = pd.DataFrame({"x": [0.0, 2.5, 5.0, 9.0, 10.0, None]})
    wide = Model.of(cut).scores(frame)
    device = Classifier(cut, lambda: NOW)
    narrow = [device.scores({"x": None if math.isnan(x) else x}) for x in frame.x]
    assert np.abs(wide - np.array(narrow)).max() < 1e-12
    plain = Model.of(truncated((-0.9, 0.4), (0.5, 0.25), is_truncated=False)).scores(frame)
    masses = np.array([log_mass(m, v) for m, v in zip(*cut.terms[0], strict=True)])
    assert np.allclose(plain[:5] - wide[:5], masses)
    assert np.allclose(plain[5], wide[5])
    assert to_json(Model.of(cut))["terms"][0]["kind"] == "truncated-normal"


def test_a_mean_outside_is_refused_only_where_the_distribution_is_cut():
    build_payload(truncated((-1.5, 0.0), (1.0, 1.0), is_truncated=False))
    with pytest.raises(DocumentError, match="invalid_model"):
        build_payload(truncated((-1.5, 0.0), (1.0, 1.0)))
    pytest.importorskip("sklearn")
    with pytest.raises(InputError, match="not_exportable"):
        to_sklearn(Model.of(truncated((-0.5, 0.4), (0.5, 0.25))))
