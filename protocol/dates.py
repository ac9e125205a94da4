"""Times as dates for people. Computed here, because the date functions of 32-bit systems end in 2038."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 253_402_300_799
_DAY_SECONDS = 86_400
WARNED_SECONDS = 7 * _DAY_SECONDS
"""So long before a document expires its end is announced."""


def date(seconds: int, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Format a time in UTC. A time after the year 9999 becomes the last second of that year.

    Args:
        seconds: since 1970, at least 0.
        form: a format of ``strftime``; the default shows date, time and ``UTC``.

    >>> date(2**32)
    '2106-02-07 06:28:16 UTC'
    """
    return f"{_EPOCH + timedelta(seconds=min(seconds, _LAST)):{form}}"


def expiry_warning(what: str, expires: int, now: int, then: str) -> str:
    """A sentence if a document has expired, or will within a week; else the empty text.

    Args:
        what: the document.
        expires: when its time is over, in seconds since 1970.
        now: the present time, likewise.
        then: what that means, and who does what about it.

    >>> expiry_warning("campaign 'pumps'", 2 * 86_400, 3_600, "devices stop answering")
    "campaign 'pumps' expires at 1970-01-03 00:00:00 UTC, in less than 2 days: devices stop answering"
    """
    if expires > now + WARNED_SECONDS:
        return ""
    days = -((now - expires) // _DAY_SECONDS)
    ahead = "a day" if days == 1 else f"{days} days"
    said = f"expires at {date(expires)}, in less than {ahead}" if now < expires else f"expired at {date(expires)}"
    return f"{what} {said}: {then}"
