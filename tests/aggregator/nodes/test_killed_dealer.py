"""A dealer keeps every promise if a call to the kernel is its last, is refused, is done in part, or loses power.

The acts are those of ``support.faults.dealers``; ``edge_sdk/test_killed.py`` explains the faults.
"""

from __future__ import annotations

import pytest
from support.faults.dealers import MUTATIONS, SCENARIOS
from support.faults.shim import DEEP, SEEDS, TURNS, WAYS, break_scenario

pytestmark = pytest.mark.slow

OPTIONS = (*SEEDS, "--ways", *WAYS, *TURNS) if DEEP else (*SEEDS, "--ways", "kill", "--turns", *TURNS)
"""Without seeds fewer ways: a release takes two long powers, so this harness is slower than others."""


@pytest.mark.parametrize("name", SCENARIOS if DEEP else ["dealer release"])
def test_no_broken_act_breaks_a_promise(shim, name):
    found = break_scenario(shim, name, *OPTIONS)[name]
    assert found["violations"] == []
    assert found["broken"]["kill"] == found["calls"] + 1
    assert found["calls"] >= 5


CAUGHT_BY = {
    "dealer without synchronisation": ("dealer release", "kill"),
    "dealer with less synchronisation": ("dealer release", "kill"),
    "dealer without journal": ("dealer release", "kill"),
    "dealer releases too early": ("dealer release", "kill"),
    "dealer with fresh boxes": ("dealer setup", "restart"),
}
QUICKLY_FOUND = ("dealer without synchronisation", "dealer releases too early")


@pytest.mark.parametrize("name", MUTATIONS if DEEP else QUICKLY_FOUND)
def test_a_dealer_that_is_wrong_is_found_out(shim, name):
    scenario, way = CAUGHT_BY[name]
    assert break_scenario(shim, scenario, "--ways", way, "--first", "--mutate", name)[scenario]["violations"] != []
