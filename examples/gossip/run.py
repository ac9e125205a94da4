"""Twelve clinics without an aggregator: they exchange files of summaries, and average their sums for comparison.

    python examples/gossip/run.py [FOLDER]

All data are made up. The publisher signs the campaign and the list of clinics, and takes no part afterwards.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aggregator
from aggregator.publishing.schemas.schema_file import parse_schema_text
from edge_sdk import Node
from edge_sdk.node.exchanging import totals
from protocol.nodes.summary import read_summary
from research.averaging import AveragingPeer, Session, rounds_for

if TYPE_CHECKING:
    from protocol.documents.campaign import Campaign
    from protocol.nodes.summary import Summary

CLINICS, PATIENTS = 12, 300
SCHEMA = """
name = "wards"

[label]
name = "outcome"
classes = ["home", "intensive"]

[[features]]
name = "breathing"
kind = "categorical"
values = ["calm", "fast", "laboured"]
missing = "code"
"""


def patients(draw: random.Random) -> list[dict[str, object]]:
    """Make the records of one clinic."""
    breathing = [draw.choice(("calm", "fast", "laboured")) for _ in range(PATIENTS)]
    return [{"breathing": one, "outcome": "intensive" if one == "laboured" else "home"} for one in breathing]


def prepare(folder: Path) -> None:
    """The publisher signs a campaign and the list of clinics; each clinic sets up its node."""
    folder.mkdir(exist_ok=True)
    work = aggregator.create_workspace(folder / "work", name="wards", now=int(time.time()))
    for number in range(CLINICS):
        with Node.provision(folder / f"{number}.state", trust=work.root_bytes) as node:
            (folder / f"{number}.key.pub").write_bytes(node.public_key_line)
    aggregator.make_node_list(work, "clinics", sorted(folder.glob("*.key.pub"))).save(folder / "clinics.hsl")
    schema = parse_schema_text(SCHEMA)
    made = aggregator.make_node_campaign(work, schema, epsilon=1, nodes="clinics", max_records=1000)
    made.save(folder / "wards.hsc")


def summarise(folder: Path, draw: random.Random) -> tuple[Campaign, list[Summary]]:
    """Each clinic sums its own records with noise, and writes its signed summary into a file."""
    found = []
    for number in range(CLINICS):
        with Node.open(folder / f"{number}.state") as node:
            campaign = node.enrol((folder / "wards.hsc").read_bytes())
            node.summarise(campaign.id, patients(draw))
            node.drain(folder / f"{number}.hsn")
        found.append(read_summary((folder / f"{number}.hsn").read_bytes())[1])
    return campaign, found


def exchange(folder: Path, draw: random.Random) -> int:
    """Pairs of clinics that meet by chance unite their files, until all files are equal."""
    nodes = [Node.open(folder / f"{number}.state") for number in range(CLINICS)]
    listed = (folder / "clinics.hsl").read_bytes()
    meetings = 0
    while len({(folder / f"{number}.hsn").read_bytes() for number in range(CLINICS)}) > 1:
        first, second = draw.sample(range(CLINICS), 2)
        for own, peer in ((first, second), (second, first)):
            nodes[own].exchange("wards", folder / f"{own}.hsn", [folder / f"{peer}.hsn"], listed)
        meetings += 1
    for node in nodes:
        node.close()
    return meetings


def average(campaign: Campaign, summaries: list[Summary], draw: random.Random) -> list[AveragingPeer]:
    """The same sums without files: every clinic keeps one vector, and averages it with others. Messages are bytes."""
    session = Session(campaign.id, summaries[0].period, holders=1, entries=len(summaries[0].sums))
    members = frozenset(one.node for one in summaries)
    peers = {
        one.node: AveragingPeer(session, one.node, members, one.sums, holds_weight=one is summaries[0])
        for one in summaries
    }
    for _ in range(rounds_for(CLINICS, relative=1e-6, failure=0.01)):
        for name, peer in peers.items():
            partner = draw.choice([other for other in peers if other != name])
            if (reply := peers[partner].answer(peer.offer(partner))) is not None:
                peer.take(reply)
    return list(peers.values())


def main(folder: Path) -> None:
    """Run everything, and compare the two results."""
    draw = random.Random(5)  # noqa: S311 - it makes up patients and meetings; the noise is the nodes' own
    prepare(folder)
    campaign, summaries = summarise(folder, draw)
    meetings = exchange(folder, draw)
    with Node.open(folder / "0.state") as node:
        (united,) = totals(node.exchange("wards", folder / "0.hsn", []).summaries, campaign)
    print(f"{meetings} meetings: every clinic has the same file of {united.nodes} summaries")
    for subject, values in united.vectors(campaign):
        print(f"  {subject.kind}: {', '.join(map(str, values))}")
    peers = average(campaign, summaries, draw)
    worst = max(abs(a - b) for peer in peers for a, b in zip(peer.sums(), united.sums, strict=True))
    print(f"averaging: {len(peers)} clinics know the same sums, none off by more than {worst}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
