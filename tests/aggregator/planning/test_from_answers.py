"""The first step of a series, its names and its file; ``tests/simulation/test_refine_on_files.py`` has the others."""

from __future__ import annotations

import time

import pytest
from support.commands import run, told
from support.failures import reason_of

import aggregator
from aggregator.planning.feature_selection.from_answers import _features_of, candidate_name, first_step
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.planning.feature_selection.steps import FeatureCampaign, SeriesFleet, Share
from aggregator.publishing.ask_table import AskedFeature, ask_of, listed, resolve
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

SCHEMA = schema_text(
    SchemaFile(
        "groups",
        build_schema(
            Label("class", ["n", "y"]),
            [
                Categorical("letter", ["a", "b", "c"]),
                Numeric("size", "0", "8", [-32768, 0, 32768], substitute=None),
                Categorical("left out", ["p", "q"]),
            ],
        ),
        {"letter": AskedFeature((("a", "c"), ("b",))), "size": AskedFeature(bins=(1, 3))},
    )
)


@pytest.fixture
def schema_file(tmp_path):
    (tmp_path / "s.toml").write_text(SCHEMA, "utf-8")
    return tmp_path / "s.toml"


def test_the_groups_of_the_schema_stay_in_what_is_asked(schema_file):
    file = load_schema(schema_file)
    asked = resolve(file.schema, file.ask)
    found = first_step(asked.schema, "x", SeriesFleet(1000, 10**6))
    assert found.names == ("letter", "size")
    again = resolve(file.schema, found.ask)
    assert again == asked
    weighted = found._replace(step=found.step._replace(asks=(FeatureCampaign((1,), Share(0, 9), (7,)),)))
    assert resolve(file.schema, weighted.ask).shares == {1: 7}


def test_the_command_writes_a_schema_that_a_campaign_reads(schema_file, tmp_path):
    ran = run("refine", schema_file, "--series", "x y", "--devices", 1000, "--epsilon", 1, "-o", tmp_path / "n.toml")
    assert "step" in ran.stdout
    assert "features are too few to choose from" in ran.stdout
    assert "--name 'x y-1' --series 'x y' --share 0:1" in ran.stderr
    file, made = load_schema(schema_file), load_schema(tmp_path / "n.toml")
    one, two = resolve(made.schema, made.ask), resolve(file.schema, file.ask)
    assert (one.shares, one.stated.groups) == (two.shares, two.stated.groups)
    usual = ("--devices", 9, "--epsilon", 1, "-o", tmp_path / "n.toml")
    assert run("refine", schema_file, "--series", "x", *usual, status=1).stderr.startswith("output_exists")
    wrong = ([schema_file], [schema_file, "--evaluation", "e"], [schema_file, "--models", "m", "--series", "x"])
    for given in (*wrong, ["--series", "x"]):
        run("refine", *given, *usual[:-1], tmp_path / "m.toml", status=2)


def test_python_gives_the_first_step_of_the_command(schema_file, tmp_path):
    usual = ("--devices", 1000, "--epsilon", 1, "-o", tmp_path / "n.toml")
    said = told("refine", schema_file, "--series", "x", *usual)
    found = aggregator.refine(schema=schema_file, series="x", devices=1000, epsilon=1)
    assert {key: said[key] for key in found.to_json()} == found.to_json()
    assert aggregator.sign_candidates(tmp_path / "no workspace", found, []) == {}
    aggregator.create_workspace(tmp_path / "work", name="w", now=int(time.time()))
    made = aggregator.make_campaign(
        tmp_path / "work", schema_file, ask=found.ask, epsilon=1, mechanism="auto", class_question=False,
        series=found.series, share=found.share.shown,
    )  # fmt: skip
    assert [feature.name for feature in made.campaign.schema.observed] == list(found.names)
    assert (made.campaign.series.low, made.campaign.series.high) == (found.share.low, found.share.high)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"series": "x"},
        {"schema": True},
        {"stores": ["s"], "schema": True, "series": "x"},
        {"stores": ["s"], "series": "x"},
        {"schema": True, "series": "x", "evaluations": ["e"]},
        {"schema": True, "series": "x", "devices": 0},
    ],
)
def test_arguments_that_do_not_fit_are_refused(schema_file, given):
    named = {"devices": 9, "epsilon": 1, **given, **({"schema": schema_file} if "schema" in given else {})}
    assert reason_of(InputError, aggregator.refine, **named) == "argument_invalid"


def test_names_with_commas_are_written_as_they_are_read_and_some_can_not_be_stated(schema_file):
    names = ["age, years", 'a "quoted" one', '"', "plain", "a,b"]
    assert list(ask_of(listed(names), {})) == names
    assert list(ask_of('"age, years",fever , odor', {})) == ["age, years", "fever", "odor"]
    for broken in ('"age, years', "", ","):
        assert reason_of(InputError, ask_of, broken, {}) == "ask_invalid"
    for series in ("", 'a\nname = "x"', "x" * 2000):
        refused = reason_of(InputError, aggregator.refine, devices=9, epsilon=1, schema=schema_file, series=series)
        assert refused == "series_invalid"


def test_names_of_candidates_say_their_features():
    for features in ((0,), (3, 8), tuple(range(12))):
        assert _features_of(candidate_name("a-b", features, 12), "a-b", 12) == features
    assert candidate_name("s", tuple(range(3)), 3) == "s-all"
    for name in ("s-0", "s-4", "s-2-1", "s-1-2-3", "s-", "s", "t-1", "s-1-1", "s-01", "s-ALL", "s-1-"):
        with pytest.raises(InputError, match="no candidate"):
            _features_of(name, "s", 3)
