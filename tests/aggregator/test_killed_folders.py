"""Folders of budgets, dealers, collectors and summaries keep every promise whatever happens to a call to the kernel.

A call is the last one, is refused, is done in part, or loses power. The acts are those of ``support.faults``;
``edge_sdk/test_killed.py`` explains the faults.
"""

from __future__ import annotations

import pytest
from support.faults import collectors, curator, dealers, summaries
from support.faults.shim import DEEP, OPTIONS, SEEDS, TURNS, break_scenario, found_out

pytestmark = pytest.mark.slow

KILLS = (*SEEDS, "--ways", "kill", "--turns", *TURNS)
"""Fewer ways: a dealer's release takes two long powers, and a store's ingest is slow."""
ACTS = [
    *((name, OPTIONS) for name in curator.SCENARIOS),
    *((name, OPTIONS if DEEP else KILLS) for name in (dealers.SCENARIOS if DEEP else ["dealer release"])),
    *((name, KILLS) for name in summaries.SCENARIOS),
    *((name, (*SEEDS, "--ways", "kill", "short", "restart", "EIO")) for name in collectors.SCENARIOS),
]
SLOWLY_FOUND = {"dealer with less synchronisation", "dealer without journal", "dealer with fresh boxes"}
MISTAKES = {**curator.MUTATIONS, **dealers.MUTATIONS, **summaries.MUTATIONS, **collectors.MUTATIONS}


@pytest.mark.parametrize(("name", "options"), ACTS, ids=[name for name, _ in ACTS])
def test_no_broken_act_breaks_a_promise(shim, name, options):
    found = break_scenario(shim, name, *options)
    assert found["violations"] == []
    assert found["broken"]["kill"] == found["calls"] + 1
    assert found["calls"] >= 5


@pytest.mark.parametrize("name", [name for name in MISTAKES if DEEP or name not in SLOWLY_FOUND])
def test_a_mistake_is_found_out(shim, name):
    assert found_out(shim, name, *MISTAKES[name][:2])
