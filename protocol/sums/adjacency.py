"""Which data sets are neighbours, and by how much the sums over records of two neighbours differ at most.

    vector                                  add-remove   change   change-features
    counts of the classes                   1            2        0
    counts of value × class                 1            2        2
    counts of present/missing × class       1            2        2
    sums of u by class, |u| ≤ S             S            2S       2S
    sums of ⌊u²/S⌋ by class                 S            2S       S

Source: Dwork, McSherry, Nissim, Smith (TCC 2006); docs/math.md, sections 5 and 7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol import SCALE
from protocol.questions import CELL, CLASS, MOMENT, PRESENT, SQUARE

if TYPE_CHECKING:
    from collections.abc import Mapping

ADD_REMOVE, CHANGE, CHANGE_FEATURES = "add-remove", "change", "change-features"
ADJACENCIES = (ADD_REMOVE, CHANGE, CHANGE_FEATURES)
"""Which data sets are neighbours, which differential privacy makes hard to tell apart.

``add-remove``: one record more; the number of records is not public. ``change``: one record is replaced; the number of
records is public. ``change-features``: the features of one record are replaced, its label stays; the sizes of the
classes are public.
"""

_COUNTS = {ADD_REMOVE: 1, CHANGE: 2, CHANGE_FEATURES: 2}
SENSITIVITIES: Mapping[tuple[str, int | None], Mapping[str, int]] = {
    (CLASS, None): {ADD_REMOVE: 1, CHANGE: 2, CHANGE_FEATURES: 0},
    (CELL, None): _COUNTS,
    (PRESENT, None): _COUNTS,
    (MOMENT, 1): {ADD_REMOVE: SCALE, CHANGE: 2 * SCALE, CHANGE_FEATURES: 2 * SCALE},
    (MOMENT, SQUARE): {ADD_REMOVE: SCALE, CHANGE: 2 * SCALE, CHANGE_FEATURES: SCALE},
}
"""Kind and power of a subject → adjacency → L1 sensitivity of its sums over records, in counts or units of 1/S."""
