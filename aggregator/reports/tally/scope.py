"""The choice of the records that a tally counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aggregator.common.periods import LAST_PERIOD
from protocol.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from aggregator.reports.decoding.columns import Columns


class Scope(NamedTuple):
    """The periods whose records count, perhaps without damaged batches; de-duplication looks at all records first."""

    first: int = 0
    last: int = LAST_PERIOD
    proven_only: bool = False

    @property
    def periods(self) -> str:
        """Return the range of periods as the option ``--periods`` writes it, or ``all``."""
        ends = (str(self.first) if self.first else "", str(self.last) if self.last < LAST_PERIOD else "")
        return "..".join(ends) if any(ends) else "all"

    def chosen(self, records: Columns) -> NDArray[np.bool_] | None:
        """Return which of N records are in this scope, as a mask, (N,) bool; None if all records are."""
        if not records.size:
            return None
        mask = None
        if records.period.min() < self.first or records.period.max() > self.last:
            mask = (records.period >= self.first) & (records.period <= self.last)
        if self.proven_only and not records.proven.all():
            mask = records.proven if mask is None else mask & records.proven
        return mask


EVERYTHING = Scope()


def scope_of(periods: range | None, *, proven_only: bool = False) -> Scope:
    """Return the scope of ``periods``; None for all. Raises ``periods_absent``, ``argument_invalid`` for a step."""
    if periods is None:
        return Scope(proven_only=proven_only)
    if periods.step != 1:
        raise InputError("argument_invalid", "periods follow one another: a range has the step 1")
    if not periods:
        raise InputError("periods_absent", "the range of periods is empty")
    return Scope(periods[0], periods[-1], proven_only)
