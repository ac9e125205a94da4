"""Masked sums from the first key to a model, through the command lines: of five parties one joins, one is missing."""

import json
import re

import pytest
from support.commands import mushrooms, run
from support.masked import MODULUS

from edge_sdk.cli.main import main

PARTIES = ("north", "south", "east", "west", "late")
RECORDS = {"e": "odor,class\n" + "n,e\n" * 60 + "a,e\n" * 15, "p": "f,p\n" * 25}
CLASS_COUNTS = {"e": 75, "p": 25}
FAR = 60
"""Above this is the noise of a count with probability below 1e-11: at most two copies of rate 1/2, e^{−30} each."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of publisher, dealer, aggregator and parties. On real machines these exchange files only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("aggregator.nodes.dealer.dealer.new_modulus", lambda: MODULUS)
    (tmp_path / "schema.toml").write_text(mushrooms())
    (tmp_path / "people.csv").write_text("".join(RECORDS.values()))
    return tmp_path


@pytest.fixture
def edge(folder, capsys):
    """``hearsay-edge --state STATE …`` of one party; returns what it printed."""

    def command(party, *words, status=0):
        found = main(["--state", party, *map(str, words)])
        output = capsys.readouterr()
        assert found == status, output.err
        return output.out if status == 0 else output.err

    return command


def published(folder, edge):
    """Keys of all parties, a list of the first four, a dealer, and a masked campaign."""
    run("init", "work", "--no-passphrase")
    for party in PARTIES:
        edge(party, "provision", "work/root.hst")
        (folder / party / "policy.toml").write_text("allow_masked = true\n")
        edge(party, "node", "key", f"{party}.key.pub")
    work = ("--workspace", "work")
    run("nodes", "new", "clinics", *(f"{party}.key.pub" for party in PARTIES[:4]), *work, "-o", "l.hsl")
    run("masked", "new", "dealer", "--no-passphrase")
    masked = ("--masked", "dealer/dealer.pub", "--honest-share", "0.6", "--most-parties", "10")
    terms = ("--list", "clinics", "--epsilon", "1", "--max-records", "1000")
    run("nodes", "campaign", "schema.toml", *work, *terms, *masked, "-o", "c.hsc")


def test_five_parties_a_dealer_and_an_aggregator_make_a_model(folder, edge):
    published(folder, edge)
    root = ("--trust", "work/root.hst")
    run("masked", "setup", "dealer", "c.hsc", "--nodes", "l.hsl", *root, "-o", "b1.hsk")
    run("nodes", "add", "clinics", "late.key.pub", "--workspace", "work", "-o", "l2.hsl")
    joined = json.loads(
        run("masked", "rekey", "dealer", "c.hsc", "--nodes", "l2.hsl", *root, "-o", "b2.hsk", "--json").stdout
    )
    assert (joined["parties"], len(joined["joined"]), joined["other_new_keys"]) == (5, 1, [])

    for party in PARTIES:
        edge(party, "enrol", "c.hsc")
    assert edge(PARTIES[0], "node", "summarise", "--campaign", "mushrooms", "people.csv", status=1)
    for party in PARTIES[1:]:  # north is missing
        edge(party, "node", "encrypt", "--campaign", "mushrooms", "--keys", "b2.hsk", "people.csv")
        edge(party, "drain", f"{party}.hse")

    store = ("--store", "sums")
    files = [f"{party}.hse" for party in PARTIES[1:]]
    run("ingest", "c.hsc", *files, "--nodes", "l2.hsl", "--keys", "b2.hsk", *store, "--workspace", "work")
    run("masked", "request", *store, "-o", "q.hsq")
    made = run("masked", "release", "dealer", "q.hsq", "--at-least", "4", "-o", "r.hsd")
    assert "1 party is not in the sum of this period" in made.stderr
    run("masked", "decrypt", *store, "r.hsd")
    run("masked", "decrypt", *store, "r.hsd")  # harmless

    assert json.loads(run("status", *store, "--json").stdout)["nodes"] == 4
    found = json.loads(run("estimate", *store, "--json").stdout)
    assert (found["trust"], found["nodes"]) == ("distributed", 4)
    for estimate, true in zip(found["questions"][0]["estimates"], CLASS_COUNTS.values(), strict=True):
        assert abs(estimate - 4 * true) < FAR
    run("publish", *store, "--workspace", "work", "-o", "m.hsm")
    edge("north", "install", "m.hsm")
    assert "accuracy 100.0%" in run("predict", "m.hsm", "people.csv").stderr
    for command in ("estimate", "status"):
        assert re.search(r"^messages  +4$", run(command, *store).stdout, re.MULTILINE), command
    other = run("masked", "request", *store, "-o", "q.hsq", status=1)
    assert other.stderr.startswith("output_exists: ")


def test_a_fresh_node_gets_campaign_list_and_key_book_in_one_run_from_a_folder_that_publish_filled(folder, edge):
    published(folder, edge)
    root = ("--trust", "work/root.hst")
    run("masked", "setup", "dealer", "c.hsc", "--nodes", "l.hsl", *root, "-o", "b1.hsk")
    run("nodes", "add", "clinics", "late.key.pub", "--workspace", "work", "-o", "l2.hsl")
    run("masked", "rekey", "dealer", "c.hsc", "--nodes", "l2.hsl", *root, "-o", "b2.hsk")
    tree = ("publish", "--to", "www", "--workspace", "work")
    made = json.loads(run(*tree, "--keys", "b1.hsk", "--json").stdout)
    assert made["key_books"] == 1
    assert "keys/mushrooms.hsk" in made["files_changed"]
    assert json.loads(run(*tree, "--keys", "b2.hsk", "--json").stdout)["files_changed"] == ["keys/mushrooms.hsk"]
    assert run(*tree, "--keys", "b1.hsk", status=1).stderr.startswith("tree_newer: ")
    assert run(*tree, "--keys", "b1.hsk", "--keys", "l.hsl", status=1).stderr.startswith("wrong_role: ")
    assert run("publish", "--keys", "b1.hsk", "--workspace", "work", status=2)
    assert (folder / "www/keys/mushrooms.hsk").read_bytes() == (folder / "b2.hsk").read_bytes()
    found = json.loads(edge("late", "sync", "www", "--campaign", "mushrooms", "--json"))
    assert [each["name"] for each in found["campaigns"]] == ["mushrooms"]
    assert (len(found["lists"]), len(found["key_books"]), found["refusals"]) == (1, 1, [])
    edge("late", "node", "encrypt", "--campaign", "mushrooms", "people.csv")


def test_a_request_made_again_keeps_the_file_of_the_earlier_one(folder, edge):
    published(folder, edge)
    run("masked", "setup", "dealer", "c.hsc", "--nodes", "l.hsl", "--trust", "work/root.hst", "-o", "b.hsk")
    store = ("--store", "sums")
    for party in PARTIES[:4]:
        edge(party, "enrol", "c.hsc")
        edge(party, "node", "encrypt", "--campaign", "mushrooms", "--keys", "b.hsk", "people.csv")
        edge(party, "drain", f"{party}.hse")
    first, last = [f"{party}.hse" for party in PARTIES[:3]], f"{PARTIES[3]}.hse"
    run("ingest", "c.hsc", *first, "--nodes", "l.hsl", "--keys", "b.hsk", *store, "--workspace", "work")
    run("masked", "request", *store, "-o", "q.hsq")
    earlier = (folder / "q.hsq").read_bytes()
    run("ingest", "c.hsc", last, "--nodes", "l.hsl", "--keys", "b.hsk", *store, "--workspace", "work")
    made = run("masked", "request", *store, "-o", "q.hsq", "--again", "--force")
    assert "kept as 'q.1.hsq'" in made.stderr
    assert (folder / "q.1.hsq").read_bytes() == earlier
    assert (folder / "q.hsq").read_bytes() != earlier
    run("masked", "request", *store, "-o", "q.hsq", "--force")
    assert sorted(path.name for path in folder.glob("q*")) == ["q.1.hsq", "q.hsq"]
    run("masked", "release", "dealer", "q.1.hsq", "-o", "r.hsd")  # the dealer had seen it
    run("masked", "decrypt", *store, "r.hsd")
