"""Gather the status of a device: what it may tell about itself. Nothing in it depends on a record."""

from __future__ import annotations

import os
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_sdk.policy import Policy, Spent, series_refusal
from edge_sdk.storage.marker import machine_file_of
from edge_sdk.storage.secret import fleet_of
from edge_sdk.timekeeping import SLACK_SECONDS
from protocol.documents import campaign as campaigns
from protocol.documents.model import missing_models, parse_model
from protocol.documents.payload import DAY_SECONDS, quoted
from protocol.epsilon import format_micro, format_pico
from protocol.errors import InputError
from protocol.words import expiry_warning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_sdk.answering.answer import Meanings, Unread
    from edge_sdk.answering.reporting import Reporting
    from edge_sdk.storage.database import State
    from edge_sdk.storage.documents import Documents
    from edge_sdk.storage.ledger import Ledger
    from edge_sdk.storage.spool import SpoolCounts
    from edge_sdk.timekeeping import Present, Reading, Timekeeper, Track
    from protocol.documents.campaign import Campaign

_ROOT_ENDS = "without a newer one, which its publisher signs, this device accepts no document any more"
_CAMPAIGN_ENDS = "without a newer version, which its publisher signs, this device answers it no more"
_MODEL_ENDS = "without a newer version, which its publisher signs, this device classifies with an old one"


class CampaignStatus(NamedTuple):
    """The status of an accepted campaign.

    Attributes:
        state: ``ended`` by its publisher; else ``expired``; else ``future`` before it is valid; else ``open``.
        answered: index of the newest answered period of this version; None if none was answered.
        silent_until: when the next period that can be answered begins, in seconds since 1970, if the time of the
            present one was paid for under the same name (by another version, or while the clock was ahead), or if it
            was answered and the next one opens more than a minute late (``Clock.periods_behind``). Else None.
        series: name of the campaign's series, in which a device answers once; None if it belongs to no series.
        silent: the error that a report of a campaign of a series would raise, if no further period will be answered
            (:func:`edge_sdk.policy.series_refusal`); else "".
        expires: when the campaign's time is over, in seconds since 1970.
        missing_models: the evaluated models that are not installed, so that no new period is answered: by name in a
            campaign that compares models, by the first digits of the digest in one that evaluates a single model.
    """

    name: str
    version: int
    id: str
    state: str
    answered: int | None
    silent_until: int | None
    series: str | None = None
    silent: str = ""
    missing_models: tuple[str, ...] = ()
    expires: int = 0


class ModelStatus(NamedTuple):
    """An installed model; ``expires`` is in seconds since 1970."""

    name: str
    version: int
    expired: bool
    expires: int = 0


class Clock(NamedTuple):
    """What the device concludes from its clocks, in seconds since 1970.

    Attributes:
        wall: the wall clock.
        now: the later of the wall clock and the time that signed documents prove. Dates of documents are judged by it.
        confirmed: a period that begins after this time can not be answered, unless ``leap_left``.
        time_floor: the largest ``issued_at`` of the trusted root and of the documents that were accepted since.
        leap_left: whether one jump of the wall clock beyond ``confirmed`` is still accepted in this boot.
        periods_behind: seconds by which periods open late until a restart or a newer signed document, because the clock
            moved ahead after this boot's one leap was used; else 0.
        limit_time: the time by which limits per day and window are counted. It goes on with the uptime.
        kept_seconds: sum of the steps by which ``limit_time`` was moved ahead with the clock, within the windows of the
            limits. Answers from before a step keep their age over it, as if no time had passed.
        note: what the device does about a clock that was behind, in words; "" if there is nothing to say.
        earliest: the earliest time that it can be now: ``time_floor`` and the uptime since. A device without a clock
            opens periods by it.
    """

    wall: int
    now: int
    confirmed: int
    time_floor: int
    leap_left: bool
    periods_behind: int
    limit_time: int
    kept_seconds: int
    note: str
    earliest: int = 0


class Status(NamedTuple):
    """The status of a device. Amounts of ε are integers in millionths; in :meth:`to_json` they are texts in ε.

    Attributes:
        spent_micro, left_micro: the ε that was spent in all, and what is left of the lifetime ε.
        spent: the ε that was spent within a day, within the policy's window, and in all.
        spool: numbers of the reports that wait for acknowledgement.
        campaigns, models: the accepted campaigns and the installed models, sorted by name.
        root_version, root_expires: version and end (in seconds since 1970) of the trusted root; 0 if there is none.
        root_expired: whether that root has expired, or there is none.
        unsigned: names of campaigns that ended because the keys of a new root had not signed them. A campaign returns
            when its publisher signs it again.
        disabled: the owner has opted out.
        closed_fleet: the device belongs to a closed fleet: its newest secret is of a provisioning file.
        fleet, device: names of that fleet and of the device in it, as the provisioning file states them; None if the
            device is in no closed fleet, or if older software has used the file. Never part of a report.
        unread: missing and unlisted values of answered records since this program started, as counts by feature.
        contradictions: the number of pairs of contradictory signed documents that are kept as evidence.
        disk_may_forget: the type of the state folder's file system, if it may be in memory or a layer in memory above
            a read-only disk. After the next start the device would answer, and spend, anew.
        machine: what tells this machine from others: ``ids`` for ids of the system and its board, or bytes that the
            application gave; the path of a file; or ``none``: then some copies of the state are not noticed.
        copied: the state was made on another machine, and answers nothing here.
        policy: where the policy of this program is from: ``policy.toml``, ``defaults``, or ``application`` if it was
            given in code, so that ``hearsay-edge`` does not know it. If the file can not be read, or is gone, this is
            the error's text, and ``left_micro`` is 0, since no new period is answered.
        kind: ``device`` or ``node``: for which of the two the first campaign was made; None before that.
        adjacency: of a node, the adjacency whose ε the amounts count, fixed by its first summary; else None.
        delta_spent_pico: the δ that was spent in all, in 10⁻¹²; only masked campaigns with diluted noise
            and shared ones with Gaussian noise have one.
        delta_left_pico: what is left of the lifetime δ; 0 if the policy allows neither masked nor shared campaigns.
        keys: of a node, id of each masked campaign in hexadecimal digits → version of its newest accepted key book.
    """

    spent_micro: int
    left_micro: int
    spent: Spent
    spool: SpoolCounts
    campaigns: tuple[CampaignStatus, ...]
    unsigned: tuple[str, ...]
    models: tuple[ModelStatus, ...]
    root_version: int
    root_expired: bool
    clock: Clock
    disabled: bool
    contradictions: int
    unread: tuple[Unread, ...] = ()
    disk_may_forget: str | None = None
    policy: str = "defaults"
    closed_fleet: bool = False
    kind: str | None = None
    adjacency: str | None = None
    delta_spent_pico: int = 0
    delta_left_pico: int = 0
    keys: Mapping[str, int] = MappingProxyType({})
    root_expires: int = 0
    machine: str = "none"
    copied: bool = False
    fleet: str | None = None
    device: str | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on what expires within seven days or has expired, and on what that means."""
        now = self.clock.now
        ends = [("the trusted root", self.root_expires, _ROOT_ENDS)] if self.root_expires else []
        ends += [
            (f"the campaign {quoted(each.name)}", each.expires, _CAMPAIGN_ENDS)
            for each in self.campaigns
            if each.state in ("open", "expired")
        ]
        ends += [(f"the model {quoted(each.name)}", each.expires, _MODEL_ENDS) for each in self.models]
        said = (expiry_warning(what, expires, now, then) for what, expires, then in ends)
        return tuple(text for text in said if text)

    @property
    def spooled(self) -> int:
        """The number of reports that were not acknowledged."""
        return self.spool.reports

    def to_json(self) -> dict[str, Any]:
        """Return the status as a dictionary for JSON."""
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
            "campaigns": as_json(self.campaigns),
            "unsigned_campaigns": list(self.unsigned),
            "models": as_json(self.models),
            "root_version": self.root_version,
            "root_expired": self.root_expired,
            "root_expires": self.root_expires,
            "clock": self.clock._asdict(),
            "disabled": self.disabled,
            "closed_fleet": self.closed_fleet,
            "fleet": self.fleet,
            "device": self.device,
            "kind": self.kind,
            "epsilon_counted_for": self.adjacency,
            **self._masked(),
            "contradictions": self.contradictions,
            "disk_may_forget": self.disk_may_forget,
            "machine": self.machine,
            "copied": self.copied,
            "policy": self.policy,
            "unread": as_json(self.unread),
            "warnings": list(self.warnings),
        }

    def _masked(self) -> dict[str, Any]:
        """Return the entries for masked campaigns; none if the device neither allows nor has ever answered one."""
        if not (self.keys or self.delta_spent_pico or self.delta_left_pico):
            return {}
        return {
            "delta_spent": format_pico(self.delta_spent_pico),
            "delta_left": format_pico(self.delta_left_pico),
            "key_books": dict(self.keys),
        }


def as_json(facts: Any) -> Any:
    """Return ``facts`` for JSON: at every depth, named tuples as dictionaries, and other tuples as lists."""
    if hasattr(facts, "_asdict"):
        return {name: as_json(value) for name, value in facts._asdict().items()}
    return [as_json(each) for each in facts] if isinstance(facts, list | tuple) else facts


def gather(state: State, documents: Documents, time: Timekeeper, reporting: Reporting, meanings: Meanings) -> Status:
    """Return the status, gathered from the parts of a device. The clocks are read once."""
    ledger, allowed, secret = reporting.ledger, reporting.allowed, state.meta("secret")
    reading = time.read()
    present = time.present(reading)
    now = present.now
    # If the policy can not be read, the status shows a lifetime limit of 0, and the error as origin.
    policy, origin = Policy(lifetime_micro=0), allowed.origin
    try:
        policy = allowed()
    except InputError as error:
        origin = str(error)
    track = time.track(reading, ledger.last_line(), policy.longest_window)
    limit_time = now if track is None else track.time
    spent = Spent(
        ledger.spent_around(limit_time, DAY_SECONDS, track),
        ledger.spent_around(limit_time, policy.window_seconds, track),
        ledger.spent_micro(),
    )
    member = fleet_of(state)
    trusted, delta = documents.trust(), ledger.deltas.spent_pico()
    shown = [
        _campaign(campaigns.parse_campaign(payload), ledger, present, secret, documents)
        for _, _, payload in documents.all("campaign")
    ]
    return Status(
        spent_micro=spent.lifetime_micro,
        left_micro=max(0, policy.lifetime_micro - spent.lifetime_micro),
        spent=spent,
        spool=reporting.spool.held(),
        campaigns=tuple(shown),
        unsigned=tuple(documents.ended_unsigned("campaign")),
        models=tuple(_model(payload, now) for _, _, payload in documents.all("model")),
        root_version=0 if trusted is None else trusted.root.header.version,
        root_expired=trusted is None or now >= trusted.root.header.expires,
        clock=_clock(reading, present, (documents.time_floor(), time.earliest(reading)), track),
        disabled=secret is None,
        closed_fleet=member is not None,
        fleet=(member and member[0]) or None,
        device=(member and member[1]) or None,
        contradictions=len(documents.evidence()),
        unread=meanings.of(campaign.name for campaign in shown),
        policy=origin,
        kind=documents.kind(),
        adjacency=ledger.adjacency(),
        delta_spent_pico=delta,
        delta_left_pico=max(0, policy.lifetime[1] - delta),
        keys=documents.key_books(),
        root_expires=0 if trusted is None else trusted.root.header.expires,
        disk_may_forget=None if state.folder is None else disk_may_forget(state.folder),
        machine=machine_file_of(state) or ("ids" if state.meta("machine") else "none"),
        copied=bool(state.copied),
    )


def _clock(reading: Reading, present: Present, proven: tuple[int, int], track: Track | None) -> Clock:
    """Return what the status says of the clocks. ``proven``: latest date of documents, earliest possible time."""
    time_floor, earliest = proven
    behind = present.late
    kept = 0 if track is None else track.reach
    notes = []
    if reading.wall < earliest - SLACK_SECONDS:
        notes.append(
            "the clock shows less than the time that signed documents and the uptime prove: periods open by that time "
            "(earliest), which goes on while the device runs and stands still while it is off; a newer signed document "
            "or a clock that is set right makes up for it"
        )
    if behind > SLACK_SECONDS:
        notes.append(
            f"the clock moved ahead after this boot's one leap was used: periods open {behind} seconds late until a "
            "restart or a newer signed document"
        )
    if kept:
        notes.append(
            f"the clock has moved ahead by {kept} seconds that did not pass while the device ran: for limits per day "
            "and window, the answers before count as if that time had not passed"
        )
    limit_time = present.now if track is None else track.time
    return Clock(
        reading.wall, present.now, present.confirmed, time_floor, present.leap_left, behind, limit_time, kept,
        "; ".join(notes), earliest,
    )  # fmt: skip


def _campaign(
    campaign: Campaign, ledger: Ledger, present: Present, secret: bytes | None, documents: Documents
) -> CampaignStatus:
    header, now = campaign.header, present.now
    state = "expired" if now >= header.expires else "future" if now < header.not_before else "open"
    newest = ledger.newest(campaign.id)
    answered = None if newest is None else newest.period
    refused = series_refusal(campaign.series, ledger, secret)
    until = None if campaign.ended or refused else _silent_until(campaign, ledger, present, answered)
    return CampaignStatus(
        header.name,
        header.version,
        campaign.id.hex(),
        "ended" if campaign.ended else state,
        answered,
        until,
        None if campaign.series is None else campaign.series.name,
        "" if refused is None else str(refused),
        missing_models(campaign, lambda digest: documents.payload("model", digest)),
        header.expires,
    )


def _silent_until(campaign: Campaign, ledger: Ledger, present: Present, answered: int | None) -> int | None:
    """Return when the first unpaid period of a campaign begins, in seconds since 1970; None if it is the present one.

    Also if this version answered the present period, and the next one opens at most a minute late, return None.
    """
    length = campaign.time_precision
    time, _ = present.period_time(length)
    period = campaign.period_at(time)
    unpaid = -(-ledger.paid_until(campaign.header.name) // length)
    opens = present.opens_at(unpaid * length)
    if unpaid <= period or (unpaid == period + 1 and answered == period and opens <= unpaid * length + SLACK_SECONDS):
        return None
    return opens


def _model(payload: bytes, now: int) -> ModelStatus:
    header = parse_model(payload).header
    return ModelStatus(header.name, header.version, now >= header.expires, header.expires)


_MOUNTS = "/proc/self/mountinfo"
_FORGETTING = frozenset((b"tmpfs", b"ramfs", b"overlay", b"aufs"))


def disk_may_forget(folder: str, mounts: str = _MOUNTS) -> str | None:
    """Return the type of a folder's file system, such as ``tmpfs``, if it may be empty after the next start; else None.

    After the loss of such a state, the device answers a period again, with new noise, and nothing tells of it. But a
    layer above a read-only disk may also be kept, like a container's. So the status only warns, and nothing is refused.
    A disk image or RAM disk below another file system is not found. ``mounts``: path of the kernel's list of mounts.
    """
    with suppress(OSError, IndexError):
        number = os.stat(folder).st_dev
        called = b"%d:%d" % (os.major(number), os.minor(number))
        with open(mounts, "rb") as file:
            for line in file:
                before, _, after = line.partition(b" - ")
                kind = after.split()[0]
                if before.split()[2] == called and kind in _FORGETTING:
                    return kind.decode()
    return None
