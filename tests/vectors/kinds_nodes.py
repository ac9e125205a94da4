"""Kinds for campaigns of nodes: ranges of released numbers, summaries, files of summaries, sets of summaries."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.nodes.summary import SummarySet, judge_summary, parse_node_list, read_summaries
from protocol.nodes.terms import ranges, released_vectors, shares
from vectors.runner import kind


@kind
def released_ranges(campaign: str, epsilon_micro: int) -> list[list[Any]]:
    """Kind, length, ε in millionths, least and largest number of every released vector of a campaign's file."""
    found = parse_campaign(read_envelope(bytes.fromhex(campaign), "campaign").payload)
    parts = zip(released_vectors(found), shares(found, epsilon_micro), ranges(found, epsilon_micro), strict=True)
    return [[subject.kind, subject.size, share, low, high] for subject, share, (low, high) in parts]


@kind
def summary(campaign: str, nodes: str, data: str, now: int) -> dict[str, Any]:
    """What the envelope of a summary says that counts at the time ``now``, by the files of a campaign and a list."""
    terms = parse_campaign(read_envelope(bytes.fromhex(campaign), "campaign").payload)
    listed = parse_node_list(read_envelope(bytes.fromhex(nodes), "nodes").payload)
    found = judge_summary(bytes.fromhex(data), terms, listed, now)
    return {
        "node": found.node.hex(),
        "period": found.period,
        "epsilon_micro": found.epsilon_micro,
        "sums": list(found.sums),
        "identity": found.identity.hex(),
    }


@kind
def summary_file(parts: list[str]) -> list[list[Any]]:
    """Offset, length and reason (nil of an intact envelope) of every stretch of a file, given in parts."""
    raw = bytes.fromhex("".join(parts))
    pieces = list(read_summaries(raw))
    assert all(piece.envelope == (b"" if piece.reason else raw[piece.offset :][: piece.length]) for piece in pieces)
    return [[piece.offset, piece.length, piece.reason] for piece in pieces]


@kind
def summary_union(files: list[str]) -> dict[str, Any]:
    """The union of the sets of several files, without a check of signatures."""
    united = SummarySet()
    for file in files:
        united = united.union(SummarySet.from_bytes(bytes.fromhex(file)))
    raw = united.to_bytes()
    return {
        "bytes": len(raw),
        "sha256": sha256(raw).hexdigest(),
        "counting": [sha256(envelope).hexdigest()[:16] for envelope in united.counting()],
        "conflicts": [[campaign.hex(), period, node.hex()] for campaign, period, node in united.conflicts()],
    }
