"""Lines of the ledger, and sums over all of them, kept in memory so that a report reads only the lines that are new.

A tally follows from the lines, and is dropped when the ledger no longer has these lines.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.rows import DELTAS, Rows, damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Protocol

    from edge_sdk.storage.rows import Database

    class Track(Protocol):
        """The part of :class:`edge_sdk.timekeeping.steps.Track` that sums use."""

        @property
        def reach(self) -> int:
            """Largest number of seconds by which the date of a line may be moved ahead."""

        @property
        def moves(self) -> bool:
            """Whether the date of any line may be moved."""

        def date(self, line: int, answered_at: int, seconds: int) -> int:
            """The date of line number ``line``, in seconds since 1970, for a limit per ``seconds`` seconds."""


BEFORE_RESET = 0
"""Campaign number of the line that a reset writes. The line's ε is what counts as spent beyond the kept old lines."""
_SPARE = 2
"""A window keeps lines for this many times its length, so a clock that goes back a little still finds them."""


class Line(NamedTuple):
    """A stored line.

    Attributes:
        number: from 1, without gaps.
        campaign: the campaign's number in this state, or ``BEFORE_RESET``.
        period: index of the period since 1970.
        epsilon_micro: the cost, in millionths of ε.
        answered_at: the device's time of the answer, in seconds since 1970.
        latest: the largest ``answered_at`` up to this line.
        total_micro: the cost of all lines up to this one.
        seal: digest of the line and of the previous line's seal.
    """

    number: int
    campaign: int
    period: int
    epsilon_micro: int
    answered_at: int
    latest: int
    total_micro: int
    seal: bytes


class Known(NamedTuple):
    """A campaign that this state has answered. ``line`` and ``period`` are of its newest ledger line."""

    number: int
    id: bytes
    name: str
    version: int
    time_precision: int
    line: int
    period: int


class Lines(NamedTuple):
    """The campaigns of a ledger by number, every line of a campaign, oldest first, and the answered series.

    ``series`` maps the name of each series to the number of its line. ``adjacency``: whose ε a node's lines count, or
    None (:meth:`edge_sdk.storage.ledger.Ledger.adjacency`). ``deltas`` maps the number of a line of a
    campaign to its δ, if it has one.
    """

    campaigns: tuple[Known, ...]
    paid: tuple[Line, ...]
    series: Mapping[str, int] = MappingProxyType({})
    adjacency: str | None = None
    deltas: Mapping[int, int] = MappingProxyType({})


class Deltas:
    """The δ of ledger lines, which few lines have. Methods that write are called inside a transaction.

    Methods that read raise ``state_damaged`` (a :class:`protocol.errors.StorageError`) if a row was changed or is
    missing.
    """

    def __init__(self, state: Database) -> None:
        self._rows = Rows(state, DELTAS)

    def by_line(self) -> dict[int, int]:
        """Number of the ledger line → δ in 10⁻¹², for all lines with a δ above 0, sorted."""
        total, found = 0, {}
        for line, pico, upto in self._rows.all():
            total += pico
            if pico < 1 or upto != total:
                raise damaged()
            found[line] = pico
        return found

    def spent_pico(self) -> int:
        """The δ of all lines, in 10⁻¹²."""
        return sum(self.by_line().values())

    def add(self, line: int, pico: int) -> None:
        """Write the δ ``pico``, in 10⁻¹², of the ledger line number ``line``, the newest one. Nothing for 0."""
        if pico:
            self._rows.add((line, pico, self.spent_pico() + pico))


class Tally:
    """Sums of the ledger's lines up to ``newest``, and the newest answered period of each campaign.

    Attributes:
        era: ``State.era`` when the tally was read; a tally of another era is void.
        turn: ``State.turn`` when the tally was last brought up to date; 0 if no transaction was open.
        newest: the last line of the tally.
        campaigns: id → row of a campaign that was ever answered.
        ends: name → when the last paid period of the name ends, in seconds since 1970.
        series: name of each series that was answered → number of the line of that answer.
    """

    def __init__(self, era: int, newest: Line, campaigns: Iterable[Known], series: dict[str, int]) -> None:
        self.era = era
        self.turn = 0
        self.newest = newest
        self.campaigns: dict[bytes, Known] = {}
        self.ends: dict[str, int] = {}
        self.series = series
        self._windows: dict[int, _Window] = {}
        for known in campaigns:
            self._add_campaign(known)

    def _add_campaign(self, known: Known) -> None:
        self.campaigns[known.id] = known
        end = (known.period + 1) * known.time_precision
        self.ends[known.name] = max(end, self.ends.get(known.name, 0))

    def add(self, line: Line, payer: Known | None) -> None:
        """Add ``line``, the next line. ``payer`` is the row of the line's campaign; None for the line of a reset."""
        self.newest = line
        if payer is not None:
            self._add_campaign(payer)
            for window in self._windows.values():
                window.add(line)

    def covers(self, seconds: int, time: int) -> bool:
        """Whether :meth:`spent_around` can be called with these arguments: whether enough lines were read."""
        window = self._windows.get(seconds)
        return window is not None and window.start <= time - seconds

    def cover(self, seconds: int, time: int, backward: Iterable[Line]) -> None:
        """Read the lines that :meth:`spent_around` needs, and some older ones for a clock that is set back.

        Args:
            seconds: length of the owner's limit, for example of a day.
            time: seconds since 1970.
            backward: all lines, newest first; it is read until a line is too old.
        """
        window = self._windows[seconds] = _Window(seconds, time - _SPARE * seconds)
        for line in backward:
            if line.latest <= window.start:
                break
            if line.campaign:
                window.add(line)

    def spent_around(self, seconds: int, time: int, track: Track | None) -> int:
        """The ε of lines answered less than ``seconds`` before or after ``time``, in millionths.

        ``track`` moves the dates of lines over steps of the clock; None moves none. Callers make sure first that
        :meth:`covers` is true.
        """
        return self._windows[seconds].spent_around(time, track)


class _Window:
    """Times and costs of the lines after ``start``, sorted by time."""

    def __init__(self, seconds: int, start: int) -> None:
        self.start = start
        self._seconds = seconds
        self._times: list[int] = []
        self._costs: list[int] = []
        self._numbers: list[int] = []

    def add(self, line: Line) -> None:
        place = bisect_right(self._times, line.answered_at)
        if line.answered_at > self.start:
            self._times.insert(place, line.answered_at)
            self._costs.insert(place, line.epsilon_micro)
            self._numbers.insert(place, line.number)

    def spent_around(self, time: int, track: Track | None) -> int:
        """The cost of lines less than the window's length away. Old lines are dropped if they are over half of all."""
        oldest = time - (0 if track is None else track.reach)
        old = bisect_right(self._times, oldest - _SPARE * self._seconds)
        if 2 * old > len(self._times):
            self.start = oldest - _SPARE * self._seconds
            del self._times[:old], self._costs[:old], self._numbers[:old]
        first = bisect_right(self._times, oldest - self._seconds)
        if track is None or not track.moves:
            return sum(self._costs[first : bisect_left(self._times, time + self._seconds)])
        lines = zip(self._numbers[first:], self._times[first:], self._costs[first:], strict=True)
        return sum(
            cost
            for number, answered_at, cost in lines
            if abs(time - track.date(number, answered_at, self._seconds)) < self._seconds
        )
