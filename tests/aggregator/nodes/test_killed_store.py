"""A store of summaries loses none if a call to the kernel is its last, is refused, is done in part, or loses power.

The acts are those of ``support.faults.summaries``; ``edge_sdk/test_killed.py`` explains the faults.
"""

from __future__ import annotations

import pytest
from support.faults.shim import break_scenario
from support.faults.summaries import MUTATIONS, SCENARIOS

pytestmark = pytest.mark.slow

OPTIONS = ("--seeds", "1", "--ways", "kill", "--turns", "EIO", "ENOSPC", "restart")


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_broken_act_loses_a_summary(shim, name):
    found = break_scenario(shim, name, *OPTIONS)[name]
    assert found["violations"] == []
    assert found["broken"]["kill"] == found["calls"] + 1
    assert found["calls"] >= 5


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_store_that_is_wrong_is_found_out(shim, name):
    found = break_scenario(shim, "summaries contradict", "--ways", "kill", "--first", "--mutate", name)
    assert found["summaries contradict"]["violations"] != []
