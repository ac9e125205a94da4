"""``hearsay design``: the schema it writes asks what it says, and the pilot alone is judged too."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from support.commands import run
from support.pilots import DESIGN as SCHEMA

import aggregator
from aggregator.common.tables import read_table
from aggregator.planning.feature_selection import codings, forward_selection, from_pilot
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.ask_table import resolve
from aggregator.publishing.schemas.schema_file import load_schema
from protocol.errors import InputError


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(forward_selection, "MOST_FEATURES", 2)
    monkeypatch.setattr(forward_selection, "FOLDS", 2)
    (tmp_path / "s.toml").write_text(SCHEMA, "utf-8")
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


def test_rows_of_all_features_tell_each_other_apart(files):
    schema = load_schema(files / "s.toml").schema
    stated = tuple(codings.Way(feature) for feature in range(3))
    binned = (codings.Way(1, codings.EDGES, 2), codings.Way(0), codings.Way(2))
    candidates = tuple(forward_selection.Candidate(ways, np.ones(4)) for ways in (stated[:1], binned, stated))
    found = from_pilot.PilotDesign(load_schema(files / "s.toml"), (), candidates, candidates[1])
    told = [asked for _, _, asked in from_pilot.shown_path(found, schema)]
    assert told == ["letter", "all, with size (2 chosen bins)", "all, as the schema states them"]
    assert from_pilot.as_json(found)["path"][1]["ways"] == ["2 chosen bins", "as stated", "as stated"]


def test_all_features_as_stated_are_one_row(files, monkeypatch):
    monkeypatch.setattr(forward_selection, "MOST_FEATURES", 3)
    monkeypatch.setattr(forward_selection, "usable_ways", lambda *_: [codings.Way(feature) for feature in range(3)])
    made = aggregator.design(files / "p.csv", files / "s.toml", epsilon=1, devices=10**6, judge=False)
    assert len({frozenset(each.ways) for each in made.path}) == len(made.path)


def test_the_largest_class_is_named_beside_the_accuracies(files):
    found = ran(files, "--devices", "2")
    assert "largest class                  " in found.stdout
    said = r"the accuracy \(.*\) (is not|may not be) above the share of the largest class, '[ny]'"
    assert re.search(said, found.stderr)
    assert json.loads(ran(files, "--devices", "100", "--json", "--force").stdout)["largest_class"]["share"] >= 0.5
    assert "largest_class = " in (files / "o.toml").read_text("utf-8")


def test_a_fleet_without_devices_or_with_too_many_is_refused(files):
    for devices in (0, 10**15 + 1, 10**30):
        with pytest.raises(InputError, match="argument_invalid"):
            aggregator.design(files / "p.csv", files / "s.toml", epsilon=1, devices=devices)


def test_a_clear_gain_of_the_fleet_or_of_the_pilot_is_named():
    lead = from_pilot.PilotDesign(None, (), (), None, lead=(0.05, 0.01))
    assert "better than the pilot alone by +5.0 ± 1.0 points" in lead.verdict
    assert "the pilot alone is as good as the fleet would be" in lead._replace(lead=(0.01, 0.02)).verdict
    behind = lead._replace(lead=(-0.48, 0.027))
    assert "the pilot alone would be better than the fleet by 48.0 ± 2.7 points" in behind.verdict


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
