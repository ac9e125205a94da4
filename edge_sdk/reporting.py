"""Answering, sealing and acknowledging: from a record to paid and stored reports, and from reports to files.

Each step is one transaction. :class:`edge_sdk.Device` documents these methods for the application.
"""

from __future__ import annotations

import os
from contextlib import suppress
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.answering import answer
from edge_sdk.arguments import check_bytes, is_called, path_of
from edge_sdk.log import INFO, note
from edge_sdk.meanings import Meanings
from edge_sdk.policy.policy import DAY_SECONDS, LONGEST_WINDOW, Policy, Spent
from edge_sdk.policy.series import in_words, refusal
from edge_sdk.storage.ledger import Ledger
from edge_sdk.storage.spool import Spool
from protocol.digest import sha256
from protocol.documents import campaign as campaigns
from protocol.documents.evaluation import evaluated_models, named_once, payloads_given, schema_read
from protocol.errors import DocumentError, InputError, PolicyError, StorageError
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from edge_sdk.policy.policy_file import PolicyFile, PolicyGiven
    from edge_sdk.storage.database import State
    from edge_sdk.storage.documents import Documents
    from edge_sdk.storage.ledger import Answered
    from edge_sdk.timekeeping.periods import Reading
    from edge_sdk.timekeeping.steps import Track
    from edge_sdk.timekeeping.timekeeper import Timekeeper
    from protocol.documents.campaign import Campaign
    from protocol.documents.evaluation import Evaluated
    from protocol.schema import Check

MAX_PERIOD = (1 << 32) - 1
_BLOCK_BYTES = 1 << 18


class Said(NamedTuple):
    """The answer of a device for one period.

    Attributes:
        reports: the period's r reports, joined.
        period: index of the period since 1970.
        repeated: the period was answered before; these are the bytes of that answer, and the record was not read.
        next_at: when the wall clock will show that the next period can be answered, in seconds since 1970.
    """

    reports: bytes
    period: int
    repeated: bool
    next_at: int


class Reporting:
    """Makes, stores, seals and releases reports, within the owner's policy.

    Attributes:
        ledger: the ε that each answered period has cost.
        spool: the reports that were not acknowledged.
        meanings: counts of missing and unlisted values, in memory.
        allowed: its call returns the owner's policy.
        entropy: n → n fresh random bytes.
    """

    def __init__(
        self,
        state: State,
        documents: Documents,
        time: Timekeeper,
        allowed: PolicyFile | PolicyGiven,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._state = state
        self._documents = documents
        self._time = time
        self.ledger = Ledger(state)
        self.spool = Spool(state)
        self.meanings = Meanings()
        self._evaluated: dict[bytes, Evaluated] = {}
        self.allowed = allowed
        self.entropy = entropy

    @property
    def policy(self) -> Policy:
        """The owner's policy that holds now.

        Raises:
            InputError: ``policy_invalid``, ``policy_missing``: the policy file can not be read, or is gone.
            StorageError: ``io_failed``, ``disk_full``: the install marker can not be read or written.
        """
        return self.allowed()

    @property
    def takes_part(self) -> bool:
        """Whether the device takes part: it has a secret, which an opt-out deletes."""
        return self._state.meta("secret") is not None

    def secret(self) -> bytes:
        """The device's secret, 32 bytes.

        Raises:
            PolicyError: ``disabled``: the owner has opted out.
        """
        secret = self._state.meta("secret")
        if secret is None:
            raise PolicyError("disabled", "its owner has opted this device out; it answers nothing until enabled")
        return secret

    def _campaign(self, campaign_id: bytes) -> Campaign:
        check_bytes(campaign_id, "a campaign's id")
        payload = self._documents.payload("campaign", campaign_id)
        if payload is None:
            raise InputError(
                "campaign_unknown",
                "this device is not enrolled in that campaign, or a newer version or a revoked key ended it",
            )
        return campaigns.parse_campaign(payload)

    def answer(self, campaign_id: bytes, record: Mapping[str, object], label: object) -> Said:
        """Answer about one record, at most once per period; a second call in a period returns the first answer.

        The reports and the ε that they cost are stored in one durable transaction.

        Args:
            campaign_id: id of an accepted campaign.
            record: feature name → value.
            label: the record's class; None if it is not known; ``FROM_RECORD`` to read it from the record.

        Raises:
            HearsayError: the reasons that :meth:`edge_sdk.Device.report` lists.
        """
        refusal: PolicyError | None = None
        with self._state.transaction():
            secret = self.secret()
            campaign = self._campaign(campaign_id)
            if campaign.ended:
                raise DocumentError("campaign_ended", "its publisher has ended this campaign")
            reading = self._time.read()
            track = self._time.track(reading, self.ledger.last_line(), self._longest_window())
            self.ledger.delay_series(*self._time.note_track(reading, track))
            try:
                said = self._answer_at(reading, track, campaign, secret, record, label)
            except PolicyError as error:
                # Nothing was written for the answer. The error is raised after the transaction, which stores the
                # clock track.
                refusal = error
        if refusal is not None:
            raise refusal
        if not said.repeated:
            note(INFO, "report: answered %s version %d", campaign.header.name, campaign.header.version)
        return said

    def _answer_at(
        self,
        reading: Reading,
        track: Track | None,
        campaign: Campaign,
        secret: bytes,
        record: Mapping[str, object],
        label: object,
    ) -> Said:
        """Answer for the period that ``reading`` shows. A :class:`PolicyError` is raised before anything is written."""
        moment = self._time.present(reading)
        time, leapt = moment.period_time(campaign.time_precision)
        newest = self.ledger.newest(campaign.id)
        period = campaign.period_at(time)
        outside = refusal(campaign.series, self.ledger, secret)
        if newest is not None and newest.period >= period:
            next_at = moment.opens_at((newest.period + 1) * campaign.time_precision)
            said = self.ledger.said(newest) or _refuse_deleted(outside)
            return Said(said, newest.period, repeated=True, next_at=next_at)
        _check_open(campaign, moment.now, time, period)
        if outside is not None:
            raise outside
        _check_unpaid(campaign, period, self.ledger.paid_until(campaign.header.name))
        evaluated = self.evaluated(campaign)
        policy = self.policy
        policy.check_campaign(campaign, evaluated)
        answered_at = time if track is None else track.time
        policy.check_budget(self._spent(policy, answered_at, track), campaign.epsilon_micro)
        observation = campaign.schema.observe(record)
        label_code = campaign.schema.label.code(campaign.schema.label_in(record, label))
        seeds = [self.entropy(SEED_BYTES) for _ in range(campaign.answers)]
        predict = self._predictor(campaign, record) if evaluated else None
        records = answer(campaign, observation, label_code, secret, period, seeds, predict)
        reports = b"".join(records)
        line, number = self.ledger.spend(campaign, period, answered_at, reports)
        self.spool.add(line, number, records, time, min(time, moment.base), policy.spool)
        self._time.note_answer(reading, time, leapt=leapt)
        read = schema_read(campaign, evaluated)
        self.meanings.add(campaign, named_once(read.unread(record, label)))
        return Said(reports, period, repeated=False, next_at=moment.opens_at((period + 1) * campaign.time_precision))

    def _longest_window(self) -> int:
        """The owner's longest window in seconds; the longest possible one if the policy can not be read."""
        try:
            return self.policy.longest_window
        except InputError:
            return LONGEST_WINDOW

    def series_in_words(self, campaign: Campaign) -> list[str]:
        """Lines for the owner on the series of a campaign, and on the device's part in it; none without a series."""
        if campaign.series is None:
            return []
        secret = self._state.meta("secret")
        return in_words(campaign.series, refusal(campaign.series, self.ledger, secret), secret)

    def check(self, campaign_id: bytes, record: Mapping[str, object], label: object) -> Check:
        """Tell which features of a record would count as missing or unlisted. Nothing is answered, spent or kept.

        Args:
            campaign_id: id of an accepted campaign.
            record: feature name → value.
            label: the record's class; None if it is not known; ``FROM_RECORD`` to read it from the record.

        Raises:
            InputError, DocumentError: the reasons that :meth:`edge_sdk.Device.check` lists.
        """
        campaign = self._campaign(campaign_id)
        return named_once(schema_read(campaign, self.evaluated(campaign)).check(record, label))

    def spent(self) -> Spent:
        """The ε that counts against the owner's limits now; 0 for a day or window without limit.

        Raises:
            InputError: ``policy_invalid``, ``policy_missing``: the policy file can not be read, or is gone.
            StorageError: the state, or the install marker, can not be read or written.
        """
        policy, reading = self.policy, self._time.read()
        track = self._time.track(reading, self.ledger.last_line(), policy.longest_window)
        return self._spent(policy, self._time.present(reading).now if track is None else track.time, track)

    def _spent(self, policy: Policy, time: int, track: Track | None) -> Spent:
        ledger = self.ledger
        return Spent(
            0 if policy.day_micro is None else ledger.spent_around(time, DAY_SECONDS, track),
            0 if policy.window_micro is None else ledger.spent_around(time, policy.window_seconds, track),
            ledger.spent_micro(),
        )

    def evaluated(self, campaign: Campaign, given: Iterable[bytes] = ()) -> tuple[Evaluated, ...]:
        """The models that ``campaign`` evaluates; empty if the campaign evaluates none, or has ended.

        A model is taken from ``given``, verified payloads of models, or else from the installed models.

        Raises:
            InputError: ``model_unknown``: a model is neither given nor installed, or another model is given.
            DocumentError: ``invalid_campaign``: campaign and model have different classes or names; ``malformed``,
                ``invalid_model``: a payload is no valid model.
        """
        if not campaign.evaluated:
            return ()
        payloads = payloads_given(campaign, given)
        return evaluated_models(
            campaign, lambda digest: payloads.get(digest) or self.model_payload(digest), self._evaluated
        )

    def model_payload(self, digest: bytes) -> bytes | None:
        """The verified payload of the installed model with this digest; None if that model is not installed."""
        return self._documents.payload("model", digest)

    def _predictor(self, campaign: Campaign, record: Mapping[str, object]) -> Callable[[int], int]:
        """A function: index of an evaluated, installed model → code of the class that it predicts for a record."""
        from edge_sdk.classifier import Classifier
        from protocol.documents.model import parse_model

        def predict(index: int) -> int:
            payload = self.model_payload(campaign.evaluated[index])
            assert payload is not None
            classifier = Classifier(parse_model(payload), self._time.now)
            return classifier.classes.index(classifier.predict(record))

        return predict

    def drain(self, path: str | os.PathLike[str]) -> int:
        """Seal all unacknowledged reports into a new batch file at ``path``. They stay in the spool.

        Returns the number of reports in the file; if it is 0, no file is written. The errors are those of
        :meth:`edge_sdk.Device.drain`.
        """
        from edge_sdk.storage.batch_file import batches, write_outbox

        place = path_of(path, "the path")
        sealed = False
        reports: dict[bytes, list[bytes]] = {}
        try:
            with self._state.transaction():
                reports = self.spool.reports()
                if reports:
                    content = batches(reports)
                    write_outbox(place, content)
                    sealed = True
                    self.spool.note_sealed(place, content, self._time.now())
        except StorageError as error:
            if not sealed:
                raise
            problem = error
        else:
            return sum(map(len, reports.values()))
        raise StorageError(
            problem.reason,
            f"{problem.detail}; the batch file is whole and holds the reports, but it can not be acknowledged: "
            "send it or remove it, the same reports will be sealed again, which is harmless",
        )

    def history(self, campaign: bytes | str | None) -> list[Answered]:
        """The answered periods with their costs, oldest first, without the answers.

        ``campaign`` selects by id (bytes), or by name or first hexadecimal digits of the id (text). None selects all.
        """
        lines = self.ledger.history()
        if campaign is None:
            return lines
        if isinstance(campaign, bytes):
            return [line for line in lines if line.id == campaign]
        return [line for line in lines if line.id and is_called(campaign, line.campaign, line.id)]

    def ack(self, path: str | os.PathLike[str]) -> int:
        """Forget the reports of the sealed file at ``path``, because the file has arrived.

        Returns the number of reports released; 0 if they were released or dropped before. The errors are those of
        :meth:`edge_sdk.Device.ack`.
        """
        place = path_of(path, "the path")
        digest = _digest_of(place)
        with self._state.transaction():
            return self.spool.forget_through(self.spool.sealed_through(place, digest))


def _digest_of(path: str) -> bytes | None:
    """SHA-256 of a regular file; None if there is no such file, or it can not be read.

    Other kinds of files are not read, since a pipe may never end.
    """
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if S_ISREG(os.fstat(descriptor).st_mode):
                digest = sha256()
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
                return digest.digest()
    return None


def _refuse_deleted(outside: PolicyError | None) -> bytes:
    raise outside or PolicyError(
        "period_answered", "this period was answered before the device was disabled or reset; it answers the next"
    )


def _check_unpaid(campaign: Campaign, period: int, paid_until: int) -> None:
    """Refuse a period that began before ``paid_until``: before the end of the last paid period of this name."""
    if period * campaign.time_precision < paid_until:
        from protocol.dates import date

        raise PolicyError(
            "period_answered",
            f"time until {date(paid_until, '%Y-%m-%d %H:%M UTC')} was paid for by another version of this campaign; "
            "the first period that begins then or later is answered. If the clock had leapt ahead, only a campaign of "
            "another name is answered before",
        )


def _check_open(campaign: Campaign, now: int, time: int, period: int) -> None:
    header = campaign.header
    if max(now, time) >= header.expires or period > MAX_PERIOD:
        from protocol.dates import date

        raise DocumentError("expired", f"the campaign expired at {date(header.expires)}")
    if time < header.not_before:
        from protocol.dates import date

        raise DocumentError("not_yet_valid", f"the campaign is not valid before {date(header.not_before)}")
