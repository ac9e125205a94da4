"""A budget file keeps every promise if a call to the kernel is its last, is refused, is done in part, or loses power.

The acts are those of ``support.faults.curator``; ``edge_sdk/test_killed.py`` explains the faults.
"""

from __future__ import annotations

import pytest
from support.faults.curator import MUTATIONS, SCENARIOS
from support.faults.shim import OPTIONS, break_scenario

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_broken_act_breaks_a_promise(shim, name):
    found = break_scenario(shim, name, *OPTIONS)[name]
    assert found["violations"] == []
    assert found["broken"]["kill"] == found["calls"] + 1
    assert found["calls"] >= 5


CAUGHT_BY = {
    "budget without synchronisation": ("budget spend", "kill"),
    "budget with less synchronisation": ("budget spend", "kill"),
    "budget without journal": ("budget spend", "kill"),
    "budget paid too late": ("budget spend", "kill"),
    "budget file in place": ("budget new", "kill"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_ledger_that_is_wrong_is_found_out(shim, name):
    scenario, way = CAUGHT_BY[name]
    assert break_scenario(shim, scenario, "--ways", way, "--first", "--mutate", name)[scenario]["violations"] != []
