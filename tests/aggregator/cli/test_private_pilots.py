"""``hearsay projection --private`` and ``hearsay schema --private``: what leaves is noisy, public or absent."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from support.commands import run
from support.failures import reason

import aggregator
from aggregator.common.tables import read_table
from aggregator.curator import binning, projecting
from aggregator.models.population import check_pilot, outside
from aggregator.models.reduction import fit_projection
from aggregator.planning.feature_selection.from_private_pilot import DesignTerms
from aggregator.planning.feature_selection.schema_text import schema_text
from aggregator.publishing.schemas.projection_file import FORMAT, load_pilots
from aggregator.publishing.schemas.schema_file import load_schema, parse_schema_text
from edge_sdk import Device
from protocol.stream import Stream

SCHEMA = """name = "ward"
[label]
name = "outcome"
classes = ["home", "stays"]
[[features]]
name = "colour"
kind = "categorical"
values = ["red", "blue"]
""" + "".join(
    f'[[features]]\nname = "{name}"\nkind = "numeric"\nlow = 0\nhigh = 10\nbins = 4\n' for name in ("a", "b", "c")
)
PEOPLE = 1237


def rows(seed=1):
    rng = np.random.default_rng(seed)
    for number in range(PEOPLE):
        kind = int(number % 3 == 0)
        numbers = [f"{each:.3f}" for each in rng.normal((3 + 3 * kind, 5, 6 - kind), (1.5, 2.5, 2))]
        yield ",".join([("home", "stays")[kind], "red" if rng.random() < 0.5 else "blue", *numbers])


def write(path, lines):
    path.write_text("outcome,colour,a,b,c\n" + "\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(SCHEMA)
    write(tmp_path / "a.csv", rows())
    budget("w.hsb", "a.csv")
    return tmp_path


def budget(name, *data, adjacency="add-remove"):
    run("budget", "new", name, "--name", "ward 7", "--epsilon", "4", "--delta", "1e-6", "--adjacency", adjacency)
    for each in data:
        run("budget", "assign", name, each)


def project(*more, data="a.csv", method="dca", epsilon="1", paid="w.hsb", output="p.json", status=0):
    return run("projection", data, "--schema", "s.toml", "--method", method, "--components", "2", "-o", output,
               "--private", "--epsilon", epsilon, "--budget", paid, *more, status=status)  # fmt: skip


def spent(paid="w.hsb"):
    return json.loads(run("budget", "show", paid, "--json").stdout)["epsilon_spent"]


def test_a_private_projection_is_paid_and_becomes_part_of_a_campaign(folder):
    shown = project("--plot", "p.svg").stdout
    assert "ward 7" in shown
    assert "discrete Laplace" in shown
    facts = json.loads((folder / "p.json").read_text())["facts"]
    assert (facts["epsilon"], facts["delta"], facts["adjacency"], facts["budget"]) == ("1", "0", "add-remove", "ward 7")
    assert spent() == "1"
    run("init", "work", "--no-passphrase")
    run("campaign", "s.toml", "--workspace", "work", "--epsilon", "1", "--mechanism", "auto", "--projection", "p.json",
        "-o", "c.hsc")  # fmt: skip
    project("--equal-frequency", "--delta", "1e-7", method="pca", output="q.json")
    facts = json.loads((folder / "q.json").read_text())["facts"]
    assert "discriminant" not in facts
    assert facts["bins"] == "equal frequency"
    assert spent() == "2"


@pytest.mark.parametrize("method", ["pca", "dca"])
@pytest.mark.parametrize("more", [(), ("--equal-frequency", "--bounds", "inputs")])
def test_neighbours_with_the_same_noise_show_the_same_fields_and_no_exact_number(folder, monkeypatch, method, more):
    """The only record of a class, with numbers beyond the bounds and one that is missing, comes or goes."""
    lines = [line for line in rows() if not line.startswith("stays")]
    write(folder / "one.csv", lines)
    write(folder / "two.csv", [*lines, "stays,red,99,-3,"])
    budget("n.hsb", "one.csv", "two.csv")
    monkeypatch.setattr(projecting, "Stream", lambda _seed, tag: Stream(bytes(32), tag))
    shapes, texts = [], []
    for data in ("one.csv", "two.csv"):
        arguments = {"data": data, "method": method, "paid": "n.hsb", "epsilon": "0.5", "output": f"{data}.json"}
        shown = project("--json", *more, **arguments)
        printed, file = json.loads(shown.stdout), json.loads((folder / f"{data}.json").read_text())
        shapes.append((list(printed), list(file), list(file["facts"]), shown.stderr))
        texts.append(shown.stdout + shown.stderr + (folder / f"{data}.json").read_text())
        assert not {"pilot_rows", "clipped", "worst_error", "inputs"} & {*printed, *file["facts"]}
    assert shapes[0] == shapes[1]
    assert not any(re.search(rf"\b{len(lines) + extra}\b", text) for text in texts for extra in (0, 1))


def test_no_exact_quality_is_shown_or_written(folder, monkeypatch):
    """Every number of the exact fit that a private one could show by mistake is different, and is not in the texts."""
    monkeypatch.setattr(projecting, "Stream", lambda _seed, tag: Stream(bytes(32), tag))
    schema = load_schema("s.toml").schema
    frame = check_pilot(read_table("a.csv"), schema)
    exact = fit_projection(frame, schema, "dca", 2)
    told = project().output + (folder / "p.json").read_text()
    numbers = [*exact.directions.explained, exact.directions.discriminant[0]]
    assert not any(f"{number:.6f}" in told or f"{100 * number:.2f}" in told for number in numbers)
    assert "below" not in told
    assert not re.search(rf"\b{PEOPLE}\b", told)
    assert exact.schema.projection is not None
    assert not any(str(row[0]) in told for row in exact.schema.projection.matrix)
    assert sum(one.below + one.above for one in outside(frame, schema)) > 0


BINS = "schema a.csv --private --schema s.toml --budget w.hsb -o t.toml"
PROJECTION = "projection a.csv --schema s.toml --budget w.hsb -o p.json --method dca --components 2 --private"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{PROJECTION} --epsilon 1".replace("a.csv", "b.csv"), "data_unknown: "),
        (f"{PROJECTION} --epsilon 5", "budget_exceeded: "),
        (f"{PROJECTION} --epsilon 1 --bounds pilot", "bounds_invalid: "),
        (f"{PROJECTION} --epsilon 1 --bins 1", "bins_invalid: "),
        (f"{PROJECTION} --epsilon 1 --bins 65000", "schema_invalid: "),
        (f"{PROJECTION} --epsilon 1 --delta 1", "delta_invalid: "),
        (f"{PROJECTION} --epsilon 1 --method lda", "method_unknown: "),
        (f"{PROJECTION} --epsilon 1 --quantile 0.1", "usage: .*does not go with --private"),
        (PROJECTION, "usage: .*needs --epsilon and --budget"),
        (f"{PROJECTION} --epsilon 1".replace(" --private", ""), "usage: .*go with --private"),
        (f"{BINS} --epsilon 0.6 --bins 1", "bins_invalid: "),
        (f"{BINS} --epsilon 0.6 --bins 40000", "bins_invalid: "),
        (f"{BINS} --epsilon 0.000002", "epsilon_invalid: "),
        (f"{BINS} --epsilon 9", "budget_exceeded: "),
        (f"{BINS} --epsilon 0.6 --label outcome", "usage: .*takes no --label"),
        (f"{BINS} --epsilon 0.6 --delta 1e-6", "usage: .*no δ"),
        (f"{BINS} --epsilon 0.6".replace(" --schema s.toml", ""), "usage: .*--private needs --schema"),
        (f"{BINS} --epsilon 0.6".replace("s.toml", "asks.toml"), "ask_invalid: "),
        (f"{BINS} --epsilon 0.6".replace("s.toml", "words.toml"), "no_numbers: "),
        ("schema a.csv -o t.toml", "usage: .*--label"),
    ],
)
def test_what_can_be_refused_without_records_costs_nothing(folder, line, said):
    write(folder / "b.csv", list(rows(2)))
    (folder / "asks.toml").write_text(SCHEMA + "[ask.a]\nbins = [2, 2]\n")
    (folder / "words.toml").write_text(SCHEMA.split('[[features]]\nname = "a"')[0])
    assert re.match(said, run(*line.split(), status=2 if said.startswith("usage") else 1).stderr)
    assert spent() == "0"
    assert not {"p.json", "t.toml"} & {path.name for path in folder.iterdir()}


def binned(*more, data="a.csv", epsilon="0.6", paid="w.hsb", output="t.toml", status=0):
    return run("schema", data, "--private", "--schema", "s.toml", "--epsilon", epsilon, "--budget", paid,
               "-o", output, *more, status=status)  # fmt: skip


def test_private_bins_and_projection_are_told_with_their_cost_wherever_a_campaign_is_shown(folder):
    shown = binned("--bins", "5").stdout
    assert "5 bins of equal frequency for 3 numbers" in shown
    made, before = load_schema("t.toml"), load_schema("s.toml")
    assert [feature.name for feature in made.schema.features] == [each.name for each in before.schema.features]
    assert [len(made.schema.features[index].edges) for index in (1, 2, 3)] == [4, 4, 4]
    assert made.schema.features[0].labels() == before.schema.features[0].labels()
    run("projection", "a.csv", "--schema", "t.toml", "--method", "pca", "--components", "1", "-o", "p.json",
        "--private", "--epsilon", "1", "--budget", "w.hsb")  # fmt: skip
    run("init", "work", "--no-passphrase")
    run("campaign", "t.toml", "--workspace", "work", "--epsilon", "1", "--mechanism", "auto", "--projection", "p.json",
        "-o", "c.hsc")  # fmt: skip
    costs = ("at ε = 0.6, δ = 0 (add-remove), paid from 'ward 7'", "projection: pca, 1 component, at ε = 1, δ = 0")
    with Device.open(None, trust=(folder / "work" / "root.hst").read_bytes()) as device:
        explained = device.explain((folder / "c.hsc").read_bytes())
    for text in (run("show", "c.hsc").stdout, run("guarantee", "c.hsc").stdout, explained):
        assert all(cost in text for cost in costs)
    assert [one["epsilon_micro"] for one in json.loads(run("guarantee", "c.hsc", "--json").stdout)["pilots"]] == [
        600_000,
        1_000_000,
    ]
    assert float(spent()) == pytest.approx(1.6)


def test_bins_of_neighbours_are_of_one_shape(folder, monkeypatch):
    """The neighbour has one record more, with the only numbers of its feature."""
    lines = [f"home,red,,{number},1" for number in range(10)]
    write(folder / "one.csv", lines)
    write(folder / "two.csv", [*lines, "stays,blue,7,99,"])
    budget("n.hsb", "one.csv", "two.csv")
    monkeypatch.setattr(binning, "Stream", lambda _seed, tag: Stream(bytes(32), tag))
    texts = []
    for data in ("one.csv", "two.csv"):
        shown = binned(data=data, paid="n.hsb", output=f"{data}.toml")
        told = shown.output.replace(data, "") + (folder / f"{data}.toml").read_text()
        texts.append(re.sub(r"edges = \[[^\]]*\]", lambda found: str(found[0].count(",")), told))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("wrong", ["epsilon_micro = 0", 'epsilon_micro = "1"', "epsilon_micro = 1\nzz = 1"])
def test_a_wrong_cost_in_a_schema_file_or_projection_file_is_refused(wrong, tmp_path):
    text = f'{SCHEMA}[[pilots]]\nwhat = "w"\ndelta = "0"\nadjacency = "change"\nbudget = "b"\n{wrong}\n'
    assert reason(parse_schema_text, text) == "schema_invalid"
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"format": FORMAT, "pilots": [{"what": 1}]}))
    assert reason(load_pilots, path) == "projection_invalid"
    right = text.replace(wrong, "epsilon_micro = 1")
    assert parse_schema_text(schema_text(parse_schema_text(right))).pilots == parse_schema_text(right).pilots != ()


def test_python_makes_the_same_private_results_and_campaigns_state_what_they_cost(folder):
    run("init", "work", "--no-passphrase")
    table, public = aggregator.read_table("a.csv"), aggregator.load_schema("s.toml")
    with aggregator.BudgetFile.open("w.hsb") as paying:
        hides = paying.adjacency
        binned = aggregator.bin_records(table, public, binning.BinTerms(8, 500_000, hides), paying)
        terms = projecting.ProjectionTerms("dca", 1, 500_000, adjacency=hides)
        made = aggregator.project_records(table, binned.schema, terms, paying)
        made.save("p.json")
        assert reason(lambda: made.save("p.json")) == "output_exists"
        asked = DesignTerms(500_000, hides, 2_000, 1_000_000)
        chosen = aggregator.design_records(table, binned, asked, paying)
    assert float(spent()) == pytest.approx(1.5, abs=1e-3)
    first = aggregator.make_campaign("work", binned, epsilon=1, mechanism="auto", projection="p.json").campaign
    assert [one.epsilon_micro for one in first.pilots] == [one.epsilon_micro for one in (*binned.pilots, made.paid)]
    few = aggregator.make_campaign("work", chosen.file, epsilon=1, mechanism="auto", class_question=False, name="few")
    assert [one.what for one in few.campaign.pilots] == [binned.pilots[0].what, chosen.paid.what]
