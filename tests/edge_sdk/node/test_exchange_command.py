"""``hearsay-edge node exchange`` between several nodes, as their owners use it."""

from __future__ import annotations

import json
from functools import partial

import pytest
from support.commands import edge
from support.publisher import CAMPAIGN_KEY, DAY, NOW, ROOT_KEY, key

from edge_sdk import Node
from protocol.nodes.summary import build_node_list

NAMES = ("north", "south", "west")
CSV = "odor,width,label\nn,3.25,e\nf,,p\nn,11,e\n"


@pytest.fixture
def run(tmp_path, publisher, system_time, monkeypatch):
    """Three nodes with a summary each in NAME-own.hsn, and the list of all three."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root.hst").write_bytes(publisher.root())
    (tmp_path / "c.hsc").write_bytes(publisher.node_campaign(least_epsilon_micro=100_000))
    (tmp_path / "people.csv").write_text(CSV)

    command = partial(edge, "--state")
    publics = []
    for name in NAMES:
        assert command(name, "provision", "root.hst")[0] == 0
        assert command(name, "enrol", "c.hsc")[0] == 0
        assert command(name, "node", "summarise", "--campaign", "clinics", "people.csv")[0] == 0
        assert command(name, "drain", f"{name}-own.hsn")[0] == 0
        with Node.open(tmp_path / name) as node:
            publics.append(node.public_key)
    write_list(tmp_path / "list.hsl", publisher, publics)
    return command


def write_list(path, publisher, publics, version: int = 1, signer=CAMPAIGN_KEY, name: str = "clinics") -> None:
    path.write_bytes(publisher.sign("nodes", build_node_list(publisher.header(name, version), publics), signer))


def exchange(run, node: str, *peers: str, options=("--nodes", "list.hsl")):
    words = ("--campaign", "clinics", *options, "--set", f"{node}.hsn", "--json")
    status, out, error = run(node, "node", "exchange", *words, *peers)
    return status, json.loads(out) if out else None, error


def test_three_nodes_end_with_one_file(run, tmp_path):
    for name in NAMES:
        status, found, _ = exchange(run, name)
        assert (status, found["summaries"], found["added"]) == (0, 1, 1)
        assert (tmp_path / f"{name}.hsn").read_bytes() == (tmp_path / f"{name}-own.hsn").read_bytes()
    assert run("north", "ack", "north-own.hsn")[0] == 0
    assert exchange(run, "south", "north.hsn", options=())[1]["summaries"] == 2, "the list is remembered"
    assert exchange(run, "west", "south.hsn")[1]["nodes"] == 3
    assert exchange(run, "north", "west.hsn")[1]["added"] == 2
    digests = {exchange(run, name, ".")[1]["digest"] for name in NAMES}
    assert len(digests) == 1
    assert len({(tmp_path / f"{name}.hsn").read_bytes() for name in NAMES}) == 1


def test_totals_and_the_words_for_people(run):
    status, found, _ = exchange(run, "north", ".", options=("--nodes", "list.hsl", "--totals"))
    assert status == 0
    (only,) = found["totals"]
    assert only["nodes"] == 3
    assert {"counts by class", "cell odor"} <= set(only)
    assert len(only["counts by class"]) == 2
    words = ("--campaign", "clinics", "--set", "north.hsn", "--totals", ".")
    status, out, _ = run("north", "node", "exchange", *words)
    assert status == 0
    assert "counts by class" in out


def test_refusals_of_lists(run, tmp_path, publisher):
    path = tmp_path / "list.hsl"
    assert exchange(run, "north", ".", options=())[2].split(":")[0] == "nodes_unknown"
    write_list(path, publisher, [key(90).public], version=3)
    status, found, _ = exchange(run, "north", ".")
    assert (status, found["summaries"], found["refused"]) == (0, 0, {"node_not_listed": 4})
    for version, signer, name, reason in (
        (2, CAMPAIGN_KEY, "clinics", "rollback"),
        (4, key(91), "clinics", "bad_signature"),
        (4, ROOT_KEY, "clinics", "bad_signature"),
        (4, CAMPAIGN_KEY, "others", "other_name"),
    ):
        write_list(path, publisher, [key(90).public], version, signer, name)
        assert exchange(run, "north", ".")[2].split(":")[0] == reason
    write_list(path, publisher, [key(92).public], version=3)
    assert exchange(run, "north", ".")[2].split(":")[0] == "equivocation"
    path.write_bytes((tmp_path / "c.hsc").read_bytes())
    assert exchange(run, "north", ".")[2].split(":")[0] == "wrong_role"


def test_a_peer_that_can_not_be_read_is_told_after_the_others_were_united(run, tmp_path):
    (tmp_path / "stick").mkdir()
    status, found, error = exchange(run, "north", "missing.hsn", "south-own.hsn", "stick")
    assert status == 1
    assert found["summaries"] == 2
    assert error.startswith("file_unreadable: ")


def test_an_exchange_costs_nothing_and_changes_no_report(run, tmp_path):
    with Node.open(tmp_path / "north") as node:
        before = node.status().spent_micro, node.status().spooled
    exchange(run, "north", ".")
    with Node.open(tmp_path / "north") as node:
        assert (node.status().spent_micro, node.status().spooled) == before


def test_summaries_of_the_future_wait(run, monkeypatch):
    monkeypatch.setattr("edge_sdk.device.system_clock", lambda: NOW + 5 + DAY)
    assert run("south", "node", "summarise", "--campaign", "clinics", "people.csv")[0] == 0
    assert run("south", "drain", "tomorrow.hsn")[0] == 0
    monkeypatch.setattr("edge_sdk.device.system_clock", lambda: NOW + 5)
    found = exchange(run, "north", "tomorrow.hsn")[1]
    assert found["refused"] == {"report_too_early": 1}
    assert found["summaries"] == 2
