"""The status of a store of summaries: which nodes were heard in which period, and why the rest does not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from aggregator.nodes.statistics.federation import adjacency_of
from aggregator.nodes.store.database import CONFLICT_REASON
from aggregator.nodes.store.envelope_store import NOT_LISTED_REASON, EnvelopeStore
from protocol.epsilon import format_micro


class PeriodCount(NamedTuple):
    """The nodes of one period.

    ``seen``: number of nodes whose summary counts. ``missing``, ``conflicting``: ids, in hexadecimal, of listed nodes
    without a summary, or with two different ones. ``unlisted``: number of nodes with a summary that are not on the
    newest list.
    """

    period: int
    seen: int
    missing: tuple[str, ...]
    conflicting: tuple[str, ...]
    unlisted: int


class NodeStatus(NamedTuple):
    """The contents of ``hearsay status`` for a store of summaries.

    ``nodes``: number of nodes with a summary that counts; ``listed``: on the newest list of nodes. ``summaries``,
    ``epsilon_nodes``: ε in millionths → number of summaries that count, and sorted ids of their nodes. ``rejected``:
    pieces of files, and kept summaries, that do not count, by reason.
    """

    campaign: bytes
    name: str
    time_precision: int
    list_name: str
    list_version: int
    listed: int
    nodes: int
    adjacency: str
    summaries: dict[int, int]
    epsilon_nodes: dict[int, tuple[str, ...]]
    min_batch_size: int
    rejected: dict[str, int]
    periods: tuple[PeriodCount, ...]

    @property
    def enough(self) -> bool:
        """Whether there are enough nodes (``min_batch_size``) to show estimates and publish models."""
        return self.nodes >= self.min_batch_size

    def to_json(self) -> dict[str, Any]:
        """Return all attributes for programs; ε as decimal text."""
        return {
            **self._asdict(),
            "campaign": self.campaign.hex(),
            "summaries": {format_micro(epsilon): count for epsilon, count in self.summaries.items()},
            "epsilon_nodes": {format_micro(epsilon): ids for epsilon, ids in self.epsilon_nodes.items()},
            "enough": self.enough,
            "periods": [period._asdict() for period in self.periods],
        }


def status(store: EnvelopeStore) -> NodeStatus:
    """Return which nodes sent summaries, and why some do not count. No noisy number is read or shown."""
    listed = store.node_list()
    found: dict[int, dict[bytes, str | None]] = {}
    summaries: Counter[int] = Counter()
    stating: dict[int, set[str]] = {}
    for arrival, reason in store.arrivals():
        found.setdefault(arrival.period, {})[arrival.node] = reason
        if reason is None:
            summaries[arrival.epsilon_micro] += 1
            stating.setdefault(arrival.epsilon_micro, set()).add(arrival.node.hex())
    heard = {node for nodes in found.values() for node, reason in nodes.items() if reason is None}
    campaign = store.campaign
    return NodeStatus(
        campaign.id,
        campaign.header.name,
        campaign.time_precision,
        listed.header.name,
        listed.header.version,
        len(listed.nodes),
        len(heard),
        adjacency_of(campaign),
        dict(sorted(summaries.items())),
        {epsilon: tuple(sorted(ids)) for epsilon, ids in sorted(stating.items())},
        campaign.min_batch_size,
        store.rejected(),
        tuple(_period(period, nodes, listed.nodes.keys()) for period, nodes in sorted(found.items())),
    )


def _period(period: int, nodes: dict[bytes, str | None], listed: AbstractSet[bytes]) -> PeriodCount:
    """Return counts of one period; ``nodes``: node → reason why its summary does not count, or None."""
    return PeriodCount(
        period,
        sum(reason is None for reason in nodes.values()),
        tuple(sorted(node.hex() for node in listed - nodes.keys())),
        tuple(sorted(node.hex() for node, reason in nodes.items() if reason == CONFLICT_REASON)),
        sum(reason == NOT_LISTED_REASON for reason in nodes.values()),
    )
