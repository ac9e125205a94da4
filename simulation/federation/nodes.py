"""Real nodes in memory: each one enrols, summarises its records and signs; a store takes in the files.

The list of nodes is signed, and the store checks every signature against that list, as in operation.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.estimates.statistics import Statistics
from aggregator.nodes.campaigns.lists import make_node_list
from aggregator.nodes.statistics.robust import Rule
from aggregator.nodes.store.opening import make_envelope_store
from aggregator.nodes.store.summaries import NodeStore
from aggregator.publishing.workspace import Workspace
from edge_sdk import Node, Policy
from protocol.documents.campaign import Campaign
from protocol.nodes.terms import GLOBAL
from protocol.sums.adjacency import ADD_REMOVE, CHANGE_FEATURES
from simulation.experiment import records_of
from simulation.running import Randomness

PER_FILE = 100
"""Number of nodes whose summaries are in one file."""


def gather(
    workspace: Workspace,
    campaign_bytes: bytes,
    campaign: Campaign,
    frame: pd.DataFrame,
    owners: NDArray[np.int64],
    nodes: int,
    randomness: Randomness,
    rule: Rule | None = None,
) -> Statistics:
    """Let every node summarise its records once, take the files into a new store, and return the store's statistics.

    Args:
        workspace: signs the list of nodes; it has signed no list of the name that the campaign states.
        campaign_bytes: the signed campaign.
        campaign: the same, parsed.
        frame: n typed records with their label.
        owners: shape (n,) int64, the node of every record.
        nodes: number of nodes. A node without records takes part with noise alone.
        randomness: time, and entropy of keys and noise.
        rule: a robust rule; None for plain addition.

    Raises:
        PolicyError, InputError: a node refuses the campaign or a record; ``nodes_too_few``.
    """
    assert campaign.nodes is not None
    order = owners.argsort(kind="stable")
    ends = [0, *(owners[order].searchsorted(range(nodes), side="right")).tolist()]
    parts = [frame.iloc[order[first:last]] for first, last in pairwise(ends)]
    sent = [_summary(workspace.root_bytes, campaign_bytes, campaign, part, randomness) for part in parts]
    listed = make_node_list(workspace, campaign.nodes.list_name, [key for key, _ in sent], now=randomness.now)
    with tempfile.TemporaryDirectory(prefix="hearsay-") as name:
        folder = Path(name)
        store = make_envelope_store(NodeStore, folder / "store", campaign_bytes)
        store.give_list(listed.raw)
        files: list[Path] = []
        for start in range(0, nodes, PER_FILE):
            files.append(folder / f"{len(files):04d}.hsn")
            files[-1].write_bytes(b"".join(raw for _, raw in sent[start : start + PER_FILE]))
        store.ingest(files, now=randomness.now)
        return store.statistics(rule=rule)


def _summary(
    root: bytes, campaign_bytes: bytes, campaign: Campaign, part: pd.DataFrame, randomness: Randomness
) -> tuple[bytes, bytes]:
    """Public key and signed summary of one new node."""
    assert campaign.nodes is not None
    # A simulated owner allows every ε, so only the adjacency matters here: the noise must cover it.
    covered = ADD_REMOVE if campaign.nodes.sensitivity == GLOBAL else CHANGE_FEATURES
    policy = Policy.of(epsilon_per_period="100000", epsilon_lifetime="100000", node_adjacency=covered)
    clock = lambda: randomness.now  # noqa: E731 - one line
    with Node.open(None, trust=root, policy=policy, clock=clock, entropy=randomness.entropy) as node:
        label = campaign.schema.label.name
        records = ({**record, label: value} for record, value in records_of(part, label))
        return node.public_key, node.summarise(node.enrol(campaign_bytes).id, records).raw
