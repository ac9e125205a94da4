"""``hearsay simulate --trust vertical``: both engines agree, and an independent simulation gives the same curve."""

from __future__ import annotations

import json
from statistics import fmean, stdev

import numpy as np
import pandas as pd
import pytest
from support.commands import invoke, run
from support.failures import reason

from aggregator.models.encoding import recognise
from protocol.errors import DocumentError
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from research.vertical import VerticalTerms, class_weights, decide
from simulation import simulate_campaign
from simulation.trust import randomness_of
from simulation.vertical import Tables, divided_among, predict

SIZES = (4, 4, 4, 3, 3, 3)
CLASSES = 4
ROWS = 1728


def car_like(rows=ROWS, seed=1):
    """Codes of six features and four unequal classes, of the shape of the car data: every feature tells a little."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, size, rows) for size in SIZES], axis=1)
    score = codes @ [1.0, 1.0, 0.3, 1.2, 0.6, 1.5] + rng.normal(0, 0.7, rows)
    return codes, np.searchsorted(np.quantile(score, [0.7, 0.92, 0.96]), score)


def frame_of(codes, labels):
    found = pd.DataFrame({f"f{place}": [f"v{code}" for code in column] for place, column in enumerate(codes.T)})
    return found.assign(label=[f"c{label}" for label in labels])


SCHEMA = build_schema(
    Label("label", [f"c{label}" for label in range(CLASSES)]),
    [Categorical(f"f{place}", [f"v{code}" for code in range(size)], substitute=0) for place, size in enumerate(SIZES)],
)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "car.csv"
    frame_of(*car_like()).to_csv(path, index=False)
    return path


def independent(codes, labels, epsilon, repeats, seed):
    """Accuracies of the vertical form by floating-point numbers alone: noise, floors, log scores, five folds."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(repeats):
        order = rng.permutation(len(labels))
        right = 0
        for fold in range(5):
            test = order[fold::5]
            learn = np.setdiff1d(order, test)

            def noisy(shape):
                first, second = (np.floor(np.log(1 - rng.random(shape)) / -epsilon) for _ in range(2))
                return first - second  # two geometric numbers, by inversion

            counts = np.maximum(np.bincount(labels[learn], minlength=CLASSES) + noisy(CLASSES), 1)
            scores = np.log(counts) - np.log(counts[:, None] + np.array(SIZES)).sum(axis=1)
            scores = np.tile(scores, (len(test), 1))
            for feature, size in enumerate(SIZES):
                table = np.zeros((size, CLASSES))
                np.add.at(table, (codes[learn, feature], labels[learn]), 1)
                table = np.maximum(table + noisy(table.shape), 0)
                scores += np.log(table + 1)[codes[test, feature]]
            right += (scores.argmax(axis=1) == labels[test]).sum()
        found.append(right / len(labels))
    return found


@pytest.mark.parametrize("epsilon", ["0.02", "0.3"])
def test_the_curve_is_that_of_an_independent_simulation(records, epsilon):
    """Means of 8 repetitions of five folds each: within 4 standard errors of their difference, and one point.

    The standard errors are estimated, so a right simulation fails with probability below 1e-3 at each ε; seeds are
    fixed.
    """
    total = f"{7 * float(epsilon):g}"
    ours = simulate_campaign(
        records, "label", schema=SCHEMA, epsilon=total, trust="vertical", nodes=6, engine="vector", folds=5, repeats=8,
        seed=1,
    )  # fmt: skip
    own = [fmean(trial.accuracy for trial in ours.trials[start : start + 5]) for start in range(0, 40, 5)]
    theirs = independent(*car_like(), float(epsilon), 8, seed=2)
    allowed = 0.01 + 4 * (stdev(own) ** 2 / 8 + stdev(theirs) ** 2 / 8) ** 0.5
    assert abs(fmean(own) - fmean(theirs)) < allowed
    if float(epsilon) < 0.1:  # a simulation without noise is rejected
        assert abs(ours.result["accuracy_nonprivate"] - fmean(theirs)) > allowed


def test_both_engines_agree_exactly_on_equal_tables():
    codes, labels = car_like(400)
    people, tested = frame_of(codes[:393], labels[:393]), frame_of(codes[393:], labels[393:])
    tested.loc[0, "f2"] = "?"  # no listed value: the sums over the values take its place
    for nodes, epsilon_micro in ((2, 300_000), (6, 50_000)):
        randomness = randomness_of(nodes)
        terms = VerticalTerms(bytes(32), 0, epsilon_micro, 393)
        made = divided_among(SCHEMA, people, nodes, terms, randomness)
        tables = [None] * len(SIZES)
        for party, features in zip(made.parties, made.features, strict=True):
            for table, feature in zip(party.tables, features, strict=True):
                tables[feature] = np.array(table, np.int64)
        counts = np.array(made.parties[0].class_counts)
        assert sum(party.epsilon_micro for party in made.parties) == 7 * epsilon_micro
        queries = recognise(tested, SCHEMA).codes
        assert queries[0, 2] == -1
        assert made.opener.weights == class_weights(counts.tolist(), SIZES)
        found = made.classify(tested, "label")
        np.testing.assert_array_equal(found, predict(Tables(counts, tuple(tables)), queries))
        assert len(set(found.tolist())) > 1


def test_ciphertexts_of_another_record_do_not_open():
    people = frame_of(*car_like(50))
    made = divided_among(SCHEMA, people, 2, VerticalTerms(bytes(32), 0, 10**6, 50), randomness_of(1))
    record = people.drop(columns="label").iloc[0].to_dict()
    first, second = ([party.encrypt(record, query) for party in made.parties] for query in (0, 1))
    assert made.opener.products(first, 0) == made.opener.products(second, 1)
    for mixed, query in (([first[0], second[1]], 0), (first, 1)):
        with pytest.raises(DocumentError, match="square"):
            made.opener.products(mixed, query)
    for short in (first[:1], [*first, first[0]], [first[0][:1], *first[1:]], [[*one, 1] for one in first]):
        with pytest.raises(DocumentError, match=r"mask_mismatch.*one for every class"):
            made.opener.products(short, 0)
    assert reason(lambda: made.parties[0].encrypt(record, 1)) == "argument_invalid"


def test_the_first_of_equal_classes_wins_and_a_class_without_records_counts_as_one():
    assert class_weights([3, -5], [2]) == (3 * 3, 1 * 5)
    assert decide([5, 9], class_weights([3, -5], [2])) == 0
    assert decide([5, 10], class_weights([3, -5], [2])) == 1


@pytest.mark.parametrize("engine", ["device", "vector"])
def test_the_command_counts_cost_and_products(records, engine):
    table = frame_of(*car_like(300))
    found = simulate_campaign(
        table, "label", schema=SCHEMA, epsilon=14, trust="vertical", nodes=4, engine=engine, test_share=0.02, seed=2
    ).result
    assert (found["trust"], found["nodes"], found["node_features"], found["engine"]) == ("vertical", 4, [1, 2], engine)
    assert (found["epsilon_total"], found["epsilon_per_count"], found["epsilon_change"]) == (14, 2, 28)
    assert (found["records"], found["test_records"], found["products"]) == (294, 6, 24)


def test_the_printed_lines_and_the_warning_of_slow_engines(records):
    given = ["simulate", str(records), "--label", "label", "--trust", "vertical", "--nodes", "3", "--epsilon", "1.4"]
    found = run(*given, "--engine", "vector")
    assert "1.4 for adding or removing a record, 2.8 for changing one; 0.2 per count" in found.stdout
    assert "3 of 2 features, with 1382 records in common" in found.stdout
    assert "powers" not in found.stderr
    swept = invoke(*given, "--engine", "vector", "--sweep", "nodes=2,6", "--json")
    assert swept.exit_code == 2, "nodes given and swept"
    swept = invoke(*given[:6], "--epsilon", "1.4", "--engine", "vector", "--sweep", "nodes=2,6", "--json")
    assert [point["nodes"] for point in json.loads(swept.stdout)["points"]] == [2, 6]
