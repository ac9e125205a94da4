"""Where statistics come from: the base class of every kind of source, such as the reports of devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from protocol.documents.campaign import Campaign
from protocol.errors import InputError, PolicyError

_ADDED = ("nodes", "summaries", "unproven")
"""Keys of a source's entries in a model's card whose values are counts; a join adds them."""


class Origin(NamedTuple):
    """Name, date and limits of the campaign behind statistics, or of the terms of a curator's fit.

    ``id``: 32 bytes, SHA-256 of the campaign or of the canonical terms. Terms have the version 0 and no date
    (``issued_at`` 0). ``min_batch_size``: smallest number of reports, records or nodes that may be published.
    """

    id: bytes
    name: str
    purpose: str
    version: int = 0
    issued_at: int = 0
    min_batch_size: int = 0


def newest_origin(sources: Sequence[Source]) -> Origin:
    """Return the origin that was issued last; if several were issued in the same second, that with the largest id."""
    return max((source.origin for source in sources), key=lambda origin: (origin.issued_at, origin.id))


def newest_campaign(sources: Sequence[Source]) -> Campaign:
    """Return the campaign issued last, of several the one of the largest id. Raises ``no_campaign``."""
    campaigns = [each.campaign for each in sources if each.campaign is not None] or [campaign_of(sources[0])]
    return max(campaigns, key=lambda campaign: (campaign.header.issued_at, campaign.id))


def campaign_of(source: Source) -> Campaign:
    """Return the campaign of a source, or raise ``no_campaign`` (``InputError``) for a curator."""
    if source.campaign is None:
        raise InputError("no_campaign", "these statistics are a curator's; no campaign asked for them")
    return source.campaign


def joined_card(sources: Sequence[Source]) -> dict[str, Any]:
    """Return one source's entries in a model's card for several sources together.

    Counts are added, lists united. Other entries are kept if all sources agree; else their different values are joined.
    """
    cards = [source.card() for source in sources]
    found: dict[str, Any] = {}
    for key in dict.fromkeys(name for card in cards for name in card):
        values = [card[key] for card in cards if key in card]
        value = values[0]
        if key in _ADDED:
            found[key] = sum(values)
        elif isinstance(value, dict):
            names = sorted({name for one in values for name in one})
            found[key] = {name: sum(one.get(name, 0) for one in values) for name in names}
        elif isinstance(value, list):
            found[key] = sorted({item for one in values for item in one})
        else:
            distinct = list(dict.fromkeys(values))
            found[key] = value if len(distinct) == 1 else "; ".join(map(str, distinct))
    return found


class Source(ABC):
    """Base class: where statistics come from, with the counts and facts that commands print and models state.

    ``campaign``: None for records in the clear; ``batch_of``: what :attr:`batch` counts, in the plural; ``rejected``:
    reason → number of contributions that were not counted; ``list_bytes``, ``counts_bytes``: the signed list of nodes,
    or the signed counts of records, or None.
    """

    batch_of: ClassVar[str] = "reports"
    campaign: Campaign | None
    rejected: Mapping[str, int]
    list_bytes: bytes | None = None
    counts_bytes: bytes | None = None

    @property
    def origin(self) -> Origin:
        """The campaign's id, name, date and limits. A source without a campaign overrides this property."""
        campaign = campaign_of(self)
        header = campaign.header
        return Origin(
            campaign.id,
            header.name,
            campaign.purpose,
            header.version,
            header.issued_at,
            campaign.min_batch_size,
        )

    @property
    def marks(self) -> tuple[object, ...]:
        """What no two joined sources may share, since they would count somebody twice: the origin's id, and more."""
        return (self.origin.id,)

    @property
    @abstractmethod
    def reports(self) -> int:
        """Number of reports or records behind the estimates."""

    @property
    def stated_reports(self) -> int:
        """:attr:`reports` as shown to people. A noisy number of records is shown unchanged, also if it is below 1."""
        return self.reports

    @property
    def batch(self) -> int:
        """Number of reports or records, to be compared with ``min_batch_size``. For nodes: number of nodes."""
        return self.reports

    @property
    @abstractmethod
    def statistics_id(self) -> bytes:
        """A digest of the (for a curator: noisy) counts, 32 bytes, by which a model names its statistics."""

    @abstractmethod
    def counts(self, question: int) -> list[int]:
        """Return the integer counts (for a curator: noisy) behind the estimates of the question of this index."""

    @abstractmethod
    def populations(self) -> dict[str, Any]:
        """Return texts: who the intervals are about (``devices``, ``population``), and what the second ``assumes``."""

    @abstractmethod
    def facts(self) -> dict[str, int]:
        """Return the counts that commands print beside the number of reports: printed name → count."""

    @abstractmethod
    def card(self) -> dict[str, Any]:
        """Return the source's entries in a model's card: integers, booleans, text and lists of text."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return all facts about the source for programs, including the campaign's id and the digest."""

    def check_publishable(self) -> None:
        """Raise ``batch_too_small`` (``PolicyError``) if :attr:`batch` is below what may be published."""
        needed = self.origin.min_batch_size
        if self.batch < needed:
            raise PolicyError(
                "batch_too_small",
                f"usable {self.batch_of} so far: {self.batch}; the campaign promises to wait for {needed}",
            )
