"""``python -m support.faults SCENARIO…``: break acts of a device, curator or aggregator, print the findings as JSON.

The shim must be preloaded. Without ``--ways`` nothing is broken; the calls are counted, each a possible kill point.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from support.faults import curator, summaries
from support.faults.harness import WAYS, Harness
from support.faults.lives import SCENARIOS
from support.faults.mutations import MUTATIONS


def main() -> int:
    """Run the scenarios; exit status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="support.faults")
    parser.add_argument("scenario", nargs="+", choices=[*SCENARIOS, *curator.SCENARIOS, *summaries.SCENARIOS])
    parser.add_argument("--root", type=Path, required=True, help="an empty folder")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=[])
    parser.add_argument("--turns", nargs="*", choices=WAYS, default=[], help="ways that share the calls in turn")
    parser.add_argument("--seeds", type=int, default=1, help="random power cuts per kill point")
    parser.add_argument("--first", action="store_true", help="stop at the first broken promise")
    parser.add_argument("--mutate", choices=[*MUTATIONS, *curator.MUTATIONS, *summaries.MUTATIONS],
                        help="spoil the software first, to see that this is found")  # fmt: skip
    chosen = parser.parse_args()
    if chosen.mutate:
        {**MUTATIONS, **curator.MUTATIONS, **summaries.MUTATIONS}[chosen.mutate]()
    found = {}
    for number, name in enumerate(chosen.scenario):
        root = chosen.root / str(number)
        root.mkdir()
        kinds = {
            **dict.fromkeys(SCENARIOS, Harness),
            **dict.fromkeys(curator.SCENARIOS, curator.CuratorHarness),
            **dict.fromkeys(summaries.SCENARIOS, summaries.AggregatorHarness),
        }
        kind = kinds[name]
        found[name] = asdict(kind(root, name, chosen.seeds).run(chosen.ways, chosen.turns, first=chosen.first))
    print(json.dumps(found))
    return 1 if any(findings["violations"] for findings in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
