"""``hearsay simulate --trust federated``: both engines agree, seeds repeat, noise and sums are those of real nodes."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

import numpy as np
import pytest
from support.commands import invoke, told
from support.publisher import Publisher
from support.reports import opened
from support.two_features import people

from aggregator.models.encoding import label_codes, observe
from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.totals import Totals
from edge_sdk.node.release import noisy_sums
from edge_sdk.node.sums import ExactSums
from protocol.documents.campaign import GAUSSIAN
from protocol.documents.envelope import SigningKey
from protocol.features import Categorical, Numeric
from protocol.nodes.summary import build_summary, read_summary
from protocol.nodes.terms import ranges, released_vectors
from protocol.schema import FROM_RECORD, Label, build_schema
from simulation import drawn as vector
from simulation.local import records_of

simulate = partial(invoke, "simulate", "--label", "label", "--trust", "federated")
result_of = partial(told, "simulate", "--label", "label", "--trust", "federated")


@pytest.mark.parametrize("engine", ["device", "vector"])
def test_both_engines_learn(records, engine):
    found = result_of(records, "--epsilon", 30, "--nodes", 5, "--engine", engine, "--seed", 1)
    assert found["accuracy"] > 0.85
    assert (found["trust"], found["nodes"], found["node_records"], found["summaries"]) == ("federated", 5, [86, 87], 5)
    assert (found["epsilon_total"], found["epsilon_change"], found["rejected"]) == (30, 60, {})
    assert found["postprocess"] == "floored"


def test_a_seed_fixes_everything_and_engines_have_the_same_test_people(records):
    options = ("--epsilon", 5, "--nodes", 3, "--seed", 4)
    first, second = (result_of(records, *options, "--engine", "device") for _ in range(2))
    assert first == second
    other = result_of(records, *options, "--engine", "vector")
    assert other["accuracy_nonprivate"] == first["accuracy_nonprivate"]


def test_more_nodes_at_one_epsilon_add_noise(records):
    swept = simulate(
        records, "--engine", "vector", "--sweep", "nodes=1,400", "--epsilon", 0.5, "--repeats", 4, "--seed", 1, "--json"
    )
    one, many = (point["accuracy"] for point in json.loads(swept.stdout)["points"])
    assert one > many + 0.1


@pytest.mark.parametrize("rule", ["trimmed-mean:0.2", "median", "krum:1"])
def test_robust_rules(records, rule):
    found = result_of(records, "--epsilon", 50, "--nodes", 8, "--robust", rule, "--engine", "vector", "--seed", 1)
    assert found["robust"] == rule
    assert found["accuracy"] > 0.8


def test_the_text_says_both_costs(records):
    shown = simulate(records, "--epsilon", 4, "--nodes", 7, "--engine", "vector", "--seed", 1).stdout
    assert "4 for adding or removing a record, 8 for changing one" in shown
    assert "7 of 61 to 62 records" in shown


def test_smooth_sensitivity_states_what_it_covers(records):
    options = ("--epsilon", 20, "--nodes", 2, "--sensitivity", "smooth", "--seed", 1)
    found = result_of(records, *options)
    assert (found["adjacency"], found["epsilon_change"], found["sensitivity"]) == ("change-features", 20, "smooth")
    assert "20 for changing the features of a record" in simulate(records, *options).stdout


def campaign_of(most=1000):
    """A campaign for nodes with a category, a number with a substitute and one that may be missing."""
    features = [
        Categorical("odor", ["n", "f"], substitute=0),
        Numeric("width", "0", "10", [0], substitute=0),
        Numeric("depth", "-1", "1", [0], substitute=None),
    ]
    publisher = Publisher(schema=build_schema(Label("label", ["e", "p"]), features))
    return opened(publisher.node_campaign(max_records=most, family=GAUSSIAN))


def test_the_vector_engine_has_the_exact_sums_of_real_nodes():
    campaign, frame = campaign_of(), people(101)
    depth = np.random.default_rng(3).normal(0, 0.6, 101)
    frame["depth"] = np.where(depth > 1, np.nan, depth)
    frame.loc[5:9, "odor"] = "?"
    frame.loc[3:4, "label"] = "unknown"
    owners = vector.deal(101, 4, np.random.default_rng(1))
    assert sorted(Counter(owners.tolist()).values()) == [25, 25, 25, 26]
    subjects = released_vectors(campaign)
    labels = label_codes(frame, campaign.schema.label, substitute=True)
    found = vector.exact_sums(subjects, observe(frame, campaign.schema), labels, owners, 4)
    for node in range(4):
        own = ExactSums(campaign.schema, subjects)
        part = frame[owners == node]
        own.add_all([{**record, "label": label} for record, label in records_of(part, "label")], FROM_RECORD)
        assert found[node].tolist() == list(own.totals)


def test_equal_numbers_give_equal_statistics_by_arrays_and_by_signed_summaries():
    campaign = campaign_of()
    sizes = sum(subject.size for subject in released_vectors(campaign))
    period = campaign.header.not_before // campaign.time_precision
    values = vector.released(np.full((5, sizes), 40, np.int64), campaign, np.random.default_rng(7))
    totals = Totals(campaign)
    for node, row in enumerate(values.tolist()):
        key = SigningKey.from_seed(bytes([node]) * 32)
        totals.add(read_summary(build_summary(campaign, key, period, row))[1])
    signed, arrays = federated(campaign, totals.total()), vector.statistics_of(values, campaign, period)
    assert arrays.statistics_id == signed.statistics_id
    for one, other in zip(arrays.questions, signed.questions, strict=True):
        assert one.estimate.tolist() == other.estimate.tolist()
        assert one.noise_variance.tolist() == other.noise_variance.tolist()


def test_what_nodes_send_is_in_its_public_range():
    campaign = campaign_of(most=1)
    subjects = released_vectors(campaign)
    exact = np.full((3, sum(subject.size for subject in subjects)), 1 << 50)
    found, start = vector.released(exact, campaign, np.random.default_rng(1)), 0
    for subject, (_, high) in zip(subjects, ranges(campaign), strict=True):
        assert (found[:, start : start + subject.size] == high).all()
        start += subject.size


def test_both_engines_have_noise_of_one_law():
    """Mean and mean size of the noise of every number, over 400 nodes of each engine: within 5 standard errors."""
    campaign = campaign_of()
    zeros = np.zeros((400, sum(subject.size for subject in released_vectors(campaign))), np.int64)
    noise = vector.released(zeros, campaign, np.random.default_rng(5))
    real = np.array(
        [noisy_sums(campaign, [0] * zeros.shape[1], 1_000_000, bytes([n % 256, n // 256]) * 16) for n in range(400)]
    )
    for place in range(zeros.shape[1]):
        spread = np.sqrt(noise[:, place].var() / 400 + real[:, place].var() / 400)
        assert abs(noise[:, place].mean() - real[:, place].mean()) < 5 * spread
        ratio = np.abs(noise[:, place]).mean() / np.abs(real[:, place]).mean()
        assert 0.7 < ratio < 1.43  # the standard error of its logarithm is 0.07
