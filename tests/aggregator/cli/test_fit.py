"""``hearsay fit`` and ``hearsay budget`` as a curator types them: pay, fit, look, classify, and be refused."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from support.commands import run, told

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


def budget_of(path):
    return told("budget", "show", path)


def queries():
    return budget_of("w.hsb")["queries"]


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
        ({"epsilon": "0.000001"}, "epsilon_invalid"),
        ({"output": "work"}, "output_invalid"),
        ({"output": "work/root.hst"}, "output_exists"),
        ({"output": "a.csv"}, "output_invalid"),
        ({"data": "none.csv"}, "file_not_found"),
        ({"more": ("--delta", "2")}, "delta_invalid"),
        ({"more": ("--name", "")}, "malformed"),
        ({"more": ("--workspace", "nowhere")}, "not_a_workspace"),
        ({"more": ("--budget", "none.hsb")}, "file_not_found"),
    ],
)
def test_refusals_cost_nothing(folder, more, reason):
    found = fit(*more.pop("more", ()), **more, status=1).stderr
    assert found.startswith(f"{reason}: "), found
    assert queries() == []


# Outputs of commands that pay: none is the budget, a file that the command reads, or another output ---------------

PAID = {
    "fit": ("fit", "a.csv", "--label", "outcome", "--schema", "s.toml", "--epsilon", "1", "--workspace", "work"),
    "projection": ("projection", "a.csv", "--schema", "s.toml", "--method", "pca", "--components", "1", "--private",
                   "--epsilon", "1"),
    "schema": ("schema", "a.csv", "--private", "--schema", "s.toml", "--epsilon", "1"),
    "design": ("design", "a.csv", "--schema", "s.toml", "--epsilon", "1", "--devices", "1000",
               "--private-epsilon", "1"),
}  # fmt: skip


@pytest.fixture
def places(folder):
    """Other names for the budget and for the records."""
    run("budget", "new", "other.hsb", "--name", "ward 7", "--epsilon", "4")
    Path("link").symlink_to("w.hsb")
    Path("other-link").symlink_to("other.hsb")
    Path("hard").hardlink_to("a.csv")
    Path("here").symlink_to(".")
    return folder


def refused(command, *more):
    error = run(*PAID[command], "--budget", "w.hsb", *more, "--force", status=1).stderr
    assert error.startswith("output_invalid: "), error
    assert queries() == []


@pytest.mark.parametrize("command", PAID)
def test_no_output_is_a_budget_or_a_file_that_the_command_reads(places, command):
    before = {path: path.read_bytes() for path in places.iterdir() if path.is_file()}
    for place in ["w.hsb", "link", "here/w.hsb", "w.hsb-journal", "other.hsb", "other-link", "a.csv", "hard", "s.toml"]:
        refused(command, "-o", place)
    assert {path: path.read_bytes() for path in places.iterdir() if path.is_file()} == before


def test_two_outputs_are_two_files_and_a_budget_is_replaced_by_no_command(places):
    for other in ("p", "here/p", "./p"):
        refused("projection", "-o", "p", "--plot", other)
        assert not (places / "p").exists()
    refused("projection", "-o", "p", "--plot", "w.hsb")
    refused("projection", "--budget", "link", "-o", "p", "--plot", "w.hsb-journal")
    usual = ("projection", "a.csv", "--schema", "s.toml", "--method", "pca", "--components", "1")
    before = (places / "w.hsb").read_bytes()
    campaign = ("campaign", "s.toml", "--workspace", "work", "--epsilon", "1", "--mechanism", "auto")
    for command in ((*usual, "-o", "p", "--plot", "p"), (*campaign, "-o", "w.hsb", "--force")):
        assert run(*command, status=1).stderr.startswith("output_invalid: ")
    assert (places / "w.hsb").read_bytes() == before


# hearsay budget ---------------------------------------------------------------------------------------------------

DATA = "class,width\ne,1\np,2.5\ne,?\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.csv").write_text(DATA)
    run("budget", "new", tmp_path / "w.hsb", "--name", "ward 7", "--epsilon", "1.5", "--delta", "1e-6")
    return tmp_path


def test_a_new_budget_is_shown_in_words_and_as_json_and_warned_of_if_others_can_read_it(files):
    result = run("budget", "show", files / "w.hsb")
    for text in ("ward 7", "ε = 1.5, δ = 1e-06", "ε = 1.5, δ = 5e-07 for one more query"):
        assert text in result.stdout
    found = budget_of(files / "w.hsb")
    assert (found["adjacency"], found["concentrated_delta"], "key" in found) == ("change", 5e-7, False)
    assert (found["epsilon"], found["epsilon_spent"], found["epsilon_left"]) == ("1.5", "0", "1.5")
    assert result.stderr == ""
    (files / "w.hsb").chmod(0o640)
    assert "chmod 600" in run("budget", "show", files / "w.hsb").stderr


def test_records_are_assigned_once_whatever_their_order(files):
    result = run("budget", "assign", files / "w.hsb", files / "a.csv", "--note", "all of them")
    assert result.stdout.split("assigned")[-1].split() == ["yes"]
    header, *rows = DATA.splitlines()
    (files / "b.csv").write_text("\n".join([header, *reversed(rows)]) + "\n")
    again = run("budget", "assign", files / "w.hsb", files / "b.csv")
    assert "already before" in again.stdout
    (only,) = budget_of(files / "w.hsb")["data"]
    assert only["note"] == "all of them"
    assert only["digest"][:16] in run("budget", "show", files / "w.hsb").stdout


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("new w.hsb --name w --epsilon 1", "output_exists"),
        ("new x.hsb --name w --epsilon 1 --delta 1", "delta_invalid"),
        ("new x.hsb --name w --epsilon 1 --delta few", "delta_invalid"),
        ("new x.hsb --name w --epsilon 1 --delta 1e-999999999", "delta_invalid"),
        ("new x.hsb --name  --epsilon 1", "name_invalid"),
        ("assign w.hsb none.csv", "file_not_found"),
        ("assign none.hsb a.csv", "file_not_found"),
        ("assign a.csv a.csv", "budget_damaged"),
        ("assign w.hsb a.csv --note a\tb", "name_invalid"),
        ("show a.csv", "budget_damaged"),
        ("show .", "unreadable"),
    ],
)
def test_refusals_have_a_reason_and_change_nothing(files, monkeypatch, line, reason):
    monkeypatch.chdir(files)
    assert run("budget", *line.split(" "), status=1).stderr.startswith(f"{reason}: ")
    assert {path.name for path in files.iterdir() if path.suffix != ".mark"} == {"a.csv", "w.hsb"}
    assert (len(list(files.glob("*.mark"))), budget_of("w.hsb")["data"]) == (1, [])


def test_a_copy_is_shown_and_pays_for_nothing_until_it_is_adopted(files):
    copy = files / "copy.hsb"
    copy.touch(mode=0o600)
    copy.write_bytes((files / "w.hsb").read_bytes())
    assert budget_of(copy)["epsilon_left"] == "1.5"
    assert run("budget", "assign", copy, files / "a.csv", status=1).stderr.startswith("budget_copied: ")
    assert "adopted" not in run("budget", "adopt", copy, "--nothing-since").stdout
    run("budget", "assign", copy, files / "a.csv")
    assert budget_of(copy)["epsilon_left"] == "1.5"
    assert "the whole total counts as spent" in run("budget", "adopt", copy).stdout
    assert budget_of(copy)["epsilon_left"] == "0"
    assert budget_of(copy)["closed_at"] > 0


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
    for line in blocks("text")[0].splitlines():
        if line.startswith(("hides", "left", "records")):
            assert line in shown
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
