"""``hearsay design --private-epsilon``: candidates of one part, a private choice on another, accuracy on a third."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from support.commands import run
from support.failures import reason
from support.pilots import DESIGN as SCHEMA

from aggregator.common.tables import read_table
from aggregator.curator.budget import BudgetFile, parts_of, record_bytes
from aggregator.models.population import Population
from aggregator.planning.feature_selection import forward_selection, from_private_pilot
from aggregator.planning.feature_selection.from_private_pilot import (
    COMPARED,
    MADE,
    MEASURED,
    PARTS,
    DesignTerms,
    choose,
    cost_of_design,
    noisy_accuracy,
)
from aggregator.publishing.schemas.schema_file import load_schema, parse_schema_text
from protocol.epsilon import MICRO
from protocol.questions import ADD_REMOVE, CHANGE
from protocol.stream import Stream

FILE = parse_schema_text(SCHEMA)
PEOPLE = 617


def people(rows=PEOPLE, seed=4):
    """Letters tell the class but for one in ten, the size but for one in four; noise tells nothing."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, rows)
    letter = 2 * rng.integers(0, 3, rows) + (label ^ (rng.random(rows) < 0.1))
    size = np.where(label ^ (rng.random(rows) < 0.25), rng.uniform(0.3, 1, rows), rng.uniform(-1, 0.3, rows))
    letters = ["abcdef"[code] if each % 9 else None for each, code in enumerate(letter)]
    noise, labels = rng.choice(["p", "q"], rows).astype(object), np.where(label, "y", "n").astype(object)
    return pd.DataFrame({"letter": letters, "size": [f"{each:.3f}" for each in size], "noise": noise, "class": labels})


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(forward_selection, "MOST_FEATURES", 2)
    monkeypatch.setattr(from_private_pilot, "MOST_FEATURES", 2)
    monkeypatch.setattr(from_private_pilot, "DRAWS", 1)


def parts(frame):
    return np.array(parts_of(record_bytes(frame), b"k" * 32, PARTS))


def chosen(frame, epsilon=8, seed=1, adjacency=CHANGE, devices=20_000):
    terms = DesignTerms(epsilon * MICRO, adjacency, devices, MICRO)
    return choose(Population.of_frame(frame, FILE.schema), parts(frame), FILE, terms, bytes([seed] * 32))


def test_with_enough_epsilon_what_tells_the_class_is_chosen_in_groups_of_its_values():
    found = chosen(people(3000), devices=3_000)
    names = [found.file.schema.features[each.way.feature].name for each in found.chosen]
    assert names[0] == "letter"
    assert "noise" not in names
    assert found.accuracy.low < 0.87 < found.accuracy.high
    assert found.accuracy.accuracy == pytest.approx(0.87, abs=0.06)
    assert list(found.file.ask) == [name for name in ("letter", "size") if name in names]


def test_without_epsilon_the_choice_is_one_of_many():
    choices = {tuple(each.way for each in chosen(people(200), Fraction(1, 500), seed).chosen) for seed in range(4)}
    assert len(choices) > 1
    frame = people(60)
    population = Population.of_frame(frame, FILE.schema)
    for part in (MADE, COMPARED, MEASURED):
        of = np.full(60, part)
        assert choose(population, of, FILE, DesignTerms(MICRO, CHANGE, 1000, MICRO), bytes(32)).chosen


@pytest.fixture
def compared(monkeypatch):
    seen = []
    monkeypatch.setattr(from_private_pilot, "noisy_max", lambda counts, *_: seen.append(counts) or 0)
    return seen


def test_a_record_of_the_second_part_moves_no_count_by_more_than_one_and_no_candidate(compared):
    frame = people()
    whole = chosen(frame)
    for row in np.flatnonzero(parts(frame) == COMPARED)[:2]:
        less = chosen(frame.drop(index=row))
        assert (less.candidates, less.accuracy) == (whole.candidates, whole.accuracy)
    for counts in compared[1:]:
        assert {more - fewer for more, fewer in zip(compared[0], counts, strict=True)} <= {0, 1}
    # The accuracy that is printed is of records that made no candidate and compared none: any others flatter it.
    frame = people()
    whole = chosen(frame)
    less = chosen(frame.drop(index=np.flatnonzero(parts(frame) == MEASURED)))
    assert (compared[0], whole.chosen) == (compared[1], less.chosen)
    assert less.accuracy is None
    assert whole.accuracy is not None


def test_the_accuracy_of_noise_is_that_of_a_guess():
    """Of 12 choices on records whose label nothing tells, seeded; the records that chose said 53.6 % here."""
    found = []
    for seed in range(12):
        frame = people(400, seed)
        frame["class"] = np.random.default_rng(100 + seed).choice(["n", "y"], 400).astype(object)
        found.append(chosen(frame, seed=seed + 1).accuracy.accuracy)
    assert np.mean(found) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("count", "share", "epsilon"), [(100, 0.6, 1), (2000, 0.9, 1), (400, 0.97, Fraction(1, 4))])
def test_the_interval_of_a_noisy_accuracy_holds(count, share, epsilon):
    """2000 draws, seeded; 95 % have a standard error of 0.5 points."""
    rng, inside = np.random.default_rng(7), 0
    stream = Stream(bytes(32), b"test")
    for _ in range(2000):
        said = noisy_accuracy(rng.random(count) < share, Fraction(epsilon), stream)
        inside += said is not None and said.low <= share <= said.high
    assert 0.935 * 2000 < inside < 0.985 * 2000
    assert noisy_accuracy(np.ones(10, np.bool_), Fraction(1, 10), stream) is None  # noise alone


def test_a_record_of_the_first_part_takes_no_part_in_the_scores(monkeypatch):
    seen, learned = [], []
    real, part = from_private_pilot.fit, from_private_pilot._part
    monkeypatch.setattr(from_private_pilot, "fit", lambda *args: learned.append(args[0].rows) or real(*args))
    monkeypatch.setattr(from_private_pilot, "_part", lambda *args: seen.append(part(*args)) or seen[-1])
    frame = people()
    of = parts(frame)
    chosen(frame)
    chosen(frame.drop(index=np.flatnonzero(of == MADE)[0]))
    made = (of == MADE).sum()
    assert learned == [made, made - 1]
    assert [len(each.truth) for each in seen] == 2 * [(of == COMPARED).sum(), (of == MEASURED).sum()]
    assert all((one.truth == two.truth).all() for one, two in zip(seen[:2], seen[2:], strict=True))


def test_parts_depend_on_each_record_alone_and_on_the_key():
    records = list(record_bytes(people()))
    of = parts_of(records, b"k" * 32, PARTS)
    assert parts_of(records[::-1], b"k" * 32, PARTS) == of[::-1]
    assert parts_of(records, b"l" * 32, PARTS) != of
    counts = np.bincount(of, minlength=3)
    assert sum(counts) == PEOPLE
    # Beyond these limits, six standard deviations and more, with probability below 1e-8.
    assert np.abs(counts - PEOPLE * np.array(PARTS) / 256).max() < 75
    assert len(set(parts_of([records[0]] * 5, b"k" * 32, PARTS))) == 1


def test_other_adjacencies_than_add_remove_run_with_half_of_epsilon():
    assert DesignTerms(MICRO, ADD_REMOVE, 1, MICRO).part_micro == MICRO
    assert DesignTerms(MICRO, CHANGE, 1, MICRO).part_micro == MICRO // 2
    terms = DesignTerms(MICRO, CHANGE, 1, MICRO)
    assert cost_of_design(FILE.schema, terms).epsilon_micro == MICRO
    assert terms.tables.adjacency == ADD_REMOVE
    assert reason(cost_of_design, FILE.schema, terms._replace(epsilon_micro=1)) == "epsilon_invalid"
    assert reason(cost_of_design, FILE.schema, terms._replace(answer_micro=0)) == "epsilon_invalid"


def test_the_command_pays_prints_nothing_exact_and_its_schema_states_the_cost(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(SCHEMA)
    frame = people()
    frame.to_csv("a.csv", index=False)
    frame.iloc[:-1].to_csv("b.csv", index=False)
    run("budget", "new", "w.hsb", "--name", "ward 7", "--epsilon", "2", "--adjacency", "add-remove")
    run("budget", "assign", "w.hsb", "a.csv")
    monkeypatch.setattr(from_private_pilot, "Stream", lambda _seed, tag: Stream(bytes(32), tag))

    def design(data, output, *more, status=0, epsilon="1"):
        return run("design", data, "--schema", "s.toml", "--epsilon", "1", "--devices", "5000", "-o", output,
                   "--private-epsilon", epsilon, "--budget", "w.hsb", *more, status=status)  # fmt: skip

    assert design("b.csv", "o.toml", status=1).stderr.startswith("data_unknown: ")
    run("budget", "assign", "w.hsb", "b.csv")
    one, two = (json.loads(design(data, f"{data}.toml", "--json").stdout) for data in ("a.csv", "b.csv"))
    assert list(one) == list(two)
    assert (one["private_epsilon"], one["adjacency"], one["budget"]) == ("1", "add-remove", "ward 7")
    with BudgetFile.open("w.hsb") as budget:
        sizes = np.bincount(budget.parts(record_bytes(read_table("a.csv")), PARTS)).tolist()
    text = json.dumps(one) + (tmp_path / "a.csv.toml").read_text()
    told = set(re.findall(r"(?<![\d.])\d+(?![\d.])", text))
    assert not told & {str(number) for number in (PEOPLE, PEOPLE - 1, *sizes)}
    made = load_schema("a.csv.toml")
    assert made.pilots[0].epsilon_micro == MICRO
    assert one["largest_class_noisy"]["name"] in {"n", "y"}
    assert 0.4 < one["largest_class_noisy"]["share"] < 0.7
    assert {"accuracy_noisy", "accuracy_low", "accuracy_high"} <= set(one)
    assert set(made.ask) == set(one["asked"])
    assert design("a.csv", "o.toml", status=1).stderr.startswith("budget_exceeded: ")
    assert design("a.csv", "o.toml", status=1, epsilon="0.000001").stderr.startswith("epsilon_invalid: ")
    usual = ("design", "a.csv", "--schema", "s.toml", "--epsilon", "1", "--devices", "5", "-o", "o.toml")
    assert "go together" in run(*usual, "--private-epsilon", "1", status=2).stderr
    assert "go together" in run(*usual, "--budget", "w.hsb", status=2).stderr
