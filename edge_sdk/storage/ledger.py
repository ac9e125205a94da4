"""Keep the ledger: the cost of every answered period, in whole millionths of ε and 10⁻¹² of δ, for ever.

A line is never changed or removed, and its digest depends on all lines before it. A second table holds, per campaign,
the newest answered period and the bytes of its answer, which an opt-out or a reset deletes. The two are checked against
each other. Sums over all lines (``tally``) are kept in memory, so a report reads only the lines that are new.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.rows import CAMPAIGNS, DELTAS, KEPT, LEDGER, PROMISED, SERIES, Rows, damaged, number_in, seal
from protocol import canonical
from protocol.questions import ADJACENCIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from edge_sdk.storage.database import State
    from edge_sdk.storage.rows import Database
    from edge_sdk.timekeeping import Track
    from protocol.documents.campaign import Campaign

BEFORE_RESET = 0
"""Campaign number of the line that a reset writes. Its ε is what counts as spent besides the old lines that are
kept."""
_SPARE = 2
"""A window keeps lines in memory for this many times its length, for a clock that goes back a little."""


class Line(NamedTuple):
    """A stored line of the ledger: one answered period, or the cost that a reset counted.

    Attributes:
        number: running number from 1, without gaps.
        campaign: the campaign's number in this state, or ``BEFORE_RESET``.
        period: index of the period since 1970.
        epsilon_micro: the cost, in millionths of ε.
        answered_at: the device's time of the answer, in seconds since 1970.
        latest: the largest ``answered_at`` up to this line.
        total_micro: the cost of all lines up to this line, in millionths of ε.
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


class Payer(NamedTuple):
    """A campaign that this state has answered.

    ``line`` and ``period`` are number and period of its newest ledger line.
    """

    number: int
    id: bytes
    name: str
    version: int
    time_precision: int
    line: int
    period: int


class Lines(NamedTuple):
    """A copy of a ledger: its campaigns by number, every line of a campaign, oldest first, and the answered series.

    ``series``: name → number of the line that answered it. ``adjacency``: the adjacency whose ε a node's lines count;
    None for a device. ``deltas``: number of a line → its δ, if it has one.
    """

    campaigns: tuple[Payer, ...]
    paid: tuple[Line, ...]
    series: Mapping[str, int] = MappingProxyType({})
    adjacency: str | None = None
    deltas: Mapping[int, int] = MappingProxyType({})


class Deltas:
    """Reads and writes the δ of ledger lines; few have one. To write, the caller must have opened a transaction."""

    def __init__(self, state: Database) -> None:
        self._rows = Rows(state, DELTAS)

    def by_line(self) -> dict[int, int]:
        """Return number of the ledger line → δ in 10⁻¹², for all lines with a δ above 0, sorted."""
        total, found = 0, {}
        for line, pico, upto in self._rows.all():
            total += pico
            if pico < 1 or upto != total:
                raise damaged()
            found[line] = pico
        return found

    def spent_pico(self) -> int:
        """Return the δ of all lines together, in 10⁻¹²."""
        return sum(self.by_line().values())

    def add(self, line: int, pico: int) -> None:
        """Store ``pico``, the δ in 10⁻¹² of the newest ledger line, number ``line``, unless it is 0."""
        if pico:
            self._rows.add((line, pico, self.spent_pico() + pico))


class Tally:
    """Sums of the ledger's lines up to ``newest``, and the newest answered period of each campaign.

    Attributes:
        era: ``State.era`` when the tally was read; a tally of another era is void.
        turn: ``State.turn`` when the tally was last brought up to date; 0 if no transaction was open.
        newest: the last line of the tally.
        campaigns: id of each campaign that was ever answered → its row.
        ends: name of a campaign → when its last paid period ends, in seconds since 1970.
        series: name of each series that was answered → number of the line of that answer.
    """

    def __init__(self, era: int, newest: Line, campaigns: Iterable[Payer], series: dict[str, int]) -> None:
        self.era = era
        self.turn = 0
        self.newest = newest
        self.campaigns: dict[bytes, Payer] = {}
        self.ends: dict[str, int] = {}
        self.series = series
        self._windows: dict[int, _Window] = {}
        for known in campaigns:
            self._add_campaign(known)

    def _add_campaign(self, known: Payer) -> None:
        self.campaigns[known.id] = known
        end = (known.period + 1) * known.time_precision
        self.ends[known.name] = max(end, self.ends.get(known.name, 0))

    def add(self, line: Line, payer: Payer | None) -> None:
        """Count the next ``line``. ``payer`` is the row of the line's campaign; None for the line of a reset."""
        self.newest = line
        if payer is not None:
            self._add_campaign(payer)
            for window in self._windows.values():
                window.add(line)

    def spent_around(self, seconds: int, time: int, track: Track | None, backward: Iterable[Line]) -> int:
        """Return the ε answered less than ``seconds`` before or after ``time``.

        ``backward`` gives all lines, newest first. It is read at the first call, and if a clock was set back by much.
        """
        since, window = time - (0 if track is None else track.reach), self._windows.get(seconds)
        if window is None or window.start > since - seconds:
            window = self._windows[seconds] = _Window(seconds, since - _SPARE * seconds)
            for line in backward:
                if line.latest <= window.start:
                    break
                if line.campaign:
                    window.add(line)
        return window.spent_around(time, track)


class _Window:
    """Times and costs of the ledger lines after the time ``start``, sorted by time."""

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
        """Return the cost of ledger lines less than the window's length from ``time``. Drop much older lines."""
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


_LAST = (1 << 63) - 1
_SERIES_AFTER = "series_after"
"""Key of the time of the last reset, in seconds since 1970. Series that begin until then are not answered."""
_RESET = "reset"
"""Key of the note that the ledger begins with the line of a reset. With this note, an empty ledger is damage."""
_ADJACENCY = "adjacency"
"""Key of the adjacency whose ε a node's ledger counts, written with the line of the first summary."""


class Answered(NamedTuple):
    """One line of the history: an answered period and its cost, without the answer.

    Attributes:
        campaign: name of the campaign; "" for the cost that a reset counted.
        version: version of the campaign; 0 for a reset.
        id: id of the campaign, 32 bytes; empty for a reset.
        period: index of the period since 1970.
        period_start: when the period began, in seconds since 1970.
        answered_at: the device's time of the answer, in seconds since 1970.
        epsilon_micro: the cost, in millionths of ε.
        series: name of the series whose single answer this is; "" if the campaign has no series.
        delta_pico: the δ of the answer in 10⁻¹²; 0 for all but masked campaigns with diluted noise and shared ones with
            Gaussian noise.
    """

    campaign: str
    version: int
    id: bytes
    period: int
    period_start: int
    answered_at: int
    epsilon_micro: int
    series: str = ""
    delta_pico: int = 0


_NOTHING = Line(0, BEFORE_RESET, 0, 0, 0, 0, 0, b"")
_AT_ONCE = 64
_LINES = f"SELECT {', '.join(LEDGER.columns)}, seal FROM ledger"  # noqa: S608  # names of this software


class Ledger:
    """Reads and writes the ledger (what was spent). To write, the caller must have opened a transaction.

    Methods that read raise ``state_damaged`` (a :class:`protocol.errors.StorageError`) if a line or a row that they
    read was changed or is missing, and the errors of :class:`edge_sdk.storage.database.State`.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._campaigns = Rows(state, CAMPAIGNS)
        self._series = Rows(state, SERIES)
        self.deltas = Deltas(state)
        self._tally: Tally | None = None

    def known(self) -> list[Payer]:
        """Return every campaign that was ever answered, sorted by number.

        Raise ``state_damaged`` if the newest line of all campaigns is missing: the state would answer again.
        """
        return self._read()[1]

    def _read(self) -> tuple[Line, list[Payer], dict[str, int]]:
        """Return the newest line, every campaign's row, and name → line number of every series."""
        with self._state.reading():
            found = [Payer(*row) for row in self._campaigns.all()]
            newest, series = self._newest(), dict(self._series.all())
        if newest.number != max((each.line for each in found), default=0) and newest.campaign != BEFORE_RESET:
            raise damaged()
        if not all(1 <= line <= newest.number for line in series.values()):
            raise damaged()
        return newest, found, series

    def _current_tally(self) -> Tally:
        """Return the sums of all lines; they are read anew if a change was rolled back."""
        tally, state = self._tally, self._state
        if tally is not None and tally.turn == state.turn > 0:
            return tally
        if tally is None or not self._catch_up(tally):
            tally = self._tally = Tally(state.era, *self._read())
        tally.turn = state.turn
        return tally

    def _catch_up(self, tally: Tally) -> bool:
        """Add newer lines to a tally. Return False if the tally does not belong to the present ledger."""
        last = tally.newest
        found = self._state.run(f"{_LINES} WHERE number >= ? ORDER BY number", (last.number,))
        lines = [_NOTHING] * (last == _NOTHING) + [Line(*row) for row in found]
        if tally.era != self._state.era or lines[:1] != [last]:
            return False
        for before, line in pairwise(lines):
            _check_line(before, line)
            payer = self._payer(line.campaign)
            if payer is not None and payer.line < line.number:
                raise damaged()
            tally.add(line, payer)
        if len(lines) > 1:
            tally.series.update(self._series.some("WHERE line > ?", (last.number,)))
        return True

    def _payer(self, number: int) -> Payer | None:
        """Return the row of the campaign with this number; None for :data:`BEFORE_RESET`, the number of a reset."""
        if number == BEFORE_RESET:
            return None
        for row in self._campaigns.some("WHERE number = ?", (number,)):
            return Payer(*row)
        raise damaged()

    def newest(self, campaign_id: bytes) -> Payer | None:
        """Return the stored row of a campaign, with its newest answered period; None if it was never answered."""
        with self._state.reading():
            return self._current_tally().campaigns.get(campaign_id)

    def said(self, known: Payer) -> bytes:
        """Return the reports, joined, of a campaign's newest answered period; empty if they were deleted."""
        if self._payer(known.number) != known:
            raise damaged()
        return self._campaigns.body(known.number)

    def paid_until(self, name: str) -> int:
        """Return when the last answered period of the campaign ``name`` ends, in seconds since 1970; 0 if none was.

        All versions of the name count for ever, whatever the length of their periods.
        """
        with self._state.reading():
            return self._current_tally().ends.get(name, 0)

    def forget_answers(self) -> None:
        """Delete the bytes of all answers, and what may still be drawn, because the owner opts out. The lines stay."""
        for each in self.known():
            self._campaigns.replace(each, b"")
        for key, (*terms, expires) in self._promises():
            self._state.write_meta(key, canonical.pack([*terms, min(expires, self.latest())]))

    def check(self) -> None:
        """Raise an error unless all lines are there, totals add up, and each campaign names its newest line."""
        newest = {}
        with self._state.reading():
            for line in self._forward():
                if line.campaign == BEFORE_RESET and line.number != 1:
                    raise damaged()
                newest[line.campaign] = line.number, line.period
            newest.pop(BEFORE_RESET, None)
            if newest != {each.number: (each.line, each.period) for each in self.known()}:
                raise damaged()
            if any(number > self._newest().number for number in self.deltas.by_line()):
                raise damaged()

    def _forward(self) -> Iterator[Line]:
        """Yield every line of the ledger, oldest first, and check it."""
        before = _NOTHING
        for row in self._state.run(f"{_LINES} ORDER BY number"):
            line = Line(*row)
            _check_line(before, line)
            yield line
            before = line

    def _backward(self) -> Iterator[Line]:
        """Yield every line of the ledger, newest first. Each is checked against the line before it."""
        after: Line | None = None
        while after is None or after.number > 1:
            bound = _LAST if after is None else after.number
            rows = self._state.run(f"{_LINES} WHERE number < ? ORDER BY number DESC LIMIT ?", (bound, _AT_ONCE))
            if not rows:
                break
            for row in rows:
                line = Line(*row)
                if after is not None:
                    _check_line(line, after)
                    yield after
                after = line
        if after is not None:
            _check_line(_NOTHING, after)
            yield after

    def _newest(self) -> Line:
        rows = [Line(*row) for row in self._state.run(f"{_LINES} ORDER BY number DESC LIMIT 2")]
        newest, before = (*rows, _NOTHING, _NOTHING)[:2]
        if rows:
            _check_line(before, newest)
        elif self._state.meta(_RESET) is not None:
            raise damaged()
        return newest

    def spent_micro(self) -> int:
        """Return the ε that this device ever spent, in millionths, including what a reset counted as spent."""
        with self._state.reading():
            return self._current_tally().newest.total_micro

    def last_total(self) -> int:
        """Return the ε that was ever spent, in millionths, by the newest line. No line before the last two is read."""
        return self._newest().total_micro

    def latest(self) -> int:
        """Return the latest time of an answer or a reset, in seconds since 1970; 0 if the ledger is empty."""
        return self._newest().latest

    def last_line(self) -> int:
        """Return the running number, from 1, of the newest line; 0 if the ledger is empty."""
        with self._state.reading():
            return self._current_tally().newest.number

    def spent_around(self, time: int, seconds: int, track: Track | None = None) -> int:
        """Return the ε of answers given less than ``seconds`` before or after ``time``, in millionths.

        ``time`` is in seconds since 1970. The ε that a reset counted is left out. Answers after ``time`` exist if a
        clock was ahead; they count too, so that no time span of this length holds more than its limit. ``track`` has
        the steps by which the clock was set, over which answers keep their age; None: no steps. Kept answers that
        campaigns with memory, begun at another time, may draw in a span of this length count as if they were drawn.
        """
        with self._state.reading():
            said = self._current_tally().spent_around(seconds, time, track, self._backward())
            return said + self._promised(seconds, time, has_steps=track is not None and bool(track.moves))

    def _promised(self, seconds: int, time: int, *, has_steps: bool) -> int:
        """Return the ε of the kept answers that may be drawn in ``seconds`` around ``time``, in millionths.

        The first ledger line of a campaign with memory has its whole cost. In a span without this line it draws at most
        min(c, ⌊seconds/L⌋ + 2) kept answers, c its renewals and L its stretch in seconds, until it expires. If the
        clock was set (``has_steps``), the line's age is not certain, and both are counted.
        """
        found = 0
        for _, (begun, micro, renewals, lasts, expires) in self._promises():
            if time - seconds < expires and (has_steps or abs(time - begun) >= seconds):
                found += micro * min(renewals, seconds // lasts + 2)
        return found

    def _promises(self) -> list[tuple[str, list[int]]]:
        """Return key and numbers of what each campaign with memory may still draw (:data:`PROMISED`)."""
        found = self._state.all_meta().items()
        return [(key, canonical.unpack(value)) for key, value in found if key.startswith(PROMISED)]

    def answered_in(self, series: str) -> bool:
        """Return whether a campaign of the series (it is answered once in all) with this name was ever answered."""
        with self._state.reading():
            return series in self._current_tally().series

    def series_after(self) -> int | None:
        """Return the time of the last reset; None if there was none. Series that begin until then are not answered."""
        note = self._state.meta(_SERIES_AFTER)
        return None if note is None else number_in(note)

    def delay_series(self, seconds: int, now: int) -> None:
        """Add ``seconds``, by which the clock was behind at the reset, to :meth:`series_after`, up to ``now``."""
        after = self.series_after()
        if after is not None and min(after + seconds, now) > after:
            self._state.write_meta(_SERIES_AFTER, str(min(after + seconds, now)).encode())

    def adjacency(self) -> str | None:
        """Return the adjacency whose ε a node's lines count; None before the first summary, and for a device."""
        stored = self._state.meta(_ADJACENCY)
        if stored is not None and stored.decode(errors="replace") not in ADJACENCIES:
            raise damaged()
        return None if stored is None else stored.decode()

    def fix_adjacency(self, adjacency: str) -> None:
        """Store the adjacency whose ε the lines of this node count. A second call with the same one changes nothing."""
        self._state.write_meta(_ADJACENCY, adjacency.encode())

    def spend(
        self, campaign: Campaign, period: int, answered_at: int, reports: bytes, cost: tuple[int, int]
    ) -> tuple[int, int]:
        """Write the line of an answered period, and its reports, which replace those of the campaign's last period.

        The name of the campaign's series, if any, and what a campaign with memory may still draw, are written too. The
        caller must have checked the period, the series and the owner's limits.

        Args:
            period: index of the period since 1970.
            answered_at: the device's time of the answer, in seconds since 1970.
            cost: ε in millionths, δ in 10⁻¹².

        Returns:
            The line's number, one more than that of the line before, and the campaign's number in this state.
        """
        tally = self._current_tally()
        known = tally.campaigns.get(campaign.id)
        number = len(tally.campaigns) + 1 if known is None else known.number
        line = self._line(tally.newest, number, period, cost, answered_at)
        header = campaign.header
        row = Payer(number, campaign.id, header.name, header.version, campaign.time_precision, line.number, period)
        (self._campaigns.add if known is None else self._campaigns.replace)(row, reports)
        if campaign.series is not None:
            self._series.add((campaign.series.name, line.number))
            tally.series[campaign.series.name] = line.number
        if campaign.memory is not None and cost[0]:
            lasts = campaign.memory.stretch * campaign.time_precision
            promise = [answered_at, campaign.epsilon_micro, campaign.memory.renewals, lasts, header.expires]
            self._state.write_meta(PROMISED + campaign.id.hex(), canonical.pack(promise))
        tally.add(line, row)
        return line.number, number

    def lines(self) -> Lines:
        """Return all campaigns and their checked lines, for a reset to copy.

        The line of an earlier reset is left out.
        """
        with self._state.reading():
            self.check()
            lines = tuple(line for line in self._forward() if line.campaign)
            _, known, series = self._read()
            all_deltas = self.deltas.by_line()
            deltas = {line.number: all_deltas[line.number] for line in lines if line.number in all_deltas}
            return Lines(tuple(known), lines, series, self.adjacency(), deltas)

    def begin_after_reset(self, cost: tuple[int, int], now: int, old: Lines, series_after: int) -> Line:
        """Write the first lines after a reset: one for the cost beyond the old lines, then the lines of the old ledger.

        The bytes of their answers are left out. So their periods are not answered again, and their ε counts in the
        owner's limits. ``cost`` is the ε in millionths and the δ in 10⁻¹² of all these lines together. Series that
        begin until ``series_after``, in seconds since 1970, are not answered. Returns the last line.
        """
        unknown = cost[0] - sum(line.epsilon_micro for line in old.paid), cost[1] - sum(old.deltas.values())
        line = self._line(self._newest(), BEFORE_RESET, 0, unknown, now)
        newest, copied = {}, {}
        for each in old.paid:
            paid = each.epsilon_micro, old.deltas.get(each.number, 0)
            line = self._line(line, each.campaign, each.period, paid, each.answered_at)
            newest[each.campaign] = copied[each.number] = line.number
        for known in old.campaigns:
            self._campaigns.add(known._replace(line=newest[known.number]), b"")
        for name, number in old.series.items():
            self._series.add((name, copied.get(number, line.number)))
        if old.adjacency is not None:
            self.fix_adjacency(old.adjacency)
        self._state.write_meta(_SERIES_AFTER, str(series_after).encode())
        self._state.write_meta(_RESET, b"1")
        return line

    def _line(self, before: Line, campaign: int, period: int, cost: tuple[int, int], answered_at: int) -> Line:
        micro, delta_pico = cost
        latest, total = max(before.latest, answered_at), before.total_micro + micro
        row = (before.number + 1, campaign, period, micro, answered_at, latest, total)
        line = Line(*row, seal(LEDGER.name, (before.seal, *row)))
        self._state.run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)", line)
        self.deltas.add(line.number, delta_pico)
        return line

    def history(self) -> list[Answered]:
        """Return every answered period, oldest first, and the line by which a reset counted ε as spent."""
        with self._state.reading():
            _, campaigns, answered = self._read()
            known = {each.number: each for each in campaigns}
            known[BEFORE_RESET] = Payer(BEFORE_RESET, b"", "", 0, 0, 0, 0)
            series, deltas = {line: name for name, line in answered.items()}, self.deltas.by_line()
            return [
                _shown(line, known[line.campaign], series.get(line.number, ""), deltas.get(line.number, 0))
                for line in self._forward()
            ]


def is_booked(state: State, campaign: Campaign) -> bool:
    """Return whether this device holds an answer of the campaign, which has memory, and so has paid for all of it."""
    return state.meta(KEPT + campaign.id.hex()) is not None


def _shown(line: Line, payer: Payer, series: str, delta: int) -> Answered:
    start, paid = line.period * payer.time_precision, line.epsilon_micro
    return Answered(payer.name, payer.version, payer.id, line.period, start, line.answered_at, paid, series, delta)


def _check_line(before: Line, line: Line) -> None:
    """Raise an error unless a line is unchanged and directly follows the line ``before``."""
    if line.seal != seal(LEDGER.name, (before.seal, *line[:-1])) or line.number != before.number + 1:
        raise damaged()
