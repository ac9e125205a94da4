"""Expiry of new documents: one rule for roots, campaigns, evaluations and models."""

from __future__ import annotations

from protocol.document import DAY_SECONDS, Header
from protocol.errors import InputError

MAX_DAYS = 36_500
"""Longest lifetime, in days, of a campaign that is not an evaluation. No command takes a longer one."""

LEAST_SECONDS = DAY_SECONDS + 1
"""Shortest lifetime, in seconds: a document expires more than a day after its issue (docs/formats.md, section 5)."""


def seconds_of(days: int) -> int:
    """The seconds of a lifetime in days.

    Raises:
        InputError: ``terms_invalid``: ``days`` is no whole number, or less than 1.
    """
    if type(days) is not int or days < 1:
        raise InputError("terms_invalid", "days is a whole number, at least 1")
    return days * DAY_SECONDS


def header_for(name: str, version: int, now: int, lifetime_seconds: int) -> Header:
    """The header of a document that is issued and valid from ``now``.

    Args:
        name, version: name and version of the document.
        now: seconds since 1970.
        lifetime_seconds: time from ``now`` to ``expires``. A lifetime of one day gets one second more, because
            ``issued_at`` + 1 day < ``expires`` in every document.

    Raises:
        InputError: ``terms_invalid``: the lifetime is less than a day.
    """
    if lifetime_seconds < DAY_SECONDS:
        raise InputError("terms_invalid", "a document lives for at least a day, 86400 seconds")
    return Header(name, version, now, now, now + max(lifetime_seconds, LEAST_SECONDS))
