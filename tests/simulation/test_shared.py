"""``hearsay simulate --trust shared``: both engines, the noise that numpy draws, settings, and a choice of features."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from support.commands import invoke, run, told
from support.failures import reason
from support.shared import of_cells, shared_campaign
from support.two_features import people

from aggregator.collectors import collector, leading
from aggregator.collectors.draws import SharedNoise
from aggregator.planning.feature_selection.from_pilot import design
from aggregator.publishing.schemas.schema_file import SchemaFile
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from protocol.shared.report import make_field
from simulation import collectors, simulate_campaign
from simulation.design import resample
from simulation.fleet import shared_fields

DRAWS = 200_000
FALSE_ALARM = 5.5
"""Standard deviations. Of at most 400 compared shares a right sampler fails with probability below 400·4e-8 = 2e-5."""

result_of = partial(told, "simulate", "--label", "label", "--trust", "shared")


def law(noise, blocks):
    """P(k) of both collectors' noise together, for k = −reach … reach, from the formulas of docs/math.md, section 9."""
    variance = noise.variance(blocks) / 2
    reach = int(40 * variance**0.5)
    k = np.arange(-reach, reach + 1)
    rate = noise.epsilon_micro // (2 * blocks) / 10**6
    one = np.exp(-k * k / (2 * variance)) if noise.kind(blocks) == "gaussian" else np.exp(-rate * np.abs(k))
    return np.convolve(one / one.sum(), one / one.sum())


def furthest(drawn, expected):
    """The largest distance of the share of a value from its probability, in standard deviations."""
    middle = len(expected) // 2
    counts = np.bincount(np.clip(drawn, -middle, middle) + middle, minlength=len(expected))
    return (np.abs(counts - DRAWS * expected) / np.sqrt(DRAWS * expected * (1 - expected) + 1)).max()


@pytest.mark.parametrize(
    ("epsilon", "delta", "blocks"), [(1, 0, 1), (2, 0, 9), (8, 10**6, 6), (1, 10**6, 6), (40, 10**6, 9)]
)
def test_numpy_draws_the_law_of_both_collectors_noise(epsilon, delta, blocks):
    noise = SharedNoise(epsilon * 10**6, delta)
    drawn = noise.draw(blocks, DRAWS, np.random.default_rng(2))
    assert furthest(drawn, law(noise, blocks)) < FALSE_ALARM
    assert abs(drawn.var() / noise.variance(blocks) - 1) < 0.03
    # Noise of one collector alone, and noise for one feature less, are seen.
    assert furthest(drawn, law(SharedNoise(2 * epsilon * 10**6, delta), blocks)) > FALSE_ALARM
    if blocks > 1:
        assert furthest(drawn, law(noise, blocks - 1)) > FALSE_ALARM


def totals(monkeypatch, records, **settings):
    """The fleet and the counted cells of every trial, by what a model is published of."""
    found = []
    publish = collectors.publish_model

    def published(workspace, statistics, *others, **named):
        found.append(statistics.sources[0])
        return publish(workspace, statistics, *others, **named)

    given = {"epsilon": 2, "devices": 20, "seed": 4, "bins": 3, **settings}
    with monkeypatch.context() as patch:
        patch.setattr(collectors, "publish_model", published)
        return simulate_campaign(records, "label", trust="shared", **given).result, found


@pytest.fixture
def table():
    """Records as text, some with a missing number."""
    frame = people(200).astype(str)
    frame.loc[5:60, "width"] = ""
    return frame


ADDED = 1
"""What each collector adds to every cell in place of its noise, where totals must be exact."""


@pytest.mark.parametrize(
    ("features", "values", "classes"), [(1, 1, 2), (2, 3, 3), (9, 6, 2), pytest.param(30, 3, 2, marks=pytest.mark.slow)]
)
def test_reports_made_with_arrays_are_those_of_devices_byte_for_byte(features, values, classes):
    """Devices of few and many cells, 320 in all."""
    campaign = shared_campaign(of_cells(features, values, classes))
    rng, count = np.random.default_rng(features), 80
    cells = rng.integers(0, (values + 1) * classes, (count, features))
    ids, seeds = ([rng.bytes(size) for _ in range(count)] for size in (8, 32))
    made = [make_field(campaign, *each[:2], 7, each[2]) for each in zip(cells.tolist(), ids, seeds, strict=True)]
    assert list(shared_fields(campaign, cells, ids, 7, seeds)) == made


def test_all_engines_count_the_same_cells(table, monkeypatch):
    """Real devices, files and collectors lose, invent and misplace nothing, and each collector adds its noise once."""
    for module in (collector, leading):  # the helper's noise, and the leader's
        monkeypatch.setattr(module, "noisy", lambda _campaign, sums, _seed: [each + ADDED for each in sums])
    monkeypatch.setattr(SharedNoise, "draw", lambda _noise, _blocks, cells, _rng: np.full(cells, 2 * ADDED))
    for settings in ({"folds": 2}, {"ask": "width,odor", "delta": "0.00001"}, {"reduce": "pca:1", "drop": ("odor",)}):
        one, devices = totals(monkeypatch, table, engine="device", **settings)
        other, drawn = totals(monkeypatch, table, engine="vector", **settings)
        made, files = totals(monkeypatch, table, engine="files", **settings)
        assert made == {**one, "engine": "files"}
        assert all(each.numbers == a.numbers == b.numbers for each, a, b in zip(devices, drawn, files, strict=True))
        assert all(sum(each.numbers) == 20 * one["features"] + 2 * ADDED * one["cells"] for each in devices)
        assert one == {**other, "engine": "device"}
        assert (one["devices"], one["rejected"]) == (20, {})
    # Noise that is the same in all cells cancels in the accuracy, which is then exactly that on the test people.
    given = {"epsilon": 2, "devices": 20, "seed": 4, "bins": 3, "evaluate": True, "trust": "shared"}
    found = [simulate_campaign(table, "label", engine=engine, **given).result for engine in ("device", "vector")]
    assert found[0] == {**found[1], "engine": "device"}
    assert (found[0]["accuracy_private"], found[0]["epsilon_evaluation"]) == (pytest.approx(found[0]["accuracy"]), 2)


@pytest.mark.parametrize("engine", [pytest.param("files", marks=pytest.mark.slow), "vector"])
def test_totals_have_noise_of_the_stated_variance(table, monkeypatch, engine):
    """The mean square of the noise in 30 trials with 12 cells has a standard error of 0.1 in units of the variance.

    A right program fails with probability below 2·10^-5. Noise of one collector alone gives one half.
    """
    settings = {"devices": 10, "repeats": 30}
    result, found = totals(monkeypatch, table, engine=engine, **settings)
    monkeypatch.setattr(SharedNoise, "draw", lambda _noise, _blocks, cells, _rng: np.zeros(cells, np.int64))
    _, exact = totals(monkeypatch, table, engine="vector", **settings)  # the same fleets: seeds are equal
    gaps = np.array([np.subtract(a.numbers, b.numbers) for a, b in zip(found, exact, strict=True)], np.float64)
    assert gaps.shape == (30, 12)
    scaled = gaps / result["noise_sd"]
    assert abs(scaled.mean()) < 5 / scaled.size**0.5
    assert abs((scaled**2).mean() - 1) < 0.45


def test_a_simulation_says_cost_and_noise(tmp_path):
    people().to_csv(tmp_path / "a.csv", index=False)
    given = (tmp_path / "a.csv", "--epsilon", 2, "--delta", "1e-6", "--noise", "gaussian", "--seed", 1)
    found = result_of(*given, "--engine", "vector", "--repeats", 4)
    assert (found["adjacency"], found["noise"], found["delta"], found["features"]) == ("change", "gaussian", 1e-6, 2)
    assert found["accuracy"] > 0.8
    shown = invoke("simulate", "--label", "label", "--trust", "shared", *given, "--engine", "vector").stdout
    assert "δ = 1e-06, for changing a record, against either collector" in shown
    swept = result_of(
        tmp_path / "a.csv", "--epsilon", 1, "--engine", "vector", "--seed", 1, "--sweep", "devices=20,20000"
    )
    few, many = (point["accuracy"] for point in swept["points"])
    assert many > max(few, 0.85)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"noise": "cauchy"}, "terms_invalid"),
        ({"noise": "gaussian"}, "terms_invalid"),
        ({"noise": "laplace", "delta": "1e-6"}, "terms_invalid"),
        ({"delta": 0.5}, "delta_invalid"),
        ({"epsilon": "0.000001"}, "epsilon_invalid"),
        ({"ask": "smell"}, "ask_invalid"),
        ({"postprocess": "paper"}, "not_fittable"),
        ({"asking": "refine", "engine": "device"}, "setting_invalid"),
        ({"asking": "refine:same", "trust": "local"}, "setting_invalid"),
        ({"asking": "refine", "evaluate": True}, "setting_invalid"),
        ({"asking": "pilot:900"}, "setting_invalid"),
        ({"asking": "all:50"}, "setting_invalid"),
        ({"asking": "pilot:50", "reduce": "pca:1"}, "setting_invalid"),
        ({"answers": "all"}, "setting_invalid"),
        ({"trust": "local", "engine": "files"}, "setting_invalid"),
    ],
)
def test_settings_that_do_not_fit(settings, expected):
    given = {"epsilon": 1, "trust": "shared", "engine": "vector", **settings}
    assert reason(lambda: simulate_campaign(people().astype(str), "label", **given)) == expected


@pytest.mark.slow
def test_a_design_asks_about_fewer_features_if_noise_grows():
    """Ten equal weak features: with little noise many are better than few; with much noise few are."""
    rng = np.random.default_rng(3)
    label = rng.integers(0, 2, 400)
    columns = {f"f{place}": np.array(["a", "b"])[label ^ (rng.random(400) < 0.3)] for place in range(10)}
    frame = pd.DataFrame({**columns, "label": np.array(["e", "p"])[label]})
    schema = build_schema(Label("label", ["e", "p"]), [Categorical(name, ["a", "b"], substitute=0) for name in columns])
    file = SchemaFile("d", schema)

    def asked(devices, noise):
        made = design(frame, file, noise.epsilon_micro, devices, seed=1, judge=False, noise=noise)
        return len(made.chosen), made.best.accuracy

    quiet, loud = asked(3000, SharedNoise(4_000_000)), asked(40, SharedNoise(1_000_000))
    assert quiet[0] > loud[0]
    assert quiet[1] > loud[1]
    step = simulate_campaign(
        resample(frame, 400, rng), "label", schema=schema, epsilon=4, trust="shared", engine="vector",
        asking="pilot:100", devices=3000, seed=1,
    )  # fmt: skip
    assert step.result["features"] == len(step.result["steps"][0][0]["features"])
    assert step.result["accuracy"] > 0.75


def test_a_plan_foretells_what_a_simulation_finds(tmp_path):
    """The expected accuracy is that of 40 trials, but for three points and four of their standard errors."""
    frame = people(600)
    frame.to_csv(tmp_path / "p.csv", index=False)
    run("schema", tmp_path / "p.csv", "--label", "label", "--bins", 3, "-o", tmp_path / "s.toml")
    given = ("--epsilon", 1, "--trust", "shared", "--devices", 60)
    planned = told("plan", tmp_path / "s.toml", *given, "--pilot", tmp_path / "p.csv", "--coding", "schema")
    found = result_of(tmp_path / "p.csv", "--epsilon", 1, "--devices", 60, "--engine", "vector", "--seed", 3,
                      "--repeats", 40, "--schema", tmp_path / "s.toml")  # fmt: skip
    (design,) = planned["designs"]
    assert (design["mechanism"], design["questions"]) == ("shared", found["features"])
    assert abs(design["accuracy"] - found["accuracy"]) < 0.03 + 4 * found["accuracy_sd"] / 40**0.5
    # The noise of a cell decides the errors: both collectors' standard deviation, over 60 devices.
    least = found["noise_sd"] / 60
    assert all(0.999 < error / least < 1.5 for one in planned["precision"][:-1] for error in one["standard_errors"])
    wide = told("plan", tmp_path / "s.toml", "--epsilon", 1, "--trust", "shared", "--target-width", 0.1)
    assert wide["targets"][0]["value"] > 60
    assert wide["precision"][0]["width"] <= 0.1
