"""The ledger: what every answered period cost, in whole millionths of ε, for the life of the device.

A line is never changed or removed, and its digest depends on all lines before it. Besides the lines there is, per
campaign, the newest answered period with the bytes that were said then: every later call for that period, or for an
earlier one, gets those. Each is checked against the other: neither can be missing, or be older, unseen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.rows import CAMPAIGNS, LEDGER, Rows, damaged, seal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_sdk.storage.database import State
    from protocol.documents.campaign import Campaign

BEFORE_RESET = 0
"""Campaign number of the line that stands for a state that was lost: all that it might have spent."""
_LAST = (1 << 63) - 1
_RESET = "reset"
"""Kept where the ledger begins with such a line: then it is never empty."""


class Newest(NamedTuple):
    """The newest answered period of a campaign, and what was said (never the input)."""

    period: int
    reports: bytes


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

    def known(self) -> list[Known]:
        """Every campaign that was ever answered, by number.

        The newest line of all must be there: a state whose last lines are hidden would answer again.
        """
        found = [Known(*row) for row in self._campaigns.all()]
        newest = self._newest()
        if newest.number != max((each.line for each in found), default=0) and newest.campaign != BEFORE_RESET:
            raise damaged()
        return found

    def newest(self, campaign_id: bytes) -> Newest | None:
        """The newest period that was answered for a campaign."""
        for each in self.known():
            if each.id == campaign_id:
                return Newest(each.period, self._campaigns.body(each.number))
        return None

    def paid_until(self, name: str) -> int:
        """When the last period that was paid for under a campaign's name ends, in seconds since 1970; 0 if none was.

        All versions of the name count, whatever the length of their periods, and for ever.
        """
        ends = ((each.period + 1) * each.time_precision for each in self.known() if each.name == name)
        return max(ends, default=0)

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
        return self._newest().total_micro

    def spent_around(self, time: int, seconds: int) -> int:
        """What was spent less than some seconds before a time, or after it, in millionths of ε.

        Lines after it are those of a clock that was corrected. What a leap spent years ahead does not count
        against every day until then.
        """
        total = 0
        for line in self._backward():
            if line.latest <= time - seconds:
                break
            if time - seconds < line.answered_at < time + seconds and line.campaign != BEFORE_RESET:
                total += line.epsilon_micro
        return total

    def spend(self, campaign: Campaign, period: int, answered_at: int, reports: bytes) -> tuple[int, int]:
        """Write a line and the period's bytes. Earlier periods keep their cost and lose their bytes.

        Returns:
            the line's number, which rises by one, and the campaign's number in this state.
        """
        known = self.known()
        number = next((each.number for each in known if each.id == campaign.id), 0)
        new = not number
        number = number or len(known) + 1
        line = self._line(number, period, campaign.epsilon_micro, answered_at)
        header = campaign.header
        row = Known(number, campaign.id, header.name, header.version, campaign.time_precision, line, period)
        (self._campaigns.add if new else self._campaigns.replace)(row, reports)
        return line, number

    def count_as_spent(self, micro: int, now: int) -> int:
        """The first line after a reset: what the lost state may have spent. Returns its number."""
        line = self._line(BEFORE_RESET, 0, micro, now)
        self._state.write_meta(_RESET, b"1")
        return line

    def _line(self, campaign: int, period: int, micro: int, answered_at: int) -> int:
        before = self._newest()
        latest, total = max(before.latest, answered_at), before.total_micro + micro
        row = (before.number + 1, campaign, period, micro, answered_at, latest, total)
        values = (*row, seal(LEDGER.name, (before.seal, *row)))
        self._state.run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        return before.number + 1

    def history(self) -> Iterator[Answered]:
        """Every line, oldest first."""
        known = {each.number: each for each in self.known()}
        for line in self._forward():
            each = known.get(line.campaign, Known(BEFORE_RESET, b"", "", 0, 0, 0, 0))
            start = line.period * each.time_precision
            yield Answered(each.name, each.version, each.id, line.period, start, line.answered_at, line.epsilon_micro)


def _check_line(before: Line, line: Line) -> None:
    """See that a line is as it was written, and follows another one."""
    if line.seal != seal(LEDGER.name, (before.seal, *line[:-1])) or line.number != before.number + 1:
        raise damaged()
