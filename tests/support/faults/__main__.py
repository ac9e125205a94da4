"""``python -m support.faults SCENARIO``: break an act; print findings as JSON.

The shim must be preloaded. Without ``--ways`` nothing is broken; the calls are counted, each a possible kill point.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from support.faults.harness import WAYS, Harness

MODULES = {
    "node": "nodes",
    "party": "parties",
    "shared": "shares",
    "memory": "remembered",
    "budget": "curator",
    "summaries": "summaries",
    "dealer": "dealers",
    "collector": "collectors",
}
"""First word of the name of a scenario or mutation → module. All other names are a device's.

A process imports no other module: each of its some hundred forks costs more, the more it has imported.
"""


def _module(name: str, others: str) -> Any:
    return import_module(f"support.faults.{MODULES.get(name.split(maxsplit=1)[0], others)}")


def main() -> None:
    """Break the scenario, and print what was found."""
    parser = argparse.ArgumentParser(prog="support.faults")
    parser.add_argument("scenario", help="name in SCENARIOS of a module")
    parser.add_argument("--root", type=Path, required=True, help="an empty folder")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=[])
    parser.add_argument("--turns", nargs="*", choices=WAYS, default=[], help="ways that share the calls in turn")
    parser.add_argument("--seeds", type=int, default=1, help="random power cuts per kill point")
    parser.add_argument("--first", action="store_true", help="stop at the first broken promise")
    parser.add_argument("--mutate", help="spoil the software first, to see that this is found")
    chosen = parser.parse_args()
    if chosen.mutate:
        _module(chosen.mutate, "mutations").MUTATIONS[chosen.mutate].spoil()
    module = _module(chosen.scenario, "lives")
    harness = Harness(module.LIFE, module.SCENARIOS[chosen.scenario], chosen.root, chosen.scenario, chosen.seeds)
    print(json.dumps(asdict(harness.run(chosen.ways, chosen.turns, first=chosen.first))))


if __name__ == "__main__":
    main()
