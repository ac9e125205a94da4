"""Rows of the independent reference, by every kind of trust but a curator. All rows: the benchmarks named below."""

from __future__ import annotations

from statistics import fmean, stdev

import numpy as np
import pytest
from support.reference import need_reference

from benchmarks.federated.data import Data
from benchmarks.federated.reference_rows import accuracies, random_splits
from benchmarks.masked import reference_rows
from benchmarks.masked.data import masked_campaign, masked_statistics
from benchmarks.models.accuracy import measure
from benchmarks.shared.reference import Comparison, cases, discrete_cases, numeric_cases
from protocol.documents.masked_terms import DILUTED, DIVIDED
from protocol.nodes.terms import released_vectors


def cases_of(quick, *slow):
    return [quick, *(pytest.param(row, marks=pytest.mark.slow) for row in slow)]


@pytest.fixture(autouse=True)
def _reference():
    need_reference()


@pytest.mark.parametrize(
    "name",
    cases_of(
        "car-direct-one-1", "car-oue-all-1", "car-sue-all-3", "car-the-one-3", "car-she-all-0.25", "chess-oue-one-3"
    ),
)
def test_values_meet_it(name):
    """20 repeats of the vector engine within 2 points and 3 standard errors: benchmarks/models/accuracy.py."""
    check(discrete_cases(), name, "vector", 20, 11)


@pytest.mark.parametrize(
    "name",
    cases_of(
        "australian-none---gaussian-pca6-fit-pilot",
        "pima-oue-one-3-discrete-pca6-fit-pilot",
        "australian-direct-all-3-discrete-dca-fit-train",
        "australian-bit-one-3-gaussian-approach2-pca1-fit-train",
        "pima-laplace-one-3-gaussian-approach1-dca-fit-pilot",
        "pima-laplace-one-3-gaussian-approach3-none-fit-train",
    ),
)
def test_numbers_meet_it(name):
    """As above, 15 repeats: benchmarks/models/accuracy.py --form numeric."""
    check(numeric_cases(), name, "vector", 15, 21)


@pytest.mark.slow
def test_real_devices_meet_it():
    """One run of the device engine: within 2 points and three standard deviations of one run."""
    check(discrete_cases(), "mushroom-oue-one-3", "device", 1, 12)


def check(rows, name, engine, repeats, seed):
    case = next(case for case in rows if case.name == name)
    result = measure(case, engine, repeats=repeats, seed=seed)
    assert result.holds, result.text


@pytest.mark.parametrize(
    "row",
    cases_of(
        ("spect", "10 nodes", "10"),
        ("mushroom", "10 nodes", "1"),
        ("votes", "100 nodes", "0.1"),
        ("skin", "10 nodes", "0.1"),
        ("adult", "10 nodes", "10"),
    ),
)
def test_nodes_meet_it_by_the_fractions_of_the_paper(row):
    """20 repeats of ``printed``; all rows: benchmarks/federated/reference_rows.py."""
    [case] = [one for one in cases("federated") if (one.data, one.answers, one.epsilon_total) == row]
    data, nodes = Data.load(case.data), int(case.answers.split()[0])
    splits = random_splits(data, 1)
    measured = accuracies(data, case.epsilon_total, nodes, ["printed"], 20, splits, noise_seed=1)
    found = Comparison(case, measured["printed"])
    assert found.verdict == "=", found.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "epsilon", "nodes", "least"), [("adult", "0.1", 1000, 0.72), ("votes", "0.1", 1, 0.78)]
)
def test_floors_that_follow_from_the_noise_reach_their_targets(name, epsilon, nodes, least):
    """30 repeats at ε = 0.1, less two standard errors; ``printed`` is worse on the same sums."""
    data = Data.load(name)
    found = accuracies(data, "0.1", nodes, ["floored", "printed"], 30, random_splits(data, 2), noise_seed=2)
    assert fmean(found["floored"]) >= least - 2 * stdev(found["floored"]) / 30**0.5
    assert fmean(found["floored"]) > fmean(found["printed"]) + 0.03


@pytest.mark.parametrize(("answers", "total", "share"), [("1555 parties", "7.0", "per count 1"),
                                                         ("500 parties", "14.0", "per count 2")])  # fmt: skip
@pytest.mark.parametrize("mechanism", ["one geometric copy", "diluted, delta 1e-5"])
def test_masked_totals_meet_it(mechanism, answers, total, share):
    """30 folds; all 48 rows: benchmarks/masked/reference_rows.py."""
    wanted = (mechanism, answers, total, share)
    [case] = [one for one in cases("distributed")
              if (one.mechanism, one.answers, one.epsilon_total, one.epsilon_per_answer) == wanted]  # fmt: skip
    found = reference_rows.measured(case, Data.load("car"), 30, 1, noise_seed=1)
    assert found.verdict == "=", found.text


@pytest.mark.slow
def test_a_thousand_nodes_reach_the_target_on_adult():
    """20 runs: 75 % at least, less two standard errors, with both kinds of noise at δ = 1e-5 in total."""
    data, rng = Data.load("adult"), np.random.default_rng(1)
    rows, test = data.split(rng)
    for chosen in ((DIVIDED, None), (DILUTED, "1e-5")):
        campaign = masked_campaign(data, "0.1", 1000, len(rows), *chosen)
        found = [data.accuracy(masked_statistics(data, campaign, rows, 1000, rng), "floored", test) for _ in range(20)]
        assert fmean(found) >= reference_rows.TARGET - 2 * stdev(found) / 20**0.5
    assert len(released_vectors(campaign)) == 21
