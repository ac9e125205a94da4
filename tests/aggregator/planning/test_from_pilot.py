"""``hearsay design``: the schema it writes asks what it says; cuts of values, and the forward selection."""

from __future__ import annotations

import json
import re
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from support.commands import run
from support.pilots import DESIGN

import aggregator
from aggregator.common.tables import read_table
from aggregator.models.encoding import MISSING, NO_NUMBER, EncodedFrame
from aggregator.models.population import Population
from aggregator.planning.feature_selection import codings, forward_selection, from_pilot
from aggregator.planning.feature_selection.codings import (
    AS_STATED,
    EDGES,
    GROUPS,
    QUANTILES,
    Way,
    best_cuts,
    best_groups,
    cut,
    mutual_information,
    ways,
)
from aggregator.planning.feature_selection.forward_selection import best_of, fleet_scores, plain_scores, select
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.ask_table import resolve
from aggregator.publishing.schemas.schema_file import load_schema
from protocol import SCALE
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(forward_selection, "MOST_FEATURES", 2)
    monkeypatch.setattr(forward_selection, "FOLDS", 2)
    (tmp_path / "s.toml").write_text(DESIGN, "utf-8")
    rng = np.random.default_rng(4)
    label = rng.integers(0, 2, 90)
    letter = 2 * rng.integers(0, 3, 90) + (label ^ (rng.random(90) < 0.1))
    size = np.where(label ^ (rng.random(90) < 0.3), rng.uniform(0.4, 1, 90), rng.uniform(-1, 0.4, 90)).round(3)
    noise, labels = rng.choice(["p", "q"], 90), np.where(label, "y", "n")
    letters = ["abcdef"[code] if each % 9 else "" for each, code in enumerate(letter)]
    pilot = pd.DataFrame({"letter": letters, "size": size, "noise": noise, "class": labels})
    pilot.to_csv(tmp_path / "p.csv", index=False)
    return tmp_path


def ran(files, *more, status=0):
    command = ["design", files / "p.csv", "--schema", files / "s.toml", "--epsilon", "1"]
    return run(*command, "-o", files / "o.toml", *more, status=status)


@pytest.mark.slow
def test_few_devices_ask_about_the_strong_feature_in_groups(files):
    found = ran(files, "--devices", "2000", "--json")
    said = json.loads(found.stdout)
    made = load_schema(files / "o.toml")
    assert list(made.ask) == list(said["asked"])
    assert "noise" not in said["asked"]
    assert said["asked"]["letter"]["way"] == "groups"
    asked = resolve(made.schema, made.ask)
    letter = asked.schema.observed[0]
    assert letter.size == said["asked"]["letter"]["codes"] <= 3
    groups = asked.stated.groups[0]
    assert groups[0] == groups[2] == groups[4] != groups[1] == groups[3] == groups[5]
    assert sum(point["chosen"] for point in said["path"]) == 1
    assert said["accuracy_fleet"]["low"] < said["accuracy_fleet"]["accuracy"] < said["accuracy_fleet"]["high"]
    again = ran(files, "--devices", "2000", "--json", "--force")
    assert json.loads(again.stdout) == said


def test_the_pilot_that_is_better_than_the_fleet_is_named(files):
    found = ran(files, "--devices", "100")
    assert "all, as the schema states them" in found.stdout
    assert "accuracy of the pilot alone" in found.stdout
    assert "the pilot alone would be better than the fleet by" in found.stderr
    of_table = {"pilot": read_table(files / "p.csv"), "schema": load_schema(files / "s.toml"), "epsilon": 1.0}
    for given in ({"pilot": files / "p.csv", "schema": str(files / "s.toml"), "epsilon": "1"}, of_table):
        made = aggregator.design(**given, devices=100, judge=False)
        written = (files / "o.toml").read_text("utf-8")
        judged = ("accuracy_of_", "verdict = ")
        left = "".join(line for line in written.splitlines(keepends=True) if not line.startswith(judged))
        assert schema_text(made.file) == left


def test_all_features_as_stated_are_one_row(files, monkeypatch):
    monkeypatch.setattr(forward_selection, "MOST_FEATURES", 3)
    monkeypatch.setattr(forward_selection, "usable_ways", lambda *_: [codings.Way(feature) for feature in range(3)])
    made = aggregator.design(files / "p.csv", files / "s.toml", epsilon=1, devices=10**6, judge=False)
    assert len({frozenset(each.ways) for each in made.path}) == len(made.path)


def test_the_largest_class_is_named_beside_the_accuracies(files):
    found = ran(files, "--devices", "4")
    assert "largest class                  " in found.stdout
    said = r"the accuracy \(.*\) (is not|may not be) above the share of the largest class, '[ny]'"
    assert re.search(said, found.stderr)
    assert json.loads(ran(files, "--devices", "100", "--json", "--force").stdout)["largest_class"]["share"] >= 0.5
    assert "largest_class = " in (files / "o.toml").read_text("utf-8")


def test_a_clear_gain_is_named_and_rows_of_all_features_tell_each_other_apart(files):
    lead = from_pilot.PilotDesign(None, (), (), None, lead=(0.05, 0.01))
    assert "better than the pilot alone by +5.0 ± 1.0 points" in lead.verdict
    assert "the pilot alone is as good as the fleet would be" in lead._replace(lead=(0.01, 0.02)).verdict
    behind = lead._replace(lead=(-0.48, 0.027))
    assert "the pilot alone would be better than the fleet by 48.0 ± 2.7 points" in behind.verdict
    schema = load_schema(files / "s.toml").schema
    stated = tuple(codings.Way(feature) for feature in range(3))
    binned = (codings.Way(1, codings.EDGES, 2), codings.Way(0), codings.Way(2))
    candidates = tuple(forward_selection.Candidate(ways, np.ones(4)) for ways in (stated[:1], binned, stated))
    found = from_pilot.PilotDesign(load_schema(files / "s.toml"), (), candidates, candidates[1])
    told = [asked for _, _, asked in from_pilot.shown_path(found, schema)]
    assert told == ["letter", "all, with size (2 chosen bins)", "all, as the schema states them"]
    assert from_pilot.as_json(found)["path"][1]["ways"] == ["2 chosen bins", "as stated", "as stated"]


def test_a_part_of_a_large_pilot_is_not_called_the_pilot(files, monkeypatch):
    monkeypatch.setattr(from_pilot, "MOST_RECORDS", 60)
    found = ran(files, "--devices", "100")
    assert "the pilot alone" not in found.output
    assert "accuracy of a random part of the pilot (60 of 90 records)" in found.stdout
    assert "a random part of the pilot (60 of 90 records)" in found.stderr


def test_what_is_left_out_of_a_pilot_is_named(files):
    pilot = pd.read_csv(files / "p.csv", dtype=str, keep_default_na=False)
    pilot.assign(**{"class": pilot["class"].where(pilot.index > 2, "")}).to_csv(files / "p.csv", index=False)
    assert "3 records were left out" in ran(files, "--devices", "100").stderr
    (files / "o.toml").unlink()
    for spoilt, why in ((pilot.drop(columns="noise"), "columns_missing"), (pilot.head(30), "pilot_too_small")):
        spoilt.to_csv(files / "p.csv", index=False)
        assert ran(files, "--devices", "100", status=1).stderr.startswith(why)
    assert not (files / "o.toml").exists()
    for devices in (0, 10**15 + 1, 10**30):
        with pytest.raises(InputError, match="argument_invalid"):
            aggregator.design(files / "p.csv", files / "s.toml", epsilon=1, devices=devices)


# Cuts of values, and the forward selection ------------------------------------------------------------


LETTERS = ["a", "b", "c", "d", "e", "f"]
SCHEMA = build_schema(
    Label("class", ["n", "y"]),
    [
        Categorical("letter", LETTERS, substitute=0),
        Numeric("size", "-1", "1", [0]),
        *(Categorical(f"noise {each}", ["p", "q"], substitute=0) for each in range(2)),
    ],
)


@pytest.fixture(scope="module")
def records():
    """Letters a, c and e go with class n; sizes above 0.5 with class y; all other features tell nothing."""
    rng = np.random.default_rng(11)
    labels = rng.integers(0, 2, 200)
    letters = 2 * rng.integers(0, 3, 200) + (labels ^ (rng.random(200) < 0.15))
    sizes = np.where(labels ^ (rng.random(200) < 0.1), rng.uniform(0.5, 1, 200), rng.uniform(-1, 0.5, 200))
    numbers = np.full((200, 4), NO_NUMBER)
    numbers[:, 1] = np.rint(sizes * SCALE)
    codes = np.column_stack([letters, sizes > 0, rng.integers(0, 2, (200, 2))]).astype(np.int64)
    encoded = EncodedFrame(codes, numbers)
    return Population(encoded, labels, encoded, labels)


def columns(records, feature):
    return records.reported.codes[:, feature], records.reported.numbers[:, feature], records.labels


def test_groups_hold_the_values_that_go_with_one_class(records):
    codes, numbers, labels = columns(records, 0)
    found = cut(Way(0, GROUPS, 2), SCHEMA, codes, numbers, labels)
    assert (found.group_of, found.size) == ((0, 1, 0, 1, 0, 1), 2)
    assert found.codes(np.array([3, MISSING]), np.array([0, 0])).tolist() == [1, MISSING]
    assert cut(Way(0, GROUPS, 2), SCHEMA, codes, numbers, 1 - labels // 2).group_of != (0, 1) * 3
    table = np.array([[9, 1, 0], [0, 0, 9], [8, 1, 1], [1, 9, 0], [0, 0, 0], [0, 1, 9]], float)
    groups = best_groups(table, 3)  # of three classes; the value that was never seen has a group
    assert groups[0] == groups[2]
    assert groups[1] == groups[5] != groups[0]
    assert len(set(groups)) == 3
    assert best_groups(table[:2], 2) is None


def test_edges_are_where_the_class_changes(records):
    found = cut(Way(1, EDGES, 2), SCHEMA, *columns(records, 1))
    assert found.edges[0] / SCALE == pytest.approx(0.5, abs=0.1)
    numbers = np.array([-SCALE, SCALE, NO_NUMBER])
    assert found.codes(np.array([0, 1, MISSING]), numbers).tolist() == [0, 1, MISSING]
    four = cut(Way(1, QUANTILES, 4), SCHEMA, *columns(records, 1))
    assert np.bincount(four.codes(*columns(records, 1)[:2])).min() >= 45
    schema = build_schema(Label("class", ["n", "y"]), [Numeric("size", "-1", "1", [0], substitute=None)])
    numbers = np.array([-SCALE, 0, SCALE // 2, SCALE, NO_NUMBER])
    found = cut(Way(0, QUANTILES, 2), schema, np.array([0, 1, 1, 1, 2]), numbers, np.array([0, 0, 1, 1, 1]))
    assert found.size == 3
    assert found.codes(np.array([0, 2]), np.array([SCALE, NO_NUMBER])).tolist() == [1, 2]
    same = np.zeros(9, np.int64)
    for way in (Way(0, QUANTILES, 4), Way(0, EDGES, 2)):
        assert cut(way, schema, same, same, same) is None
    assert [way.kind for way in ways(SCHEMA, 0)] == [AS_STATED, GROUPS, GROUPS]
    assert {way.kind for way in ways(SCHEMA, 1)} == {AS_STATED, QUANTILES, EDGES}
    assert mutual_information(np.full((2, 2), 50.0)) == pytest.approx(0, abs=1e-12)
    assert mutual_information(np.array([[50.0, 0], [0, 50]])) > 0.5


def test_the_cuts_are_the_best_of_all_the_first_of_equal_ones():
    rng = np.random.default_rng(1)
    for rows, classes, parts in product(range(1, 10), (2, 3), (2, 3)):
        table = rng.poisson(rng.choice([0.3, 5]), (rows, classes)).astype(np.float64)
        sums = np.vstack([np.zeros(classes), np.cumsum(table, axis=0)])
        every = list(combinations(range(1, rows), parts - 1))
        told = [mutual_information(np.diff(sums[[0, *inner, rows]], axis=0)) for inner in every]
        first = next((list(inner) for inner, each in zip(every, told, strict=True) if each > max(told) - 1e-12), None)
        assert best_cuts(table, parts) == first
    many = np.repeat([[9.0, 1.0], [5.0, 5.0], [1.0, 9.0]], 500, axis=0)  # all pairs of 1,500 rows would take a minute
    assert best_cuts(many, 3) == [500, 1000]


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(forward_selection, "MOST_FEATURES", 3)
    monkeypatch.setattr(forward_selection, "FOLDS", 2)


def test_the_selection_asks_about_what_tells_the_class_and_leaves_out_what_does_not(records, quick):
    path = select(records, SCHEMA, np.arange(200), fleet_scores(20_000, 10**6), 1, np.random.default_rng(2))
    assert [len(each.ways) for each in path[:2]] == [1, 2]
    chosen = best_of(path)
    assert {way.feature for way in chosen.ways} <= {0, 1}
    assert Way(1) not in chosen.ways
    assert chosen.accuracy > 0.8
    assert len(path[-1].ways) == 4
    assert path[-1].ways[0] == Way(0)
    noisy = select(records, SCHEMA, np.arange(200), fleet_scores(40, 200_000), 1, np.random.default_rng(2))
    plain = select(records, SCHEMA, np.arange(200), plain_scores, 1, np.random.default_rng(2))
    assert noisy[-1].accuracy < plain[-1].accuracy - 0.1
    assert best_of(plain).error == pytest.approx(0.02, abs=0.01)
