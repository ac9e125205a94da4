"""``hearsay simulate``: sweeps, intervals, warnings, and the saved model."""

from __future__ import annotations

import itertools
from functools import partial
from math import erf, sqrt
from statistics import fmean
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from support.commands import invoke, told

from aggregator.common.tables import read_table, typed
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.schemas.schema_draft import draft_schema
from aggregator.publishing.schemas.schema_file import parse_schema_text
from protocol.errors import InputError
from simulation.design import Design, Division
from simulation.local import LocalTrust
from simulation.settings import Settings
from simulation.simulate import MOST_POINTS, check_plot, facts_of, points
from simulation.trust import Simulation, Trial, mean_interval, two_sided_quantile, within


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """300 mushrooms whose class follows from odor and width; most are edible."""
    rows = [f"{'nnna'[i % 4]},{i % 10},e\n" if i % 3 else f"{'fffa'[i // 3 % 4]},{i % 9 + 5},p\n" for i in range(300)]
    path = tmp_path_factory.mktemp("data") / "mushrooms.csv"
    path.write_text("odor,width,label\n" + "".join(rows))
    return path


simulate = partial(invoke, "simulate", "--label", "label", "--engine", "vector")
result_of = partial(told, "simulate", "--label", "label", "--engine", "vector")


@pytest.mark.slow
def test_a_mean_has_an_interval_over_repetitions_and_not_over_folds(records):
    one = result_of(records, "--epsilon", "4", "--folds", 3, "--seed", 1)
    assert (one["accuracy_low"], one["accuracy_high"]) == (None, None)
    assert one["accuracy_sd"] > 0
    several = result_of(records, "--epsilon", "4", "--folds", 3, "--repeats", 4, "--seed", 1)
    assert 0 <= several["accuracy_low"] < several["accuracy"] < several["accuracy_high"] <= 1
    shown = simulate(records, "--epsilon", "4", "--repeats", 3, "--seed", 1).stdout
    assert "95 % interval" in shown
    assert "on these records" in shown


def test_equal_repetitions_have_no_interval_anywhere(tmp_path):
    """A label that follows from the only feature gives the same model in every repetition."""
    path = tmp_path / "d.csv"
    path.write_text("x,label\n" + "e,e\np,p\n" * 200)
    shown = simulate(path, "--epsilon", 8, "--repeats", 2, "--seed", 1).stdout
    assert "95 % interval  not known: all repetitions gave the same accuracy" in shown
    found = result_of(path, "--epsilon", 8, "--repeats", 2, "--seed", 1)
    assert (found["accuracy_low"], found["accuracy_high"]) == (None, None)
    table = simulate(path, "--sweep", "epsilon=8", "--repeats", 2, "--seed", 1).stdout
    assert table.splitlines()[1].split()[1:6] == ["100.0%", "not", "known", "not", "known"]


def test_a_private_evaluation_is_shown_with_its_epsilon(records):
    """An evaluation is one answer, so its ε is at most 16."""
    shown = simulate(records, "--epsilon", 20, "--answers", 2, "--evaluate", "--seed", 1).stdout
    assert "of the population), at ε = 16" in shown
    header, *rows = simulate(
        records, "--sweep", "epsilon=2,20", "--answers", 2, "--evaluate", "--seed", 1
    ).stdout.splitlines()
    assert "as devices told it" in header
    assert [row.split()[-1] for row in rows] == ["2", "16"]


def test_a_model_worse_than_the_largest_class_is_warned_of(records):
    arguments = ("--epsilon", "0.01", "--devices", 50, "--seed", 3, "--repeats", 3)
    found = simulate(records, *arguments)
    assert found.exit_code == 0
    assert result_of(records, *arguments)["below_majority"]
    assert "warning: the model is right less often" in found.stderr
    good = simulate(records, "--epsilon", "8", "--devices", 5000, "--seed", 1)
    assert "warning" not in good.stderr


@pytest.mark.slow
def test_a_sweep_is_one_table_one_plot_and_one_object(records, tmp_path):
    plot = tmp_path / "s.svg"
    sweep = ("--sweep", "epsilon=0.5, 8", "--sweep", "mechanism=direct,oue", "--repeats", 2, "--devices", 3000)
    shown = simulate(records, *sweep, "--plot", plot)
    assert shown.exit_code == 0, shown.output
    header, *rows = [line.split() for line in shown.stdout.splitlines()]
    assert header[:3] == ["epsilon", "mechanism", "accuracy"]
    assert [row[:2] for row in rows] == [["0.5", "direct"], ["0.5", "oue"], ["8", "direct"], ["8", "oue"]]
    texts = [node.text for node in ET.fromstring(plot.read_text("utf-8")).iter() if node.text and node.text.strip()]
    assert {"direct", "oue", "not private", "largest class", "ε"} <= set(texts)
    found = result_of(records, *sweep, "--seed", 1)["points"]
    assert [each["setting"] for each in found] == [
        {"epsilon": epsilon, "mechanism": mechanism} for epsilon in ("0.5", "8") for mechanism in ("direct", "oue")
    ]
    assert [each["epsilon_total"] for each in found] == [0.5, 0.5, 8, 8]
    assert fmean(each["accuracy"] for each in found[2:]) > 0.7
    assert found[0] | {"setting": 0} == result_of(
        records, "--epsilon", 0.5, "--repeats", 2, "--devices", 3000, "--seed", 1
    ) | {"setting": 0}


@pytest.mark.parametrize("seeds", [{"seed": 5}, {"split_seed": 5}])
def test_splits_stay_the_same_whatever_a_setting_draws_and_fleets_begin_alike(records, monkeypatch, seeds):
    """Simulations with and without pilots and with fleets of any size are compared on the same people."""
    seen = []

    def collect(_self, lab, part, _shared):
        fleet = part.fleet(lab.settings.devices)
        seen.append((tuple(part.split.people.index), tuple(part.split.test.index), tuple(fleet.index)))
        return Trial(0.5, 0.5, 0.5, len(fleet), len(fleet), {})

    monkeypatch.setattr(LocalTrust, "collect", collect)
    frame = read_table(records)
    schema = parse_schema_text(draft_schema(frame, "label", name="n", max_values=5)).schema
    runs = []
    for design, devices in itertools.product((Design(schema), Design(schema, fit_bounds=True)), (None, 50, 80)):
        seen.clear()
        terms = CampaignParameters("n", 1_000_000, "direct")
        settings = Settings("1", postprocess="simplex", devices=devices, repeats=3, seed=seeds.get("seed"))
        trust = LocalTrust(settings, design, terms)
        made = Simulation(settings, typed(frame, schema), design, Division(folds=2), trust)
        made.run(split_seed=seeds.get("split_seed"))
        runs.append(tuple(seen))
    assert design.needs_pilot
    assert len({tuple(trial[:2] for trial in run) for run in runs}) == 1
    for some, more in (runs[1:3], runs[4:6]):
        assert all(few[2] == many[2][:50] for few, many in zip(some, more, strict=True))
    assert runs[1][0][2] != runs[1][1][2]


def test_a_sweep_over_names_is_drawn_as_bars(records, tmp_path):
    found = simulate(records, "--sweep", "mechanism=direct,oue", "--epsilon", 1, "--plot", tmp_path / "s.svg")
    assert found.exit_code == 0, found.output
    assert (tmp_path / "s.svg").read_text("utf-8").count("<rect") > 6
    again = simulate(records, "--sweep", "mechanism=direct,oue", "--epsilon", 1, "--plot", tmp_path / "s.svg")
    assert again.stderr.startswith("output_exists: ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--sweep", "epsilon"], "sweep_invalid"),
        (["--sweep", "epsilon=1,,2"], "sweep_invalid"),
        (["--sweep", "epsilon=1,1.0"], "sweep_invalid"),
        (["--sweep", "seed=1,2", "--epsilon", 1], "sweep_invalid"),
        (["--sweep", "bins=4,x", "--epsilon", 1], "sweep_invalid"),
        (["--sweep", "devices=0,5", "--epsilon", 1], "setting_invalid"),
        (["--sweep", "rho=-1,5", "--epsilon", 1], "setting_invalid"),
        (["--sweep", "rho=nan,5", "--epsilon", 1], "setting_invalid"),
        (["--sweep", "reduce-fit=pilot,all", "--epsilon", 1], "setting_invalid"),
        (["--sweep", "epsilon=1", "--sweep", "epsilon=2"], "sweep_invalid"),
        (["--sweep", "epsilon=1,magic"], "epsilon_invalid"),
        (["--sweep", "mechanism=oue,magic", "--epsilon", 1], "mechanism_unknown"),
        (["--sweep", "answers=one,9", "--epsilon", 1], "answers_invalid"),
        (["--sweep", "postprocess=simplex,magic", "--epsilon", 1], "postprocess_unknown"),
        (["--sweep", "epsilon=1,2", "--sweep", "devices=1,2,3,4,5,6,7", "--plot", "{}/s.svg"], "plot_invalid"),
    ],
)
def test_a_wrong_sweep_is_refused_before_anything_runs(records, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.setattr("simulation.trust.Simulation.run", None)
    refused = simulate(records, *(str(each).format(tmp_path) for each in arguments))
    assert refused.exit_code == 1, refused.output
    assert refused.stderr.startswith(f"{reason}: ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--epsilon", 1, "--sweep", "epsilon=1,2"],
        ["--epsilon", 1, "--rho", 1, "--sweep", "rho=1,2"],
        ["--epsilon", 1, "--plot", "s.svg"],
        ["--out", "m.hsm", "--sweep", "epsilon=1,2"],
        ["--epsilon", 1, "--out", "m.hst"],
    ],
)
def test_options_that_contradict_each_other_are_a_wrong_usage(records, arguments):
    assert simulate(records, *arguments).exit_code == 2


def test_a_sweep_is_bounded():
    with pytest.raises(InputError, match=r"^sweep_invalid.*these are 10000"):
        points(Settings("1"), [f"{name}={','.join(map(str, range(1, 101)))}" for name in ("bins", "devices")])
    values = ",".join(map(str, range(1, MOST_POINTS + 1)))
    found = points(Settings("1"), [f"devices={values}"])
    assert [each.devices for _, each in found] == list(range(1, MOST_POINTS + 1))
    check_plot([setting for setting, _ in found])


def test_the_model_that_is_kept_is_verified_by_the_root_beside_it(records, tmp_path):
    model, root = tmp_path / "m.hsm", tmp_path / "m.hst"
    found = simulate(records, "--epsilon", 4, "--repeats", 2, "--out", model)
    assert found.exit_code == 0, found.output
    assert "give it to no device" in found.stderr
    verified = invoke("verify", model, "--trust", root)
    assert (verified.exit_code, "verified: model 'simulation'" in verified.stdout) == (0, True)
    assert simulate(records, "--epsilon", 4, "--out", model).stderr.startswith("output_exists: ")
    model.unlink()
    assert simulate(records, "--epsilon", 4, "--out", model).stderr.startswith("output_exists: ")
    assert simulate(records, "--epsilon", 4, "--out", model, "--force").exit_code == 0


def test_cells_that_a_given_schema_does_not_know_are_warned_of(records, tmp_path):
    schema = tmp_path / "s.toml"
    made = invoke("schema", records, "--label", "label", "-o", schema)
    assert made.exit_code == 0
    strange = tmp_path / "strange.csv"
    strange.write_text(records.read_text() + "Zq7secret,Zq7secret,e\n,,p\n")
    found = simulate(strange, "--epsilon", 4, "--schema", schema)
    assert found.exit_code == 0, found.output
    warned = [line for line in found.stderr.splitlines() if line.startswith("warning: column")]
    assert [line.split(" cells")[0] for line in warned] == [
        "warning: column 'odor': 1 of 302",
        "warning: column 'width': 1 of 302",
    ]
    assert "secret" not in found.stderr


def test_a_private_accuracy_s_interval_ends_where_shares_do_and_names_its_population():
    result = {
        "accuracy": 0.9, "accuracy_sd": None, "accuracy_low": None, "accuracy_private": 0.85,
        "accuracy_private_low": 0.563, "accuracy_private_high": 1.136, "accuracy_nonprivate": 0.9,
        "accuracy_majority": 0.5, "epsilon_total": 1.0,
        "epsilon_evaluation": 1.0, "repeats": 1, "test_records": 5, "epsilon_per_answer": 1.0, "devices": 3,
        "answers_per_device": 1, "mechanism": "direct", "trials": 1, "reports": 3,
    }  # fmt: skip
    said = facts_of(result)["as devices told it"]
    assert said == "85.0% (56.3% to 100.0%, of the population), at ε = 1"
    said = facts_of({**result, "accuracy_private": 1.05})["as devices told it"]
    assert said == "100.0% (56.3% to 100.0%, of the population), at ε = 1"


# The interval of a mean ------------------------------------------------------------------------------


TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 29: 2.045, 30: 2.042, 120: 1.980}
"""Degrees of freedom → 0.975 quantile of Student's distribution, from printed tables."""


@pytest.mark.parametrize("freedom", TABLE)
def test_the_quantiles_are_those_of_the_tables(freedom):
    assert two_sided_quantile(freedom) == pytest.approx(TABLE[freedom], abs=6e-4)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 8, 50])
def test_the_law_is_a_law(freedom):
    at = [within(t, freedom) for t in (0, 0.1, 1, 3, 100, 1e9)]
    assert at[0] == 0
    assert at == sorted(at)
    assert at[-1] == pytest.approx(1)
    assert within(1.3, 100_000) == pytest.approx(erf(1.3 / sqrt(2)), abs=1e-5)


def covered(width, repeats=3, trials=4000):
    rng = np.random.default_rng(5)
    draws = rng.normal(0.8, 0.02, (trials, repeats)).tolist()
    ends = [mean_interval(values) for values in draws]
    return sum(low - (high - low) * width / 2 <= 0.8 <= high + (high - low) * width / 2 for low, high in ends)


def test_it_covers_the_mean_in_95_of_100_and_a_narrower_one_does_not():
    """Binomial(4000, 0.95) leaves 3800 ∓ 75 with probability 6e-8; an interval that is a third narrower fails."""
    assert abs(covered(0.0) - 3800) <= 75
    assert covered(-1 / 3) < 3725


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5], [0.1 + 0.2, 0.3]])
def test_values_that_do_not_vary_have_no_interval(values):
    """A difference by rounding is none."""
    assert mean_interval(values) is None
