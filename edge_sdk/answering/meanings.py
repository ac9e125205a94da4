"""Counts of missing and unlisted values in answered records, since the program started.

Whether a device reports must not depend on its record. So a value without a meaning for the campaign counts as missing,
and no error is raised. These counts let the owner notice such values. They name features, not values. They are kept in
memory only, and leave the device only if the application sends them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from protocol.documents.campaign import Campaign
    from protocol.schema import Check

MOST_CAMPAIGNS = 64
"""Most campaigns that are counted. Beyond it, the campaign that was answered least recently is dropped."""


class Unread(NamedTuple):
    """Counts of one campaign since the program started.

    Attributes:
        campaign: its name.
        records: number of records that were answered about.
        missing: feature (or label) → number of records in which it was missing.
        unlisted: feature (or label) → number of records in which its value had no meaning.
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
    """Counts by campaign and feature. Called inside the state's transactions only, so by one thread at a time."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    def add(self, campaign: Campaign, check: Check) -> None:
        """Count one more answered record. If ``campaign`` is another version, the counts of its name begin again.

        Args:
            campaign: the answered campaign.
            check: the missing and unlisted features of the record.
        """
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
        """The counts of the campaigns in ``names``, sorted by name. Campaigns without counts are left out."""
        found = ((name, self._counts.get(name)) for name in sorted(names))
        return tuple(
            Unread(name, each.records, dict(each.missing), dict(each.unlisted)) for name, each in found if each
        )

    def clear(self) -> None:
        """Forget the counts of all campaigns."""
        self._counts.clear()
