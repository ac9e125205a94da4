"""A device keeps every promise if a call to the kernel is its last, is refused, is done in part, or loses power.

A shim under the real interpreter stops at call N of every act, for every N. ``support.faults.lives`` states what must
hold afterwards. Every call is killed and, if it writes, torn and cut short; the failures and the repetition after a
kill take turns over the calls. ``make faults`` goes further: each of these at every call, more random power cuts, and
every fault in a complete life.
"""

from __future__ import annotations

import pytest
from support.faults import nodes, parties, remembered, shares
from support.faults.lives import SCENARIOS
from support.faults.mutations import MUTATIONS
from support.faults.shim import DEEP, OPTIONS, SEEDS, TURNS, WAYS, break_scenario, found_out

pytestmark = pytest.mark.slow

WHOLE = "a whole life"
ACTS = [name for name in SCENARIOS if name != WHOLE]
OF_NODES = list(nodes.SCENARIOS) if DEEP else ["node summarise", "node drain"]
"""A node acknowledges and synchronises as a device does: these acts are always broken for a device alone."""
OF_PARTIES = list(parties.SCENARIOS) if DEEP else ["party encrypt"]
OF_MEMORY = list(remembered.SCENARIOS) if DEEP else ["memory first report"]
OF_SHARES = list(shares.SCENARIOS) if DEEP else ["shared report", "shared drain"]


@pytest.mark.parametrize("name", [*ACTS, *OF_NODES, *OF_PARTIES, *OF_MEMORY, *OF_SHARES])
def test_no_broken_act_breaks_a_promise(shim, name):
    found = break_scenario(shim, name, *OPTIONS)
    assert found["violations"] == []
    calls = found["calls"]
    assert found["broken"]["kill"] == calls + 1
    assert sum(found["broken"][way] for way in TURNS) == calls * (len(TURNS) if DEEP else 1)
    assert 0 < found["broken"]["tear"] < calls


def test_a_whole_life_killed_anywhere(shim):
    found = break_scenario(shim, WHOLE, *SEEDS, "--ways", *((*WAYS, *TURNS) if DEEP else WAYS[:1]))
    assert found["violations"] == []
    assert found["broken"]["kill"] == found["calls"] + 1


MISTAKES = {**MUTATIONS, **nodes.MUTATIONS, **parties.MUTATIONS, **remembered.MUTATIONS, **shares.MUTATIONS}
OF_DEVICES = [
    ("two transactions", "node summarise", "kill"),
    ("less synchronisation", "node summarise", "kill"),
    ("drain forgets", "node drain", "kill"),
    ("two transactions", "shared report", "kill"),
    *([("no flush of folders", "node sync", "kill")] if DEEP else []),
]
"""A device's mistakes that a node's acts find, too."""


@pytest.mark.parametrize(("name", "scenario", "way"), [*((name, *m[:2]) for name, m in MISTAKES.items()), *OF_DEVICES])
def test_a_device_that_is_wrong_is_found_out(shim, name, scenario, way):
    assert found_out(shim, name, scenario, way)
