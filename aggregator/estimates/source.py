"""Origin of statistics: the base class of every kind of source, such as reports of devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from protocol.documents.campaign import Campaign
from protocol.errors import InputError, PolicyError

_ADDED = ("nodes", "summaries", "unproven")
"""Keys of a source's card that are counts."""


class Origin(NamedTuple):
    """What statistics were asked under: a campaign of reports, or the terms of a curator's fit.

    Attributes:
        id: 32 bytes, the value of a model's key ``campaign``: SHA-256 of the campaign, or of the canonical terms.
        name, version: for people; terms have the version 0.
        purpose: what the statistics are for, for people.
        issued_at: seconds since 1970; 0 for terms, which have no date.
        min_batch_size: smallest number of reports, records or nodes that may be published.
    """

    id: bytes
    name: str
    purpose: str
    version: int = 0
    issued_at: int = 0
    min_batch_size: int = 0


def newest_origin(sources: Sequence[Source]) -> Origin:
    """The origin of the sources that was issued last; of equally late ones the one with the largest id."""
    return max((source.origin for source in sources), key=lambda origin: (origin.issued_at, origin.id))


def newest_campaign(sources: Sequence[Source]) -> Campaign:
    """The campaign of the sources that was issued last; of equally late ones the one with the largest id.

    Raises:
        InputError: ``no_campaign``: one of the sources is a curator.
    """
    campaigns = [campaign_of(source) for source in sources]
    return max(campaigns, key=lambda campaign: (campaign.header.issued_at, campaign.id))


def campaign_of(source: Source) -> Campaign:
    """The campaign of a source of reports.

    Raises:
        InputError: ``no_campaign``: the source is a curator, whose statistics come from no campaign.
    """
    if source.campaign is None:
        raise InputError("no_campaign", "these statistics are a curator's; no campaign asked for them")
    return source.campaign


def joined_card(sources: Sequence[Source]) -> dict[str, Any]:
    """Entries about several sources in a model's card. A source whose card lacks an entry is left out of it.

    Counts and maps of counts are added, lists are united. Other entries are those of the sources if they agree, and
    else their different values as one text, separated by semicolons.
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
    """Origin of statistics, for people and for programs.

    A fit uses only :attr:`reports` of a source. The expected accuracy also uses :attr:`statistics_id`, as a random
    seed.

    Attributes:
        campaign: the campaign of the questions; None for a curator's records.
        batch_of: what :attr:`batch` counts, in the plural, for messages.
        rejected: number of contributions (of reports: records and byte ranges) that were not counted, by reason.
        list_bytes: the signed list of nodes that decided which contributions count; None where there is no such list.
    """

    batch_of: ClassVar[str] = "reports"
    campaign: Campaign | None
    rejected: Mapping[str, int]
    list_bytes: bytes | None = None

    @property
    def origin(self) -> Origin:
        """What the statistics were asked under: the campaign. A source without a campaign overrides this property."""
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
    @abstractmethod
    def reports(self) -> int:
        """Number of reports or records behind the estimates."""

    @property
    def stated_reports(self) -> int:
        """:attr:`reports` as it is shown. A noisy number of records is shown as it came, also below 1."""
        return self.reports

    @property
    def batch(self) -> int:
        """The number that ``min_batch_size`` is a bound of: reports or records. A source of nodes overrides it."""
        return self.reports

    @property
    @abstractmethod
    def statistics_id(self) -> bytes:
        """A digest of the counts, 32 bytes; of a curator's noisy counts, never of exact ones.

        Models name their statistics by it.
        """

    @abstractmethod
    def counts(self, question: int) -> list[int]:
        """The integer counts behind the estimates of one question; ``question`` is its index in the statistics.

        A curator's counts are noisy.
        """

    @abstractmethod
    def populations(self) -> dict[str, Any]:
        """The populations of the two intervals (``devices``, ``population``) and what the second one ``assumes``."""

    @abstractmethod
    def facts(self) -> dict[str, int]:
        """Counts about the reports that commands print besides the number of reports: the printed name → the count."""

    @abstractmethod
    def card(self) -> dict[str, Any]:
        """Entries about the source in a model's card: integers, booleans, text and lists of text."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """All facts about the source for programs, including the campaign and the digest."""

    def check_publishable(self) -> None:
        """Refuse fewer reports (:attr:`batch`) than the origin's minimum batch size.

        Raises:
            PolicyError: ``batch_too_small``: there are fewer reports.
        """
        needed = self.origin.min_batch_size
        if self.batch < needed:
            raise PolicyError(
                "batch_too_small",
                f"usable {self.batch_of} so far: {self.batch}; the campaign promises to wait for {needed}",
            )
