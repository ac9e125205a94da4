"""``python -m support.faults SCENARIO…``: break acts of a device, node, curator and others; print findings as JSON.

The shim must be preloaded. Without ``--ways`` nothing is broken; the calls are counted, each a possible kill point.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from support.faults import curator, dealers, mutations, nodes, parties, summaries
from support.faults.harness import WAYS, Harness

HARNESSES = (
    Harness,
    nodes.NodeHarness,
    parties.PartyHarness,
    curator.CuratorHarness,
    summaries.AggregatorHarness,
    dealers.DealerHarness,
)
KINDS = {name: kind for kind in HARNESSES for name in kind.scenarios}
"""Name of a scenario → the harness that breaks it."""
MUTATIONS = {
    name: mutate
    for each in (mutations, nodes, parties, curator, summaries, dealers)
    for name, mutate in each.MUTATIONS.items()
}


def main() -> int:
    """Run the scenarios; exit status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="support.faults")
    parser.add_argument("scenario", nargs="+", choices=KINDS)
    parser.add_argument("--root", type=Path, required=True, help="an empty folder")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=[])
    parser.add_argument("--turns", nargs="*", choices=WAYS, default=[], help="ways that share the calls in turn")
    parser.add_argument("--seeds", type=int, default=1, help="random power cuts per kill point")
    parser.add_argument("--first", action="store_true", help="stop at the first broken promise")
    parser.add_argument("--mutate", choices=MUTATIONS, help="spoil the software first, to see that this is found")
    chosen = parser.parse_args()
    if chosen.mutate:
        MUTATIONS[chosen.mutate]()
    found = {}
    for number, name in enumerate(chosen.scenario):
        root = chosen.root / str(number)
        root.mkdir()
        harness = KINDS[name](root, name, chosen.seeds)
        found[name] = asdict(harness.run(chosen.ways, chosen.turns, first=chosen.first))
    print(json.dumps(found))
    return 1 if any(findings["violations"] for findings in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
