"""When a new document expires: one rule for roots, campaigns, evaluations and models."""

from __future__ import annotations

from protocol.document import DAY_SECONDS, Header
from protocol.errors import InputError

LEAST_SECONDS = DAY_SECONDS + 1
"""A document outlives the first day after its issue (docs/formats.md, section 5), if by a second."""


def seconds_of(days: int) -> int:
    """A lifetime in days as seconds.

    Raises:
        InputError: ``terms_invalid``: no whole number, or less than 1.
    """
    if type(days) is not int or days < 1:
        raise InputError("terms_invalid", "days is a whole number, at least 1")
    return days * DAY_SECONDS


def header_for(name: str, version: int, now: int, lifetime_seconds: int) -> Header:
    """The header of a document that is issued, and begins, now.

    Args:
        name, version: of the document.
        now: seconds since 1970.
        lifetime_seconds: from ``now`` to ``expires``. Of one day a document gets one second more, since
            ``issued_at`` + 1 day < ``expires`` in every document.

    Raises:
        InputError: ``terms_invalid``: less than a day.
    """
    if lifetime_seconds < DAY_SECONDS:
        raise InputError("terms_invalid", "a document lives for at least a day, 86400 seconds")
    return Header(name, version, now, now, now + max(lifetime_seconds, LEAST_SECONDS))
