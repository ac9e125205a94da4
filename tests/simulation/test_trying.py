"""``simulate_campaign`` gives the same results as ``hearsay simulate``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.commands import run
from support.failures import reason_of

import simulation
from aggregator.common.tables import read_table
from aggregator.publishing.schemas.schema_draft import draft_schema
from aggregator.publishing.schemas.schema_file import parse_schema_text
from protocol import canonical
from protocol.documents.envelope import read_envelope
from protocol.errors import InputError


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "d.csv"
    rows = [f"{'nnfa'[i % 4]},{i % 7},{'ep'[(i // 2) % 2]}\n" for i in range(200)]
    path.write_text("odor,width,<b>\n" + "".join(rows))
    return path


@pytest.mark.parametrize(
    ("kind", "options", "settings"),
    [
        (Path, ["--mechanism", "oue", "--repeats", "2"], {"mechanism": "oue", "repeats": 2}),
        (str, ["--answers", "all", "--folds", "2"], {"answers": "all", "folds": 2}),
        (read_table, ["--ask", "odor"], {"ask": ["odor"]}),
    ],
)
def test_the_result_is_the_commands(data, kind, options, settings):
    fixed = ["--label", "<b>", "--epsilon", "2", "--engine", "vector", "--seed", "3", "--json"]
    said = run("simulate", data, *fixed, *options)
    tried = simulation.simulate_campaign(kind(data), "<b>", epsilon=2, engine="vector", seed=3, **settings)
    assert json.loads(json.dumps(tried.result)) == json.loads(said.stdout)
    assert "Simulation" in tried._repr_html_()


def test_the_schema_says_the_label_and_unknown_names_are_refused(data):
    schema = parse_schema_text(draft_schema(read_table(data), "<b>", name="d"))
    settings = {"schema": schema, "epsilon": 2, "engine": "vector", "seed": 3}
    tried = simulation.simulate_campaign(data, **settings)
    assert tried.result == simulation.simulate_campaign(data, "<b>", **settings).result
    with pytest.raises(InputError, match="label_missing: name the column to predict, or give a schema"):
        simulation.simulate_campaign(data, epsilon=2)
    assert reason_of(InputError, simulation.simulate_campaign, data, "class", epsilon=1) == "label_missing"
    assert reason_of(InputError, simulation.simulate_campaign, data, "<b>", epsilon=1, folds=2, test=data) == (
        "split_invalid"
    )
    with pytest.raises(TypeError, match="colour"):
        simulation.simulate_campaign(data, "<b>", epsilon=1, colour="red")
    with pytest.raises(AttributeError, match="'other'"):
        simulation.other  # noqa: B018


def test_integers_of_numpy_are_settings(data):
    tried = simulation.simulate_campaign(
        data, "<b>", epsilon=np.int64(2), engine="vector", repeats=np.int64(2), seed=np.uint8(1), answers=np.int64(2)
    )
    same = simulation.simulate_campaign(data, "<b>", epsilon=2, engine="vector", repeats=2, seed=1, answers="2")
    assert json.dumps(tried.result) == json.dumps(same.result)


def test_test_records_may_have_one_class_and_need_one(data, tmp_path):
    """Nothing is learned from them; labels that are no class are warned about and not counted."""
    test = tmp_path / "t.csv"

    def tried(*labels):
        test.write_text("odor,width,<b>\n" + "".join(f"n,1,{label}\n" for label in labels))
        return simulation.simulate_campaign(data, "<b>", epsilon=2, engine="vector", test=test)

    assert tried("e", "e").result["test_records"] == 2
    one = tried("E", "e")
    assert one.result["test_records"] == 1
    assert any(text.startswith("test records: column '<b>': 1 of 2 cells") for text in one.warnings)
    with pytest.raises(InputError) as refused:
        tried("E", "E")
    assert refused.value.reason == "no_labels"
    assert "test record" in str(refused.value)
    test.write_text("odor,width\nn,1\n")
    with pytest.raises(InputError, match=r"the test records have no column '<b>'"):
        simulation.simulate_campaign(data, "<b>", epsilon=2, test=test)


def test_a_frame_of_pandas_that_is_no_text_is_refused(data):
    for table in (pd.read_csv(data), [1], pd.DataFrame([["a"]], columns=[1])):
        assert reason_of(InputError, simulation.simulate_campaign, table, "<b>", epsilon=2) == "table_invalid"
        assert reason_of(InputError, draft_schema, table, "<b>", name="n") == "table_invalid"
    text = pd.read_csv(data, dtype=str, keep_default_na=False)
    assert draft_schema(text, "<b>", name="n") == draft_schema(read_table(data), "<b>", name="n")


def test_a_simulation_asks_about_some(data):
    found = simulation.simulate_campaign(data, "<b>", epsilon=16, seed=3, devices=60, ask="odor")
    payload = canonical.unpack(read_envelope(found.trials[0].signed.model, "model").payload)
    assert [feature["name"] for feature in payload["features"]] == ["odor"]
    with pytest.raises(InputError, match="ask_invalid: there is no feature 'odr'; near: 'odor'"):
        simulation.simulate_campaign(data, "<b>", epsilon=2, ask="odr")


def test_components_of_a_simulation_are_asked_by_their_names(data):
    rows = [f"{i % 7},{i % 5},{'nnfa'[i % 4]},{'ep'[(i // 2) % 2]}\n" for i in range(300)]
    path = data.parent / "numbers.csv"
    path.write_text("x,y,odor,label\n" + "".join(rows))
    settings = {"epsilon": 4, "engine": "vector", "seed": 3, "max_values": 2, "reduce": "pca:2"}
    found = simulation.simulate_campaign(path, "label", ask="pca2,odor", **settings)
    payload = canonical.unpack(read_envelope(found.trials[0].signed.model, "model").payload)
    assert [part["name"] for part in payload["projection"]["components"]] == ["pca2"]
    assert [feature["name"] for feature in payload["features"]] == ["x", "y", "odor"]
