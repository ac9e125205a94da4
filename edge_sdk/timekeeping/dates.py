"""Times as dates, for people. Counted here: the functions of 32-bit systems end in 2038, campaigns need not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 253_402_300_799


def date(seconds: int, form: str) -> str:
    """Seconds since 1970, at least 0, in a form of ``strftime``, UTC; what is after the year 9999 is its end.

    >>> date(2**32, "%Y-%m-%d %H:%M")
    '2106-02-07 06:28'
    """
    return f"{_EPOCH + timedelta(seconds=min(seconds, _LAST)):{form}}"
