"""``hearsay-edge node key`` and ``node summarise``, as an owner uses them."""

from __future__ import annotations

import json
import sqlite3

import pytest
from support.commands import REFUSED

from edge_sdk import Node
from edge_sdk.cli.main import main
from protocol.nodes.summary import read_summaries

CSV = "odor,width,label,colour\nn,3.25,e,red\nf,,p,red\nx,11,z,red\n"


@pytest.fixture
def run(tmp_path, publisher, system_time, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root.hst").write_bytes(publisher.root())
    (tmp_path / "c.hsc").write_bytes(publisher.node_campaign(least_epsilon_micro=100_000, max_records=1000))
    (tmp_path / "people.csv").write_text(CSV)

    def command(*words):
        status = main(["--state", "state", *words])
        output = capsys.readouterr()
        return status, output.out, output.err

    assert command("provision", "root.hst")[0] == 0
    return command


def test_the_key_is_a_public_key_file(run, tmp_path):
    status, out, _ = run("node", "key", "clinic.key.pub", "--json")
    assert status == 0
    with Node.open(tmp_path / "state") as node:
        assert (tmp_path / "clinic.key.pub").read_bytes() == b"hearsay-key-1 node %b\n" % node.public_key.hex().encode()
        assert json.loads(out)["node"] == node.node_id.hex()
    status, _, error = run("node", "key", "clinic.key.pub")
    assert (status in REFUSED, error.split(":")[0]) == (True, "file_exists")


def test_a_summary_from_a_file(run, tmp_path):
    assert run("enrol", "c.hsc")[0] == 0
    status, out, notes = run("node", "summarise", "--campaign", "clinics", "people.csv", "--json")
    assert status == 0
    found = json.loads(out)
    assert found["epsilon_add_remove"] == "1"
    assert found["epsilon_change"] == found["epsilon_counted_as_spent"] == "2"
    assert found["summarised_before"] is False
    assert "note: 'width' has no value in 1 of 3 records\n" in notes
    assert "note: 'odor' has a value that the campaign can not read in 1 of 3 records\n" in notes
    assert "note: 'width': outside its range" in notes
    (tmp_path / "people.csv").unlink()  # it is not read again
    status, out, notes = run("node", "summarise", "--campaign", "clinics", "people.csv", "--json")
    assert (status, json.loads(out), notes) == (0, {**found, "summarised_before": True}, "")
    assert run("drain", "out.hsn")[0] == 0
    (piece,) = read_summaries((tmp_path / "out.hsn").read_bytes())
    assert len(piece.envelope) == found["bytes"]
    assert run("ack", "out.hsn")[0] == 0


def test_a_summary_from_a_database(run):
    with sqlite3.connect("ward.db") as connection:
        connection.execute("CREATE TABLE patients (odor, width, label)")
        connection.execute("INSERT INTO patients VALUES ('n', 3, 'e')")
    connection.close()
    assert run("enrol", "c.hsc")[0] == 0
    status, out, notes = run(
        "node", "summarise", "--campaign", "clinics", "--sqlite", "ward.db", "--table", "patients", "--epsilon", "0.5"
    )
    assert (status, notes) == (0, "")
    assert "epsilon add remove        0.5\n" in out
    assert "epsilon counted as spent  1\n" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["none.csv"], "file_unreadable"),
        ([], "argument_invalid"),
        (["people.csv", "--sqlite", "ward.db"], "argument_invalid"),
        (["people.csv", "--table", "t"], "argument_invalid"),
        (["--sqlite", "ward.db"], "argument_invalid"),
        (["people.csv", "--epsilon", "0.01"], "epsilon_out_of_range"),
        (["people.csv", "--epsilon", "x"], "epsilon_invalid"),
        (["people.csv", "--delimiter", ";"], "columns_missing"),
    ],
)
def test_what_is_refused_costs_nothing(run, words, expected):
    run("enrol", "c.hsc")
    status, _, error = run("node", "summarise", "--campaign", "clinics", *words)
    assert (status in REFUSED, error.split(":")[0]) == (True, expected)
    assert "epsilon spent               0\n" in run("status")[1] or '"epsilon_spent": "0"' in run("status", "--json")[1]


def test_a_file_without_a_column_for_a_feature_or_the_label_costs_nothing(run, tmp_path):
    """A misspelt column would give a summary of missing values, and no other one in the period."""
    run("enrol", "c.hsc")
    header, *rows = (tmp_path / "people.csv").read_text().splitlines()
    for wrong, named in ((header.replace("odor", "oder"), "'odor'"), (header.replace("label", "class"), "'label'")):
        (tmp_path / "wrong.csv").write_text("\n".join([wrong, *rows]))
        status, _, error = run("node", "summarise", "--campaign", "clinics", "wrong.csv")
        assert (status in REFUSED, error.split(":")[0]) == (True, "columns_missing")
        assert f"no column is named {named}; " in error
    assert run("node", "summarise", "--campaign", "clinics", "wrong.csv", "--missing-columns")[0] == 1
    assert run("node", "summarise", "--campaign", "clinics", "wrong.csv", "--label", "e")[0] == 0


def test_a_check_reads_the_file_and_spends_nothing(run, tmp_path):
    run("enrol", "c.hsc")
    status, out, notes = run("node", "summarise", "--campaign", "clinics", "people.csv", "--check", "--json")
    assert (status, json.loads(out)["records"], json.loads(out)["epsilon_spent"]) == (0, 3, "0")
    assert "note: 'width' has no value in 1 of 3 records\n" in notes
    header, *rows = (tmp_path / "people.csv").read_text().splitlines()
    most = json.loads(out)["most_records"]
    (tmp_path / "many.csv").write_text("\n".join([header, *rows[:1] * (most + 1)]))
    _, _, notes = run("node", "summarise", "--campaign", "clinics", "many.csv", "--check")
    assert f"at most {most} records, and there are {most + 1}: " in notes
    assert "epsilon spent               0\n" in run("status")[1] or '"epsilon_spent": "0"' in run("status", "--json")[1]
    assert json.loads(run("node", "summarise", "--campaign", "clinics", "people.csv", "--json")[1])["period"]


def test_an_owner_reads_what_a_campaign_sums_and_costs(run):
    status, out, _ = run("explain", "c.hsc")
    assert status == 0
    for line in (
        "Once per day (UTC) a node that is on the list 'clinics' sends one signed summary of all its records:",
        "  - how many records have each 'label'",
        "  - how many records have each value of 'odor', by 'label'",
        "  ε = 1 for a record more or less (add-remove)",
        "  ε = 2 for a changed record (change)",
        "The owner's limits and the ledger count the ε of change (node_adjacency).",
        "an ε from 0.1 to 1",
        "The owner's policy allows it, for at most",
    ):
        assert line in out


def test_progress_is_shown_on_a_terminal(run, monkeypatch, tmp_path):
    run("enrol", "c.hsc")
    monkeypatch.setattr("edge_sdk.node.sums.BLOCK", 2)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert "\r2 records" in run("node", "summarise", "--campaign", "clinics", "people.csv")[2]


def test_without_the_word_of_a_command(run):
    with pytest.raises(SystemExit) as error:
        run("node")
    assert error.value.code == 2


def test_a_file_without_records_is_noted(run, tmp_path):
    run("enrol", "c.hsc")
    (tmp_path / "none.csv").write_text("odor,width,label\n")
    status, _, notes = run("node", "summarise", "--campaign", "clinics", "none.csv")
    assert (status, notes) == (0, "note: there is no record; a summary of none is noise alone\n")


def test_columns_that_are_no_features_are_named(run):
    run("enrol", "c.hsc")
    notes = run("node", "summarise", "--campaign", "clinics", "people.csv")[2]
    assert "note: columns that are no features here and are ignored: 'colour'\n" in notes
