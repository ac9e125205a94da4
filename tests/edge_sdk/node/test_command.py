"""``hearsay-edge node`` key, summarise, encrypt and exchange, as owners use them."""

from __future__ import annotations

import json
import sqlite3
from functools import partial

import pytest
from support.commands import REFUSED, edge
from support.masked import TERMS, book_of, masked_payload
from support.nodes import NODE_KEYS
from support.publisher import DAY, NOW, key

from edge_sdk import Node
from edge_sdk.cli.main import main
from protocol.documents.campaign import DISCRETE
from protocol.documents.masked_terms import DILUTED, PARTY
from protocol.nodes.summary import build_node_list, read_summaries

CSV = "odor,width,label,colour\nn,3.25,e,red\nf,,p,red\nx,11,z,red\n"
SUMMARISE = ("node", "summarise", "--campaign", "clinics")
ENCRYPT = ("node", "encrypt", "--campaign", "wards")
DILUTED_TERMS = TERMS._replace(noise=DILUTED, delta_pico=2_000_000)


@pytest.fixture
def files(tmp_path, publisher, monkeypatch):
    """The present folder, with documents and records; the system's clock shows a time at which they are valid."""
    monkeypatch.setattr("edge_sdk.device.system_clock", lambda: NOW + 5)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root.hst").write_bytes(publisher.root())
    (tmp_path / "c.hsc").write_bytes(publisher.node_campaign(least_epsilon_micro=100_000, max_records=1000))
    masked(tmp_path / "m.hsc", publisher, masked=DILUTED_TERMS)
    (tmp_path / "people.csv").write_text(CSV)
    return tmp_path


@pytest.fixture
def run(files):
    """Runs a command on a node in a campaign in the clear and a masked one; its key is in the book b.hsk."""
    command = partial(edge, "--state", "state")
    assert command("provision", "root.hst")[0] == 0
    (files / "state" / "policy.toml").write_text("allow_masked = true\n")
    assert [command("enrol", name)[0] for name in ("c.hsc", "m.hsc")] == [0, 0]
    write_books(files, "wards")
    return command


def masked(path, publisher, **options):
    path.write_bytes(publisher.sign("campaign", masked_payload(publisher, DISCRETE, **options)))


def write_books(files, campaign):
    with Node.open(files / "state") as node:
        own = key(0)._replace(public=node.public_key)
        (files / "b.hsk").write_bytes(book_of(node.campaign(campaign), keys=[*NODE_KEYS, own]))
        (files / "others.hsk").write_bytes(book_of(node.campaign(campaign)))


def spent(run):
    return json.loads(run("status", "--json")[1])["epsilon_spent"]


def many(files, count):
    """A file of so many records."""
    header, *rows = CSV.splitlines()
    (files / "many.csv").write_text("\n".join([header, *rows[:1] * count]))
    return "many.csv"


def test_the_key_is_a_public_key_file(run, files):
    status, out, _ = run("node", "key", "clinic.key.pub", "--json")
    assert (status, run("node")[0]) == (0, 2), "the word of a command is needed"
    with Node.open(files / "state") as node:
        assert (files / "clinic.key.pub").read_bytes() == b"hearsay-key-1 node %b\n" % node.public_key.hex().encode()
        assert json.loads(out)["node"] == node.node_id.hex()


SAID = {
    SUMMARISE: {
        "epsilon_add_remove": "1",
        "epsilon_change": "2",
        "epsilon_counted_as_spent": "2",
        "summarised_before": False,
    },
    (*ENCRYPT, "--keys", "b.hsk"): {
        "key_serial": 6,
        "epsilon_counted_as_spent": "2",
        "delta_counted_as_spent": "4e-06",
        "encrypted_before": False,
    },
}


@pytest.mark.parametrize("words", SAID)
def test_an_answer_from_a_file(run, files, words):
    status, out, notes = run(*words, "people.csv", "--json")
    assert status == 0
    found = json.loads(out)
    assert found.items() >= SAID[words].items()
    assert "note: 'width' has no value in 1 of 3 records\n" in notes
    assert "note: 'odor' has a value that the campaign can not read in 1 of 3 records\n" in notes
    assert "note: 'width': outside its range" in notes
    assert "note: columns that are no features here and are ignored: 'colour'\n" in notes
    (files / "people.csv").unlink()  # it is not read again, and the book is known
    (before,) = [name for name in found if name.endswith("_before")]
    status, out, notes = run(*words[:4], "people.csv", "--json")
    assert (status, json.loads(out), notes) == (0, {**found, before: True}, "")
    assert run("drain", "out.hsn")[0] == 0
    (piece,) = read_summaries((files / "out.hsn").read_bytes(), *(("masked",) if "wards" in words else ()))
    assert len(piece.envelope) == found["bytes"]
    assert run("ack", "out.hsn")[0] == 0
    shown = json.loads(run("status", "--json")[1])
    assert shown["epsilon_spent"] == "2"
    if "wards" in words:
        status, out, _ = run("history")
        assert "delta spent          4e-06\n" in out
        assert out.splitlines()[0].split() == ["campaign", "version", "period", "answered", "at", "epsilon", "delta"]
        assert (shown["delta_spent"], shown["delta_left"]) == ("4e-06", "0.000496")
        assert set(shown["key_books"].values()) == {1}


def test_a_summary_from_a_database(run):
    with sqlite3.connect("ward.db") as connection:
        connection.execute("CREATE TABLE patients (odor, width, label)")
        connection.execute("INSERT INTO patients VALUES ('n', 3, 'e')")
    connection.close()
    status, out, notes = run(*SUMMARISE, "--sqlite", "ward.db", "--table", "patients", "--epsilon", "0.5")
    assert (status, notes) == (0, "")
    assert "epsilon add remove        0.5\n" in out
    assert "epsilon counted as spent  1\n" in out


@pytest.mark.parametrize("words", [SUMMARISE, (*ENCRYPT, "--keys", "b.hsk")])
def test_a_check_reads_the_records_and_spends_nothing(run, files, words):
    status, out, notes = run(*words, "--check", "people.csv", "--json")
    assert (status, json.loads(out)["records"], json.loads(out)["epsilon_spent"]) == (0, 3, "0")
    assert "note: 'width' has no value in 1 of 3 records\n" in notes
    most = json.loads(out)["most_records"]
    _, _, notes = run(*words, "--check", many(files, most + 1))
    assert f"at most {most} records, and there are {most + 1}: " in notes
    assert spent(run) == "0"


REFUSALS = [
    (SUMMARISE, ["none.csv"], "file_unreadable"),
    (SUMMARISE, [], "argument_invalid"),
    (SUMMARISE, ["people.csv", "--sqlite", "ward.db"], "argument_invalid"),
    (SUMMARISE, ["people.csv", "--table", "t"], "argument_invalid"),
    (SUMMARISE, ["--sqlite", "ward.db"], "argument_invalid"),
    (SUMMARISE, ["people.csv", "--epsilon", "0.01"], "epsilon_out_of_range"),
    (SUMMARISE, ["people.csv", "--epsilon", "x"], "epsilon_invalid"),
    (SUMMARISE, ["people.csv", "--delimiter", ";"], "columns_missing"),
    (SUMMARISE, ["oder.csv"], "columns_missing: no column is named 'odor'; "),
    (SUMMARISE, ["class.csv"], "columns_missing: no column is named 'label'; "),
    (SUMMARISE, ["class.csv", "--missing-columns"], "columns_missing: no column is named 'label'; "),
    (SUMMARISE[:3], ["wards", "people.csv"], "campaign_masked"),
    (ENCRYPT, ["people.csv"], "keys_unknown"),
    (ENCRYPT, ["--keys", "others.hsk", "people.csv"], "node_without_key"),
    (ENCRYPT, ["--keys", "c.hsc", "people.csv"], "wrong_role"),
    (ENCRYPT, ["--keys", "none.hsk", "people.csv"], "file_unreadable"),
    (ENCRYPT, ["--keys", "b.hsk"], "argument_invalid"),
    (ENCRYPT, ["--keys", "b.hsk", "none.csv"], "file_unreadable"),
    (("node", "key"), ["b.hsk"], "file_exists"),
]


@pytest.mark.parametrize(("command", "words", "expected"), REFUSALS)
def test_what_is_refused_costs_nothing(run, files, command, words, expected):
    for name, wrong in (("oder", "odor"), ("class", "label")):
        (files / f"{name}.csv").write_text(CSV.replace(wrong, name))
    status, _, error = run(*command, *words)
    assert status in REFUSED
    assert error.startswith(expected)
    assert spent(run) == "0"


def test_a_file_without_the_label_can_be_of_one_class(run, files):
    (files / "class.csv").write_text(CSV.replace("label", "class"))
    assert run(*SUMMARISE, "class.csv", "--label", "e")[0] == 0


IN_THE_CLEAR = (
    "Once per day (UTC) a node that is on the list 'clinics' sends one signed summary of all its records:",
    "  - how many records have each 'label'",
    "  - how many records have each value of 'odor', by 'label'",
    "  ε = 1 for a record more or less (add-remove)",
    "  ε = 2 for a changed record (change)",
    "The owner's limits and the ledger count the ε of change (node_adjacency).",
    "an ε from 0.1 to 1",
    "The owner's policy allows it, for at most",
)
OF_RECORDS = (
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
)
OF_A_PARTY = (
    "message about its first 1000 records:",
    "tells about all records of this node together:",
    "  ε = 1, δ = 0 for this node with or without its records (add-remove)",
    "policy_refused: the campaign is masked",
    "sets allow_masked = true",
)


def test_an_owner_reads_what_a_campaign_sums_and_costs_and_whom_it_rests_on(run, publisher, files):
    masked(files / "party.hsc", publisher, masked=TERMS._replace(unit=PARTY), version=2)
    for name, lines in (("c.hsc", IN_THE_CLEAR), ("m.hsc", OF_RECORDS), ("party.hsc", OF_A_PARTY)):
        if name == "party.hsc":
            (files / "state" / "policy.toml").write_text("# defaults\n")
        status, out, _ = run("explain", name)
        assert status == 0
        assert [line for line in lines if line not in out] == []


def test_records_beyond_a_partys_share_are_named(run, publisher, files):
    masked(files / "few.hsc", publisher, masked=TERMS._replace(unit=PARTY), name="few")
    assert run("enrol", "few.hsc")[0] == 0
    write_books(files, "few")
    for words in (["--check"], []):
        status, _, notes = run("node", "encrypt", "--campaign", "few", "--keys", "b.hsk", many(files, 1002), *words)
        assert status == 0
        assert "note: 2 records after the first 1000 are in no sum: " in notes


def test_progress_is_shown_on_a_terminal_and_no_record_is_noted(run, monkeypatch, files, capsys):
    monkeypatch.setattr("edge_sdk.node.sums.BLOCK", 2)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["--state", "state", *SUMMARISE, "--check", "people.csv"]) == 0
    assert "\r2 records" in capsys.readouterr().err
    (files / "none.csv").write_text("odor,width,label\n")
    status, _, notes = run(*SUMMARISE, "none.csv")
    assert (status, notes) == (0, "note: there is no record; a summary of none is noise alone\n")


# Exchanges between several nodes ------------------------------------------------------------------------

NAMES = ("north", "south", "west")


@pytest.fixture
def nodes(files, publisher):
    """Three nodes with a summary each in NAME-own.hsn, and the list of all three."""
    publics = []
    for name in NAMES:
        for words in (
            ("provision", "root.hst"), ("enrol", "c.hsc"), (*SUMMARISE, "people.csv"), ("drain", f"{name}-own.hsn"),
        ):  # fmt: skip
            assert edge("--state", name, *words)[0] == 0
        with Node.open(files / name) as node:
            publics.append(node.public_key)
    write_list(files / "list.hsl", publisher, publics)
    return files


def write_list(path, publisher, publics, version: int = 1, name: str = "clinics") -> None:
    path.write_bytes(publisher.sign("nodes", build_node_list(publisher.header(name, version), publics)))


def exchange(node: str, *peers: str, options=("--nodes", "list.hsl")):
    words = ("exchange", "--campaign", "clinics", *options, "--set", f"{node}.hsn", "--json")
    status, out, error = edge("--state", node, "node", *words, *peers)
    return status, json.loads(out) if out else None, error


def test_three_nodes_end_with_one_file(nodes):
    for name in NAMES:
        status, found, _ = exchange(name)
        assert (status, found["summaries"], found["added"]) == (0, 1, 1)
        assert (nodes / f"{name}.hsn").read_bytes() == (nodes / f"{name}-own.hsn").read_bytes()
    with Node.open(nodes / "north") as node:
        before = node.status().spent_micro, node.status().spooled
    assert edge("--state", "north", "ack", "north-own.hsn")[0] == 0
    assert exchange("south", "north.hsn", options=())[1]["summaries"] == 2, "the list is remembered"
    assert exchange("west", "south.hsn")[1]["nodes"] == 3
    assert exchange("north", "west.hsn")[1]["added"] == 2
    digests = {exchange(name, ".")[1]["digest"] for name in NAMES}
    assert len(digests) == 1
    assert len({(nodes / f"{name}.hsn").read_bytes() for name in NAMES}) == 1
    with Node.open(nodes / "north") as node:
        assert (node.status().spent_micro, node.status().spooled) == (before[0], 0)
    (only,) = exchange("north", ".", options=("--totals",))[1]["totals"]
    assert (only["nodes"], len(only["counts by class"]), "cell odor" in only) == (3, 2, True)
    words = ("exchange", "--campaign", "clinics", "--set", "north.hsn", "--totals", ".")
    status, out, _ = edge("--state", "north", "node", *words)
    assert (status, "counts by class" in out) == (0, True)


def test_refusals_of_lists(nodes, publisher):
    path = nodes / "list.hsl"
    assert exchange("north", ".", options=())[2].split(":")[0] == "nodes_unknown"
    write_list(path, publisher, [key(90).public], version=3)
    status, found, _ = exchange("north", ".")
    assert (status, found["summaries"], found["refused"]) == (0, 0, {"node_not_listed": 4})
    for version, name, reason in ((2, "clinics", "rollback"), (4, "others", "other_name")):
        write_list(path, publisher, [key(90).public], version, name=name)
        assert exchange("north", ".")[2].split(":")[0] == reason


def test_a_peer_that_can_not_be_read_and_summaries_of_the_future_are_told(nodes, monkeypatch):
    (nodes / "stick").mkdir()
    status, found, error = exchange("north", "missing.hsn", "south-own.hsn", "stick")
    assert (status, found["summaries"]) == (1, 2)
    assert error.startswith("file_unreadable: ")
    monkeypatch.setattr("edge_sdk.device.system_clock", lambda: NOW + 5 + DAY)
    for words in ((*SUMMARISE, "people.csv"), ("drain", "tomorrow.hsn")):
        assert edge("--state", "south", *words)[0] == 0
    monkeypatch.setattr("edge_sdk.device.system_clock", lambda: NOW + 5)
    found = exchange("north", "tomorrow.hsn")[1]
    assert (found["refused"], found["summaries"]) == ({"report_too_early": 1}, 2)
