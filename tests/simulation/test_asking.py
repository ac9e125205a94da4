"""``hearsay simulate --design``: what to ask is chosen by the commands' functions, through stores and evaluations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from support.commands import invoke, run

from aggregator.estimates.class_shares import class_shares
from aggregator.estimates.joining import of_features
from aggregator.models.postprocess.joint_tables import joint_table
from protocol.errors import InputError
from simulation import asking

if TYPE_CHECKING:
    from aggregator.estimates.statistics import Statistics

COPIES = 7


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Records with two features that tell the class, and copies of a third one."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 500)
    own = labels[:, None] ^ (rng.random((500, 3)) > np.array([0.85, 0.75, 0.7]))
    codes = np.hstack([own[:, :2], np.repeat(own[:, 2:], COPIES, axis=1)])
    names = ["one", "two", *(f"copy {number}" for number in range(COPIES))]
    frame = pd.DataFrame(np.array(["a", "b"], object)[codes], columns=names)
    frame["class"] = np.array(["n", "y"], object)[labels]
    file = tmp_path_factory.mktemp("asking") / "records.csv"
    frame.to_csv(file, index=False)
    return file


def simulated(data, design, *more, devices=4000):
    found = run("simulate", data, "--label", "class", "--epsilon", "4", "--mechanism", "auto", "--engine", "vector",
                "--devices", devices, "--seed", "5", "--design", design, "--json", *more)  # fmt: skip
    return json.loads(found.stdout)


@pytest.mark.slow
def test_refine_spends_every_device_once_and_drops_the_copies(data):
    found = simulated(data, "refine")
    (steps,) = found["steps"]
    assert sum(step["part"] for step in steps) == pytest.approx(1)
    assert [step["step"] for step in steps[:5]] == ["ask", "ask", "ask", "ask", "evaluate"]
    assert [step["step"] for step in steps[-3:]] == ["stop", "done", "model"]
    assert len(steps[-1]["features"]) < 9
    answered = sum(step["part"] for step in steps if step["step"] in ("ask", "stop"))
    assert found["reports"] == pytest.approx(4000 * answered, rel=0.1)
    everything = simulated(data, "all")
    assert found["accuracy"] > everything["accuracy"] - 0.02
    assert everything["steps"][0][-1]["features"] == ["one", "two", *(f"copy {number}" for number in range(COPIES))]


def test_a_fleet_too_small_to_choose_asks_about_all(data):
    found = simulated(data, "refine", devices=200)
    (steps,) = found["steps"]
    assert [step["step"] for step in steps] == ["ask", "done", "model"]
    assert "too few" in steps[0]["why"]
    assert found["reports"] == 200


def test_a_pilot_chooses_and_its_people_do_not_answer(data, monkeypatch):
    monkeypatch.setattr("aggregator.planning.feature_selection.forward_selection.MOST_FEATURES", 2)
    monkeypatch.setattr("aggregator.planning.feature_selection.forward_selection.FOLDS", 2)
    crowds = []
    of = asking.Crowd.of.__func__
    monkeypatch.setattr(
        asking.Crowd, "of", classmethod(lambda cls, people, *rest: crowds.append(people) or of(cls, people, *rest))
    )
    found = simulated(data, "pilot:60")
    (steps,) = found["steps"]
    assert [step["step"] for step in steps] == ["design", "model"]
    assert steps[0]["features"] == steps[1]["features"]
    assert len(crowds[0]) == 500 * 0.8 - 60


@pytest.mark.parametrize(("design", "steps"), [("all:60", ["count"]), ("pilot:60:count", ["design", "count"])])
def test_a_pilot_is_counted_in_the_model(data, monkeypatch, design, steps):
    monkeypatch.setattr("aggregator.planning.feature_selection.forward_selection.MOST_FEATURES", 2)
    monkeypatch.setattr("aggregator.planning.feature_selection.forward_selection.FOLDS", 2)
    kept: list[Statistics] = []
    monkeypatch.setattr(asking, "of_features", lambda joined, names: kept.append(joined) or of_features(joined, names))
    found = simulated(data, design)
    assert [step["step"] for step in found["steps"][0]] == [*steps, "model"]
    assert [source.reports for source in kept[0].sources] == [found["reports"], 60]


@pytest.mark.parametrize(
    ("design", "more"),
    [("most", ()), ("pilot:0", ()), ("all:0", ()), ("pilot:60:all", ()), ("pilot:many", ()), ("pilot:400", ()),
     ("refine", ("--evaluate",)), ("all", ("--postprocess", "paper"))],
)  # fmt: skip
def test_designs_that_do_not_exist_or_do_not_go_with_other_settings_are_refused(data, design, more):
    ran = invoke(
        "simulate", data, "--label", "class", "--epsilon", "4", "--engine", "vector", "--design", design, *more
    )
    assert ran.exit_code == 1
    assert ran.stderr.splitlines()[-1].startswith("setting_invalid")
    slow = invoke("simulate", data, "--label", "class", "--epsilon", "4", "--design", design)
    assert slow.stderr.splitlines()[-1].startswith("setting_invalid")


def test_statistics_of_some_features_keep_what_the_others_say_of_the_classes(data, monkeypatch):
    kept: list[Statistics] = []
    monkeypatch.setattr(
        asking, "of_features", lambda statistics, names: kept.append(statistics) or of_features(statistics, names)
    )
    simulated(data, "all", devices=500)
    whole = kept[0]
    some = of_features(whole, ["two", "copy 3"])
    assert [feature.name for feature in some.schema.observed] == ["two", "copy 3"]
    np.testing.assert_array_equal(joint_table(some, 0).estimate, joint_table(whole, 1).estimate)
    np.testing.assert_array_equal(joint_table(some, 1).estimate, joint_table(whole, 5).estimate)
    np.testing.assert_allclose(class_shares(some).share, class_shares(whole).share)
    np.testing.assert_allclose(class_shares(some).variance, class_shares(whole).variance)
    for names in ([], ["none"]):
        with pytest.raises(InputError, match="feature"):
            of_features(whole, names)
