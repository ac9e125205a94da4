"""An exported pipeline predicts what the model predicts, in a process that does not have this package."""

import io
import json
import math
import pickle
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason_of
from support.publisher import Publisher

from aggregator.cli.app import hearsay
from aggregator.models.interchange import to_json, to_sklearn
from aggregator.models.reduction import fit_projection
from aggregator.models.scoring import Model
from protocol import SCALE
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

LABEL = Label("label", ["e", "p", "1"])
TABLES = [
    Categorical("odor", ["a", "n", "1", "nan", ""]),
    Categorical("cap", ["x", "2"], unlisted="other", substitute=0),
    Numeric("width", "-0.3", "1e2", [-60000, -3, 0, 1, 65536], substitute=5),
    Numeric("age", "0", "99", [-10, 20000], substitute=None),
]
NUMBERS = [Numeric("width", "-0.3", "1e2", [0]), Numeric("age", "0", "99", [0])]
texts = st.sampled_from(["a", "n", "1", "x", "2", "nan", "", "zz"])
categories = st.one_of(st.none(), texts, st.integers(0, 3))
numbers = st.one_of(st.none(), st.integers(-5, 120).map(float), st.floats(allow_nan=True, allow_infinity=True))


def model_of(schema, seed=0, *, gaussian=False):
    rng = np.random.default_rng(seed)
    k = len(schema.label.classes)
    if gaussian:
        terms = [(rng.uniform(-1, 1, k), rng.uniform(0.001, 0.5, k)) for _ in schema.observed]
    else:
        terms = [np.log(rng.dirichlet(np.ones(feature.size), k)).T for feature in schema.observed]
    return Model(schema, np.log(rng.dirichlet(np.ones(k))), terms)


def assert_same(model, frame, exported=None):
    exported = exported or to_sklearn(model)
    assert exported.classes_.tolist() == model.classes_.tolist()
    assert exported.predict_proba(frame) == pytest.approx(model.predict_proba(frame), rel=1e-6, abs=1e-9)
    close = np.sort(model.predict_proba(frame))
    decided = close[:, -1] - close[:, -2] > 1e-6
    assert (exported.predict(frame) == model.predict(frame))[decided].all()


@examples(15)
@given(st.lists(st.tuples(categories, categories, numbers, numbers), min_size=1, max_size=8), st.integers(0, 99))
def test_tables_predict_the_same_with_missing_and_unlisted_cells(rows, seed):
    frame = pd.DataFrame(rows, columns=["odor", "cap", "width", "age"])
    frame = frame.astype({"odor": object, "cap": object, "width": float, "age": float})
    assert_same(model_of(build_schema(LABEL, TABLES), seed), frame)


ANY_TYPE = [
    pd.Series([0, None, 2, 7]),  # integers with an empty cell are floats
    pd.Series([0.5, 1.0, -0.0, float("inf")]),
    pd.Series([1, 2, 3, 0], dtype="float32"),
    pd.Series([1, None, 3, 0], dtype="Int64"),
    pd.Series([True, False, True, True]),
    pd.Series([True, None, False, True], dtype="boolean"),
    pd.Series([1, "1", 1.0, True], dtype=object),
    pd.Series(["true", "True", "2.0", ""]),
    pd.Series([b"1", 2.5, None, "inf"], dtype=object),
    pd.Series(["1", None, "0", "1"], dtype="category"),
]


@pytest.mark.parametrize("listed", [["0", "1", "2"], ["true", "false"], ["false", "1", "inf", "2.0"], ["x", "", "0.5"]])
@pytest.mark.parametrize("unlisted", ["missing", "other"])
def test_cells_of_any_type_are_read_as_the_device_reads_them(listed, unlisted):
    features = [Categorical("odor", listed, unlisted=unlisted), Categorical("cap", ["x", "y"])]
    model = model_of(build_schema(LABEL, features))
    exported = to_sklearn(model)
    for column in ANY_TYPE:
        assert_same(model, pd.DataFrame({"odor": column, "cap": "x"}), exported)


@examples(10)
@given(st.lists(st.tuples(st.floats(-2, 120), st.floats(-9, 120)), min_size=1, max_size=8), st.integers(0, 99))
def test_normal_distributions_predict_the_same(rows, seed):
    frame = pd.DataFrame(rows, columns=["width", "age"])
    assert_same(model_of(build_schema(LABEL, NUMBERS), seed, gaussian=True), frame)


def projected(*, substitute=0):
    rng = np.random.default_rng(8)
    features = [Numeric(f"x{i}", "-1", "1", [0], substitute=substitute) for i in range(4)]
    schema = build_schema(LABEL, features)
    frame = pd.DataFrame(np.tanh(rng.normal(0, 0.5, (300, 4))), columns=[f"x{i}" for i in range(4)])
    frame = frame.assign(label=rng.choice(["e", "p", "1"], 300))
    reduction = fit_projection(frame, schema, "pca", 2, bins=4)
    return reduction.schema, frame


@pytest.mark.parametrize("substitute", [0, None])
def test_a_projection_is_part_of_the_pipeline(substitute):
    schema, frame = projected(substitute=substitute)
    frame.loc[::7, "x2"] = None
    assert_same(model_of(schema), frame)


def test_what_scikit_learn_has_no_form_for_is_refused():
    mixed = build_schema(LABEL, [TABLES[0], NUMBERS[0]])
    tables = model_of(build_schema(LABEL, [TABLES[0]])).terms
    assert (
        reason_of(InputError, to_sklearn, Model(mixed, np.zeros(3), [*tables, (np.zeros(3), np.ones(3))]))
        == "not_exportable"
    )
    close = build_schema(LABEL, [Numeric("far", "1e9", "1000000001", [0])])
    assert reason_of(InputError, to_sklearn, model_of(close)) == "not_exportable"


@pytest.mark.slow
def test_a_file_needs_scikit_learn_alone(tmp_path):
    schema, frame = projected()
    model = model_of(schema)
    joblib.dump(to_sklearn(model), tmp_path / "m.joblib")
    frame.to_csv(tmp_path / "records.csv", index=False)
    script = (
        "import joblib, pandas, sys\n"
        "sys.modules.update(aggregator=None, protocol=None)\n"
        f"frame = pandas.read_csv({str(tmp_path / 'records.csv')!r})\n"
        f"print(*joblib.load({str(tmp_path / 'm.joblib')!r}).predict(frame), sep='\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == model.predict(frame).tolist()
    assert b"aggregator" not in pickle.dumps(to_sklearn(model))


@pytest.mark.parametrize("gaussian", [False, True])
def test_json_holds_all_that_a_score_needs(gaussian):
    """A reader that knows only the object computes the same scores for complete records."""
    schema = build_schema(LABEL, NUMBERS if gaussian else TABLES)
    model = model_of(schema, gaussian=gaussian)
    body = json.load(io.StringIO(json.dumps(to_json(model))))
    record = {"odor": "n", "cap": "2", "width": 12.5, "age": 40.0}
    totals = list(body["log_prior"])
    for feature, term in zip(body["features"], body["terms"], strict=True):
        assert feature["name"] == term["feature"]
        value = record[feature["name"]]
        if feature["kind"] == "numeric":
            low, high = float(feature["low"]), float(feature["high"])
            u = round((value - low) / (high - low) * 2 * body["scale"]) - body["scale"]
            code = sum(edge <= u for edge in feature["edges"])
        else:
            code = feature["values"].index(value)
        for c in range(len(totals)):
            if term["kind"] == "table":
                totals[c] += term["log_likelihood"][code][c]
            else:
                mean, variance = term["mean"][c], term["variance"][c]
                totals[c] += -0.5 * math.log(2 * math.pi * variance) - (u / SCALE - mean) ** 2 / (2 * variance)
    assert totals == pytest.approx(model.scores(pd.DataFrame([record]))[0].tolist(), rel=1e-9)


def test_json_holds_the_projection_as_rows_of_integers():
    schema, _ = projected()
    body = json.loads(json.dumps(to_json(model_of(schema))))
    assert body["projection"]["matrix"] == [list(row) for row in schema.projection.matrix]
    assert [term["feature"] for term in body["terms"]] == [part.name for part in schema.observed]


def test_the_command_writes_what_the_functions_make(tmp_path):
    (tmp_path / "m.hsm").write_bytes(Publisher().model())
    model = Model.of(parse_model(read_envelope((tmp_path / "m.hsm").read_bytes(), "model").payload))
    for form in ("json", "sklearn"):
        arguments = ["export-model", str(tmp_path / "m.hsm"), "--to", form, "-o", str(tmp_path / form)]
        result = CliRunner().invoke(hearsay, arguments)
        assert result.exit_code == 0, result.output
        assert CliRunner().invoke(hearsay, arguments).exit_code == 1  # it does not overwrite
    assert json.loads((tmp_path / "json").read_text("utf-8")) == to_json(model)
    frame = pd.DataFrame({"odor": ["n", "f", None], "width": [3.0, None, 10.0]})
    frame = frame.reindex(columns=[feature.name for feature in model.schema.features])
    assert joblib.load(tmp_path / "sklearn").predict(frame).tolist() == model.predict(frame).tolist()
