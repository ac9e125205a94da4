"""Parse periods of a campaign, given by number or date, and print them with number and date.

Periods are numbered from 1970 in steps of the campaign's ``time_precision``. Dates are in UTC.

    parse_span("2026-11-01..2026-11-30").of(86_400)      # range(20758, 20788)
    parse_span("20758..").of(86_400)                     # from that period on
    parse_span("..").of(86_400)                          # all of them
    parse_start("2026-11-22").period(3_600)              # the period in which that day begins
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from protocol.documents.campaign import Campaign
from protocol.documents.payload import DAY_SECONDS
from protocol.errors import InputError

LAST_PERIOD = (1 << 32) - 1
_LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, where the calendar of ``datetime`` ends."""
_NUMBER = re.compile(r"[0-9]{1,10}")
_DATE = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2})Z?)?")
_EXAMPLES = "for example 2026-11-01..2026-11-30 or 20758..20787"


def period_fault(campaign: Campaign, period: int) -> str | None:
    """Return why no device answers a campaign in a period: ``report_too_late``, ``report_too_early``, or None."""
    if period * campaign.time_precision >= campaign.header.expires:
        return "report_too_late"
    return "report_too_early" if (period + 1) * campaign.time_precision <= campaign.header.not_before else None


class Moment(NamedTuple):
    """What a user wrote as one end of a range of periods: a period's number, a day or a minute (UTC).

    In all methods ``time_precision`` is the number of seconds in a period of the campaign. ``number``: the period's
    number; for a day or minute its first second, counted from 1970. ``lasts``: 0 for a period's number; for a day or
    minute its length in seconds.
    """

    number: int
    lasts: int = 0

    def period(self, time_precision: int) -> int:
        """Return the number of the period that the user wrote, or of the period in which the day or minute begins."""
        return self.number // time_precision if self.lasts else self.number

    def first(self, time_precision: int) -> int:
        """Return the first period of a range that starts here: of a day the first period that begins in or after it."""
        if self.lasts == DAY_SECONDS:
            return -(-self.number // time_precision)
        return self.period(time_precision)

    def last(self, time_precision: int) -> int:
        """Return the last period of a range that ends here: of a day or minute the last that begins before its end."""
        if self.lasts:
            return -(-(self.number + self.lasts) // time_precision) - 1
        return self.number


class Span(NamedTuple):
    """A range of periods as a user wrote it: both ends are included; None is an open end."""

    start: Moment | None
    end: Moment | None

    def of(self, time_precision: int) -> range:
        """Return the numbers of the periods in the range. Raises ``periods_absent`` if no period begins in it."""
        low = 0 if self.start is None else self.start.first(time_precision)
        high = LAST_PERIOD if self.end is None else min(self.end.last(time_precision), LAST_PERIOD)
        if not low <= high:
            raise InputError("periods_absent", f"no period of {time_precision} seconds begins in that time")
        return range(low, high + 1)


def parse_span(text: str) -> Span:
    """Parse a range of periods: ``A..B``, ``A..``, ``..B``, ``..`` or ``A``, which is ``A..A``. Both ends are included.

    A and B have the forms of :func:`parse_start`. Raises InputError ``periods_invalid``: another form, or A comes after
    B and both are numbers or both are dates.
    """
    first, dots, last = text.partition("..")
    start = parse_start(first) if first or not dots else None
    end = start if not dots else parse_start(last) if last else None
    both = start is not None and end is not None
    if both and bool(start.lasts) == bool(end.lasts) and start.number > end.number:  # type: ignore[union-attr]
        raise InputError("periods_invalid", "the first period comes after the last")
    return Span(start, end)


def parse_start(text: str) -> Moment:
    """Parse one end of a range: a period's number, a day ``2026-11-22``, or a minute ``2026-11-22T06:00``, UTC.

    A space may replace the T, and a Z may follow the minutes. Raises InputError ``periods_invalid``: the text has none
    of these forms, or is no day of the calendar, a year before 1970, or a number above :data:`LAST_PERIOD`.
    """
    if _NUMBER.fullmatch(text) and int(text) <= LAST_PERIOD:
        return Moment(int(text))
    found = _DATE.fullmatch(text)
    if found is not None:
        day, minute = found.groups()
        try:
            moment = datetime.fromisoformat(f"{day}T{minute or '00:00'}").replace(tzinfo=UTC)
        except ValueError:
            moment = None  # The calendar has no such day, or the day has no such minute.
        if moment is not None and moment.year >= 1970:
            return Moment(int(moment.timestamp()), 60 if minute else DAY_SECONDS)
    raise InputError("periods_invalid", f"periods are numbers or days from 1970 on, {_EXAMPLES}")


def of_campaign(campaign: Campaign, periods: range) -> range:
    """Return those of ``periods`` that the campaign has. Raises ``periods_absent`` if it has none of them."""
    precision, header = campaign.time_precision, campaign.header
    first, end = header.not_before // precision, -(-header.expires // precision)
    common = range(max(first, periods.start), min(end, periods.stop))
    if not common:
        has = f"{shown_range(range(first, end), precision)}, {end - first} in all"
        raise InputError("periods_absent", f"the campaign has none of these periods; it has {has}")
    return common


def begins(period: int, time_precision: int) -> str:
    """Return the start of a period as a date, with the time of day unless it is midnight (UTC).

    The text is empty after the year 9999. ``time_precision`` is the number of seconds in a period.

    >>> begins(20_758, 86_400), begins(498_192, 3_600), begins(498_198, 3_600)
    ('2026-11-01', '2026-11-01', '2026-11-01 06:00')
    """
    seconds = period * time_precision
    if seconds > _LAST_SECOND:
        return ""
    moment = datetime.fromtimestamp(seconds, UTC)
    if seconds % DAY_SECONDS == 0:
        return f"{moment:%Y-%m-%d}"
    return f"{moment:%Y-%m-%d %H:%M}" if seconds % 60 == 0 else f"{moment:%Y-%m-%d %H:%M:%S}"


def shown(period: int, time_precision: int) -> str:
    """Return the number of a period and the date on which it begins; ``time_precision`` is its length in seconds.

    >>> shown(20_758, 86_400)
    '20758 (2026-11-01)'
    """
    date = begins(period, time_precision)
    return f"{period} ({date})" if date else str(period)


def shown_range(periods: range, time_precision: int) -> str:
    """Return the numbers and dates of the first and the last of ``periods``, a range that is not empty.

    ``time_precision`` is the length of a period in seconds.

    >>> shown_range(range(20_758, 20_788), 86_400)
    '20758..20787 (2026-11-01 to 2026-11-30)'
    """
    first, last = begins(periods[0], time_precision), begins(periods[-1], time_precision)
    dates = f" ({first} to {last})" if first and last else ""
    return f"{periods[0]}..{periods[-1]}{dates}"
