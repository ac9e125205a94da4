"""A workspace with a campaign for nodes, a signed list, and summaries of its nodes in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aggregator.publishing.workspace import create_workspace
from protocol.documents.campaign import GAUSSIAN, Campaign
from protocol.documents.envelope import PAYLOAD_TYPES, SigningKey, seal
from protocol.nodes.summary import build_node_list
from support.node_fleets import keys, summaries_of
from support.nodes import node_payload
from support.publisher import NOW, Publisher
from support.reports import opened

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator.publishing.workspace import Workspace


class Round(NamedTuple):
    """Everything before an ingest."""

    workspace: Workspace
    campaign: Path
    document: Campaign
    listed: Path
    summaries: list[Path]
    nodes: list[SigningKey]


def round_of(folder, nodes=8, family=GAUSSIAN, records=500, **options):
    """A workspace, a campaign, a list of nodes, and one file with one summary per node."""
    workspace = create_workspace(folder / "work", name="w", now=NOW)
    publisher = Publisher()
    campaign_file = workspace.publish(
        "campaign", "wards", NOW, lambda version, _: node_payload(publisher, family, version=version, **options)
    )
    (folder / "c.hsc").write_bytes(campaign_file)
    document = opened(campaign_file)
    holders = keys(nodes)
    signers = [each.open(workspace.passphrase) for each in workspace.signing_keys("campaign")]
    payload = build_node_list(publisher.header("wards"), [each.public for each in holders])
    (folder / "l.hsl").write_bytes(seal(PAYLOAD_TYPES["nodes"], payload, signers))
    (folder / "inbox").mkdir()
    files = []
    for number, raw in enumerate(summaries_of(document, holders, records)):
        files.append(folder / "inbox" / f"{number}.hsn")
        files[-1].write_bytes(raw)
    return Round(workspace, folder / "c.hsc", document, folder / "l.hsl", files, holders)
