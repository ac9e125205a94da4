"""``hearsay budget`` as a curator types it."""

from __future__ import annotations

import pytest
from support.commands import run, told

DATA = "class,width\ne,1\np,2.5\ne,?\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.csv").write_text(DATA)
    run("budget", "new", tmp_path / "w.hsb", "--name", "ward 7", "--epsilon", "1.5", "--delta", "1e-6")
    return tmp_path


def shown(path):
    return told("budget", "show", path)


def test_a_new_budget_is_shown_in_words_and_as_json_and_warned_of_if_others_can_read_it(files):
    result = run("budget", "show", files / "w.hsb")
    for text in ("ward 7", "ε = 1.5, δ = 1e-06", "ε = 1.5, δ = 5e-07 for one more query"):
        assert text in result.stdout
    found = shown(files / "w.hsb")
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
    (only,) = shown(files / "w.hsb")["data"]
    assert only["note"] == "all of them"
    assert only["digest"][:16] in run("budget", "show", files / "w.hsb").stdout


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("new w.hsb --name w --epsilon 1", "output_exists"),
        ("new x.hsb --name w --epsilon 0", "epsilon_invalid"),
        ("new x.hsb --name w --epsilon 1 --delta 1", "delta_invalid"),
        ("new x.hsb --name w --epsilon 1 --delta few", "delta_invalid"),
        ("new x.hsb --name w --epsilon 1 --delta 1e-999999999", "delta_invalid"),
        ("new x.hsb --name w --epsilon 1 --concentrated-delta 0.1", "delta_invalid"),
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
    assert (len(list(files.glob("*.mark"))), shown("w.hsb")["data"]) == (1, [])


def test_a_copy_is_shown_and_pays_for_nothing_until_it_is_adopted(files):
    copy = files / "copy.hsb"
    copy.touch(mode=0o600)
    copy.write_bytes((files / "w.hsb").read_bytes())
    assert shown(copy)["epsilon_left"] == "1.5"
    assert run("budget", "assign", copy, files / "a.csv", status=1).stderr.startswith("budget_copied: ")
    assert "adopted" not in run("budget", "adopt", copy, "--nothing-since").stdout
    run("budget", "assign", copy, files / "a.csv")
    assert shown(copy)["epsilon_left"] == "1.5"
    assert "the whole total counts as spent" in run("budget", "adopt", copy).stdout
    assert shown(copy)["epsilon_left"] == "0"
    assert shown(copy)["closed_at"] > 0
