"""``aggregator.plan`` and ``hearsay plan``: ranking, targets, refusals."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from support.commands import invoke
from support.failures import refusal
from support.plans import SCHEMA

import aggregator
from aggregator.cli.app import hearsay
from aggregator.models.population import Population
from aggregator.operations.campaigns import plan_campaign
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.planning.power_analysis import search as race
from aggregator.planning.power_analysis import targets
from aggregator.planning.power_analysis.plan import _solution_text as said
from aggregator.planning.power_analysis.rehearsal import Fleet, Fold, Forecast, Rehearsal, own_weight, plain_accuracy
from aggregator.planning.power_analysis.search import Scope, codings
from aggregator.planning.power_analysis.study import Design, Study, with_bins
from aggregator.planning.power_analysis.targets import Curve, for_accuracy, rising
from aggregator.publishing.schemas.schema_file import load_schema
from protocol import mechanisms
from protocol.errors import InputError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(race, "FIRST", 2)
    monkeypatch.setattr(race, "ROUNDS", 1)
    monkeypatch.setattr(targets, "NEAR_TARGET", 1)
    monkeypatch.setattr("aggregator.planning.power_analysis.study.FOLDS", 2)
    monkeypatch.setattr("aggregator.planning.power_analysis.study.ASSUMED_RECORDS", 300)
    monkeypatch.setattr(targets, "GRIDS", {**targets.GRIDS, "devices": (100, 10_000, 1_000_000)})
    monkeypatch.setattr("aggregator.planning.power_analysis.plan.GRIDS", targets.GRIDS)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "s.toml").write_text(SCHEMA, "utf-8")
    rng = np.random.default_rng(8)
    label = rng.integers(0, 2, 80)
    pilot = pd.DataFrame(
        {
            "colour": np.where(rng.random(80) < 0.3 + 0.4 * label, "red", "green"),
            "width": (rng.normal(1.5 * label - 0.75)).round(3).astype(str),
            "class": np.where(label, "a", "b"),
        }
    )
    pilot.to_csv(tmp_path / "p.csv", index=False)
    return tmp_path


@pytest.mark.slow
def test_a_plan_ranks_designs_and_answers_targets(files):
    found = aggregator.plan(
        files / "s.toml", epsilon=2, devices=5000, pilot=files / "p.csv", target_accuracy=0.7, target_width=0.1
    )
    families = {one.design.family for one in found.ranked}
    assert families == {"discrete", "gaussian"}
    assert {one.design.bins for one in found.ranked} >= {None, 2, 8}
    assert any(one.design.reduction == "none" for one in found.ranked)
    accuracies = [one.forecast.accuracy for one in found.ranked]
    assert accuracies == sorted(accuracies, reverse=True)
    assert {one.design.mechanism for one in found.ranked} == {*mechanisms.names(), "auto"}
    assert {one.design.answers for one in found.ranked} >= {1, 2, 3}
    choices = found.choices()
    assert set(choices) == {"family", "projection", "mechanism", "answers", "bins"} - {"projection"}
    for options in choices.values():
        assert found.ranked[0] in options.values()
        assert [one.forecast.accuracy for one in options.values()] == sorted(
            (one.forecast.accuracy for one in options.values()), reverse=True
        )
    assert found.facts()["by family"].startswith(found.ranked[0].design.family)
    assert found.ranked[0].forecast.low < found.ranked[0].forecast.accuracy < found.ranked[0].forecast.high
    assert 0.6 < found.ranked[0].forecast.accuracy < 0.95
    assert all(one.value is not None for one in found.solutions)
    assert found.solutions[1].value == pytest.approx(
        5000 * (max(one.width for one in found.precision) / 0.1) ** 2, rel=0.01
    )
    assert "Plan" in found._repr_html_()


def test_the_same_seed_gives_the_same_plan_and_the_command_the_same_as_python(files):
    common = {"epsilon": 2, "devices": 500, "pilot": files / "p.csv", "mechanism": "oue", "coding": "schema"}
    known = aggregator.plan(files / "s.toml", **common)
    command = ["plan", str(files / "s.toml"), "--epsilon", "2", "--devices", "500", "--mechanism", "oue"]
    command += ["--coding", "schema"]
    ran = invoke(*command, "--pilot", files / "p.csv", "--json")
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout) == json.loads(json.dumps(known.to_json()))
    other = aggregator.plan(files / "s.toml", **common, seed=1)
    assert other.to_json() != known.to_json()


def test_the_command_prints_one_table_and_draws_a_plot(files):
    command = ["plan", str(files / "s.toml"), "--epsilon", "2", "--devices", "500", "--coding", "schema"]
    ran = invoke(*command, "--statistics", "--plot", files / "o.svg")
    assert ran.exit_code == 0, ran.output
    assert "assumed: classes of the same share" in ran.stdout
    assert "cell colour" in ran.stdout
    assert "note: without a pilot" in ran.stderr
    ET.fromstring((files / "o.svg").read_text("utf-8"))
    again = invoke(*command, "--plot", files / "o.svg")
    assert again.exit_code == 1
    assert again.stderr.startswith("output_exists")


def test_invented_records_are_read_by_the_bins_of_each_design(files):
    schema = load_schema(files / "s.toml").schema
    study = Study(schema, 1_000_000, "simplex", pilot=None, effect=1.0, seed=0)
    four, two = (study.population(one) for one in (schema, with_bins(schema, 2)))
    assert set(four.reported.codes[:, 1].tolist()) == {0, 1, 2, 3}
    np.testing.assert_array_equal(two.reported.codes[:, 1], four.reported.codes[:, 1] // 2)
    found = aggregator.plan(files / "s.toml", epsilon=1, devices=1)
    assert {one.design.bins for one in found.ranked} == {None, 2, 3, 6, 8}


def test_a_plan_that_is_worse_than_the_largest_class_warns(files):
    command = ["plan", str(files / "s.toml"), "--epsilon", "0.1", "--devices", "20", "--coding", "schema"]
    ran = invoke(*command, "--effect", "0.01", "--family", "discrete")
    assert ran.exit_code == 0, ran.output
    expected = aggregator.plan(
        files / "s.toml", epsilon=0.1, devices=20, coding="schema", effect=0.01, family="discrete"
    )
    assert ("warning:" in ran.stderr) == (expected.ranked[0].forecast.accuracy <= expected.largest_class)


def test_a_target_above_the_accuracy_without_privacy_can_not_be_reached(files):
    found = aggregator.plan(
        files / "s.toml", epsilon=2, pilot=files / "p.csv", target_accuracy=0.999, coding="schema", family="discrete"
    )
    assert found.solutions[0].value is None
    assert "cannot be reached: without privacy the accuracy on these records is" in found.facts()["accuracy 99.9%"]


@pytest.mark.parametrize(("solve", "width"), [("epsilon", 0.2), ("days", 0.2), ("days", 0.0001), ("epsilon", 0.0001)])
def test_widths_for_epsilon_and_days(files, solve, width):
    common = {"epsilon": 2, "devices": 2000, "coding": "schema", "mechanism": "oue", "answers": "one"}
    found = aggregator.plan(files / "s.toml", target_width=width, solve=solve, **common)
    value = found.solutions[0].value
    if width < 0.01:
        assert value is None
        return
    given = {"epsilon": {"epsilon": f"{value:.6f}"}, "days": {"periods": round(value)}}[solve]
    again = aggregator.plan(files / "s.toml", **{**common, **given})
    assert max(one.width for one in again.precision) <= width * 1.001


@pytest.mark.slow
def test_a_design_of_a_projection_is_fitted_on_the_folds_that_answer(files):
    frame = pd.read_csv(files / "p.csv")
    frame["height"] = frame["width"] * 0.3 + np.random.default_rng(1).normal(size=80)
    schema = SCHEMA + '[[features]]\nname = "height"\nkind = "numeric"\nlow = "-4"\nhigh = "4"\nbins = 4\n'
    (files / "s2.toml").write_text(schema, "utf-8")
    frame.round(3).to_csv(files / "p2.csv", index=False)
    found = aggregator.plan(files / "s2.toml", epsilon=2, devices=2000, pilot=files / "p2.csv")
    assert {one.design.reduction for one in found.ranked} >= {"none", "pca:1", "dca:1"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"devices": 0},
        {"devices": 10**13},
        {"devices": None},
        {"periods": 0},
        {"periods": 4000},
        {"effect": 0.0},
        {"effect": 6.0},
        {"effect": float("nan")},
        {"target_accuracy": 1.0},
        {"target_accuracy": float("nan")},
        {"target_width": 0.0},
        {"target_width": 2.0},
        {"solve": "luck"},
        {"coding": "other"},
        {"seed": -1},
        {"devices": None, "target_width": 0.1, "solve": "days"},
        {"solve": "epsilon"},
        {"periods": 2, "target_width": 0.1, "solve": "days"},
    ],
)
def test_numbers_outside_their_range_are_refused(files, wrong):
    assert refusal(aggregator.plan, files / "s.toml", **{"epsilon": 1, "devices": 100, **wrong}) == "plan_invalid"


def test_an_effect_beside_a_pilot_and_a_small_pilot_are_refused(files):
    common = {"epsilon": 1, "devices": 100}
    assert refusal(aggregator.plan, files / "s.toml", pilot=files / "p.csv", effect=1.0, **common) == "plan_invalid"
    pd.read_csv(files / "p.csv").head(19).to_csv(files / "few.csv", index=False)
    assert refusal(aggregator.plan, files / "s.toml", pilot=files / "few.csv", **common) == "pilot_too_small"


QUICK = {
    "epsilon": 1,
    "devices": 600,
    "coding": "schema",
    "mechanism": "direct",
    "answers": "one",
}


def test_shares_of_asked_features_are_planned(files):
    """Of 600 devices 150 are asked for the class, 150 for a feature, and 300 for a feature of share 2."""
    (files / "w.toml").write_text(SCHEMA + "[ask.colour]\nshare = 2\n[ask.width]\n", "utf-8")
    found = aggregator.plan(files / "w.toml", **QUICK)
    assert [round(one.answers) for one in found.precision[:3]] == [150, 300, 150]
    assert not any("share" in note for note in found.notes)
    equal = aggregator.plan(files / "s.toml", **QUICK)
    assert [round(one.answers) for one in equal.precision[:3]] == [200, 200, 200]


@pytest.mark.slow
def test_family_auto_of_a_campaign_heeds_shares(files):
    (files / "w.toml").write_text(SCHEMA + "[ask.colour]\nshare = 2\n[ask.width]\n", "utf-8")
    planned = plan_campaign(files / "w.toml", epsilon=1, mechanism="auto", family="auto", devices=600)
    assert [round(one.answers) for one in planned.forecast.precision if one.question == "cell colour"] == [300]


def test_shares_of_groups_of_values_are_planned_as_the_campaign_asks(files):
    ask = '[ask.width]\nshare = 3\nbins = [2, 2]\n[ask.colour]\ngroups = [["red"]]\n'
    (files / "w.toml").write_text(SCHEMA + ask, "utf-8")
    found = aggregator.plan(files / "w.toml", **QUICK)
    assert [round(one.answers) for one in found.precision[:3]] == [120, 120, 360]
    assert [len(one.errors) for one in found.precision[:3]] == [2, 4, 4]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [({"answers": "all"}, "weights_invalid"), ({"coding": "pca:1"}, "plan_invalid")],
)
def test_shares_that_no_campaign_can_have_are_refused(files, changed, expected):
    (files / "w.toml").write_text(SCHEMA + "[ask.colour]\nshare = 2\n[ask.width]\n", "utf-8")
    assert refusal(aggregator.plan, files / "w.toml", pilot=files / "p.csv", **{**QUICK, **changed}) == expected


def test_a_plan_asks_for_the_class_alone_unless_it_is_told_not_to(files):
    """As ``hearsay campaign``: with the question by default; without it only discrete campaigns."""
    asked = aggregator.plan(files / "s.toml", **QUICK)
    command = ["plan", str(files / "s.toml"), "--epsilon", "1", "--devices", "600", "--coding", "schema", "--json"]
    ran = invoke(*command, "--no-class-question", "--answers", "one", "--mechanism", "direct")
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert [one.question for one in asked.precision[:2]] == ["class", "cell colour"]
    assert [one["question"] for one in found["precision"][:2]] == ["cell colour", "cell width"]
    assert [round(one["answers"]) for one in found["precision"][:2]] == [300, 300]
    schema = load_schema(files / "s.toml").schema
    study = Study(schema, 1_000_000, "simplex", pilot=None, effect=1.0, seed=0, class_question=False)
    assert {family for family, _, _ in codings(study, Scope())} == {"discrete"}
    wrong = {**QUICK, "class_question": False}
    gaussian = {**wrong, "mechanism": "bits"}
    assert refusal(aggregator.plan, files / "s.toml", **gaussian) == "not_fittable"
    assert refusal(aggregator.plan, files / "s.toml", **wrong, postprocess="paper") == "not_fittable"
    planned = plan_campaign(files / "s.toml", epsilon=1, mechanism="auto", family="auto", class_question=False)
    assert (planned.terms.family, planned.forecast) == ("discrete", None)


def test_intervals_of_a_plan_are_not_wider_than_shares_and_means_can_be(files):
    """One device: by the formulas alone a share would have an interval of width 20."""
    common = {"epsilon": 1, "devices": 1, "coding": "schema", "answers": "one"}
    found = aggregator.plan(files / "s.toml", mechanism="direct", **common)
    assert found.facts()["widest 95 % interval"].startswith("1, of ")
    assert found.facts()["95 % interval of a class"] == "1 wide"
    assert max(one.width for one in found.precision) > 10
    gaussian = aggregator.plan(files / "s.toml", mechanism="bits", **common).to_json()["precision"]
    widths = {one["question"]: one["width"] for one in gaussian}
    assert [width for name, width in widths.items() if "moment" in name] == [2, 1]
    command = ["plan", str(files / "s.toml"), "--epsilon", "1", "--devices", "1", "--coding", "schema", "--statistics"]
    ran = invoke(*command, "--mechanism", "direct")
    rows = [line.split() for line in ran.stdout.splitlines() if line.startswith(("class  ", "cell"))]
    assert rows
    assert {row[-1] for row in rows} == {"1"}


def test_a_pilot_with_cells_that_the_schema_does_not_know_is_noted(files):
    pilot = pd.read_csv(files / "p.csv", dtype=str)
    pilot["colour"] = "RED"
    call = {"epsilon": 1, "devices": 100, "coding": "schema", "family": "discrete", "mechanism": "direct"}
    found = aggregator.plan(files / "s.toml", pilot=pilot, answers="one", **call)
    assert any("colour" in note and "80 of 80" in note for note in found.notes)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epsilon": 4, "periods": 25}, ""),
        ({"epsilon": 4, "periods": 26}, "stops after 25 periods"),
        ({"epsilon": 4.5}, "refuses ε = 4.5"),
        ({"epsilon": 1, "target_width": 0.18, "solve": "days"}, "stops after 100 periods"),
        ({"epsilon": 1, "target_width": 0.5, "solve": "epsilon"}, "refuses ε = "),
    ],
)
def test_more_than_devices_answer_under_the_default_limits_is_noted(files, given, said):
    common = {"devices": 150, "coding": "schema", "family": "discrete", "mechanism": "oue", "answers": "one"}
    notes = [note for note in aggregator.plan(files / "s.toml", **common, **given).notes if "owner" in note]
    assert len(notes) == (said != "")
    assert said in " ".join(notes)


@pytest.mark.parametrize("column", ["colour", "width"])
def test_a_pilot_without_a_column_of_a_feature_is_refused(files, column):
    """Its records would count as missing everywhere, and the plan would be about another fleet."""
    pd.read_csv(files / "p.csv").drop(columns=column).to_csv(files / "narrow.csv", index=False)
    call = {"epsilon": 1, "devices": 100, "pilot": files / "narrow.csv"}
    assert refusal(aggregator.plan, files / "s.toml", **call) == "columns_missing"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"family": "other"}, "family_unknown"),
        ({"mechanism": "other"}, "mechanism_unknown"),
        ({"family": "gaussian", "mechanism": "oue"}, "mechanism_unknown"),
        ({"answers": "none"}, "answers_invalid"),
        ({"epsilon": 0}, "epsilon_invalid"),
        ({"postprocess": "other"}, "postprocess_unknown"),
    ],
)
def test_parameters_of_no_campaign_are_refused(files, given, expected):
    assert refusal(aggregator.plan, files / "s.toml", **{"epsilon": 1, "devices": 100, **given}) == expected


def test_rising_pools_what_falls():
    assert rising(np.array([1.0, 3.0, 2.0, 2.0, 5.0])).tolist() == pytest.approx([1, 7 / 3, 7 / 3, 7 / 3, 5])
    assert rising(np.array([3.0, 2.0, 1.0])).tolist() == [2, 2, 2]


def test_a_curve_reaches_a_target_between_its_values():
    design = Design("discrete", "direct")
    found = Curve(design, "devices", np.array([100.0, 10_000]), np.array([0.6, 0.8]), np.array([0.05, 0.05]))
    assert found.reaches(0.7) == pytest.approx(1000)
    assert found.reaches(0.5) == 100
    assert found.reaches(0.9) is None
    solved = for_accuracy([found], [0.85], 0.7)
    assert (solved.value, solved.low, solved.high) == (
        pytest.approx(1000),
        pytest.approx(104.7, rel=0.01),
        pytest.approx(9549.9, rel=0.01),
    )
    assert "at devices = 10,000" in for_accuracy([found], [0.85], 0.82).why
    assert "without privacy" in for_accuracy([found], [0.85], 0.9).why


def test_a_target_that_the_first_searched_value_meets_is_said_as_at_most(files):
    design = Design("discrete", "direct")

    def curve(quantity, heights):
        return Curve(design, quantity, np.array([100.0, 10_000]), np.array(heights), np.array([0.05, 0.05]))

    met = for_accuracy([curve("devices", [0.8, 0.9])], [0.95], 0.6)
    assert (met.value, met.low, met.high, met.least) == (100, None, 100, 100)
    assert said(met) == "devices = at most 100, with discrete, direct"
    near = for_accuracy([curve("devices", [0.65, 0.9])], [0.95], 0.6)
    assert said(near).startswith("devices = at most 100 (less to ")
    later = for_accuracy([curve("devices", [0.55, 0.9])], [0.95], 0.6)
    assert said(later).startswith("devices = 194 (less to ")
    days = for_accuracy([curve("days", [0.8, 0.9])._replace(grid=np.array([1.0, 2]))], [0.95], 0.6)
    assert said(days) == "days = 1, with discrete, direct"
    common = {"effect": 3.0, "coding": "schema", "mechanism": "direct", "answers": "one"}
    found = aggregator.plan(files / "s.toml", epsilon=4, target_accuracy=0.6, **common)
    assert found.facts()["accuracy 60.0%"].startswith("devices = at most 100")
    assert found.fleet.devices == 100


def test_the_forecast_of_a_pilot_is_near_what_large_fleets_give(files):
    """The pilot's folds are too pessimistic and its own records too optimistic; their mean is nearly unbiased."""
    schema = load_schema(files / "s.toml").schema
    frame = pd.read_csv(files / "p.csv", dtype=str)
    people = Population.of_frame(frame, schema)
    campaign = Design("discrete", "direct").campaign(schema, 16_000_000, "simplex")
    rows = np.arange(80)
    folds = [
        Fold(
            campaign,
            people.take(rows[rows % 4 != part]),
            rows[rows % 4 != part],
            people.take(rows[part::4]),
            rows[part::4],
        )
        for part in range(4)
    ]
    rehearsal = Rehearsal(folds, 80, Fleet(1_000_000), np.random.default_rng(2))
    rehearsal.run(2)
    assert rehearsal.campaigns == 8
    assert rehearsal.forecast().accuracy == pytest.approx(plain_accuracy(folds, 80), abs=0.03)
    assert rehearsal.forecast().noise < 0.02
    with pytest.raises(InputError):
        Design("gaussian", "oue").campaign(schema, 1_000_000, "simplex")


@pytest.mark.slow
def test_family_auto_of_a_campaign_is_the_one_that_the_plan_ranks_first(files):
    runner = CliRunner()
    assert runner.invoke(hearsay, ["init", str(files / "w"), "--no-passphrase"]).exit_code == 0
    command = ["campaign", str(files / "s.toml"), "--workspace", str(files / "w"), "--epsilon", "4", "--mechanism"]
    options = ["auto", "--family", "auto", "--pilot", str(files / "p.csv"), "--devices", "20000"]
    made = runner.invoke(hearsay, [*command, *options, "-o", str(files / "c.hsc"), "--json"])
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    expected = aggregator.plan(
        files / "s.toml", epsilon=4, devices=20000, pilot=files / "p.csv", answers="one", coding="schema"
    )
    assert told["designs"] == json.loads(json.dumps(expected.to_json()["designs"]))
    assert {one["family"] for one in told["designs"]} == {"discrete", "gaussian"}
    assert told["family"] == expected.ranked[0].design.family
    assert f"note: family auto: {expected.ranked[0].design.name} has the largest" in made.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["auto", "--family", "discrete", "--devices", "500", "--pilot", "p.csv"],
        ["oue", "--family", "auto", "--devices", "500", "--pilot", "p.csv"],
        ["auto", "--family", "auto"],
        ["auto", "--family", "auto", "--pilot", "p.csv"],
        ["auto", "--family", "auto", "--devices", "500", "--theta", "0.3"],
        ["auto", "--family", "auto", "--devices", "500", "--split", "1:2:2"],
    ],
)
def test_options_with_which_auto_can_not_choose_a_family_are_refused(files, options, monkeypatch):
    runner = CliRunner()
    monkeypatch.chdir(files)
    assert runner.invoke(hearsay, ["init", "w", "--no-passphrase"]).exit_code == 0
    command = ["campaign", "s.toml", "--workspace", "w", "--epsilon", "4", "-o", "c.hsc", "--mechanism", *options]
    made = runner.invoke(hearsay, command)
    assert made.exit_code == 1
    assert made.stderr.startswith("plan_invalid: ")


@pytest.mark.parametrize(("mechanism", "family"), [("oue", "discrete"), ("bits", "gaussian")])
def test_a_mechanism_leaves_auto_one_family(files, mechanism, family):
    planned = plan_campaign(files / "s.toml", epsilon=1, mechanism=mechanism, family="auto")
    assert (planned.terms.family, planned.terms.mechanism, planned.forecast) == (family, mechanism, None)


def test_without_a_pilot_auto_ranks_families_by_an_assumed_effect(files):
    planned = plan_campaign(files / "s.toml", epsilon=1, mechanism="auto", family="auto", devices=3000)
    first = planned.forecast.ranked[0].design
    assert (planned.terms.family, planned.terms.mechanism) == (first.family, first.mechanism)
    assert {one.design.family for one in planned.forecast.ranked} == {"discrete", "gaussian"}
    assert "no pilot; assumed" in planned.notes[0]


def test_without_a_number_of_devices_designs_are_ranked_at_the_number_that_the_target_needs(files):
    found = aggregator.plan(files / "s.toml", epsilon=2, target_width=0.1, coding="schema", mechanism="oue")
    assert found.solutions[0].value == pytest.approx(found.fleet.devices, rel=0.3)
    assert found.fleet.devices != 10_000


def test_the_first_design_is_the_one_that_the_target_needs_the_devices_for(files):
    """Of eight seeds, another design headed the plan with four, and another fleet with one more."""
    found = aggregator.plan(files / "s.toml", epsilon=2, pilot=files / "p.csv", target_accuracy=0.7, coding="schema")
    assert found.ranked[0].design == found.solutions[0].design
    assert found.fleet.devices == found.solutions[0].value
    assert (found.ranked[0].behind, found.ranked[0].behind_error) == (0.0, 0.0)
    assert "the first design is better" not in found.facts()["accuracy 70.0%"]
    other = found._replace(ranked=(found.ranked[1], found.ranked[0], *found.ranked[2:]))
    assert other.facts()["accuracy 70.0%"].endswith("; for 100 devices the first design is better")


def test_a_frame_with_nan_is_the_csv_file_with_empty_cells(files):
    """It was refused with advice about --missing."""
    pilot = pd.read_csv(files / "p.csv")
    pilot.loc[[1, 5], "width"] = np.nan
    pilot.loc[[2, 3], "colour"] = None
    pilot.to_csv(files / "m.csv", index=False)
    schema = files / "m.toml"
    schema.write_text((files / "s.toml").read_text().replace('kind = "numeric"', 'kind = "numeric"\nmissing = "code"'))
    given = {"epsilon": 2, "devices": 500, "coding": "schema", "mechanism": "direct"}
    one, two = (aggregator.plan(schema, pilot=data, **given) for data in (pilot, files / "m.csv"))
    assert one.ranked == two.ranked
    assert one.notes == two.notes
    asked = {"epsilon": 2, "devices": 500, "judge": False}
    one, two = (aggregator.design(data, schema, **asked) for data in (pilot, files / "m.csv"))
    assert schema_text(one.file) == schema_text(two.file)
    assert str(one.path) == str(two.path)
    pilot["width"] = pilot["width"].astype(object).where(pilot.index != 7, "wide")
    with pytest.raises(InputError, match=r"record 7: not a finite number.*or missing= in Python"):
        aggregator.plan(schema, pilot=pilot, **given)


def test_a_plot_is_over_the_quantity_that_the_target_needs(files, monkeypatch):
    monkeypatch.setattr("aggregator.planning.power_analysis.plan.GRIDS", {**targets.GRIDS, "epsilon": (1.0, 4.0)})
    found = aggregator.plan(
        files / "s.toml",
        epsilon=2,
        devices=500,
        pilot=files / "p.csv",
        target_accuracy=0.6,
        solve="epsilon",
        coding="schema",
        family="discrete",
        curves=True,
    )
    assert found.to_json()["curves"][0]["epsilon"] == [1.0, 4.0]
    assert ">ε</text>" in found.chart()


@pytest.mark.slow
def test_one_projection_can_be_asked_for(files):
    frame = pd.read_csv(files / "p.csv")
    frame["height"] = frame["width"] * 0.3 + np.random.default_rng(1).normal(size=80)
    (files / "s2.toml").write_text(
        SCHEMA + '[[features]]\nname = "height"\nkind = "numeric"\nlow = "-4"\nhigh = "4"\nbins = 4\n', "utf-8"
    )
    frame.round(3).to_csv(files / "p2.csv", index=False)
    common = {"epsilon": 2, "devices": 2000, "coding": "dca:1"}
    found = aggregator.plan(files / "s2.toml", pilot=files / "p2.csv", **common)
    assert {one.design.reduction for one in found.ranked} == {"dca:1"}
    assert {one.design.family for one in found.ranked} == {"discrete", "gaussian"}
    assert refusal(aggregator.plan, files / "s2.toml", **common) == "plan_invalid"


class Runner:
    """A rehearsal of a known accuracy: every campaign is a coin with this probability."""

    folds = 1

    def __init__(self, accuracy, seed):
        self.chance, self.rng, self.found = accuracy, np.random.default_rng(seed), []

    def run(self, times):
        self.found += self.rng.normal(self.chance, 0.06, times).tolist()

    def forecast(self):
        noise = float(np.std(self.found, ddof=1)) / len(self.found) ** 0.5
        return Forecast(float(np.mean(self.found)), noise, noise)


def test_a_race_gives_its_campaigns_to_the_designs_that_may_be_first(monkeypatch):
    """30 races of five designs: the first design wins at least 27 (it loses a race with a probability below 1 %)."""
    monkeypatch.undo()
    steps, wins, campaigns = 0, 0, 0

    def step():
        nonlocal steps
        steps += 1

    for seed in range(30):
        chances = [0.80, 0.77, 0.76, 0.60, 0.55]
        runners = {Design("discrete", str(place)): Runner(one, [seed, place]) for place, one in enumerate(chances)}
        race.race(runners, step)
        first, *_, last = runners.values()
        wins += first.forecast().accuracy == max(one.forecast().accuracy for one in runners.values())
        assert len(last.found) == race.FIRST
        campaigns += len(first.found)
    assert campaigns > 60 * race.FIRST
    assert wins >= 27
    assert steps == 30 * (race.ROUNDS + 1)


def test_a_projection_is_judged_on_records_that_it_was_not_fitted_on(files):
    """Five numbers without any signal: on its own records a fitted direction seems to tell the classes apart."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(60, 5)).round(3).astype(str), columns=list("uvwxy"))
    frame["class"] = rng.permutation(["a", "b"] * 30)
    text = 'name = "n"\n[label]\nname = "class"\nclasses = ["a", "b"]\n'
    text += "".join(
        f'[[features]]\nname = "{name}"\nkind = "numeric"\nlow = -4\nhigh = 4\nbins = 4\n' for name in "uvwxy"
    )
    (files / "n.toml").write_text(text, "utf-8")
    schema = load_schema(files / "n.toml").schema
    study = Study(schema, 8_000_000, "simplex", pilot=frame, effect=1.0, seed=0)
    design = Design("discrete", "direct", 1, None, "dca:1")
    rehearsal = study.rehearsal(design, Fleet(100_000))
    rehearsal.run(2)
    assert own_weight(study.folds(design)) == 0
    assert own_weight(study.folds(Design("discrete", "direct"))) == 0.5
    assert rehearsal.forecast().low < 0.5
    assert study.plain(design) < 0.6
