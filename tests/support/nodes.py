"""Campaigns for nodes, lists of nodes and summaries, made in memory for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol import SCALE
from protocol.documents.campaign import GAUSSIAN, Fit, build_payload, parse_campaign
from protocol.nodes.summary import build_node_list, build_summary
from protocol.nodes.terms import NodeTerms, released_vectors
from support.publisher import DAY, NOW, Publisher, key

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign

NODE_KEYS = [key(100 + number) for number in range(5)]
PERIOD = NOW // DAY
TERMS = NodeTerms("wards", 1000, 100_000)


def node_payload(
    publisher: Publisher, family: str = GAUSSIAN, *, terms: NodeTerms = TERMS, name: str = "wards", **options
) -> bytes:
    """The payload of a campaign for nodes."""
    arguments = {
        "epsilon_micro": 1_000_000,
        "purpose": "a model of many wards",
        "contact": "someone@example.org",
        "time_precision": DAY,
        "min_batch_size": 1,
        "fit": Fit(family, "posterior", 10_000 if family == GAUSSIAN else 0),
        **options,
    }
    version = arguments.pop("version", 1)
    return build_payload(publisher.header(name, version), publisher.schema, (), nodes=terms, **arguments)


def node_campaign(family: str = GAUSSIAN, publisher: Publisher | None = None, **options) -> Campaign:
    """A parsed campaign for nodes on the publisher's schema."""
    return parse_campaign(node_payload(publisher or Publisher(), family, **options))


def signed_list(publisher: Publisher, keys=tuple(NODE_KEYS), version: int = 1, name: str = "wards") -> bytes:
    """A signed list of nodes."""
    payload = build_node_list(publisher.header(name, version), [one.public for one in keys])
    return publisher.sign("nodes", payload)


def plain_sums(campaign: Campaign, number: int = 1) -> list[int]:
    """Numbers without noise that a summary may hold: every count is ``number``, every sum that many times S/2."""
    return [
        number * (SCALE // 2 if subject.kind == "moment" else 1)
        for subject in released_vectors(campaign)
        for _ in range(subject.size)
    ]


def summary_of(
    campaign: Campaign, node: int = 0, number: int = 1, period: int = PERIOD, epsilon_micro: int | None = None
) -> bytes:
    """The signed summary of one of :data:`NODE_KEYS`; ``number`` changes its numbers."""
    return build_summary(campaign, NODE_KEYS[node], period, plain_sums(campaign, number), epsilon_micro)
