"""PCA and DCA agree with independent computations; integer projections agree with floats, on devices and in frames."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason, reason_of

from aggregator.models.encoding import NO_NUMBER, observe, recognise
from aggregator.models.population import check_pilot, outside
from aggregator.models.reduction import fit_directions, fit_projection
from aggregator.publishing.schemas.projection_file import FORMAT, parse_projection_text, projection_text
from protocol import SCALE
from protocol.errors import InputError
from protocol.features import Numeric
from protocol.schema import Label, build_schema

LEAST_PRECISION = 2**-12
LABEL = Label("label", ["0", "1", "2"])


def clouds(seed, rows=200, n=5, classes=3):
    """Correlated inputs in [−1, 1] with different class means, and the classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    x = rng.normal(0, 0.2, (rows, n)) @ rng.normal(0, 1, (n, n)) + rng.normal(0, 0.5, (classes, n))[labels]
    return np.tanh(x / 2), labels


def schema_of(n, substitute=0):
    """Features with different bounds, and all with room for what :func:`clouds` draws."""
    return build_schema(LABEL, [Numeric(f"x{i}", f"{-1 - i}", f"1.{i}", [0], substitute=substitute) for i in range(n)])


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
    made = fit_projection(frame, schema_of(n), method, min(n, 3), bins=bins)
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
    made = fit_projection(frame_of(x, labels), schema_of(5), "dca", 3)
    back = parse_projection_text(projection_text(made.schema, {"note": "ε"}).encode(), schema_of(5))
    assert back.projection.to_dict() == made.schema.projection.to_dict()


@pytest.mark.parametrize("index", [5, 999, -1, 1 << 60])
def test_a_projection_of_a_feature_that_is_not_there_is_refused(index):
    body = {"format": FORMAT, "features": [None], "inputs": [index]}
    assert reason(parse_projection_text, json.dumps(body).encode(), schema_of(5)) == "projection_mismatch"


def test_bounds_from_inputs_never_clip_any_input():
    x, labels = clouds(2)
    made = fit_projection(frame_of(x, labels), schema_of(5), "pca", 3, bounds="inputs")
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
        fit_projection(frame_of(np.column_stack([x[:, :4], np.zeros(len(x))]), labels), schema_of(5), "pca", 5)
    assert refused.value.reason in ("scatter_singular", "projection_overflow")
    assert reason_of(InputError, fit_directions, x, labels, "dca", 1, 0.0) == "scatter_singular"
    x, labels = clouds(2)
    x[:, 0] = np.nan
    assert (
        reason_of(InputError, fit_projection, frame_of(x, labels), schema_of(5, None), "pca", 1) == "pilot_incomplete"
    )


def test_what_lies_outside_the_bounds_is_counted():
    table = pd.DataFrame({"x0": ["-1", "1", "1.0001", "-7", "?", "0"], "label": ["0", "1", "2", "0", "1", "2"]})
    (found,) = outside(check_pilot(table, schema_of(1)), schema_of(1))
    assert found == ("x0", 1, 1, 1)
