"""``hearsay-edge node encrypt``, and what an owner reads of a masked campaign before and after."""

from __future__ import annotations

import json
from functools import partial

import pytest
from support.commands import REFUSED, edge
from support.masked import TERMS, book_of, masked_payload
from support.nodes import NODE_KEYS
from support.publisher import key

from edge_sdk import Node
from protocol.documents.campaign import DISCRETE
from protocol.documents.masked_terms import DILUTED, PARTY

CSV = "odor,width,label\nn,3.25,e\nf,,p\nx,11,z\n"
DILUTED_TERMS = TERMS._replace(noise=DILUTED, delta_pico=2_000_000)


@pytest.fixture
def run(tmp_path, publisher, system_time, monkeypatch):
    """Runs a command on a node that allows masked campaigns, with its key in a book beside it."""
    monkeypatch.chdir(tmp_path)

    command = partial(edge, "--state", "state")
    (tmp_path / "root.hst").write_bytes(publisher.root())
    (tmp_path / "c.hsc").write_bytes(
        publisher.sign("campaign", masked_payload(publisher, DISCRETE, masked=DILUTED_TERMS))
    )
    (tmp_path / "people.csv").write_text(CSV)
    assert command("provision", "root.hst")[0] == 0
    (tmp_path / "state" / "policy.toml").write_text("allow_masked = true\n")
    assert command("enrol", "c.hsc")[0] == 0
    with Node.open(tmp_path / "state") as node:
        (tmp_path / "b.hsk").write_bytes(book_of(node.campaign("wards"), keys=[*NODE_KEYS, node_key(node)]))
        (tmp_path / "others.hsk").write_bytes(book_of(node.campaign("wards")))
    return command


def node_key(node):
    return key(0)._replace(public=node.public_key)


def test_a_message_from_a_file(run, tmp_path):
    status, out, notes = run("node", "encrypt", "--campaign", "wards", "--keys", "b.hsk", "people.csv", "--json")
    assert status == 0
    found = json.loads(out)
    assert found["encrypted_before"] is False
    assert (found["key_serial"], found["epsilon_counted_as_spent"], found["delta_counted_as_spent"]) == (
        6,
        "2",
        "4e-06",
    )
    assert "note: 'width' has no value in 1 of 3 records\n" in notes
    (tmp_path / "people.csv").unlink()  # it is not read again, and the book is known
    status, out, notes = run("node", "encrypt", "--campaign", "wards", "people.csv", "--json")
    assert (status, json.loads(out), notes) == (0, {**found, "encrypted_before": True}, "")
    assert run("drain", "out.hse")[0] == 0
    assert run("ack", "out.hse")[0] == 0
    status, out, _ = run("history")
    assert "delta spent          4e-06\n" in out
    assert out.splitlines()[0].split() == ["campaign", "version", "period", "answered", "at", "epsilon", "delta"]
    shown = json.loads(run("status", "--json")[1])
    assert (shown["delta_spent"], shown["delta_left"], set(shown["key_books"].values())) == ("4e-06", "0.000496", {1})


def test_a_check_reads_the_records_and_spends_nothing(run):
    status, out, notes = run(
        "node", "encrypt", "--campaign", "wards", "--keys", "b.hsk", "--check", "people.csv", "--json"
    )
    assert (status, json.loads(out)["records"], json.loads(out)["epsilon_spent"]) == (0, 3, "0")
    assert "note: 'odor' has a value that the campaign can not read in 1 of 3 records\n" in notes
    assert json.loads(run("status", "--json")[1])["epsilon_spent"] == "0"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["people.csv"], "keys_unknown"),
        (["--keys", "others.hsk", "people.csv"], "node_without_key"),
        (["--keys", "c.hsc", "people.csv"], "wrong_role"),
        (["--keys", "none.hsk", "people.csv"], "file_unreadable"),
        (["--keys", "b.hsk"], "argument_invalid"),
        (["--keys", "b.hsk", "none.csv"], "file_unreadable"),
    ],
)
def test_what_is_refused_costs_nothing(run, words, expected):
    status, _, error = run("node", "encrypt", "--campaign", "wards", *words)
    assert (status in REFUSED, error.split(":")[0]) == (True, expected)
    assert json.loads(run("status", "--json")[1])["epsilon_spent"] == "0"


def test_a_summary_in_the_clear_is_refused(run):
    status, _, error = run("node", "summarise", "--campaign", "wards", "people.csv")
    assert (status in REFUSED, error.split(":")[0]) == (True, "campaign_masked")
    assert "node encrypt" in error


def test_an_owner_reads_whom_a_masked_campaign_rests_on(run, publisher, tmp_path):
    status, out, _ = run("explain", "c.hsc")
    assert status == 0
    for line in (
        "sends one signed and encrypted message about all its records:",
        "numbers, each with a part of the noise of their total",
        "  ε = 1, δ = 2e-06 for a record more or less (add-remove)",
        "  ε = 2, δ = 4e-06 for a changed record (change)",
        "  The dealer of the keys, ",
        "Allow the campaign only if you trust the dealer",
        "  100 % of the nodes add theirs, and at most 0 % more tell",
        "by at most 7.390, except with probability δ = 4e-06.",
        "  The owner allows δ = 2e-05 per period and 0.0005 for the node's life; 0 is spent.",
        "The owner's policy allows it, for at most",
    ):
        assert line in out, line
    party = publisher.sign(
        "campaign", masked_payload(publisher, DISCRETE, masked=TERMS._replace(unit=PARTY), version=2)
    )
    (tmp_path / "party.hsc").write_bytes(party)
    (tmp_path / "state" / "policy.toml").write_text("# defaults\n")
    _, out, _ = run("explain", "party.hsc")
    for line in (
        "message about its first 1000 records:",
        "tells about all records of this node together:",
        "  ε = 1, δ = 0 for this node with or without its records (add-remove)",
        "policy_refused: the campaign is masked",
        "sets allow_masked = true",
    ):
        assert line in out, line


def test_records_beyond_a_partys_share_are_named(run, publisher, tmp_path):
    payload = masked_payload(publisher, DISCRETE, masked=TERMS._replace(unit=PARTY), name="few")
    (tmp_path / "few.hsc").write_bytes(publisher.sign("campaign", payload))
    assert run("enrol", "few.hsc")[0] == 0
    with Node.open(tmp_path / "state") as node:
        (tmp_path / "few.hsk").write_bytes(book_of(node.campaign("few"), keys=[*NODE_KEYS, node_key(node)]))
    header, *rows = CSV.splitlines()
    (tmp_path / "many.csv").write_text("\n".join([header, *rows[:2] * 501]))
    for words in (["--check"], []):
        status, _, notes = run("node", "encrypt", "--campaign", "few", "--keys", "few.hsk", "many.csv", *words)
        assert status == 0
        assert "note: 2 records after the first 1000 are in no sum: " in notes
