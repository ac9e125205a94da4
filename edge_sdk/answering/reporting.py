"""Answer once per campaign and period: pay for the answer, and store it, whatever makes its bytes.

A :class:`Making` makes the bytes: reports about one record (:mod:`edge_sdk.answering.answer`), or the summary of a
node's records (:mod:`edge_sdk.node`). All else is the same for devices and nodes. Every answer is one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.arguments import check_bytes
from edge_sdk.log import INFO, note
from edge_sdk.policy import LONGEST_WINDOW, Policy, Spent, series_refusal
from edge_sdk.storage.ledger import Ledger, is_booked
from edge_sdk.storage.marker import check_own_machine, note_in_marker
from edge_sdk.storage.spool import Spool
from protocol.documents import campaign as campaigns
from protocol.documents.payload import DAY_SECONDS
from protocol.errors import DocumentError, InputError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol, TypeVar

    from edge_sdk.answering.answer import Models
    from edge_sdk.explaining import Account
    from edge_sdk.policy import PolicyFile, PolicyGiven
    from edge_sdk.storage.database import State
    from edge_sdk.storage.documents import Documents
    from edge_sdk.timekeeping import Present, Reading, Timekeeper, Track
    from protocol.documents.campaign import Campaign

    Result = TypeVar("Result")

    class Making(Protocol):
        """An object that makes the bytes of one period's answer. Nothing is stored if one of its methods raises."""

        def check(self, campaign: Campaign) -> None:
            """Raise InputError ``campaign_for_nodes`` or ``campaign_for_devices`` if it is of the other kind."""

        def cost(self, campaign: Campaign, policy: Policy) -> tuple[int, int]:
            """Return the ε in millionths and the δ in 10⁻¹² that limits and ledger count for the answer."""

        def make(self, campaign: Campaign, secret: bytes, period: int) -> list[bytes]:
            """Return the reports of the period, or one summary. Noise may not depend on ``secret``."""

        def note(self, campaign: Campaign) -> None:
            """Note what the owner may want to know. Called inside the transaction, after the answer was stored."""


MAX_PERIOD = (1 << 32) - 1


class Reply(NamedTuple):
    """The answer of a device for one period.

    Attributes:
        reports: the bytes of the period's reports, joined; of a node, the summary.
        period: index of the period since 1970.
        repeated: the period was answered before; these are the bytes of that answer, and the record was not read.
        next_at: when the wall clock will show that the next period can be answered, in seconds since 1970.
    """

    reports: bytes
    period: int
    repeated: bool
    next_at: int


class _Turn(NamedTuple):
    """A campaign that has not ended, and the period that the clocks show, both read inside one transaction.

    Attributes:
        reading, moment: what the clocks show, and the present time that follows from it.
        track: steps of the clock within the windows of the owner's limits; None if there are none.
        time: seconds since 1970 by which the period is chosen.
        leapt: whether ``time`` uses this boot's one leap of the wall clock.
    """

    secret: bytes
    campaign: Campaign
    reading: Reading
    moment: Present
    track: Track | None
    time: int
    leapt: bool
    period: int

    @property
    def answered_at(self) -> int:
        """The time by which the owner's limits count the answer, in seconds since 1970."""
        return self.time if self.track is None else self.track.time


class Reporting:
    """Answers at most once per campaign and period, within the owner's policy.

    Attributes:
        ledger: the ε that each answered period has cost.
        spool: the reports whose arrival was not acknowledged.
        allowed: its call returns the owner's policy.
    """

    def __init__(
        self,
        state: State,
        documents: Documents,
        time: Timekeeper,
        allowed: PolicyFile | PolicyGiven,
        models: Models,
    ) -> None:
        self._state = state
        self._documents = documents
        self._time = time
        self.ledger = Ledger(state)
        self.spool = Spool(state)
        self.models = models
        self.allowed = allowed
        self._noted = (0, 0)

    def secret(self) -> bytes:
        """Return the device's secret, 32 bytes.

        Raise PolicyError ``disabled`` if the owner has opted out, StorageError ``state_copied`` if the state was made
        on another machine.
        """
        check_own_machine(self._state)
        secret = self._state.meta("secret")
        if secret is None:
            raise PolicyError("disabled", "its owner has opted this device out; it answers nothing until enabled")
        return secret

    def campaign(self, campaign_id: bytes) -> Campaign:
        """Return the accepted campaign with this id. Raise InputError ``campaign_unknown`` or ``argument_invalid``."""
        check_bytes(campaign_id, "a campaign's id")
        payload = self._documents.payload("campaign", campaign_id)
        if payload is None:
            raise InputError(
                "campaign_unknown",
                "this device is not enrolled in that campaign, or a newer version or a revoked key ended it",
            )
        return campaigns.parse_campaign(payload)

    def answer(self, campaign_id: bytes, making: Making) -> Reply:
        """Answer at most once per period; a second call in a period returns the first answer.

        The answer and the ε that it costs are stored in one durable transaction. ``making`` makes the bytes of the
        answer; it is not used if the period was answered before. Raises the errors of :meth:`edge_sdk.Device.report`
        and of ``making``.
        """
        campaign, said = self._in_turn(campaign_id, making, lambda turn: self._answer_at(turn, making))
        if not said.repeated:
            note(INFO, "report: answered %s version %d", campaign.header.name, campaign.header.version)
        return said

    def earlier(self, campaign_id: bytes, making: Making) -> Reply | None:
        """Return the answer that was given for the present period; None if :meth:`answer` would make one now.

        Nothing is spent. Raises the errors of :meth:`answer`, except those of ``making.make``, so that a caller learns
        before a long preparation whether an answer would be refused.
        """

        def look(turn: _Turn) -> Reply | None:
            said = self._said_before(turn)
            if said is None:
                self._check_allowed(turn, making)
            return said

        return self._in_turn(campaign_id, making, look)[1]

    def _in_turn(self, campaign_id: bytes, making: Making, work: Callable[[_Turn], Result]) -> tuple[Campaign, Result]:
        """Run ``work`` in one transaction for the present period. Return the campaign and ``work``'s result.

        What the clocks show is stored even if ``work`` raises a PolicyError, which it must do before it writes.
        """
        refused: PolicyError
        with self._state.transaction():
            secret = self.secret()
            campaign = self.campaign(campaign_id)
            if campaign.ended:
                raise DocumentError("campaign_ended", "its publisher has ended this campaign")
            making.check(campaign)
            reading = self._time.read()
            track = self._time.track(reading, self.ledger.last_line(), self._longest_window())
            after_reset = self.ledger.series_after() is not None
            self.ledger.delay_series(*self._time.note_track(reading, track, after_reset=after_reset))
            self._time.note_earliest(reading)
            moment = self._time.present(reading)
            time, leapt = moment.period_time(campaign.time_precision)
            turn = _Turn(secret, campaign, reading, moment, track, time, leapt, campaign.period_at(time))
            try:
                return campaign, work(turn)
            except PolicyError as error:
                refused = error
        raise refused

    def _said_before(self, turn: _Turn) -> Reply | None:
        """Return the stored answer of the turn's period, or of a later period if the clock was set back; else None."""
        campaign = turn.campaign
        newest = self.ledger.newest(campaign.id)
        if newest is None or newest.period < turn.period:
            return None
        next_at = turn.moment.opens_at((newest.period + 1) * campaign.time_precision)
        said = self.ledger.said(newest) or _refuse_deleted(series_refusal(campaign.series, self.ledger, turn.secret))
        return Reply(said, newest.period, repeated=True, next_at=next_at)

    def _check_allowed(self, turn: _Turn, making: Making) -> tuple[Policy, tuple[int, int]]:
        """Return the owner's policy and the answer's ε and δ. Raise an error if the period may not be answered."""
        campaign = turn.campaign
        _check_open(campaign, turn.moment.now, turn.time, turn.period)
        outside = series_refusal(campaign.series, self.ledger, turn.secret)
        if outside is not None:
            raise outside
        _check_unpaid(campaign, turn.period, self.ledger.paid_until(campaign.header.name))
        evaluated = self.models.evaluated(campaign)
        policy = self.allowed()
        policy.check_adjacency(campaign, self.ledger.adjacency(), self.ledger.spent_micro())
        policy.check_campaign(campaign, evaluated)
        micro, delta_pico = making.cost(campaign, policy)
        if micro:  # an answer that an earlier one paid for is never refused for its cost
            policy.check_budget(self._spent(policy, turn.answered_at, turn.track), micro)
        if delta_pico:  # for answers without δ the table is not read
            policy.check_delta(self.ledger.deltas.spent_pico(), delta_pico)
        return policy, (micro, delta_pico)

    def _answer_at(self, turn: _Turn, making: Making) -> Reply:
        """Return the answer for the turn's period, made now or before. A PolicyError comes before any write."""
        said = self._said_before(turn)
        if said is not None:
            return said
        policy, cost = self._check_allowed(turn, making)
        campaign, period, time = turn.campaign, turn.period, turn.time
        self._note_lifetime(policy)
        records = making.make(campaign, turn.secret, period)
        reports = b"".join(records)
        line, number = self.ledger.spend(campaign, period, turn.answered_at, reports, cost)
        if campaign.nodes is not None:
            self.ledger.fix_adjacency(policy.node_adjacency)
        self.spool.add(line, number, records, time, min(time, turn.moment.base), policy.spool)
        self._time.note_answer(turn.reading, time, leapt=turn.leapt)
        making.note(campaign)
        next_at = turn.moment.opens_at((period + 1) * campaign.time_precision)
        return Reply(reports, period, repeated=False, next_at=next_at)

    def _note_lifetime(self, policy: Policy) -> None:
        """Note the owner's lifetime limits in the install marker: they bound what was spent if the state is lost."""
        folder = self._state.folder
        if folder is not None and policy.lifetime != self._noted:
            note_in_marker(folder, policy.lifetime)
            self._noted = policy.lifetime

    def _longest_window(self) -> int:
        """Return the owner's longest window in seconds; the longest possible one if the policy can not be read."""
        try:
            return self.allowed().longest_window
        except InputError:
            return LONGEST_WINDOW

    def account(self, campaign: Campaign) -> Account:
        """Return the facts about this device that an explanation of ``campaign`` needs."""
        from edge_sdk.explaining import Account

        secret, ledger = self._state.meta("secret"), self.ledger
        return Account(
            self.allowed(),
            self.spent(),
            secret is None,
            ledger.paid_until(campaign.header.name),
            series_refusal(campaign.series, ledger, secret),
            secret,
            ledger.adjacency(),
            ledger.deltas.spent_pico(),
            campaign.memory is not None and is_booked(self._state, campaign),
        )

    def spent(self) -> Spent:
        """Return the ε that counts against the owner's limits now; 0 for a day or window without limit."""
        policy, reading = self.allowed(), self._time.read()
        track = self._time.track(reading, self.ledger.last_line(), policy.longest_window)
        return self._spent(policy, self._time.present(reading).now if track is None else track.time, track)

    def _spent(self, policy: Policy, time: int, track: Track | None) -> Spent:
        ledger = self.ledger
        return Spent(
            0 if policy.day_micro is None else ledger.spent_around(time, DAY_SECONDS, track),
            0 if policy.window_micro is None else ledger.spent_around(time, policy.window_seconds, track),
            ledger.spent_micro(),
        )


def _refuse_deleted(outside: PolicyError | None) -> bytes:
    raise outside or PolicyError(
        "period_answered", "this period was answered before the device was disabled or reset; it answers the next"
    )


def _check_unpaid(campaign: Campaign, period: int, paid_until: int) -> None:
    """Raise ``period_answered`` if the period began before ``paid_until``, the end of the last paid period."""
    if period * campaign.time_precision < paid_until:
        from protocol.words import date

        raise PolicyError(
            "period_answered",
            f"time until {date(paid_until, '%Y-%m-%d %H:%M UTC')} was paid for by another version of this campaign; "
            "the first period that begins then or later is answered. If the clock had leapt ahead, only a campaign of "
            "another name is answered before",
        )


def _check_open(campaign: Campaign, now: int, time: int, period: int) -> None:
    header = campaign.header
    if max(now, time) >= header.expires or period > MAX_PERIOD:
        from protocol.words import date

        raise DocumentError("expired", f"the campaign expired at {date(header.expires)}")
    if time < header.not_before:
        from protocol.words import date

        raise DocumentError("not_yet_valid", f"the campaign is not valid before {date(header.not_before)}")
