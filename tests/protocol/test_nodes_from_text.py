"""The vectors of lists and summaries of nodes agree with a second implementation from the text of docs/formats.md."""

from __future__ import annotations

import ast
from hashlib import sha256

import pytest
from nacl import bindings
from support.ed25519 import is_signed
from support.nodes import NODE_KEYS, PERIOD, node_campaign, summary_of
from support.publisher import CAMPAIGN_KEY, DAY, NOW, Publisher
from support.reports import opened
from vectors import nodes_from_text as text
from vectors import runner

from aggregator.nodes.statistics.totals import Totals
from protocol.document import Header
from protocol.documents.envelope import seal
from protocol.nodes.summary import build_node_list, read_summary

CASES = {name: case for name, case in runner.load_all() if name.startswith(("nodes/", "summaries/"))}
KINDS = {"classes": "class", "cells": "cell", "presence": "present", "sums": "moment", "squares": "moment"}
THREE = [one.public for one in NODE_KEYS[:3]]
"""The nodes on the list of the vectors of summaries."""


def named(kind):
    return [pytest.param(case, id=name) for name, case in CASES.items() if case["kind"] == kind]


def facts(raw):
    """What the campaign of a vector says: id, vectors, ε, largest number of records. The parser of campaigns is the
    project's; campaigns are not the subject of this test."""
    campaign = opened(bytes.fromhex(raw))
    features = [
        (part.to_dict()["kind"], part.size, part.to_dict()["substitute"] is None) for part in campaign.stated.features
    ]
    return campaign, text.vectors(campaign.fit.family, len(campaign.stated.label.classes), features)


@pytest.mark.parametrize("case", [each for each in named("released_ranges") if "expect" in each.values[0]])
def test_vectors_and_ranges(case):
    campaign, vectors = facts(case["campaign"])
    count, epsilon, terms = len(vectors), case["epsilon_micro"], campaign.nodes
    ends = [text.bounds(kind, epsilon, count, terms.max_records, terms.sensitivity) for kind, _ in vectors]
    found = [[KINDS[kind], length, epsilon // count, *pair] for (kind, length), pair in zip(vectors, ends, strict=True)]
    assert found == case["expect"]


@pytest.mark.parametrize("case", named("summary"))
def test_summaries_are_judged_alike(case):
    campaign, vectors = facts(case["campaign"])
    raw = bytes.fromhex(case["data"])
    expected = case.get("reason")
    parts = text.parts_of(raw)
    if parts is None:
        # Only the reader of a whole document tells why a file is no envelope of a summary.
        assert expected in ("malformed", "unsupported_version", "wrong_role")
        return
    fault, body = text.payload_fault(parts[0])
    if fault is None:
        count = len(vectors)
        ranges = [
            (length, *text.bounds(kind, body["epsilon_micro"], count, campaign.nodes.max_records))
            for kind, length in vectors
            if body["epsilon_micro"] >= count
        ]
    else:
        ranges = []
    times = campaign.time_precision, campaign.header.not_before, campaign.header.expires, case["now"]
    epsilons = campaign.nodes.least_epsilon_micro, campaign.epsilon_micro
    assert text.judged(raw, campaign.id, epsilons, ranges, times, THREE, is_signed) == expected
    if expected is None:
        assert body["sums"] == case["expect"]["sums"]
        assert sha256(parts[0]).hexdigest() == case["expect"]["identity"]


@pytest.mark.parametrize("case", [each for each in named("summary") if "expect" in each.values[0]])
def test_summaries_are_written_alike(case):
    expect = case["expect"]
    campaign, _ = facts(case["campaign"])
    key = next(one for one in NODE_KEYS if text.keyid(one.public).hex() == expect["node"])
    node = text.keyid(key.public)
    payload = text.summary_payload(campaign.id, expect["epsilon_micro"], node, expect["period"], expect["sums"])
    assert text.envelope(text.NODE, payload, key.public, key.sign).hex() == case["data"]


@pytest.mark.parametrize("case", named("summary_file"))
def test_files_are_divided_alike(case):
    raw = bytes.fromhex("".join(case["parts"]))
    assert [list(piece) for piece in text.file_pieces(raw)] == case["expect"]


@pytest.mark.parametrize("case", named("summary_union"))
def test_sets_are_united_alike(case):
    envelopes = [
        raw[offset : offset + length]
        for raw in map(bytes.fromhex, case["files"])
        for offset, length, reason in text.file_pieces(raw)
        if reason is None
    ]
    found = text.set_file(envelopes)
    assert (len(found), sha256(found).hexdigest()) == (case["expect"]["bytes"], case["expect"]["sha256"])


def test_lists_are_written_alike():
    publics = [one.public for one in NODE_KEYS]
    header = Header("wards", 3, NOW, NOW, NOW + DAY * 9)
    payload = build_node_list(header, publics)
    assert text.list_payload("wards", 3, NOW, NOW, NOW + DAY * 9, publics) == payload
    raw = text.envelope(text.NODES, payload, CAMPAIGN_KEY.public, CAMPAIGN_KEY.sign)
    assert raw == Publisher().sign("nodes", payload) == seal(text.NODES.decode(), payload, [CAMPAIGN_KEY])


def test_the_statistics_id_of_totals():
    """Written from docs/formats.md, section 5, against the aggregator's totals."""
    campaign = node_campaign()
    raws = [
        summary_of(campaign, 0, 1),
        summary_of(campaign, 1, 2, epsilon_micro=200_000),
        summary_of(campaign, 0, 5, PERIOD + 1),
    ]
    bodies = [text.payload_fault(text.parts_of(raw)[0])[1] for raw in raws]
    epsilons = sorted({body["epsilon_micro"] for body in bodies})
    periods = sorted({body["period"] for body in bodies})
    packed = [
        text.binary(campaign.id),
        text.integer(len({body["node"] for body in bodies})),
        array([array([text.integer(one), text.integer(count("epsilon_micro", one, bodies))]) for one in epsilons]),
        array([array([text.integer(one), text.text(str(records(one, bodies)))]) for one in periods]),
        array([text.text(str(sum(numbers))) for numbers in zip(*(body["sums"] for body in bodies), strict=True)]),
    ]
    total = Totals.of(campaign, [read_summary(raw)[1] for raw in raws]).total()
    assert total.statistics_id == sha256(b"hearsay total of nodes' summaries v1" + array(packed)).digest()


def array(items):
    assert len(items) < 16
    return bytes([0x90 + len(items)]) + b"".join(items)


def count(key, value, bodies):
    return sum(body[key] == value for body in bodies)


def records(period, bodies):
    """The first vector has two classes."""
    return sum(sum(body["sums"][:2]) for body in bodies if body["period"] == period)


def test_the_vectors_of_the_page():
    seed = bytes.fromhex("0145d7e6436ae43cbb0fa08acd98bb96d5e812b1128ce0a93717ea14a8e2cef3")
    public, secret = bindings.crypto_sign_seed_keypair(seed)
    node = text.keyid(public)
    payload = text.summary_payload(sha256(b"campaign").digest(), 10**6, node, 7, (3, -1, 65536))
    raw = text.envelope(text.NODE, payload, public, lambda message: bindings.crypto_sign(message, secret)[:64])
    page = (runner.FOLDER.parents[1] / "docs" / "formats.md").read_text("utf-8")
    for stated in (
        public.hex(),
        node.hex(),
        f"a payload of {len(payload)} bytes",
        sha256(payload).hexdigest(),
        f"an envelope of {len(raw)} bytes",
        sha256(raw).hexdigest(),
    ):
        assert stated in page


def test_the_second_implementation_imports_the_standard_library_alone():
    tree = ast.parse((runner.FOLDER / "nodes_from_text.py").read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"__future__", "hashlib", "typing", "collections.abc"}
