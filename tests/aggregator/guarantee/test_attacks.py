"""Lies through real bytes and tally never move an estimate further than is said.

All attacks: benchmarks/guarantees/attacks.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.guarantee.manipulation import manipulation
from benchmarks.guarantees import attacks

DEVICES, SHARE = 300, 0.05


def parts(mechanism, fleet, kind, seed):
    """Moves of one attack, over their bounds."""
    rng = np.random.default_rng(seed)
    campaign = attacks.campaign_of(mechanism, "1", 1)
    after, before = attacks.attacked(
        campaign, attacks.fleet_rows(campaign, DEVICES, rng), attacks.Attack(kind, fleet, SHARE), rng
    )
    moved = attacks.moves(attacks.counted(campaign, after), attacks.counted(campaign, before))
    bounds = manipulation(campaign, (SHARE,), DEVICES)
    return [move / getattr(bound, fleet)[SHARE] for move, bound in zip(moved, bounds, strict=True)]


@pytest.mark.parametrize("fleet", attacks.FLEETS)
@pytest.mark.parametrize("mechanism", ["direct", "oue", "she", "bits", "laplace"])
def test_no_attack_moves_an_estimate_further_than_is_said(mechanism, fleet):
    found = [max(parts(mechanism, fleet, kind, seed)) for seed, kind in enumerate(attacks.KINDS)]
    assert max(found) <= 1
    assert max(found) > 0.05  # the attacks do move something


def test_an_attack_beyond_the_bound_would_be_seen():
    rng = np.random.default_rng(1)
    campaign = attacks.campaign_of("direct", "1", 1)
    rows = attacks.fleet_rows(campaign, DEVICES, rng)
    after, before = attacks.attacked(campaign, rows, attacks.Attack("target", "closed", 0.5), rng)
    moved = attacks.moves(attacks.counted(campaign, after), attacks.counted(campaign, before))
    assert max(m / b.closed[0.01] for m, b in zip(moved, manipulation(campaign), strict=True)) > 5
