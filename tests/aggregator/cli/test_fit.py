"""``hearsay fit`` as a curator types it: fit, look, classify, and be refused."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from support.commands import run

from edge_sdk import Device

SCHEMA = """name = "ward"
[label]
name = "outcome"
classes = ["home", "stays"]
[[features]]
name = "colour"
kind = "categorical"
values = ["red", "blue"]
[[features]]
name = "size"
kind = "numeric"
low = 0
high = 10
bins = 4
"""
PEOPLE = 300


def rows(seed=1):
    generator = np.random.default_rng(seed)
    for number in range(PEOPLE):
        kind = number % 2
        colour = ("red", "blue")[kind if generator.random() < 0.9 else 1 - kind]
        size = min(max(generator.normal(3 + 4 * kind, 1.5), 0.1), 9.9)
        yield {"outcome": ("home", "stays")[kind], "colour": colour, "size": f"{size:.3f}"}


def write(path, records):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["outcome", "colour", "size"])
        writer.writeheader()
        writer.writerows(records)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(SCHEMA)
    write(tmp_path / "a.csv", rows())
    run("init", "work", "--no-passphrase")
    run("budget", "new", "w.hsb", "--name", "ward 7", "--epsilon", "4")
    run("budget", "assign", "w.hsb", "a.csv")
    return tmp_path


def fit(*more, epsilon="2", output="m.hsm", data="a.csv", label="outcome", status=0):
    return run("fit", data, "--label", label, "--schema", "s.toml", "--epsilon", epsilon, "--budget", "w.hsb",
               "--workspace", "work", "-o", output, *more, status=status)  # fmt: skip


def queries():
    return json.loads(run("budget", "show", "w.hsb", "--json").stdout)["queries"]


def test_a_curators_model_is_shown_verified_and_used(folder):
    found = json.loads(fit("--json").stdout)
    assert (found["method"], found["epsilon"], found["adjacency"], found["budget"]) == ("sums", "2", "change", "ward 7")
    assert found["records"] == PEOPLE  # public under the adjacency 'change'
    shown = run("show", "m.hsm").stdout
    for text in ("budget ", "ward 7", "method ", "sums", "neighbouring data sets", "change", "division of ε"):
        assert text in shown
    run("verify", "m.hsm", "--trust", "work/root.hst")
    write(folder / "b.csv", rows(2))
    predicted = run("predict", "m.hsm", "b.csv", "--workspace", "work", "--json", "-o", "p.csv").stdout
    assert json.loads(predicted)["accuracy"] > 0.85
    with Device.open(None, trust=(folder / "work" / "root.hst").read_bytes()) as device:
        model = device.install((folder / "m.hsm").read_bytes())
        right = sum(model.predict(row) == row["outcome"] for row in rows(3))
    assert right > 0.85 * PEOPLE


def test_fits_add_up_in_the_budget_file_and_rows_in_another_order_are_the_same(folder):
    records = list(rows())
    write(folder / "b.csv", records[::-1])
    write(folder / "c.csv", [*records, records[0]])
    fit()
    assert fit(data="c.csv", output="m2.hsm", status=1).stderr.startswith("data_unknown: ")
    run("budget", "assign", "w.hsb", "c.csv")
    fit(data="b.csv", output="m2.hsm")
    for data in ("a.csv", "c.csv"):
        assert fit(data=data, output="m3.hsm", status=1).stderr.startswith("budget_exceeded: ")
    assert not (folder / "m3.hsm").exists()
    assert len(queries()) == 2
    assert "fit 'ward': sums, discrete, ε = 2 divided 2:1" in run("budget", "show", "w.hsb").stdout


def test_what_is_exact_is_on_standard_error_and_nowhere_else(folder):
    records = list(rows())
    records[0]["size"], records[1]["size"] = "77", "-77"
    write(folder / "b.csv", records)
    run("budget", "assign", "w.hsb", "b.csv")
    result = fit("--json", data="b.csv")
    assert "numbers of 'size' outside the schema's bounds, counted as the nearer bound: 2" in result.stderr
    assert "outside" not in result.stdout
    assert b"outside" not in (folder / "m.hsm").read_bytes()
    assert fit("--strict", data="b.csv", output="m2.hsm", status=1).stderr.startswith("outside_bounds: ")
    assert len(queries()) == 1


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"label": "size"}, "label_missing"),
        ({"epsilon": "0"}, "epsilon_invalid"),
        ({"epsilon": "0.000001"}, "epsilon_invalid"),
        ({"output": "work"}, "output_invalid"),
        ({"output": "work/root.hst"}, "output_exists"),
        ({"output": "a.csv"}, "output_invalid"),
        ({"data": "none.csv"}, "file_not_found"),
        ({"more": ("--delta", "2")}, "delta_invalid"),
        ({"more": ("--noise", "cauchy")}, "noise_unknown"),
        ({"more": ("--postprocess", "none")}, "postprocess_unknown"),
        ({"more": ("--name", "")}, "malformed"),
        ({"more": ("--workspace", "nowhere")}, "not_a_workspace"),
        ({"more": ("--budget", "none.hsb")}, "file_not_found"),
    ],
)
def test_refusals_cost_nothing(folder, more, reason):
    found = fit(*more.pop("more", ()), **more, status=1).stderr
    assert found.startswith(f"{reason}: "), found
    assert queries() == []


# The page for curators ---------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "curator.md").read_text("utf-8")
WARD = """name = "ward 7"
[label]
name = "outcome"
classes = ["home", "intensive care"]
[[features]]
name = "lactate"
kind = "numeric"
low = 0
high = 10
bins = 4
substitute = 2
"""


@pytest.fixture
def hospital(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ward.toml").write_text(WARD)
    rows = [f"{('home', 'intensive care')[n % 2]},{2 + 4 * (n % 2)}.{n % 7}\n" for n in range(200)]
    for name in ("patients.csv", "others.csv"):
        (tmp_path / name).write_text("outcome,lactate\n" + "".join(rows))


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_commands_and_the_program_of_the_page_work(hospital):
    first, *rest = blocks("bash")[0].splitlines()
    run(*shlex.split(first)[1:], "--no-passphrase")
    for line in rest:
        shown = run(*shlex.split(line)[1:]).stdout
    for told in blocks("text")[0].splitlines():
        if told.startswith(("hides", "left", "records")):
            assert told in shown
    (program,) = blocks("python")
    exec(compile(program, "docs/how-to/curator.md", "exec"), {})
    assert len(json.loads(run("budget", "show", "ward7.hsb", "--json").stdout)["queries"]) == 2


def test_the_page_names_every_method_adjacency_and_reason_that_exists():
    from aggregator.curator.methods.table import METHODS
    from protocol.questions import ADJACENCIES

    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    assert named - {"--adjacency", "--method"} == {*METHODS, *ADJACENCIES}
    reasons = (Path(__file__).parents[3] / "docs" / "reference" / "reasons.md").read_text("utf-8")
    for reason in ("budget_exceeded", "data_unknown", "budget_damaged", "outside_bounds", "class_too_small"):
        assert f"`{reason}`" in PAGE
        assert f"| `{reason}` |" in reasons


def test_noise_without_a_variance_foretells_no_accuracy(folder):
    run("budget", "new", "f.hsb", "--name", "f", "--epsilon", "8", "--adjacency", "change-features")
    run("budget", "assign", "f.hsb", "a.csv")
    found = json.loads(fit("--method", "smooth", "--budget", "f.hsb", "--json", epsilon="8").stdout)
    assert found["noise"] == "cauchy"
    assert found["expected_accuracy"] is None


def test_a_table_ask_is_not_ignored_silently_and_no_method_is_advised_that_is_in_use(folder):
    """Before: no word of [ask], and "take … the method sums" of a fit by sums."""
    (folder / "s.toml").write_text(SCHEMA + "[ask.colour]\nshare = 1\n")
    said = fit("--method", "sums", epsilon="0.001").stderr
    assert (
        "note: the table [ask] of the schema is for campaigns of devices and nodes: the fit is of all features" in said
    )
    assert "; take a larger ε or fewer features\n" in said
