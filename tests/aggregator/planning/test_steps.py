"""Which features to ask about next, from private answers alone: sets, race, shares, the procedure, its first step."""

from __future__ import annotations

import time
from itertools import pairwise
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import run, told
from support.examples import examples
from support.failures import reason_of

import aggregator
from aggregator.models.postprocess.joint_tables import Tables
from aggregator.planning.feature_selection.candidates import (
    MALUS,
    SPREAD,
    TOLL,
    Measurement,
    candidates,
    choose,
    greedy,
    neighbours,
    ratings,
    strengths,
    strongest,
    unit_error,
)
from aggregator.planning.feature_selection.from_answers import _features_of, candidate_name, first_step
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.planning.feature_selection.steps import (
    ASK,
    DONE,
    EVALUATE,
    STOP,
    WHOLE,
    Evaluation,
    FeatureCampaign,
    SeriesFleet,
    Share,
    after,
    can_choose,
    conclusion,
    equalise,
    next_evaluation,
    next_round,
    number_of_candidates,
    round_sizes,
)
from aggregator.publishing.ask_table import AskedFeature, ask_of, listed, resolve
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from aggregator.publishing.series import series_share
from benchmarks.asking.designs import drawn_trial, made_up
from protocol.errors import InputError
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

MILLION = SeriesFleet(10**6, 10**6)
HALF = np.array([0.5, 0.5])


@pytest.fixture(autouse=True, scope="module")
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aggregator.planning.feature_selection.candidates.RECORDS", 500)
        yield


def coin(right):
    """P(value | class) of a feature that names the class of two with this probability."""
    return np.array([[right, 1 - right], [1 - right, right]])


def tables_of(*right):
    return Tables(HALF, tuple(coin(each) for each in right))


def test_strength_is_mutual_information_and_candidates_are_different_sets_beginning_with_all():
    found = strengths(tables_of(0.5, 0.9))
    assert found[0] == pytest.approx(0, abs=1e-12)
    assert found[1] == pytest.approx(log(2) + 0.9 * log(0.9) + 0.1 * log(0.1))
    assert strongest(tables_of(0.6, 0.9, 0.6)) == [1, 0, 2]
    assert greedy(tables_of(0.6, 0.9, 0.7, 0.5), 2, np.random.default_rng(3))[0] == 1
    assert len(greedy(tables_of(0.6, 0.9), 5, np.random.default_rng(3))) == 2
    tables = tables_of(*np.linspace(0.55, 0.9, 12))
    found = candidates(tables, 9, np.random.default_rng(1))
    assert found[:3] == [tuple(range(12)), (10, 11), (11,)]
    assert len(set(found)) == len(found)
    assert candidates(tables, 2, np.random.default_rng(1)) == found[:2]


def test_neighbours_differ_by_one_feature_and_are_new():
    order = list(range(12))
    found = neighbours((1, 3), order, [(1,), (0, 1, 3)])
    assert [each in found for each in ((1,), (0, 1, 3), (3,))] == [False, False, True]
    assert all(len(set(each) ^ {1, 3}) == 1 for each in found)
    assert max(max(each) for each in found) == 9
    assert neighbours((2,), [2], []) == []
    assert all(len(each) == 10 for each in neighbours(tuple(range(9)), order, []))


def answered(n, right):
    return Measurement.of_answers(n, right, 10**6)


def test_accuracies_are_shrunk_to_their_mean_and_uncertain_ones_rank_lower():
    c = unit_error(10**6)
    assert c == pytest.approx(0.5 * (np.e + 1) / (np.e - 1))
    n = round((c / SPREAD) ** 2)
    found = {each.features: each for each in ratings({(0,): answered(n, 0.9), (1,): answered(n, 0.7)})}
    assert found[0,].mean == pytest.approx(0.85, abs=1e-3)
    assert found[0,].error == pytest.approx(SPREAD / sqrt(2), rel=1e-2)
    assert found[0,].cautious == pytest.approx(found[0,].mean - MALUS * found[0,].error - TOLL)
    sure, unsure = answered(10**6, 0.8), answered(100, 0.8)
    assert [each.features for each in ratings({(0,): unsure, (1,): sure})] == [(1,), (0,)]


@pytest.mark.parametrize(("classes", "least"), [(2, 0.5), (3, 1.0), (6, 2.5)])
def test_all_features_are_chosen_unless_another_set_is_clearly_better(classes, least):
    everything = (0, 1, 2)
    gains = []
    for accuracy in np.linspace(0.8, 0.99, 41):
        measured = {everything: answered(3000, 0.8), (0,): answered(3000, accuracy)}
        found = choose(measured, everything, classes)
        gains.append(found.gain / found.error)
        assert (found.features == (0,)) == (gains[-1] >= least)
    assert min(gains) < least < max(gains)


@pytest.mark.parametrize(
    ("features", "classes", "devices", "said"),
    [
        (7, 2, 10**6, "features are too few"),
        (36, 2, 2556, "between 36 features"),
        (8, 2, 10**6, ""),
        (36, 2, 10**5, ""),
        (64, 2, 10**5, ""),
        (64, 10, 10**5, "for 10 classes; "),
        (64, 5, 10**5, "for 5 classes; "),
        (64, 5, 10**6, ""),
        (16, 20, 10**6, "for 20 classes; "),
    ],
)
def test_a_fleet_that_can_not_choose_is_asked_about_all_and_many_classes_need_more_devices(
    features, classes, devices, said
):
    fleet = SeriesFleet(devices, 10**6)
    why = can_choose(features, classes, fleet)
    assert said in why
    assert bool(why) == bool(said)
    step = next_round(features, classes, fleet, [], None)
    assert (step.kind, step.asks[0].features) == (ASK, tuple(range(features)))
    assert (step.asks[0].share == Share(0, WHOLE)) == bool(said)
    if said:
        assert next_round(features, classes, fleet, step.asks, None) is None
        assert conclusion(features, classes, fleet, [9] * features, [], [step.asks[0].share]).kind == DONE
    if "classes" in said:
        needed = int(why.split("; ")[1].split()[0])
        assert can_choose(features, classes, fleet._replace(devices=needed)) == ""


@pytest.mark.parametrize(("name", "devices"), [("even:10:64", 10**5), ("copies:10:64", 10**5), ("few:5:16", 10**6)])
def test_refine_is_not_much_worse_than_all_features_where_classes_are_many(name, devices):
    data, fleet = made_up(name), SeriesFleet(devices, 10**6)
    order = np.random.default_rng(1).permutation(len(data.labels))
    found = [
        [
            drawn_trial(data, order[4000:], order[:4000], fleet, np.random.default_rng([3, seed]), refines=refines)[0]
            for seed in range(2)
        ]
        for refines in (True, False)
    ]
    assert np.mean(found[0]) > np.mean(found[1]) - 1


def test_the_number_of_devices_in_a_refusal_is_enough_and_rounds_halve_the_features():
    assert (round_sizes(36), round_sizes(8)) == ([36, 18, 9, 5], [8, 4, 2])
    fleet = SeriesFleet(2556, 10**6)
    needed = int(can_choose(36, 2, fleet).split("; ")[1].split()[0])
    assert can_choose(36, 2, fleet._replace(devices=needed)) == ""
    assert can_choose(36, 2, fleet._replace(devices=needed - 1)) != ""
    assert number_of_candidates(fleet._replace(devices=needed)) >= 2


@given(st.dictionaries(st.integers(0, 9), st.sampled_from([0.0, 0.01, 0.05, 0.2]), min_size=1), st.floats(0, 0.9))
@examples(60)
def test_the_rest_of_a_fleet_levels_the_answers(expected, part):
    found = equalise(expected, round(part * WHOLE))
    assert found.share == Share(round(part * WHOLE), WHOLE)
    weights = found.weights or (1,) * len(found.features)
    rest = found.share.part
    total = {
        index: expected[index] + rest * weight / sum(weights)
        for index, weight in zip(found.features, weights, strict=True)
    }
    asked = [total[index] for index, weight in zip(found.features, weights, strict=True) if weight > 1]
    assert max(asked, default=0) - min(asked, default=0) <= 0.02 * rest + 1e-6
    assert min(total.values()) >= min(asked, default=0) - 0.02 * rest - 1e-6


def test_a_share_ends_with_the_fleet():
    assert after(WHOLE - 5, 0.5) == Share(WHOLE - 5, WHOLE)
    assert after(0, 0.25).shown == "0:0.25"
    assert after(after(0, 0.25).high, 0.08).shown == "0.25:0.33"
    assert after(WHOLE // 3, 1e-9).high > WHOLE // 3
    for place in range(9_999):
        low = place * WHOLE // 10_000
        assert after(low, 1e-9) == Share(low, (place + 1) * WHOLE // 10_000)


@given(st.integers(0, 9999), st.floats(0.0001, 1))
@examples(60)
def test_the_option_reads_a_share_as_it_is_shown(step, part):
    for low in (after(0, step / 10_000).high, step * 429_497 + 7):
        share = after(low, part)
        read = series_share("x", share.shown)
        assert (read.low, read.high) == share


class World:
    """Two features tell the class, ten repeat one another: a model of all counts the ten as ten pieces of evidence."""

    tables = tables_of(0.8, 0.75, *([0.7] * 10))

    def __init__(self):
        rng = np.random.default_rng(5)
        self.labels = rng.integers(0, 2, 4000)
        flips = rng.random((4000, 3)) > np.array([0.8, 0.75, 0.7])
        own = self.labels[:, None] ^ flips
        self.codes = np.hstack([own[:, :2], np.repeat(own[:, 2:], 10, axis=1)])

    def right(self, features):
        score = sum(np.log(self.tables.likelihood[each])[self.codes[:, each]] for each in features)
        return float((score.argmax(axis=1) == self.labels).mean())

    def run(self, fleet, noise=None):
        asked, waves, steps = [], [], []
        while (step := next_round(12, 2, fleet, asked, self.tables if asked else None)) is not None:
            asked += step.asks
            steps.append(step)
        while (step := next_evaluation(self.tables, fleet, asked, waves, 1)) is not None:
            n = round(step.share.part * fleet.devices / len(step.models))
            error = 0 if noise is None else unit_error(fleet.epsilon_micro) / sqrt(n)
            measured = {
                each: Measurement.of_answers(
                    n, self.right(each) + (noise.normal(0, error) if noise is not None else 0), fleet.epsilon_micro
                )
                for each in step.models
            }
            waves.append(Evaluation(step.share, measured))
            steps.append(step)
        shares = [each.share for each in (*asked, *waves)]
        counts = [
            round(sum(each.share.part * fleet.devices / len(each.features) for each in asked if index in each.features))
            for index in range(12)
        ]
        return [*steps, conclusion(12, 2, fleet, counts, waves, shares)], asked, waves


@pytest.fixture(scope="module")
def world():
    return World()


def test_features_that_repeat_one_another_are_not_asked_about(world):
    everything = world.right(range(12))
    assert world.right((0, 1, 2)) - everything > 0.08  # a worse rule is seen
    for seed in range(3):
        steps, _, _ = world.run(MILLION, np.random.default_rng(seed))
        assert [step.kind for step in steps] == [ASK] * 4 + [EVALUATE] * (len(steps) - 5) + [STOP]
        chosen = steps[-1].features
        assert len(set(chosen) & set(range(2, 12))) <= 2
        assert world.right(chosen) > everything + 0.05


def test_shares_of_one_series_never_overlap_and_reach_its_end(world):
    for devices in (10**5, 10**8):
        steps, _, _ = world.run(SeriesFleet(devices, 10**6), np.random.default_rng(1))
        shares = [each.share for step in steps for each in step.asks] + [step.share for step in steps if step.share]
        shares.sort()
        assert shares[0].low == 0
        assert shares[-1].high == WHOLE
        assert all(one.high == two.low for one, two in pairwise(shares))
        assert min(len(step.models) for step in steps if step.kind == EVALUATE) >= 2
        assert max(len(step.models) for step in steps) <= 16


def test_a_step_says_its_reason_and_the_same_answers_give_the_same_step(world):
    one, asked, waves = world.run(MILLION)
    two, _, _ = world.run(MILLION)
    assert one == two
    assert "better than all 12" in one[-1].why
    shares = [each.share for each in (*asked, *waves)]
    done = conclusion(12, 2, MILLION, [9] * 12, waves, [*shares, Share(0, WHOLE)])
    assert (done.kind, done.features) == (DONE, one[-1].features)


# The first step of a series, its names and its file --------------------------------------------------


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


def test_a_series_asks_about_joins_of_its_schema_if_each_feature_is_there_once(schema_file):
    file = load_schema(schema_file)
    ask = {**file.ask, "letter": file.ask["letter"]._replace(share=0), "letter × left out": AskedFeature()}
    found = first_step(resolve(file.schema, ask).schema, "x", SeriesFleet(1000, 10**6))
    assert found.names == ("size", "letter × left out")
    assert resolve(file.schema, found.ask) == resolve(file.schema, ask)
    assert found.to_json()["ask"] == {"size": 1, "letter × left out": 1}
    twice = resolve(file.schema, {**ask, "letter": AskedFeature()}).schema
    assert reason_of(InputError, first_step, twice, "x", SeriesFleet(1000, 10**6)) == "not_fittable"


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
    for words in (*wrong, ["--series", "x"]):
        run("refine", *words, *usual[:-1], tmp_path / "m.toml", status=2)


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
