"""The ledger: what every answered period cost, in whole millionths of ε, for the life of the device.

A line is never changed or removed, and its digest depends on all lines before it. Besides the lines there is, per
campaign, the newest answered period with the bytes that were said then: every later call for that period, or for an
earlier one, gets those. Each is checked against the other: neither can be missing, or be older, unseen.

What follows from all lines together (``tally``) is remembered: a report reads the lines that came since.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.rows import CAMPAIGNS, LEDGER, Rows, damaged, seal
from edge_sdk.storage.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_sdk.storage.database import State
    from protocol.documents.campaign import Campaign

BEFORE_RESET = 0
"""Campaign number of the line that stands for a state that was lost: all that it might have spent."""
_LAST = (1 << 63) - 1
_RESET = "reset"
"""Kept where the ledger begins with such a line: then it is never empty."""


class Answered(NamedTuple):
    """One line of the history: that something was said, never what.

    Attributes:
        campaign: name; "" for what counts as spent since a state was lost.
        version: of the campaign; 0 likewise.
        id: the campaign's, 32 bytes; empty likewise.
        period: index of time.
        period_start: when the period began, in seconds since 1970.
        answered_at: when the device believed to be when it answered, in seconds since 1970.
        epsilon_micro: what it cost, in millionths of ε.
    """

    campaign: str
    version: int
    id: bytes
    period: int
    period_start: int
    answered_at: int
    epsilon_micro: int


class Line(NamedTuple):
    """A line as it is kept.

    Attributes:
        number: from 1, without gaps.
        campaign: its number in this state; ``BEFORE_RESET``.
        period: index of time.
        epsilon_micro: what it cost.
        answered_at: when the device believed to be.
        latest: the largest ``answered_at`` up to this line.
        total_micro: what all lines up to this one cost.
        seal: digest of the line and of the seal of the line before.
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
    """A campaign that this state has answered: its row, and the newest of the lines that paid for it."""

    number: int
    id: bytes
    name: str
    version: int
    time_precision: int
    line: int
    period: int


class Lines(NamedTuple):
    """What a state has paid for: its campaigns by number, and every line that one of them paid, oldest first."""

    campaigns: tuple[Known, ...]
    paid: tuple[Line, ...]


_NOTHING = Line(0, BEFORE_RESET, 0, 0, 0, 0, 0, b"")
_AT_ONCE = 64
_LINES = f"SELECT {', '.join(LEDGER.columns)}, seal FROM ledger"  # noqa: S608  # names of ours


class Ledger:
    """Reads and writes of the ledger. Methods that write are called inside a transaction.

    All that read raise ``state_damaged`` (a :class:`protocol.errors.StorageError`) where a line or a row is not as
    it was written, or one is missing.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._campaigns = Rows(state, CAMPAIGNS)
        self._tally: Tally | None = None

    def known(self) -> list[Known]:
        """Every campaign that was ever answered, by number.

        The newest line of all must be there: a state whose last lines are hidden would answer again.
        """
        return self._read()[1]

    def _read(self) -> tuple[Line, list[Known]]:
        """The newest line, and every campaign."""
        with self._state.reading():
            found = [Known(*row) for row in self._campaigns.all()]
            newest = self._newest()
        if newest.number != max((each.line for each in found), default=0) and newest.campaign != BEFORE_RESET:
            raise damaged()
        return newest, found

    def _told(self) -> Tally:
        """What all lines say together: what was remembered, and the lines since then.

        Read anew where the newest line that is remembered is not there, or a change was taken back.
        """
        tally, state = self._tally, self._state
        if tally is not None and tally.turn == state.turn > 0:
            return tally
        if tally is None or not self._catch_up(tally):
            tally = self._tally = Tally(state.era, *self._read())
        tally.turn = state.turn
        return tally

    def _catch_up(self, tally: Tally) -> bool:
        """Add the lines since then; False if what is remembered is not what was."""
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
        return True

    def _payer(self, number: int) -> Known | None:
        """The campaign of this number; None for what a reset counted."""
        if number == BEFORE_RESET:
            return None
        for row in self._campaigns.some("WHERE number = ?", (number,)):
            return Known(*row)
        raise damaged()

    def newest(self, campaign_id: bytes) -> Known | None:
        """What is known of a campaign, the newest period that was answered for it among that."""
        with self._state.reading():
            return self._told().campaigns.get(campaign_id)

    def said(self, known: Known) -> bytes:
        """What was said for the newest period of a campaign (never the input); nothing after an opt-out."""
        if self._payer(known.number) != known:
            raise damaged()
        return self._campaigns.body(known.number)

    def paid_until(self, name: str) -> int:
        """When the last period that was paid for under a campaign's name ends, in seconds since 1970; 0 if none was.

        All versions of the name count, whatever the length of their periods, and for ever.
        """
        with self._state.reading():
            return self._told().ends.get(name, 0)

    def forget_answers(self) -> None:
        """Forget what was said; that it was stays. Run when the owner opts out."""
        for each in self.known():
            self._campaigns.replace(each, b"")

    def check(self) -> None:
        """Look at every line: that all are there and add up, and that each campaign's newest is the one it names.

        Raises:
            StorageError: ``state_damaged``.
        """
        newest = {}
        with self._state.reading():
            for line in self._forward():
                if line.campaign == BEFORE_RESET and line.number != 1:
                    raise damaged()
                newest[line.campaign] = line.number, line.period
            newest.pop(BEFORE_RESET, None)
            if newest != {each.number: (each.line, each.period) for each in self.known()}:
                raise damaged()

    def _forward(self) -> Iterator[Line]:
        """Every line, oldest first."""
        before = _NOTHING
        for row in self._state.run(f"{_LINES} ORDER BY number"):
            line = Line(*row)
            _check_line(before, line)
            yield line
            before = line

    def _backward(self) -> Iterator[Line]:
        """Every line, newest first; each is looked at together with the one before it."""
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
        """Everything this device ever spent, in millionths of ε."""
        with self._state.reading():
            return self._told().newest.total_micro

    def last_total(self) -> int:
        """The same by the newest line alone, where other rows are damaged."""
        return self._newest().total_micro

    def spent_around(self, time: int, seconds: int) -> int:
        """What was spent less than some seconds before a time, or after it, in millionths of ε.

        Lines after it are those of a clock that was corrected. What a leap spent years ahead does not count
        against every day until then.
        """
        with self._state.reading():
            tally = self._told()
            if not tally.covers(seconds, time):
                tally.cover(seconds, time, self._backward())
            return tally.spent_around(seconds, time)

    def spend(self, campaign: Campaign, period: int, answered_at: int, reports: bytes) -> tuple[int, int]:
        """Write a line and the period's bytes. Earlier periods keep their cost and lose their bytes.

        Returns:
            the line's number, which rises by one, and the campaign's number in this state.
        """
        tally = self._told()
        known = tally.campaigns.get(campaign.id)
        number = len(tally.campaigns) + 1 if known is None else known.number
        line = self._line(tally.newest, number, period, campaign.epsilon_micro, answered_at)
        header = campaign.header
        row = Known(number, campaign.id, header.name, header.version, campaign.time_precision, line.number, period)
        (self._campaigns.add if known is None else self._campaigns.replace)(row, reports)
        tally.add(line, row)
        return line.number, number

    def lines(self) -> Lines:
        """Every line, looked at as :meth:`check` does, for the ledger that follows this one.

        Raises:
            StorageError: ``state_damaged``.
        """
        with self._state.reading():
            self.check()
            return Lines(tuple(self.known()), tuple(line for line in self._forward() if line.campaign))

    def begin_after_reset(self, micro: int, now: int, old: Lines) -> int:
        """The first lines after a reset: what was spent before, ``micro`` in all, as far as is known for what.

        The lines of the old ledger stay, without what was said: their periods stay paid, and their days.

        Returns:
            the number of the last one.
        """
        unknown = micro - sum(line.epsilon_micro for line in old.paid)
        line = self._line(self._newest(), BEFORE_RESET, 0, unknown, now)
        newest = {}
        for each in old.paid:
            line = self._line(line, each.campaign, each.period, each.epsilon_micro, each.answered_at)
            newest[each.campaign] = line.number
        for known in old.campaigns:
            self._campaigns.add(known._replace(line=newest[known.number]), b"")
        self._state.write_meta(_RESET, b"1")
        return line.number

    def _line(self, before: Line, campaign: int, period: int, micro: int, answered_at: int) -> Line:
        latest, total = max(before.latest, answered_at), before.total_micro + micro
        row = (before.number + 1, campaign, period, micro, answered_at, latest, total)
        line = Line(*row, seal(LEDGER.name, (before.seal, *row)))
        self._state.run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)", line)
        return line

    def history(self) -> list[Answered]:
        """Every line, oldest first."""
        with self._state.reading():
            known = {each.number: each for each in self.known()}
            known[BEFORE_RESET] = Known(BEFORE_RESET, b"", "", 0, 0, 0, 0)
            return [_shown(line, known[line.campaign]) for line in self._forward()]


def _shown(line: Line, payer: Known) -> Answered:
    start = line.period * payer.time_precision
    return Answered(payer.name, payer.version, payer.id, line.period, start, line.answered_at, line.epsilon_micro)


def _check_line(before: Line, line: Line) -> None:
    """See that a line is as it was written, and follows another one."""
    if line.seal != seal(LEDGER.name, (before.seal, *line[:-1])) or line.number != before.number + 1:
        raise damaged()
