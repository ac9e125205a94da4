"""Kinds for campaigns of nodes: ranges of released numbers, summaries, files of summaries, sets of summaries."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.nodes.summary import SummarySet, judge_summary, parse_node_list, read_summaries
from protocol.nodes.terms import ranges, released_vectors, shares
from vectors.runner import kind

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.nodes.summary import NodeList


def campaign_of(data: str) -> Campaign:
    """The campaign in a file."""
    return parse_campaign(read_envelope(bytes.fromhex(data), "campaign").payload)


def listed_in(data: str) -> NodeList:
    """The nodes in a file of a list."""
    return parse_node_list(read_envelope(bytes.fromhex(data), "nodes").payload)


def united(kind_of_set: Any, files: list[str]) -> tuple[Any, dict[str, Any]]:
    """The union of the sets of several files, and what a case says of the bytes and of conflicts."""
    found = kind_of_set()
    for file in files:
        found = found.union(kind_of_set.from_bytes(bytes.fromhex(file)))
    raw = found.to_bytes()
    conflicts = [[campaign.hex(), period, node.hex()] for campaign, period, node in found.conflicts()]
    return found, {"bytes": len(raw), "sha256": sha256(raw).hexdigest(), "conflicts": conflicts}


@kind
def released_ranges(campaign: str, epsilon_micro: int) -> list[list[Any]]:
    """Kind, length, ε in millionths, least and largest number of every released vector of a campaign's file."""
    found = campaign_of(campaign)
    parts = zip(released_vectors(found), shares(found, epsilon_micro), ranges(found, epsilon_micro), strict=True)
    return [[subject.kind, subject.size, share, low, high] for subject, share, (low, high) in parts]


@kind
def summary(campaign: str, nodes: str, data: str, now: int) -> dict[str, Any]:
    """What the envelope of a summary says that counts at the time ``now``, by the files of a campaign and a list."""
    found = judge_summary(bytes.fromhex(data), campaign_of(campaign), listed_in(nodes), now)
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
    found, said = united(SummarySet, files)
    return {**said, "counting": [sha256(envelope).hexdigest()[:16] for envelope in found.counting()]}
