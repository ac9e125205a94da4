"""Times as dates for people. Computed here, because the date functions of 32-bit systems end in 2038."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 253_402_300_799


def date(seconds: int, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Format a time in UTC. A time after the year 9999 becomes the last second of that year.

    Args:
        seconds: since 1970, at least 0.
        form: a format of ``strftime``; the default shows date, time and ``UTC``.

    >>> date(2**32)
    '2106-02-07 06:28:16 UTC'
    """
    return f"{_EPOCH + timedelta(seconds=min(seconds, _LAST)):{form}}"
