"""Outputs of commands that pay from a budget: none is the budget, a file that the command reads, or another output."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import run, told

SCHEMA = """name = "ward"
[label]
name = "outcome"
classes = ["home", "stays"]
[[features]]
name = "a"
kind = "numeric"
low = 0
high = 10
bins = 4
"""
PAID = {
    "fit": ("fit", "a.csv", "--label", "outcome", "--schema", "s.toml", "--epsilon", "1", "--workspace", "work"),
    "projection": ("projection", "a.csv", "--schema", "s.toml", "--method", "pca", "--components", "1", "--private",
                   "--epsilon", "1"),
    "schema": ("schema", "a.csv", "--private", "--schema", "s.toml", "--epsilon", "1"),
    "design": ("design", "a.csv", "--schema", "s.toml", "--epsilon", "1", "--devices", "1000",
               "--private-epsilon", "1"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "a.csv").write_text("outcome,a\n" + "home,2.5\nstays,7\n" * 100)
    run("init", "work", "--no-passphrase")
    for name in ("w.hsb", "other.hsb"):
        run("budget", "new", name, "--name", "ward 7", "--epsilon", "4")
    run("budget", "assign", "w.hsb", "a.csv")
    Path("link").symlink_to("w.hsb")
    Path("other-link").symlink_to("other.hsb")
    Path("hard").hardlink_to("a.csv")
    Path("here").symlink_to(".")
    return tmp_path


def refused(command, *more):
    error = run(*PAID[command], "--budget", "w.hsb", *more, "--force", status=1).stderr
    assert error.startswith("output_invalid: "), error
    assert told("budget", "show", "w.hsb")["queries"] == []


@pytest.mark.parametrize("command", PAID)
def test_no_output_is_a_budget_or_a_file_that_the_command_reads(folder, command):
    places = ["w.hsb", "link", "here/w.hsb", "w.hsb-journal", "other.hsb", "other-link", "a.csv", "hard", "s.toml"]
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for place in places:
        refused(command, "-o", place)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_two_outputs_are_two_files_and_a_budget_is_replaced_by_no_command(folder):
    for other in ("p", "here/p", "./p"):
        refused("projection", "-o", "p", "--plot", other)
        assert not (folder / "p").exists()
    refused("projection", "-o", "p", "--plot", "w.hsb")
    refused("projection", "--budget", "link", "-o", "p", "--plot", "w.hsb-journal")
    usual = ("projection", "a.csv", "--schema", "s.toml", "--method", "pca", "--components", "1")
    before = (folder / "w.hsb").read_bytes()
    campaign = ("campaign", "s.toml", "--workspace", "work", "--epsilon", "1", "--mechanism", "auto")
    for command in ((*usual, "-o", "p", "--plot", "p"), (*campaign, "-o", "w.hsb", "--force")):
        assert run(*command, status=1).stderr.startswith("output_invalid: ")
    assert (folder / "w.hsb").read_bytes() == before
