"""How often a value of a record had no meaning for a campaign, since the program started.

Whether a device reports must not depend on its record, so what has no meaning counts as missing without a word.
These counts are the owner's way to see it. They name features and never values, are kept in memory only, and
leave the device just if the application sends them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from protocol.documents.campaign import Campaign
    from protocol.schema import Check

MOST_CAMPAIGNS = 64
"""Names that are counted at a time; the one that was answered least recently goes first."""


class Unread(NamedTuple):
    """What the answered records of one campaign lacked.

    Attributes:
        campaign: its name.
        records: that were answered about since the program started.
        missing: feature (or label) → of how many records it was missing.
        unlisted: feature (or label) → in how many records it held what has no meaning.
    """

    campaign: str
    records: int
    missing: dict[str, int]
    unlisted: dict[str, int]


class _Counts:
    def __init__(self, identifier: bytes) -> None:
        self.id = identifier
        self.records = 0
        self.missing: Counter[str] = Counter()
        self.unlisted: Counter[str] = Counter()


class Meanings:
    """Counts by campaign and feature. Used inside the state's transactions, so by one thread at a time."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    def add(self, campaign: Campaign, check: Check) -> None:
        """One more record was answered about. Another version of a campaign begins anew."""
        name = campaign.header.name
        counts = self._counts.pop(name, None)
        if counts is None or counts.id != campaign.id:
            counts = _Counts(campaign.id)
        self._counts[name] = counts
        counts.records += 1
        counts.missing.update(check.missing)
        counts.unlisted.update(check.unlisted)
        while len(self._counts) > MOST_CAMPAIGNS:
            del self._counts[next(iter(self._counts))]

    def of(self, names: Iterable[str]) -> tuple[Unread, ...]:
        """The counts of campaigns, in the order of their names."""
        found = ((name, self._counts.get(name)) for name in sorted(names))
        return tuple(
            Unread(name, each.records, dict(each.missing), dict(each.unlisted)) for name, each in found if each
        )

    def clear(self) -> None:
        """Forget them."""
        self._counts.clear()
