"""What all lines of the ledger say together, kept in memory so that a report reads only the lines that are new.

It follows from the lines, and is dropped where they are not those that it came from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge_sdk.storage.ledger import Known, Line

_SPARE = 2
"""A window keeps lines for so many times its length: a clock that goes back a little finds them."""


class Tally:
    """Sums and newest periods up to a line.

    Attributes:
        era: the state's number when it was read; another one makes it void.
        turn: the state's transaction in which it was last brought up to date.
        newest: the line that it goes up to.
        campaigns: id → what is known of a campaign that was ever answered.
        ends: name → when the last period that was paid for under it ends, in seconds since 1970.
    """

    def __init__(self, era: int, newest: Line, campaigns: Iterable[Known]) -> None:
        self.era = era
        self.turn = 0
        self.newest = newest
        self.campaigns: dict[bytes, Known] = {}
        self.ends: dict[str, int] = {}
        self._windows: dict[int, _Window] = {}
        for known in campaigns:
            self._know(known)

    def _know(self, known: Known) -> None:
        self.campaigns[known.id] = known
        end = (known.period + 1) * known.time_precision
        self.ends[known.name] = max(end, self.ends.get(known.name, 0))

    def add(self, line: Line, payer: Known | None) -> None:
        """The next line, and the campaign that it paid for as it is now; None if it paid for none."""
        self.newest = line
        if payer is not None:
            self._know(payer)
            for window in self._windows.values():
                window.add(line)

    def covers(self, seconds: int, time: int) -> bool:
        """Whether :meth:`spent_around` is known."""
        window = self._windows.get(seconds)
        return window is not None and window.start <= time - seconds

    def cover(self, seconds: int, time: int, backward: Iterable[Line]) -> None:
        """Take note of the lines, newest first, that count around a time or somewhat earlier."""
        window = self._windows[seconds] = _Window(seconds, time - _SPARE * seconds)
        for line in backward:
            if line.latest <= window.start:
                break
            if line.campaign:
                window.add(line)

    def spent_around(self, seconds: int, time: int) -> int:
        """What lines cost that are less than some seconds away from a time, in millionths of ε."""
        return self._windows[seconds].spent_around(time)


class _Window:
    """Times and costs of the lines after a time, in the order of times."""

    def __init__(self, seconds: int, start: int) -> None:
        self.start = start
        self._seconds = seconds
        self._times: list[int] = []
        self._costs: list[int] = []

    def add(self, line: Line) -> None:
        place = bisect_right(self._times, line.answered_at)
        if line.answered_at > self.start:
            self._times.insert(place, line.answered_at)
            self._costs.insert(place, line.epsilon_micro)

    def spent_around(self, time: int) -> int:
        """Lines that are too old for this time and somewhat earlier ones are forgotten, half of all at once."""
        old = bisect_right(self._times, time - _SPARE * self._seconds)
        if 2 * old > len(self._times):
            self.start = time - _SPARE * self._seconds
            del self._times[:old], self._costs[:old]
        first = bisect_right(self._times, time - self._seconds)
        return sum(self._costs[first : bisect_left(self._times, time + self._seconds)])
