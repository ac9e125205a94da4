"""Gaussian models: exact moments give the exact fit, device and aggregator score alike; projections: PCA and DCA."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.estimated import campaign_about, summed
from support.examples import examples
from support.failures import reason, reason_of
from support.publisher import NOW, Publisher

from aggregator.models.baselines import fit_plain, fit_plain_family, fit_plain_gaussian
from aggregator.models.encoding import NO_NUMBER, observe, recognise
from aggregator.models.fitting import NormalParameters, fit
from aggregator.models.interchange import to_json, to_sklearn
from aggregator.models.population import check_pilot, outside
from aggregator.models.reduction import fit_directions, fit_projection
from aggregator.models.scoring import Model
from aggregator.publishing.models import fitted_model
from aggregator.publishing.schemas.projection_file import FORMAT, parse_projection_text, projection_text
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


# PCA and DCA -----------------------------------------------------------------------------------------


LEAST_PRECISION = 2**-12
DIGITS = Label("label", ["0", "1", "2"])


def clouds(seed, rows=200, n=5, classes=3):
    """Correlated inputs in [−1, 1] with different class means, and the classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    x = rng.normal(0, 0.2, (rows, n)) @ rng.normal(0, 1, (n, n)) + rng.normal(0, 0.5, (classes, n))[labels]
    return np.tanh(x / 2), labels


def schema_of_numbers(n, substitute=0):
    """Features with different bounds, and all with room for what :func:`clouds` draws."""
    return build_schema(DIGITS, [Numeric(f"x{i}", f"{-1 - i}", f"1.{i}", [0], substitute=substitute) for i in range(n)])


def frame_of(x, labels):
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
    return frame.assign(label=[str(label) for label in labels])


def angle(a, b):
    """|cos| of the angle between two directions, column by column."""
    return np.abs((a * b).sum(axis=0)) / np.linalg.norm(a, axis=0) / np.linalg.norm(b, axis=0)


@pytest.mark.parametrize("seed", range(4))
def test_pca_is_the_singular_vectors_of_the_centred_pilot(seed):
    x, labels = clouds(seed)
    found = fit_directions(x, labels, "pca", 5, 0.0)
    _, values, vectors = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    assert angle(found.weights, vectors.T) == pytest.approx(np.ones(5), abs=1e-9)
    assert found.explained == pytest.approx(values**2 / (values**2).sum(), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_dca_of_two_classes_is_fishers_direction(seed):
    x, labels = clouds(seed, classes=2)
    found = fit_directions(x, labels, "dca", 1, 0.0)
    within = sum((labels == c).mean() * np.cov(x[labels == c], rowvar=False, bias=True) for c in (0, 1))
    fisher = np.linalg.solve(within, x[labels == 1].mean(axis=0) - x[labels == 0].mean(axis=0))
    assert angle(found.weights, fisher[:, None]) == pytest.approx([1], abs=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 0.5])
def test_dca_solves_the_general_eigenproblem(ridge):
    x, labels = clouds(7)
    found = fit_directions(x, labels, "dca", 4, ridge)
    mean = x.mean(axis=0)
    total = np.cov(x, rowvar=False, bias=True) + ridge * np.eye(5)
    means = np.array([x[labels == c].mean(axis=0) for c in range(3)]) - mean
    between = means.T @ (means * np.array([(labels == c).mean() for c in range(3)])[:, None])
    values = np.sort(np.linalg.eigvals(np.linalg.solve(total, between)).real)[::-1]
    gram = found.weights.T @ total @ found.weights
    assert gram == pytest.approx(np.eye(4), abs=1e-8)
    assert np.diag(found.weights.T @ between @ found.weights) == pytest.approx(values[:4], abs=1e-9)
    assert (found.discriminant[2:] < 1e-9).all()  # two components separate three classes


def exact_error(reduction, frame):
    """Largest difference between integer outputs and the fit's float outputs, in output ranges."""
    projection = reduction.schema.projection
    scaled = np.column_stack(
        [[feature.scaled(value) for value in frame[feature.name]] for feature in reduction.schema.features]
    )
    gains = np.array(projection.matrix, float) / 2.0**projection.shift
    directions = reduction.directions.weights
    exact = np.array([projection.apply(row) for row in scaled.tolist()])
    outputs = (scaled / SCALE - reduction.directions.mean) @ directions
    slope = gains.T / directions  # one factor per component: steps of u per unit of output
    factor = np.array([np.median(slope[np.abs(directions[:, k]) > 1e-3, k]) for k in range(directions.shape[1])])
    low = outputs.min(axis=0)
    real = np.clip(factor * SCALE * (outputs - low) - SCALE, -SCALE, SCALE)
    return np.abs(exact - real).max() / (2 * SCALE)


@examples(40)
@given(st.integers(0, 10**6), st.integers(1, 8), st.sampled_from(["pca", "dca"]), st.integers(2, 9))
def test_integers_differ_little_from_floats_and_not_at_all_between_array_and_device(seed, n, method, bins):
    """Codes and numbers of missing values, and of any others: tests/simulation/test_inputs.py."""
    x, labels = clouds(seed, rows=40, n=n)
    frame = frame_of(x, labels)
    made = fit_projection(frame, schema_of_numbers(n), method, min(n, 3), bins=bins)
    assert made.worst_error < LEAST_PRECISION
    assert exact_error(made, frame) < LEAST_PRECISION
    check_same_everywhere(made.schema, frame)


def check_same_everywhere(schema, frame):
    """Codes and numbers of a whole frame, in 64-bit integers, equal the device's, record by record."""
    reported, recognised = observe(frame, schema), recognise(frame, schema)
    names = [feature.name for feature in schema.features]
    for row, record in enumerate(frame[names].to_dict("records")):
        seen = schema.observe(record)
        assert tuple(reported.codes[row]) == seen.codes
        assert tuple(None if u == NO_NUMBER else u for u in reported.numbers[row].tolist()) == seen.numbers
        for index, known in enumerate(schema.recognise(record)):
            found = (int(recognised.codes[row, index]), int(recognised.numbers[row, index]))
            assert found == ((-1, NO_NUMBER) if known is None else known)


def test_a_projection_file_gives_back_the_same_schema():
    x, labels = clouds(1)
    made = fit_projection(frame_of(x, labels), schema_of_numbers(5), "dca", 3)
    back = parse_projection_text(projection_text(made.schema, {"note": "ε"}).encode(), schema_of_numbers(5))
    assert back.projection.to_dict() == made.schema.projection.to_dict()


@pytest.mark.parametrize("index", [5, 999, -1, 1 << 60])
def test_a_projection_of_a_feature_that_is_not_there_is_refused(index):
    body = {"format": FORMAT, "features": [None], "inputs": [index]}
    assert reason(parse_projection_text, json.dumps(body).encode(), schema_of_numbers(5)) == "projection_mismatch"


def test_bounds_from_inputs_never_clip_any_input():
    x, labels = clouds(2)
    made = fit_projection(frame_of(x, labels), schema_of_numbers(5), "pca", 3, bounds="inputs")
    projection = made.schema.projection
    for row, offset in zip(projection.matrix, projection.offsets, strict=True):
        for sign in (1, -1):
            corner = sum(sign * SCALE * abs(weight) for weight in row)
            assert -SCALE - 8 <= (corner + offset) >> projection.shift <= SCALE + 8
    assert made.clipped.tolist() == [0, 0, 0]


def test_a_component_that_never_varies_and_a_pilot_without_a_whole_row_are_refused():
    x, labels = clouds(2)
    x[:, 4] = x[:, 3]
    with pytest.raises(InputError) as refused:
        fit_projection(frame_of(np.column_stack([x[:, :4], np.zeros(len(x))]), labels), schema_of_numbers(5), "pca", 5)
    assert refused.value.reason in ("scatter_singular", "projection_overflow")
    assert reason_of(InputError, fit_directions, x, labels, "dca", 1, 0.0) == "scatter_singular"
    x, labels = clouds(2)
    x[:, 0] = np.nan
    assert (
        reason_of(InputError, fit_projection, frame_of(x, labels), schema_of_numbers(5, None), "pca", 1)
        == "pilot_incomplete"
    )


def test_what_lies_outside_the_bounds_is_counted():
    table = pd.DataFrame({"x0": ["-1", "1", "1.0001", "-7", "?", "0"], "label": ["0", "1", "2", "0", "1", "2"]})
    (found,) = outside(check_pilot(table, schema_of_numbers(1)), schema_of_numbers(1))
    assert found == ("x0", 1, 1, 1)
