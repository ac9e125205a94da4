"""Time to add up the summaries of many nodes: reading, verifying and adding, each by itself, and a whole ingest.

    python benchmarks/federated/aggregation.py [--json] [--nodes 10000] [--cpu]

A summary has the sums of 8 categories of 4 values and 6 numbers in 2 classes, as of a clinic's table. *Plain
aggregation* is the file's bytes → its summaries → totals → statistics. Signatures are verified when a summary enters a
store, and are measured apart. The baseline of adding is numpy's sum of one array of all numbers; that of verifying is
libsodium's verification of as many signatures of the same bytes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from harness import Row, arguments, interleaved_seconds, show
from nacl import bindings
from support.node_fleets import keys, list_of, noisy
from support.nodes import PERIOD, node_payload
from support.publisher import NOW, Publisher

from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.totals import Totals
from aggregator.nodes.store.opening import make_envelope_store
from aggregator.nodes.store.summaries import NodeStore
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import pae, read_envelope, verified_by
from protocol.features import Categorical, Numeric
from protocol.nodes.node_list import parse_node_list
from protocol.nodes.summary import build_summary, judge_summary, read_summary
from protocol.nodes.summary_files import read_summaries
from protocol.nodes.terms import ranges, released_vectors
from protocol.schema import Label, build_schema

if TYPE_CHECKING:
    from support.publisher import SigningKey


REPEATS = 5
SCHEMA = build_schema(
    Label("label", ["no", "yes"]),
    [
        *(Categorical(f"category {number}", ["a", "b", "c"]) for number in range(8)),
        *(Numeric(f"number {number}", "0", "100", [0], "missing", None) for number in range(6)),
    ],
)


class Fleet:
    """A campaign, its nodes, and one summary of each in a file.

    Args:
        nodes: number of nodes.
        folder: an empty folder for the file and for stores.
    """

    def __init__(self, nodes: int, folder: Path) -> None:
        publisher = Publisher(schema=SCHEMA)
        self.folder = folder
        self.campaign_file = publisher.sign("campaign", node_payload(publisher))
        self.campaign = parse_campaign(read_envelope(self.campaign_file, "campaign").payload)
        holders = keys(nodes)
        self.list_file = list_of(publisher, holders)
        self.listed = parse_node_list(read_envelope(self.list_file, "nodes").payload)
        self.publics = [key.public for key in holders]
        self.raws = summaries(self.campaign, holders)
        self.file = folder / "all.hsn"
        self.file.write_bytes(b"".join(self.raws))
        self.envelopes = [read_envelope(raw, "node") for raw in self.raws]
        self.parsed = [read_summary(raw)[1] for raw in self.raws]
        self.matrix = np.array([summary.sums for summary in self.parsed])
        self.signed = [one.signatures[0][1] + pae(one.payload_type, one.payload) for one in self.envelopes]
        self.stores = 0
        self.filled = self.ingest()

    def ingest(self) -> NodeStore:
        """Take the file into a new store."""
        self.stores += 1
        store = make_envelope_store(NodeStore, self.folder / str(self.stores), self.campaign_file)
        store.give_list(self.list_file)
        store.ingest([self.file], now=NOW)
        return store

    def plain(self) -> None:
        """From the file's bytes to statistics, without verifying."""
        pieces = read_summaries(self.file.read_bytes())
        found = Totals.of(self.campaign, (read_summary(piece.envelope)[1] for piece in pieces))
        federated(self.campaign, found.total())

    def at_once(self) -> None:
        """Add all summaries together."""
        Totals.of(self.campaign, self.parsed).total()

    def one_by_one(self) -> None:
        """Add the summaries as they arrive."""
        totals = Totals(self.campaign)
        for summary in self.parsed:
            totals.add(summary)

    def verify(self) -> None:
        """Verify all signatures with one thread."""
        for envelope, public in zip(self.envelopes, self.publics, strict=True):
            assert verified_by(envelope, [public])

    def verify_in_threads(self) -> None:
        """Verify all signatures with as many threads as processors."""
        cut = np.array_split(np.arange(len(self.raws)), 4 * (os.cpu_count() or 1))
        work = [[(self.envelopes[place], self.publics[place]) for place in places] for places in cut]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda part: [verified_by(one, [public]) for one, public in part], work))

    def libsodium(self) -> None:
        """Verify as many signatures of the same bytes by the library alone."""
        for message, public in zip(self.signed, self.publics, strict=True):
            bindings.crypto_sign_open(message, public)

    def judge(self) -> None:
        """Check everything about every summary."""
        for raw in self.raws:
            judge_summary(raw, self.campaign, self.listed, NOW)


def summaries(campaign: Campaign, holders: list[SigningKey]) -> list[bytes]:
    """One signed summary per node, of some hundred records."""
    generator = np.random.default_rng(1)
    middle = [
        max(low, min(high, 400))
        for subject, (low, high) in zip(released_vectors(campaign), ranges(campaign), strict=True)
        for _ in range(subject.size)
    ]
    epsilon = campaign.epsilon_micro
    return [build_summary(campaign, key, PERIOD, noisy(campaign, middle, epsilon, generator)) for key in holders]


def rows(nodes: int, folder: Path, *, cpu: bool) -> list[Row]:
    """All figures, in seconds of wall time, or with ``cpu`` of this process's processor time."""
    fleet = Fleet(nodes, folder)
    actions = {
        "plain aggregation: file to statistics": fleet.plain,
        "plain aggregation: store to statistics": fleet.filled.statistics,
        "adding, all at once": fleet.at_once,
        "adding one by one (algorithm 3)": fleet.one_by_one,
        "numpy": lambda: fleet.matrix.sum(axis=0),
        "verifying signatures, one thread": fleet.verify,
        "verifying signatures, threads": fleet.verify_in_threads,
        "libsodium": fleet.libsodium,
        "judging completely, one thread": fleet.judge,
        "ingest into a new store": fleet.ingest,
    }
    clock = time.process_time if cpu else time.perf_counter
    times = dict(zip(actions, interleaved_seconds(list(actions.values()), REPEATS, clock), strict=True))
    baselines = {"adding, all at once": "numpy", "adding one by one (algorithm 3)": "numpy"}
    found = [Row("numbers in a summary", fleet.matrix.shape[1], ""), Row("file", fleet.file.stat().st_size / 1e6, "MB")]
    for name, seconds in times.items():
        baseline = baselines.get(name, "" if name in ("numpy", "libsodium") else "libsodium")
        found.append(Row(name, seconds, "s", baseline, seconds / times[baseline] if baseline else None))
    return found


def main() -> None:
    """Measure, and print the table."""
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--cpu", action="store_true", help="processor time, where the machine does other work too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show(f"Summaries of {given.nodes:,} nodes", rows(given.nodes, Path(folder), cpu=given.cpu), as_json=given.json)


if __name__ == "__main__":
    main()
