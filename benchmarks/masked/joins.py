"""What a join and a leave cost the dealer and the parties: keys that change, bytes of the key book, seconds.

    python -m benchmarks.masked.joins [--parties 10 1000 10000] [--changes 20]

For each number of parties the dealer sets a campaign up, then makes key books for lists with one node more, and
then with one less, chosen by chance.
"groups" is what a join costs in a scheme whose keys add up to zero within groups of so many parties, without a dealer's
release: all keys of the group change, and each group needs noise of its own.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median

from aggregator.nodes.dealer.dealer import Dealer
from aggregator.nodes.dealer.issuing import new_modulus
from aggregator.publishing.workspace import create_workspace
from protocol.document import DAY_SECONDS, Header
from protocol.documents.campaign import DISCRETE, Fit, build_payload
from protocol.documents.envelope import PAYLOAD_TYPES, SigningKey, seal
from protocol.documents.masked_terms import DIVIDED, RECORD, MaskedTerms
from protocol.documents.node_terms import NodeTerms
from protocol.features import Categorical
from protocol.nodes.node_list import build_node_list
from protocol.schema import Label, build_schema

GROUP = 32


def main() -> int:
    """Measure every number of parties and print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.masked.joins")
    parser.add_argument("--parties", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--changes", type=int, default=20)
    chosen = parser.parse_args()
    print("parties  what    keys mean  most  list of all, MB  new keys, KB  seconds  groups of 32: keys  noise")
    for parties in chosen.parties:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), parties, chosen.changes)
    return 0


def measure(folder: Path, parties: int, changes: int) -> None:
    """Print the cost of a setup, and of joins and leaves in turn, for this number of parties."""
    now = int(time.time())
    workspace = create_workspace(folder / "work", name="bench", now=now)
    signers = [each.open() for each in workspace.signing_keys("campaign")]
    generator = random.Random(parties)
    keys = [SigningKey.from_seed(generator.randbytes(32)).public for _ in range(parties + changes)]

    def header(name: str, version: int) -> Header:
        return Header(name, version, now, now, now + 30 * DAY_SECONDS)

    def listed(nodes: list[bytes], version: int) -> bytes:
        return seal(PAYLOAD_TYPES["nodes"], build_node_list(header("all", version), nodes), signers)

    with Dealer.create(folder / "dealer", modulus=new_modulus()) as dealer:
        terms = MaskedTerms(
            dealer.public.key, dealer.public.modulus, DIVIDED, 0, 800_000, 0, parties + changes, RECORD, 40
        )
        payload = build_payload(
            header("bench", 1),
            build_schema(Label("label", ["a", "b"]), [Categorical("f", ["x", "y"])]),
            (),
            epsilon_micro=1_000_000,
            purpose="to be measured",
            contact="nobody",
            time_precision=DAY_SECONDS,
            min_batch_size=1,
            fit=Fit(DISCRETE, "posterior", 0),
            nodes=NodeTerms("all", 1000, 1_000_000),
            masked=terms,
        )
        campaign = seal(PAYLOAD_TYPES["campaign"], payload, signers)
        nodes = keys[:parties]
        begun = time.perf_counter()
        made = dealer.setup(campaign, listed(nodes, 1), workspace.root_bytes)
        report(parties, "setup", [parties], len(made.raw), time.perf_counter() - begun)
        costs: dict[str, list[tuple[int, float]]] = {"join": [], "leave": []}
        for change in range(2 * changes):
            kind = "join" if change < changes else "leave"
            if kind == "join":
                nodes = [*nodes, keys[parties + change]]
            else:
                leaver = generator.randrange(len(nodes))
                nodes = nodes[:leaver] + nodes[leaver + 1 :]
            document = listed(nodes, change + 2)
            begun = time.perf_counter()
            made = dealer.rekey(campaign, document, workspace.root_bytes)
            costs[kind].append((len(made.joined) + len(made.changed), time.perf_counter() - begun))
    for kind, each in costs.items():
        report(parties, kind, [count for count, _ in each], len(made.raw), median(seconds for _, seconds in each))


def report(parties: int, kind: str, counts: list[int], size: int, seconds: float) -> None:
    """Print one row. ``counts``: keys that changed in each act; ``size`` of the book in bytes."""
    each = size / parties
    groups = max(1, parties // GROUP)
    print(
        f"{parties:7d}  {kind:6s}  {mean(counts):9.2f}  {max(counts):4d}  {size / 1e6:15.3f}"
        f"  {mean(counts) * each / 1e3:12.2f}  {seconds:7.3f}  {min(GROUP, parties):18d}  x{groups**0.5:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
