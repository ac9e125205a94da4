"""Scores of whole frames equal, to the last bit, those of single records; exported pipelines predict the same."""

import csv
import datetime as dt
import decimal
import io
import json
import math
import pickle
import subprocess
import sys
from fractions import Fraction
from io import StringIO

import joblib
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import reason_of
from support.publisher import DAY, NOW, Publisher

from aggregator.cli.app import hearsay
from aggregator.models.baselines import fit_majority, fit_plain
from aggregator.models.encoding import MISSING, feature_codes, label_codes, observe, recognise
from aggregator.models.interchange import to_json, to_sklearn
from aggregator.models.reduction import fit_projection
from aggregator.models.scoring import Model
from protocol import SCALE
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.errors import DocumentError, InputError
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

SCHEMA = build_schema(
    Label("label", ["e", "p", "1"], substitute=1),
    [
        Categorical("odor", ["a", "n", "1", "true"]),
        Categorical("cap", ["x", "2"], unlisted="other", substitute=0),
        Numeric("width", "-0.3", "1e2", [-60000, -3, 0, 1, 65536], substitute=5),
    ],
)
cells = st.one_of(
    st.none(),
    st.sampled_from(["a", "n", "x", "1", "2", "true", "", "0.5", "1.0", "-0", "31", "1e1", " 1", "+1", ".5", "nan"]),
    st.integers(-5, 120),
    st.integers(-5, 120).map(float),
    st.integers(-5, 120).map(str),
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.floats(),
    st.decimals(),
    st.text("0123456789.eE+-_ ", max_size=12),
    st.sampled_from([pd.NA, pd.NaT, np.datetime64("NaT"), np.float32(1), np.float64("nan"), decimal.Decimal("sNaN")]),
    st.sampled_from([decimal.Decimal("50.1"), b"a", (1, 2), [1], dt.date(2020, 1, 1), np.int64(1), np.str_("a")]),
)


def model_of(schema, seed=0):
    rng = np.random.default_rng(seed)
    tables = [np.log(rng.dirichlet(np.ones(f.size), len(schema.label.classes))).T for f in schema.features]
    return Model(schema, np.log(rng.dirichlet(np.ones(len(schema.label.classes)))), tables)


def score(model, record):
    """Scores of one record, by the device's loop."""
    total = model.log_prior.tolist()
    for feature, table in zip(model.schema.features, model.terms, strict=True):
        code = feature.known_code(record[feature.name])
        if code is not None:
            total = [a + b for a, b in zip(total, table[code].tolist(), strict=True)]
    return total


@given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=20))
def test_any_cells_score_as_on_a_device(rows):
    names = [feature.name for feature in SCHEMA.features]
    records = [dict(zip(names, row, strict=True)) for row in rows]
    frame = pd.DataFrame({name: pd.Series([record[name] for record in records], dtype=object) for name in names})
    model = model_of(SCHEMA)
    expected = [score(model, record) for record in records]
    assert model.scores(frame).tolist() == expected
    assert model.predict(frame).tolist() == [SCHEMA.label.classes[int(np.argmax(row))] for row in expected]


edges = st.lists(st.integers(-65535, 65536), min_size=1, max_size=6, unique=True).map(sorted)
bounds = st.decimals(-1000, 1000, places=3, allow_nan=False)


def turns(feature):
    """For each edge, the float at which rounding switches to it, or a neighbouring float."""
    low, high = Fraction(feature.low), Fraction(feature.high)
    return [float(low + Fraction(2 * (edge + SCALE) - 1, 4 * SCALE) * (high - low)) for edge in feature.edges]


@given(bounds, bounds, edges, st.lists(st.floats(-1e4, 1e4) | st.floats(), max_size=20))
@example(decimal.Decimal("-0.3"), decimal.Decimal("0.1"), [-65535, 0, 1, 65536], [])
def test_floats_are_coded_as_on_a_device(low, high, cuts, free):
    if low == high:
        high += 1
    low, high = sorted((low, high))
    feature = Numeric("x", str(low), str(high), cuts)
    near = [y for x in turns(feature) for y in (x, math.nextafter(x, -1e9), math.nextafter(x, 1e9), x * 1.0001)]
    column = pd.Series([*near, *free, math.nan, math.inf, -math.inf], dtype=float)
    expected = [MISSING if (code := feature.known_code(x)) is None else code for x in column.tolist()]
    assert feature_codes(column, feature).tolist() == expected


DTYPES = [
    *("int8", "int64", "uint64", "float16", "float32", "float64", "longdouble", "bool"),
    *("Int64", "Float64", "str", "string", "category"),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kind_of_column_is_coded_as_its_cells(dtype):
    column = pd.Series([0, 1, 50, 100, 127]).astype(dtype)
    for feature in SCHEMA.features:
        expected = [feature.known_code(cell) for cell in column.astype(object).tolist()]
        assert feature_codes(column, feature).tolist() == [MISSING if c is None else c for c in expected]


def test_an_empty_cell_changes_no_other_row():
    """An empty cell makes pandas read a column of integers as floats."""
    schema = build_schema(
        Label("label", ["0", "1"]), [Categorical("status", ["-1", "0", "1"]), Numeric("age", "0", "100", [0])]
    )
    model = model_of(schema)
    text = "status,age,label\n-1,31,0\n1,70,1\n0,20,1\n"
    whole = pd.read_csv(StringIO(text))
    holed = pd.read_csv(StringIO(text + ",,\n"))
    assert holed["status"].dtype == float
    assert model.scores(holed)[:3].tolist() == model.scores(whole).tolist()
    assert label_codes(holed, schema.label).tolist() == [0, 1, 1, MISSING]
    rows = list(csv.DictReader(StringIO(text)))
    assert model.scores(pd.DataFrame(rows)).tolist() == model.scores(whole).tolist()
    assert [list(schema.observe(row).codes) for row in rows] == observe(whole, schema).codes.tolist()


def test_integers_that_no_float_holds_are_coded_exactly():
    feature = Numeric("x", "0", str(2**60), [32767])  # the edge is an integer that no float represents
    start = next(x for x in range(2**60 * 3 // 4 - 2**44, 2**60, 2**40) if feature.known_code(x) == 1)
    low, high = start - 2**40, start
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if feature.known_code(middle) == 1 else (middle, high)
    column = pd.Series([low, high], dtype="int64")
    assert feature_codes(column, feature).tolist() == [0, 1]


def test_an_absent_column_is_missing_and_none_at_all_is_a_mistake():
    model = model_of(SCHEMA)
    alone = model.scores(pd.DataFrame({"odor": ["n"]}))
    full = model.scores(pd.DataFrame({"odor": ["n"], "cap": [None], "width": [math.nan]}))
    assert alone.tolist() == full.tolist()
    assert reason_of(InputError, model.predict, pd.DataFrame({"oder": ["n"]})) == "columns_missing"


def test_shapes_and_order_are_scikit_learns():
    frame = pd.DataFrame({"odor": ["n", "a", None, "1"]}, index=[7, 3, 5, 5])
    model = model_of(SCHEMA)
    proba, predicted = model.predict_proba(frame), model.predict(frame)
    assert model.classes_.tolist() == ["1", "e", "p"]
    assert model.feature_names_in_.tolist() == ["odor", "cap", "width"]
    assert (type(proba), proba.shape, predicted.shape) == (np.ndarray, (4, 3), (4,))
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert predicted.tolist() == model.classes_[proba.argmax(axis=1)].tolist()
    by_code = proba[:, [model.classes_.tolist().index(name) for name in model.classes]]
    offsets = np.log(by_code) - model.scores(frame)
    np.testing.assert_allclose(offsets - offsets[:, :1], 0, atol=1e-9)


def test_scores_with_labels_of_any_kind_are_the_share_of_right_ones():
    metrics = pytest.importorskip("sklearn.metrics")
    frame = pd.DataFrame({"odor": ["n", "a", "n", "1"] * 5, "width": range(20)}, index=[4] * 20)
    model = model_of(SCHEMA)
    truth = np.array((["e", "p", "1"] * 7)[:20], dtype=object)
    expected = metrics.accuracy_score(truth, model.predict(frame))
    mixed = [int(one) if one == "1" else one for one in truth]
    for labels in (truth, truth.tolist(), pd.Series(truth, index=range(20)), mixed):
        assert model.score(frame, labels) == expected
    assert model.score(frame.assign(label=truth)) == expected
    assert frame.columns.tolist() == ["odor", "width"]
    chances = model.predict_proba(frame)
    right = [row[model.classes_.tolist().index(one)] for row, one in zip(chances, truth, strict=True)]
    assert metrics.log_loss(truth, chances, labels=model.classes_.tolist()) == pytest.approx(-np.log(right).mean())
    for labels, reason in ((truth[1:], "argument_invalid"), ([None] * 20, "no_labels"), (None, "label_missing")):
        assert reason_of(InputError, model.score, frame, labels) == reason


def test_labels_match_as_text_and_accuracy_leaves_out_rows_without_a_known_one():
    frame = pd.DataFrame({"label": ["e", 1, "1", 1.0, None, "z"]})
    assert label_codes(frame, SCHEMA.label).tolist() == [0, 2, 2, 2, MISSING, MISSING]
    assert label_codes(frame, SCHEMA.label, substitute=True).tolist() == [0, 2, 2, 2, 1, 1]
    model = fit_majority(pd.DataFrame({"odor": ["a", "n", "n"], "label": ["p", "e", "e"]}), SCHEMA)
    frame = pd.DataFrame({"odor": ["a"] * 4, "label": ["e", "p", None, "unheard of"]})
    assert model.accuracy(frame) == 0.5
    for broken, reason in ((frame.drop(columns="label"), "label_missing"), (frame.iloc[2:], "no_labels")):
        assert reason_of(InputError, model.accuracy, broken) == reason


def test_refused_values_are_refused_without_being_named():
    strict = build_schema(Label("label", ["e", "p"], unlisted="refuse"), [Categorical("odor", ["a"], "refuse")])
    frame = pd.DataFrame({"odor": ["a", None], "label": ["e", None]})
    assert observe(frame, strict).codes.tolist() == [[0], [1]]
    assert label_codes(frame, strict.label, substitute=True).tolist() == [0, 0]
    bad = pd.DataFrame({"odor": ["SECRET"], "label": ["SECRET"]})
    for refusing in (lambda: observe(bad, strict), lambda: label_codes(bad, strict.label, substitute=True)):
        with pytest.raises(InputError) as refused:
            refusing()
        assert refused.value.reason == "value_refused"
        assert "SECRET" not in str(refused.value)
    assert recognise(bad, strict).codes.tolist() == [[MISSING]]


def test_the_plain_fit_counts_and_adds_one():
    schema = build_schema(Label("label", ["e", "p"]), [Categorical("odor", ["a", "n"])])
    frame = pd.DataFrame({"odor": ["a", "a", "n", None], "label": ["e", "e", "p", "p"]})
    model = fit_plain(frame, schema)
    np.testing.assert_allclose(np.exp(model.log_prior), [3 / 6, 3 / 6])
    np.testing.assert_allclose(np.exp(model.terms[0]), [[3 / 5, 1 / 5], [1 / 5, 2 / 5], [1 / 5, 2 / 5]])
    assert model.predict(frame).tolist() == ["e", "e", "p", "e"]


def test_a_signed_model_is_loaded_only_if_it_may_be_believed(tmp_path):
    publisher = Publisher()
    (tmp_path / "m.hsm").write_bytes(publisher.model(lifetime=10 * DAY))
    (tmp_path / "t.hst").write_bytes(publisher.root())
    model = Model.load(tmp_path / "m.hsm", tmp_path / "t.hst", clock=lambda: NOW)
    assert Model.load(tmp_path / "m.hsm", publisher.root(), clock=lambda: NOW).classes == model.classes
    frame = pd.DataFrame({"odor": ["n", "f"], "width": [1.0, 2.0]})
    assert model.predict(frame).tolist() == ["e", "p"]
    assert model.log_prior.tolist() == [float(np.float32(math.log(0.5)))] * 2

    def reason(path=tmp_path / "m.hsm", trust=tmp_path / "t.hst", now=NOW):
        with pytest.raises((DocumentError, InputError)) as refused:
            Model.load(path, trust, clock=lambda: now)
        return refused.value.reason

    assert reason(now=NOW + 10 * DAY) == "expired"
    assert reason(path=5) == reason(trust=None) == reason(trust=bytearray()) == "argument_invalid"
    assert reason(path=tmp_path / "absent") == "file_not_found"
    assert reason(path=tmp_path / "t.hst") == "wrong_role"
    (tmp_path / "other.hsm").write_bytes(publisher.sign("campaign", publisher.campaign_payload()))
    assert reason(path=tmp_path / "other.hsm") == "wrong_role"
    raw = bytearray(publisher.model())
    raw[-1] ^= 1
    (tmp_path / "flipped.hsm").write_bytes(raw)
    assert reason(path=tmp_path / "flipped.hsm") == "bad_signature"


@pytest.mark.parametrize("wrong", [5, None, "SECRET", {"odor": "SECRET"}, [{"odor": "SECRET"}]])
@pytest.mark.parametrize("method", ["predict", "predict_proba", "scores", "accuracy"])
def test_records_that_are_no_frame_are_refused_by_their_type(method, wrong):
    with pytest.raises(InputError) as refused:
        getattr(model_of(SCHEMA), method)(wrong)
    assert refused.value.reason == "argument_invalid"
    assert type(wrong).__name__ in refused.value.detail
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("name", ["odor", "width", "label"])
def test_a_column_that_is_there_twice_is_refused(name):
    frame = pd.DataFrame([["e", "a", "1", "x"]] * 2, columns=["label", "odor", "width", name])
    model = fit_plain(pd.DataFrame({"label": ["e", "p", "1"], "odor": ["a", "n", "1"], "width": [0, 1, 2]}), SCHEMA)
    for ask in (model.score, model.accuracy, *((model.predict,) if name != "label" else ())):
        assert reason_of(InputError, ask, frame) == "duplicate_column"
    for fit in (fit_plain, fit_majority) if name == "label" else ():
        assert reason_of(InputError, fit, frame, SCHEMA) == "duplicate_column"


LARGE = 2**53 + 1
LISTED = build_schema(
    Label("label", ["0", str(LARGE)]),
    [Categorical("id", ["a", str(LARGE)]), Numeric("t", str(2**53 - 2), str(2**53 + 40), [0])],
)


@pytest.mark.parametrize("name", ["label", "id", "t"])
@pytest.mark.parametrize("dtype", ["float64", "Float64"])
def test_a_column_of_floats_that_lost_digits_of_integers_is_refused(name, dtype):
    exact = {"label": ["0", str(LARGE)], "id": ["a", str(LARGE)], "t": [LARGE, LARGE]}
    model = model_of(LISTED)
    frame = pd.DataFrame(exact | {name: pd.Series([LARGE, None], dtype="Int64").astype(dtype)})
    with pytest.raises(InputError) as error:
        model.score(frame)
    assert (error.value.reason, str(LARGE) in str(error.value)) == ("digits_lost", False)
    model.score(pd.DataFrame(exact | {name: pd.Series([LARGE, None], dtype="Int64")}))
    model.score(pd.DataFrame(exact | {name: pd.Series([5, None], dtype=dtype)}), ["0", "0"])


def test_labels_of_score_keep_the_type_that_tells_lost_digits():
    frame = pd.DataFrame({"id": ["a", "a"]})
    model = model_of(LISTED)
    for labels in (pd.Series([LARGE, None], index=[7, 7]), np.array([LARGE, np.nan]), pd.Index([LARGE, None], float)):
        with pytest.raises(InputError, match="digits_lost"):
            model.score(frame, labels)
    assert model.score(frame, [LARGE, None]) in (0, 1)


def test_large_floats_pass_where_no_code_depends_on_their_last_digits():
    for dtype, least in (("float32", 2**24), ("float16", 2**11)):
        listed = Categorical("id", ["a", str(least + 1)])
        feature_codes(pd.Series([least - 1], dtype=dtype), listed)
        assert reason_of(InputError, feature_codes, pd.Series([least], dtype=dtype), listed) == "digits_lost"
    far = pd.Series([1e300, -1e300, float("inf"), float("nan"), 2.0**60])
    assert feature_codes(far, Numeric("t", "-1e19", "1e19", [0])).tolist() == [1, 0, 1, MISSING, 1]
    assert feature_codes(far, Numeric("t", "0", "1", [0])).tolist() == [1, 0, 1, MISSING, 1]
    assert feature_codes(far, Categorical("c", ["1", "2"])).tolist() == [MISSING] * 5


def test_check_names_the_columns_whose_cells_a_prediction_leaves_out(tmp_path):
    publisher = Publisher()
    (tmp_path / "m.hsm").write_bytes(publisher.model())
    (tmp_path / "root.hst").write_bytes(publisher.root())
    model = Model.load(tmp_path / "m.hsm", tmp_path / "root.hst", clock=lambda: NOW)
    frame = pd.DataFrame({"odor": ["n", "f"], "width": ["3,5", "4,25"]})
    (said,) = model.check(frame)
    assert "column 'width': 2 of 2 cells" in said
    assert model.check(frame.assign(width=["3.5", None])) == []
    assert model.predict(frame).tolist() == model.predict(frame.drop(columns="width")).tolist()
    assert model.check(frame.drop(columns="width").assign(**{" width": "1"})) == [
        "no column 'width': it counts as missing in every record; near: ' width'"
    ]
    (width,) = (feature for feature in model.schema.features if feature.name == "width")
    for numbers in (["-1", "1e30"], [-1.0, 1e30]):
        (said,) = model.check(frame.assign(width=numbers))
        bounds = f"outside the schema's bounds, {width.low} to {width.high}"
        assert said == f"column 'width': 2 of 2 numbers are {bounds}, and count as the nearer bound"


# Exported forms --------------------------------------------------------------------------------------


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


def made_up(schema, seed=0, *, gaussian=False):
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
    assert_same(made_up(build_schema(LABEL, TABLES), seed), frame)


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
    model = made_up(build_schema(LABEL, features))
    exported = to_sklearn(model)
    for column in ANY_TYPE:
        assert_same(model, pd.DataFrame({"odor": column, "cap": "x"}), exported)


@examples(10)
@given(st.lists(st.tuples(st.floats(-2, 120), st.floats(-9, 120)), min_size=1, max_size=8), st.integers(0, 99))
def test_normal_distributions_predict_the_same(rows, seed):
    frame = pd.DataFrame(rows, columns=["width", "age"])
    assert_same(made_up(build_schema(LABEL, NUMBERS), seed, gaussian=True), frame)


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
    assert_same(made_up(schema), frame)


def test_what_scikit_learn_has_no_form_for_is_refused():
    mixed = build_schema(LABEL, [TABLES[0], NUMBERS[0]])
    tables = made_up(build_schema(LABEL, [TABLES[0]])).terms
    assert (
        reason_of(InputError, to_sklearn, Model(mixed, np.zeros(3), [*tables, (np.zeros(3), np.ones(3))]))
        == "not_exportable"
    )
    close = build_schema(LABEL, [Numeric("far", "1e9", "1000000001", [0])])
    assert reason_of(InputError, to_sklearn, made_up(close)) == "not_exportable"


@pytest.mark.slow
def test_a_file_needs_scikit_learn_alone(tmp_path):
    schema, frame = projected()
    model = made_up(schema)
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
    model = made_up(schema, gaussian=gaussian)
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
    body = json.loads(json.dumps(to_json(made_up(schema))))
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
