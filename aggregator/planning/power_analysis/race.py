"""The race of several designs: simulated campaigns go to the designs that may be the best.

Every design starts with a few campaigns. Then a round gives more of them to the designs with the largest upper ends,
where the upper end is the expected accuracy plus two standard errors of the simulation. A design drops out once the
first one is ahead by two standard errors. Only the noise of the simulation counts here: what the choice of the pilot's
records adds, no further campaign takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, hypot, sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from aggregator.planning.power_analysis.designs import Design
    from aggregator.planning.power_analysis.rehearsal import Rehearsal


FIRST, MORE = 10, 20
"""Simulated campaigns of every design at the start, and of a chosen design in each round."""
CHOSEN = 4
"""Designs that a round gives more campaigns."""
ROUNDS = 14
SURE = 2.0
"""Standard errors by which the first design must be ahead of a design that drops out."""
FINE = 0.005
"""Standard error of a design's accuracy, from the simulation alone, at which it gets no more campaigns."""


def race(running: Mapping[Design, Rehearsal], step: Callable[[], None]) -> None:
    """Simulate campaigns of all designs until the first one is clear, or :data:`ROUNDS` rounds are over.

    Args:
        running: design → its rehearsal, which the race extends.
        step: called after the start, and then :data:`ROUNDS` times.

    Raises:
        InputError: a campaign makes no model (:meth:`aggregator.planning.power_analysis.rehearsal.Rehearsal.run`).
    """
    for rehearsal in running.values():
        rehearsal.run(max(2, _per_fold(rehearsal, FIRST)))
    step()
    for _ in range(ROUNDS):
        for design in _open(running)[:CHOSEN]:
            running[design].run(_per_fold(running[design], MORE))
        step()


def _open(running: Mapping[Design, Rehearsal]) -> list[Design]:
    """The designs that may be the best and are not known well enough, by falling upper end. Empty if all is clear."""
    found = {design: rehearsal.forecast() for design, rehearsal in running.items()}
    leader = max(found, key=lambda design: found[design].accuracy)
    first = found[leader]
    near = [
        design
        for design, one in found.items()
        if design == leader or first.accuracy - one.accuracy < SURE * hypot(first.noise, one.noise)
    ]
    if near == [leader]:
        return []
    wanting = [design for design in near if found[design].noise > FINE]
    return sorted(wanting, key=lambda design: -(found[design].accuracy + SURE * found[design].noise))


def _per_fold(rehearsal: Rehearsal, campaigns: int) -> int:
    return ceil(campaigns / rehearsal.folds)


def behind(first: Rehearsal, other: Rehearsal) -> tuple[float, float]:
    """The first rehearsal's accuracy minus the other's on the same records, and its standard error."""
    if first is other:
        return 0.0, 0.0
    away = first.by_record - other.by_record
    away = away[np.isfinite(away)]
    noise = first.forecast().noise ** 2 + other.forecast().noise ** 2
    return float(away.mean()), sqrt(float(away.var()) / len(away) + noise)
