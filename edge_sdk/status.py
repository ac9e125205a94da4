"""What a device may tell about itself; never anything about a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.documents import campaign as campaigns
from protocol.documents.model import parse_model
from protocol.epsilon import format_micro

if TYPE_CHECKING:
    from edge_sdk.meanings import Meanings, Unread
    from edge_sdk.policy import Policy, Spent
    from edge_sdk.storage.documents import Documents
    from edge_sdk.storage.ledger import Ledger
    from edge_sdk.storage.spool import Held, Spool
    from edge_sdk.timekeeping.periods import Present, Reading
    from protocol.documents.campaign import Campaign


class CampaignStatus(NamedTuple):
    """An accepted campaign.

    Attributes:
        name, version, id: of the document.
        state: open, ended, expired or future.
        answered: the newest answered period of this version.
        silent_until: when the next period that can be answered begins, in seconds since 1970, if the present
            one can not be: its time was paid for under the same name, by another version or in a leap of the
            clock. None if it can be, or if this version answered just the present one.
    """

    name: str
    version: int
    id: str
    state: str
    answered: int | None
    silent_until: int | None


class ModelStatus(NamedTuple):
    """An installed model."""

    name: str
    version: int
    expired: bool


class Clock(NamedTuple):
    """What the device makes of its clocks, in seconds since 1970.

    Attributes:
        wall: what the wall clock says.
        now: the later of that and what signed documents say; dates are judged by it.
        confirmed: no period after this time's opens, unless ``leap_left``.
        time_floor: the largest date of an accepted document.
        leap_left: whether this boot's one leap of the wall clock beyond ``confirmed`` is still believed.
    """

    wall: int
    now: int
    confirmed: int
    time_floor: int
    leap_left: bool


class Status(NamedTuple):
    """Spent and left are millionths of ε; ``left_micro`` over the device's life.

    Attributes:
        unsigned: names of campaigns that a new root ended, since its keys had not signed them. They come back
            when their publisher signs them again.
        disabled: the owner has opted out.
        unread: what answered records lacked, since this program started: counts by feature, never values.
        contradictions: pairs of signed documents that contradict each other and are kept as evidence.
    """

    spent_micro: int
    left_micro: int
    spent: Spent
    spool: Held
    campaigns: tuple[CampaignStatus, ...]
    unsigned: tuple[str, ...]
    models: tuple[ModelStatus, ...]
    root_version: int
    root_expired: bool
    clock: Clock
    disabled: bool
    contradictions: int
    unread: tuple[Unread, ...] = ()

    @property
    def spooled(self) -> int:
        """Reports that were not acknowledged."""
        return self.spool.reports

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "epsilon_spent": format_micro(self.spent_micro),
            "epsilon_left": format_micro(self.left_micro),
            "epsilon_spent_day": format_micro(self.spent.day_micro),
            "epsilon_spent_window": format_micro(self.spent.window_micro),
            "unsent_reports": self.spool.reports,
            "spool_bytes": self.spool.size_bytes,
            "oldest_report_at": self.spool.oldest_at,
            "sealed_files": self.spool.sealed_files,
            "dropped": self.spool.dropped,
            "campaigns": [campaign._asdict() for campaign in self.campaigns],
            "unsigned_campaigns": list(self.unsigned),
            "models": [model._asdict() for model in self.models],
            "root_version": self.root_version,
            "root_expired": self.root_expired,
            "clock": self.clock._asdict(),
            "disabled": self.disabled,
            "contradictions": self.contradictions,
            "unread": [each._asdict() for each in self.unread],
        }


def gather(
    documents: Documents,
    ledger: Ledger,
    spool: Spool,
    policy: Policy,
    meanings: Meanings,
    spent: Spent,
    reading: Reading,
    present: Present,
    *,
    disabled: bool,
) -> Status:
    """The status at one look at the clocks.

    Raises:
        StorageError: ``state_damaged``.
    """
    trusted = documents.trust()
    now = present.now
    shown = [
        _campaign(campaigns.parse_campaign(payload), ledger, present) for _, _, payload in documents.all("campaign")
    ]
    return Status(
        spent_micro=spent.lifetime_micro,
        left_micro=max(0, policy.lifetime_micro - spent.lifetime_micro),
        spent=spent,
        spool=spool.held(),
        campaigns=tuple(shown),
        unsigned=tuple(documents.ended_unsigned("campaign")),
        models=tuple(_model(payload, now) for _, _, payload in documents.all("model")),
        root_version=0 if trusted is None else trusted.root.header.version,
        root_expired=trusted is None or now >= trusted.root.header.expires,
        clock=Clock(reading.wall, now, present.confirmed, documents.time_floor(), present.leap_left),
        disabled=disabled,
        contradictions=len(documents.evidence()),
        unread=meanings.of(campaign.name for campaign in shown),
    )


def _campaign(campaign: Campaign, ledger: Ledger, present: Present) -> CampaignStatus:
    header, now = campaign.header, present.now
    state = "expired" if now >= header.expires else "future" if now < header.not_before else "open"
    newest = ledger.newest(campaign.id)
    answered = None if newest is None else newest.period
    silent = None if campaign.ended else _silent_until(campaign, ledger, present, answered)
    return CampaignStatus(
        header.name, header.version, campaign.id.hex(), "ended" if campaign.ended else state, answered, silent
    )


def _silent_until(campaign: Campaign, ledger: Ledger, present: Present, answered: int | None) -> int | None:
    """When the first period begins that nobody has paid for, unless that is the present one or the usual next."""
    length = campaign.time_precision
    period = campaign.period_at(present.period_time(length)[0])
    unpaid = -(-ledger.paid_until(campaign.header.name) // length)
    if unpaid <= period or (unpaid == period + 1 and answered == period):
        return None
    return unpaid * length


def _model(payload: bytes, now: int) -> ModelStatus:
    header = parse_model(payload).header
    return ModelStatus(header.name, header.version, now >= header.expires)
