"""``hearsay simulate --trust central``: every method learns, seeds repeat, terms of no fit are refused."""

from __future__ import annotations

import json
from functools import partial

import pytest
from support.commands import invoke, told

from aggregator.curator.methods.table import METHODS
from simulation import simulate_campaign
from simulation.curator import CentralTrust
from simulation.local import LocalTrust
from simulation.trust import Trial

simulate = partial(invoke, "simulate", "--label", "label")
result_of = partial(told, "simulate", "--label", "label", "--trust", "central")


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "s.toml"
    path.write_text(
        'name = "a"\n[label]\nname = "label"\nclasses = ["e", "p"]\n'
        '[[features]]\nname = "odor"\nkind = "categorical"\nvalues = ["n", "f"]\nmissing = "n"\n'
        '[[features]]\nname = "width"\nkind = "numeric"\nlow = 0\nhigh = 10\nbins = 4\n'
    )
    return path


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(records, schema, method):
    found = result_of(records, "--schema", schema, "--epsilon", 60, "--mechanism", method, "--seed", 1)
    assert found["accuracy"] > 0.9
    assert found["trust"] == "central"
    assert found["adjacency"] == ("change" if method == "sums" else "change-features")
    assert 59.99 < found["epsilon_paid"] <= 60
    assert (found["delta"], found["records"], found["test_records"]) == (0, 480, 120)


def test_a_seed_repeats_and_a_drafted_schema_takes_its_bounds_from_a_pilot(records, schema):
    runs = [result_of(records, "--schema", schema, "--epsilon", 0.05, "--folds", 2, "--seed", n) for n in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]
    found = result_of(records, "--epsilon", 8, "--seed", 1)
    assert (found["records"], found["family"]) == (432, "gaussian")  # a tenth of 480 is the pilot


def test_no_model_is_kept_that_no_budget_counts(records, tmp_path):
    """The card of such a model would state the ε of one fit, although simulations may fit the records any number of
    times."""
    refused = simulate(records, "--epsilon", 1, "--trust", "central", "--out", tmp_path / "m.hsm")
    assert refused.exit_code == 2
    assert "--out does not go with --trust central" in refused.stderr
    assert "hearsay fit" in refused.stderr
    assert not list(tmp_path.iterdir())
    assert all(trial.signed is None for trial in simulate_campaign(records, "label", epsilon=1, trust="central").trials)


@pytest.mark.parametrize("drafted", [False, True])
def test_both_kinds_of_trust_divide_the_records_alike(records, schema, monkeypatch, drafted):
    """With equal seeds test people, pilots and thus drafted schemas are the same. Pilots have no part in either."""
    seen = []

    def collect(_self, _lab, part, _shared):
        features = [feature.to_dict() for feature in part.schema.features]
        test, people = tuple(part.split.test.index), tuple(part.split.people.index)
        seen.append((features, test, people, tuple(part.people.index), part.number))
        return Trial(0.5, 0.5, 0.5, 1, 1, {})

    for kind in (LocalTrust, CentralTrust):
        monkeypatch.setattr(kind, "collect", collect)
    used = None if drafted else schema
    for trust in ("local", "central"):
        simulate_campaign(records, "label", schema=used, epsilon=1, trust=trust, seed=2, folds=3, repeats=2)
    assert len(seen) == 12
    assert seen[:6] == seen[6:]
    assert (seen[0][2] != seen[0][3]) is drafted


def test_sweeps_compare_methods_on_the_same_people(records, schema):
    found = result_of(records, "--schema", schema, "--sweep", "mechanism=sums,global-var", "--sweep", "epsilon=1,50",
                      "--adjacency", "change-features", "--folds", 2, "--family", "gaussian")  # fmt: skip
    assert [point["setting"]["mechanism"] for point in found["points"]] == ["sums"] * 2 + ["global-var"] * 2
    assert len({point["accuracy_nonprivate"] for point in found["points"]}) == 1


@pytest.mark.parametrize(
    "trust",
    [("central",), ("federated", "--nodes", "3"), ("distributed", "--nodes", "3"), ("vertical", "--nodes", "2")],
    ids=lambda trust: trust[0],
)
def test_every_trust_takes_a_number_of_records(records, schema, trust):
    """How many records is the first question for all of them; --devices went with local trust alone."""
    vector = () if trust[0] == "central" else ("--engine", "vector")
    asked = ("--schema", schema, "--epsilon", 1, "--seed", 3, *vector, "--json")
    found = simulate(records, "--trust", *trust, *asked, "--sweep", "devices=50,3000")
    assert found.exit_code == 0, found.output
    few, many = json.loads(found.stdout)["points"]
    assert (few["records"], many["records"]) == (50, 3000)
    assert few["test_records"] == many["test_records"] == 120
    same = simulate(records, "--trust", *trust, *asked, "--records", 50)
    assert json.loads(same.stdout)["records"] == 50
    assert json.loads(same.stdout)["accuracy"] == few["accuracy"] <= 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--mechanism", "oue"), "method_unknown"),
        (("--mechanism", "smooth", "--adjacency", "change"), "adjacency_uncovered"),
        (("--mechanism", "smooth", "--noise", "gaussian"), "noise_unfit"),
        (("--mechanism", "sums", "--noise", "gaussian"), "noise_unknown"),
        (("--delta", "few"), "delta_invalid"),
        (("--epsilon", "0.000001"), "epsilon_invalid"),
        (("--family", "normal"), "family_unknown"),
        (("--postprocess", "none"), "postprocess_unknown"),
    ],
)
def test_terms_that_fit_refuses_are_refused(records, schema, arguments, expected):
    found = simulate(records, "--trust", "central", "--schema", schema, "--epsilon", 1, *arguments)
    assert found.stderr.splitlines()[-1].startswith(f"{expected}: "), found.stderr
    assert found.exit_code == 1
