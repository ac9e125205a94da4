"""``hearsay projection --private`` and ``hearsay schema --private``: what leaves is noisy, public or absent."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from support.commands import run

from aggregator.central.pilots import projecting
from aggregator.models.pilot import check_pilot, outside
from aggregator.models.reduction import fit_projection
from aggregator.schema_file import load_schema
from aggregator.tables import read_table
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


def test_no_exact_quality_is_shown_or_written(folder):
    """Every number of the exact fit that a private one could show by mistake is different, and is not in the texts."""
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


def test_what_can_be_refused_without_records_costs_nothing(folder):
    write(folder / "b.csv", list(rows(2)))
    assert project(data="b.csv", status=1).stderr.startswith("data_unknown: ")
    assert project(epsilon="5", status=1).stderr.startswith("budget_exceeded: ")
    assert project("--bounds", "pilot", status=1).stderr.startswith("bounds_invalid: ")
    assert project("--bins", "1", status=1).stderr.startswith("bins_invalid: ")
    assert project("--bins", "65000", status=1).stderr.startswith("schema_invalid: ")
    assert project("--delta", "1", status=1).stderr.startswith("delta_invalid: ")
    assert project(method="lda", status=1).stderr.startswith("method_unknown: ")
    assert "does not go with --private" in project("--quantile", "0.1", status=2).stderr
    usual = ("projection", "a.csv", "--schema", "s.toml", "--method", "pca", "--components", "1", "-o", "p.json")
    assert "needs --epsilon and --budget" in run(*usual, "--private", status=2).stderr
    assert "go with --private" in run(*usual, "--epsilon", "1", status=2).stderr
    assert spent() == "0"
    assert not (folder / "p.json").exists()
