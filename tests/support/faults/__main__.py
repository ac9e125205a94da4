"""``python -m support.faults SCENARIO…``: break acts; print findings as JSON.

The shim must be preloaded. Without ``--ways`` nothing is broken; the calls are counted, each a possible kill point.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.faults.harness import WAYS, Harness

if TYPE_CHECKING:
    from types import ModuleType

HARNESSES = {
    "node": ("nodes", "NodeHarness"),
    "party": ("parties", "PartyHarness"),
    "budget": ("curator", "CuratorHarness"),
    "summaries": ("summaries", "AggregatorHarness"),
    "dealer": ("dealers", "DealerHarness"),
}
"""First word of the name of a scenario or mutation → module and class. All other names are a device's.

A process imports no other module: each of its some hundred forks costs more, the more it has imported.
"""


def _module(name: str) -> ModuleType:
    return import_module(f"support.faults.{HARNESSES.get(name.split(maxsplit=1)[0], ('mutations', ''))[0]}")


def _harness(scenario: str) -> type[Harness]:
    module, harness = HARNESSES.get(scenario.split(maxsplit=1)[0], ("harness", "Harness"))
    found: Any = getattr(import_module(f"support.faults.{module}"), harness)
    return found


def main() -> int:
    """Run the scenarios; exit status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="support.faults")
    parser.add_argument("scenario", nargs="+", help="names in SCENARIOS of the modules")
    parser.add_argument("--root", type=Path, required=True, help="an empty folder")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=[])
    parser.add_argument("--turns", nargs="*", choices=WAYS, default=[], help="ways that share the calls in turn")
    parser.add_argument("--seeds", type=int, default=1, help="random power cuts per kill point")
    parser.add_argument("--first", action="store_true", help="stop at the first broken promise")
    parser.add_argument("--mutate", help="spoil the software first, to see that this is found")
    chosen = parser.parse_args()
    if chosen.mutate:
        _module(chosen.mutate).MUTATIONS[chosen.mutate]()
    found = {}
    for number, name in enumerate(chosen.scenario):
        root = chosen.root / str(number)
        root.mkdir()
        harness = _harness(name)(root, name, chosen.seeds)
        found[name] = asdict(harness.run(chosen.ways, chosen.turns, first=chosen.first))
    print(json.dumps(found))
    return 1 if any(findings["violations"] for findings in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
