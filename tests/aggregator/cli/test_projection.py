"""Projections and Gaussian campaigns by commands: fitted, embedded, refused with a clear reason."""

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from support.commands import run
from support.publisher import Publisher
from support.reports import opened

from aggregator.common.tables import read_table, typed
from aggregator.publishing.schemas.schema_file import load_schema
from protocol import SCALE
from protocol.features import Categorical, Numeric
from protocol.schema import Component, Label, Projection, build_schema

NAMES = ("a", "b", "c")
ROWS = 120


def schema_text(names=NAMES, low=-5, high=5):
    features = "".join(
        f'[[features]]\nname = "{name}"\nkind = "numeric"\nlow = {low}\nhigh = {high}\nbins = 4\n' for name in names
    )
    colour = '[[features]]\nname = "colour"\nkind = "categorical"\nvalues = ["red", "blue"]\nmissing = "red"\n'
    return f'name = "sensors"\n[label]\nname = "y"\nclasses = ["n", "p"]\n{colour}{features}'


def pilot_rows():
    """Two classes that differ in a alone; the first row's c lies below every bound, the second's above."""
    rng = np.random.default_rng(5)
    rows = [["y", "colour", *NAMES]]
    for index in range(ROWS):
        numbers = rng.normal(0, [0.4, 1.2, 0.8])
        numbers[0] += 2 if index % 2 else -2
        if index < 2:
            numbers[2] = (-9, 9)[index]
        rows.append(["np"[index % 2], "red", *(f"{number:.6f}" for number in numbers)])
    return rows


def write(path, rows):
    path.write_text("\n".join(",".join(row) for row in rows) + "\n")
    return path


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "pilot.csv", pilot_rows())
    (tmp_path / "s.toml").write_text(schema_text())
    return tmp_path


def project(folder, *more, method="dca", components=1, status=0):
    return run("projection", folder / "pilot.csv", "--schema", folder / "s.toml", "--method", method, "--components",
               components, "-o", folder / "p.json", *more, status=status)  # fmt: skip


def campaign(folder, *more, schema="s.toml", status=0):
    if not (folder / "work").exists():
        run("init", folder / "work", "--no-passphrase")
    return run("campaign", folder / schema, "--workspace", folder / "work", "--epsilon", "4", "-o", folder / "c.hsc",
               "--force", *more, status=status)  # fmt: skip


def test_a_projection_is_fitted_shown_drawn_and_written(folder):
    result = project(folder, "--plot", folder / "p.svg", method="pca", components=2)
    assert "pca1" in result.stdout
    assert "explained %" in result.stdout
    body = json.loads((folder / "p.json").read_text())
    assert body["format"] == "hearsay projection 1"
    assert [feature["name"] for feature in body["features"]] == list(NAMES)
    assert len(body["matrix"]) == len(body["offsets"]) == len(body["components"]) == 2
    assert body["facts"]["explained"][0] > body["facts"]["explained"][1]
    bars = ET.fromstring((folder / "p.svg").read_text()).findall("{*}rect")
    assert len(bars) == 1 + 4 + 2  # ground, two bars for each of two components, two in the legend


def test_options_of_a_fit_are_seen_in_its_facts(folder):
    found = json.loads(project(folder, "--json").stdout)
    counts = {entry["name"]: (entry["below"], entry["above"]) for entry in found["inputs"]}
    assert counts == {"a": (0, 0), "b": (0, 0), "c": (1, 1)}
    assert (found["discriminant"][0] > 0.9, found["worst_error"] < 2**-12) == (True, True)
    assert json.loads((folder / "p.json").read_text())["components"][0]["edges"] == [-32768, 0, 32768]
    assert "outside the bounds" in project(folder, "--force").stderr
    clipped = json.loads(project(folder, "--json", "--force", "--quantile", "0.05").stdout)["clipped"][0]
    assert clipped == pytest.approx(0.1, abs=0.02)
    assert json.loads(project(folder, "--json", "--force", "--bounds", "inputs").stdout)["clipped"] == [0.0]
    project(folder, "--force", "--equal-frequency")
    edges = json.loads((folder / "p.json").read_text())["components"][0]["edges"]
    assert (len(edges), edges != [-32768, 0, 32768]) == (3, True)


def test_a_campaign_embeds_the_projection(folder):
    project(folder, components=2)
    campaign(folder, "--mechanism", "oue", "--projection", folder / "p.json")
    made = opened((folder / "c.hsc").read_bytes())
    body = json.loads((folder / "p.json").read_text())
    assert [list(row) for row in made.schema.projection.matrix] == body["matrix"]
    assert [feature.name for feature in made.schema.observed] == ["colour", "dca1", "dca2"]
    assert len(made.questions) == 4


@pytest.mark.parametrize(
    ("options", "kinds", "mechanism"),
    [
        (["--mechanism", "bits", "--split", "2:1:1"], 1 + 1 + 2 * 3, "bits"),
        (["--mechanism", "piecewise", "--answers", "auto", "--epsilon", "2"], 1 + 1 + 2 * 3 * 2, "piecewise"),
        (["--mechanism", "laplace", "--approach", "1"], 1 + 1 + 2, "laplace"),
        (["--mechanism", "laplace", "--approach", "3"], 1 + 1 + 2 * 3, "laplace"),
        (["--mechanism", "duchi"], 1 + 1 + 2, "duchi"),
    ],
)
def test_gaussian_campaigns(folder, options, kinds, mechanism):
    gaussian = ("--family", "gaussian", "--variance-floor", "0.02")
    campaign(folder, *gaussian, *options)
    made = opened((folder / "c.hsc").read_bytes())
    assert (made.fit.family, made.fit.variance_floor_micro, made.answers) == ("gaussian", 20_000, 1)
    assert len(made.questions) == kinds
    assert {question.mechanism.name for question in made.questions} == {"direct", mechanism}
    if mechanism == "bits":
        bounds = [question.bound for question in made.questions]
        assert (bounds[1], bounds[4]) == (1 << 31, (1 << 31) + (1 << 30))  # class and colour; numbers
    if mechanism == "piecewise":  # one answer for each 2.5 of ε
        campaign(folder, *gaussian, *options, "--epsilon", "8")
        assert opened((folder / "c.hsc").read_bytes()).answers == 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--family neural --mechanism oue", "family_unknown"),
        ("--family gaussian --mechanism oue", "mechanism_unknown"),
        ("--family gaussian --mechanism bits --approach 1", "approach_invalid"),
        ("--family gaussian --mechanism bits --variance-floor 0", "floor_invalid"),
        ("--family gaussian --mechanism bits --variance-floor nan", "floor_invalid"),
        ("--family gaussian --mechanism bits --variance-floor 1e-7", "floor_invalid"),
        ("--family gaussian --mechanism bits --variance-floor 0.0_1", "floor_invalid"),
        ("--family gaussian --mechanism bits --split 1:2", "weights_invalid"),
        ("--family gaussian --mechanism bits --split 0:1:1", "weights_invalid"),
        ("--mechanism oue --split 1:1:1", "family_unknown"),
        ("--mechanism oue --projection nowhere.json", "file_not_found"),
    ],
)
def test_campaign_options_that_are_refused(folder, options, reason):
    assert campaign(folder, *options.split(), status=1).stderr.startswith(f"{reason}: ")


@pytest.mark.parametrize("text", [schema_text(high=6), schema_text(("b", "a", "c")), schema_text(("a", "b"))])
def test_a_projection_of_other_features_or_bounds_is_refused(folder, text):
    project(folder)
    (folder / "other.toml").write_text(text)
    refused = campaign(folder, "--mechanism", "oue", "--projection", folder / "p.json", schema="other.toml", status=1)
    assert refused.stderr.startswith("projection_mismatch: ")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "hearsay projection 2"}, "projection_invalid"),
        ({"inputs": [1, 2, 4096]}, "projection_mismatch"),
        ({"inputs": [1, 2, -1]}, "projection_mismatch"),
        ({"inputs": [True, 2, 3]}, "projection_invalid"),
        ({"shift": 41}, "projection_invalid"),
        ({"shift": 1.5}, "projection_invalid"),
        ({"matrix": [[1, 2]]}, "projection_invalid"),
        ({"matrix": [[1, 2, 2**31]]}, "projection_overflow"),
        ({"matrix": [[1, 2, "3"]]}, "projection_invalid"),
        ({"offsets": [2**63 - 1]}, "projection_overflow"),
        ({"offsets": [10**40]}, "projection_invalid"),
        ({"components": [{"name": "x", "low": 5, "high": 4, "edges": [5]}]}, "projection_invalid"),
        ({"components": [{"name": "\x07", "low": 0, "high": 4, "edges": [1]}]}, "projection_invalid"),
        ({"components": [7]}, "projection_invalid"),
        *((raw, "projection_invalid") for raw in (b"", b"[]", b"\xff", b"{", b"[" * 100_000)),
    ],
)
def test_a_projection_file_that_was_changed_is_refused(folder, change, reason):
    project(folder)
    body = json.loads((folder / "p.json").read_text())
    (folder / "p.json").write_bytes(change if isinstance(change, bytes) else json.dumps({**body, **change}).encode())
    refused = campaign(folder, "--mechanism", "oue", "--projection", folder / "p.json", status=1)
    assert refused.stderr.startswith(f"{reason}: ")


@pytest.mark.parametrize("cell", ["nan", "inf", "-Infinity", "1e400", "many", "1_0"])
def test_cells_that_are_no_finite_numbers_are_refused_by_line_and_never_shown(folder, cell):
    rows = pilot_rows()
    rows[7][3] = cell
    write(folder / "pilot.csv", rows)
    refused = project(folder, status=1)
    assert refused.stderr.startswith("value_invalid: column 'b', line 8")
    assert cell not in refused.stderr.removeprefix("value_invalid: column 'b', line 8").split()
    project(folder, "--missing", cell)


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (lambda rows: [row[:-1] for row in rows], "", "columns_missing"),
        (lambda rows: [row[1:] for row in rows], "", "label_missing"),
        (lambda rows: rows[:1] + rows[1::2], "", "one_class"),
        (lambda rows: rows[:4], "", "pilot_too_small"),
        (lambda rows: [rows[0], *([*row[:3], row[2], row[4]] for row in rows[1:])], "--rho 0", "scatter_singular"),
        (None, "--components 4", "components_invalid"),
        (None, "--components 0", "components_invalid"),
        (None, "--method lda", "method_unknown"),
        (None, "--rho -1", "ridge_invalid"),
        (None, "--rho nan", "ridge_invalid"),
        (None, "--bounds guess", "bounds_invalid"),
        (None, "--quantile 0.5", "quantile_invalid"),
        (None, "--bounds=inputs --quantile=0.2", "quantile_invalid"),
        (None, "--quantile nan", "quantile_invalid"),
        (None, "--bins 1", "bins_invalid"),
    ],
)
def test_pilots_and_options_that_are_refused(folder, change, options, reason):
    rows = pilot_rows()
    write(folder / "pilot.csv", rows if change is None else change(rows))
    assert project(folder, *options.split(), status=1).stderr.startswith(f"{reason}: ")
    assert not (folder / "p.json").exists()
    if reason == "scatter_singular":
        project(folder, "--rho", "0.001")


def test_schema_edges_of_equal_frequency(folder):
    drafted = ("--label", "y", "--equal-frequency", "-o", folder / "drafted.toml")
    run("schema", folder / "pilot.csv", "--drop", "colour", "--bins", "3", *drafted)
    schema = load_schema(folder / "drafted.toml").schema
    frame = typed(read_table(folder / "pilot.csv"), schema)
    for feature in schema.features:
        assert np.bincount([feature.code(value) for value in frame[feature.name]]).tolist() == [ROWS // 3] * 3
    alike = [["y", "x"], *([str(index % 2), "0"] for index in range(100)), *(["1", str(v)] for v in range(1, 20))]
    run("schema", write(folder / "pilot.csv", alike), *drafted, "--force")
    assert 'edges = ["1"]' in (folder / "drafted.toml").read_text()


def test_show_names_projected_features_and_components(tmp_path):
    """A campaign with a projection lists both, so that nothing it uses is hidden."""
    features = [Numeric("width", "0", "10", [0]), Categorical("odor", ["a", "n"]), Numeric("mass", "1", "2", [0])]
    parts = [Component("pca1", -SCALE, SCALE, [0])]
    schema = build_schema(Label("y", ["e", "p"]), features, Projection([0, 2], [[1, 2]], [0], 1, parts))
    (tmp_path / "c.hsc").write_bytes(Publisher(schema=schema).campaign())
    words = " ".join(run("show", tmp_path / "c.hsc").stdout.split())
    for part in ("width numeric, projected 0 to 10", "mass numeric, projected 1 to 2", "odor categorical 3",
                 "pca1 component 2"):  # fmt: skip
        assert part in words
