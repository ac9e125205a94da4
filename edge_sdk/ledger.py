"""The ledger: what every answered period cost, in whole millionths of ε, for the life of the device.

A line is never changed or removed. Besides the lines there is, per campaign, the newest answered period
with the bytes that were said then: every later call for that period, or for an earlier one, gets those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.state import checked, damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_sdk.state import State
    from protocol.campaign import Campaign

BEFORE_RESET = 0
"""Campaign number of the line that stands for a state that was lost: all that it might have spent."""


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


class Ledger:
    """Reads and writes of the ledger. Methods that write are called inside a transaction."""

    def __init__(self, state: State) -> None:
        self._state = state

    def newest(self, campaign_id: bytes) -> Newest | None:
        """The newest period that was answered for a campaign."""
        rows = self._state.run(
            "SELECT period, reports FROM newest JOIN campaigns ON number = campaign WHERE id = ?", (campaign_id,)
        )
        for period, reports in rows:
            return Newest(checked(period, int), checked(reports, bytes))
        return None

    def paid_until(self, name: str) -> int:
        """When the last period that was paid for under a campaign's name ends, in seconds since 1970; 0 if none was.

        All versions of the name count, whatever the length of their periods, and for ever.
        """
        ((until,),) = self._state.run(
            "SELECT coalesce(max((period + 1) * time_precision), 0) FROM newest JOIN campaigns ON number = campaign"
            " WHERE name = ?",
            (name,),
        )
        return checked(until, int)

    def check(self) -> None:
        """Look whether all lines are there and add up: a line less would be ε that is forgotten.

        Raises:
            StorageError: ``state_damaged``.
        """
        ((lines, last, least, total, stated),) = self._state.run(
            "SELECT count(*), coalesce(max(sequence), 0), coalesce(min(epsilon_micro), 1),"
            " coalesce(sum(epsilon_micro), 0), coalesce(max(total_micro), 0) FROM ledger"
        )
        ((unpaid,),) = self._state.run(  # one walk over the ledger, however many campaigns there were
            "SELECT (SELECT count(*) FROM newest) - (SELECT count(DISTINCT newest.campaign)"
            " FROM ledger CROSS JOIN newest ON newest.campaign = ledger.campaign AND newest.period = ledger.period"
            " WHERE typeof(newest.period) = 'integer')"
        )
        whole = type(total) is int and type(stated) is int and type(least) is int
        if not whole or lines != last or least < 1 or total != stated or unpaid:
            raise damaged()

    def spent_micro(self) -> int:
        """Everything this device ever spent, in millionths of ε."""
        for (total,) in self._state.run("SELECT total_micro FROM ledger ORDER BY sequence DESC LIMIT 1"):
            return checked(total, int)
        return 0

    def spent_around(self, time: int, seconds: int) -> int:
        """What was spent less than some seconds before a time, or after it, in millionths of ε.

        Lines after it are those of a clock that was corrected. What a leap spent years ahead does not count
        against every day until then.
        """
        statement = (
            "SELECT coalesce(sum(epsilon_micro), 0) FROM ledger"
            " WHERE answered_at > ? AND answered_at < ? AND campaign <> ?"
        )
        ((total,),) = self._state.run(statement, (time - seconds, time + seconds, BEFORE_RESET))
        return checked(total, int)

    def spend(self, campaign: Campaign, period: int, answered_at: int, reports: bytes) -> tuple[int, int]:
        """Write a line and the period's bytes. Earlier periods keep their cost and lose their bytes.

        Returns:
            the line's number, which rises by one, and the campaign's number in this state.
        """
        number = self._number(campaign)
        line = self._line(number, period, campaign.epsilon_micro, answered_at)
        self._state.run("INSERT OR REPLACE INTO newest VALUES (?, ?, ?)", (number, period, reports))
        return line, number

    def count_as_spent(self, micro: int, now: int) -> None:
        """The first line after a reset: what the lost state may have spent."""
        self._line(BEFORE_RESET, 0, micro, now)

    def _line(self, number: int, period: int, micro: int, answered_at: int) -> int:
        line, total = 0, 0
        for last, spent in self._state.run("SELECT sequence, total_micro FROM ledger ORDER BY sequence DESC LIMIT 1"):
            line, total = checked(last, int), checked(spent, int)
        if total < 0 or micro < 1:
            raise damaged()
        values = (line + 1, number, period, micro, answered_at, total + micro)
        self._state.run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)", values)
        return line + 1

    def _number(self, campaign: Campaign) -> int:
        """The short number that this state knows a campaign by, from 1."""
        for (number,) in self._state.run("SELECT number FROM campaigns WHERE id = ?", (campaign.id,)):
            return checked(number, int)
        header = campaign.header
        ((number,),) = self._state.run(
            "INSERT INTO campaigns (id, name, version, time_precision) VALUES (?, ?, ?, ?) RETURNING number",
            (campaign.id, header.name, header.version, campaign.time_precision),
        )
        return checked(number, int)

    def history(self) -> Iterator[Answered]:
        """Every line, oldest first."""
        rows = self._state.run(
            "SELECT coalesce(name, ''), coalesce(version, 0), coalesce(id, x''), period,"
            " period * coalesce(time_precision, 0), answered_at, epsilon_micro"
            " FROM ledger LEFT JOIN campaigns ON number = campaign ORDER BY sequence"
        )
        kinds = (str, int, bytes, int, int, int, int)
        for row in rows:
            if tuple(map(type, row)) != kinds:
                raise damaged()
            yield Answered(*row)
