"""The facade: what an application embeds. Enrol, report, drain, install, predict.

Randomness, time and storage are arguments with real defaults in :meth:`Device.open`. Paths are handled
by ``os.path``, and modules that not every device needs are imported where they are used: both keep the
start of a small device short.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Self

from edge_sdk.answering import answer
from edge_sdk.clock import system_clock
from edge_sdk.entropy import system_entropy
from edge_sdk.policy import POLICY_FILE, Policy, load_policy
from edge_sdk.state import STATE_FILE, Entry, State
from protocol import campaign as campaigns
from protocol import trust
from protocol.errors import DocumentError, InputError, StorageError
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edge_sdk.classifier import Classifier
    from protocol.campaign import Campaign
    from protocol.trust import TrustState, Verdict

MAX_PERIOD = (1 << 32) - 1


class Status(NamedTuple):
    """What a device may tell about itself; never anything about a record.

    ``spent_micro`` and ``left_micro`` are millionths of ε over the device's life.
    """

    spent_micro: int
    left_micro: int
    spooled: int
    campaigns: tuple[tuple[str, int, str], ...]
    models: tuple[tuple[str, int, bool], ...]
    root_version: int
    root_expired: bool


class Device:
    """A device that answers at most once per campaign and period, whatever crashes.

    Thread-safe; several processes may share a state folder. Its ``repr`` shows counts only.
    """

    def __init__(
        self,
        state: State,
        policy: Policy,
        *,
        clock: Callable[[], int] = system_clock,
        entropy: Callable[[int], bytes] = system_entropy,
    ) -> None:
        """Use :meth:`open`; this is for states that are already provisioned.

        Raises:
            StorageError: ``not_provisioned``: the state trusts nobody yet.
        """
        stored = state.trust()
        secret = state.secret()
        if stored is None or secret is None:
            raise _not_provisioned()
        self._state = state
        self._policy = policy
        self._clock = clock
        self._entropy = entropy
        self._secret = secret

    @classmethod
    def open(
        cls,
        state_dir: str | os.PathLike[str] | None,
        trust: bytes | None = None,
        *,
        policy: Policy | None = None,
        clock: Callable[[], int] = system_clock,
        entropy: Callable[[int], bytes] = system_entropy,
    ) -> Self:
        """Open the state in a folder, or create it.

        Args:
            state_dir: a folder of this device's own; created with mode 0700. None keeps everything in
                memory, which is for simulations: a restart would forget what was spent.
            trust: the root file (``.hst``) that the owner trusts; needed the first time. Later an older
                one than the stored is ignored and a newer one must continue its chain.
            policy: the owner's limits; by default ``policy.toml`` in the folder, or else the defaults.
            clock: seconds since 1970; may be wrong.
            entropy: n → n fresh random bytes.

        Raises:
            StorageError, DocumentError, InputError: see ``docs/reasons.md``.
        """
        path = None
        if trust is not None:
            _check_bytes(trust, "trust")
        if state_dir is not None:
            path = _path_of(state_dir, "state_dir")
            if trust is None and not os.path.exists(os.path.join(path, STATE_FILE)):
                raise _not_provisioned()
            _make_folder(path)
        if policy is None:
            policy = Policy() if path is None else load_policy(os.path.join(path, POLICY_FILE))
        state = State(None if path is None else os.path.join(path, STATE_FILE))
        try:
            _provision(state, trust, clock(), entropy)
            return cls(state, policy, clock=clock, entropy=entropy)
        except BaseException:
            state.close()
            raise

    def close(self) -> None:
        """Release the state file."""
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            enrolled, waiting = len(self._state.documents("campaign")), self._state.spool_count()
        except StorageError:
            return "<Device whose state is closed or can not be read>"
        return f"<Device with {enrolled} campaigns, {waiting} unsent reports>"

    # Documents ------------------------------------------------------------------------------------

    def _trust(self) -> TrustState:
        stored = self._state.trust()
        if stored is None:
            raise _not_provisioned()
        return stored

    def _judge_campaign(self, raw: bytes) -> tuple[Verdict, Campaign]:
        """Signature, dates and value limits, in the order of docs/formats.md, before the owner's policy."""
        _check_bytes(raw, "a campaign")
        verdict = trust.verify(self._trust(), raw, "campaign", self._clock(), campaigns.UNDERSTOOD)
        return verdict, campaigns.parse_campaign(verdict.payload)

    def explain(self, raw: bytes) -> str:
        """Say in words what a signed campaign asks and costs, before it is accepted. Changes nothing.

        Raises:
            DocumentError: the campaign is not acceptable, whatever the owner's policy.
        """
        from edge_sdk.explain import explain

        verdict, campaign = self._judge_campaign(raw)
        return explain(campaign, self._policy, self._state.spent_micro(), verdict.now)

    def enrol(self, raw: bytes) -> Campaign:
        """Verify a campaign, check it against the policy and store it. A newer version ends the older.

        Raises:
            DocumentError: it is not acceptable; PolicyError: ``policy_refused``. The state is unchanged.
        """
        with self._state.transaction():
            verdict, campaign = self._judge_campaign(raw)
            self._policy.check_campaign(campaign)
            self._store(verdict)
        return campaign

    def install(self, raw: bytes) -> Classifier:
        """Verify a model, store it and return it ready to classify.

        Raises:
            DocumentError: it is not acceptable; the state is unchanged.
        """
        from edge_sdk.classifier import MODEL_KEYS, open_classifier

        _check_bytes(raw, "a model")
        with self._state.transaction():
            verdict = trust.verify(self._trust(), raw, "model", self._clock(), MODEL_KEYS)
            classifier = open_classifier(verdict.payload, self._now)
            self._store(verdict)
        return classifier

    def _store(self, verdict: Verdict) -> None:
        self._state.write_document(verdict.role, verdict.header.name, verdict.digest, verdict.payload)
        self._state.write_trust(verdict.state)

    def campaigns(self) -> list[Campaign]:
        """The campaigns this device has accepted, by name."""
        return [campaigns.parse_campaign(payload) for _, _, payload in self._state.documents("campaign")]

    def model(self, name: str | None = None) -> Classifier:
        """An installed model: the one of this name, or the only one.

        Raises:
            InputError: ``model_unknown``; ``model_ambiguous`` where a name is needed.
        """
        from edge_sdk.classifier import open_classifier

        installed = self._state.documents("model")
        chosen = [payload for model_name, _, payload in installed if name in (None, model_name)]
        if not chosen:
            raise InputError("model_unknown", "no such model is installed")
        if len(chosen) > 1:
            raise InputError("model_ambiguous", f"name one of {', '.join(name for name, _, _ in installed)}")
        return open_classifier(chosen[0], self._now)

    # Reports --------------------------------------------------------------------------------------

    def _now(self) -> int:
        """The wall clock, or the time floor if that is later."""
        return max(self._clock(), self._state.time_floor())

    def _campaign(self, campaign_id: bytes) -> Campaign:
        _check_bytes(campaign_id, "a campaign's id")
        payload = self._state.document_by_digest("campaign", campaign_id)
        if payload is None:
            raise InputError(
                "campaign_unknown", "this device is not enrolled in that campaign, or a newer version ended it"
            )
        return campaigns.parse_campaign(payload)

    def report(self, campaign_id: bytes, record: Mapping[str, object], label: object = None) -> bytes:
        """Answer about one record, once per period; spent and kept in one durable transaction.

        A second call in the same period returns the very same bytes, whatever its input: answering a
        changed record would cost a second ε.

        Args:
            campaign_id: ``Campaign.id``.
            record: feature name → value; None or absent is missing. Other keys are ignored.
            label: the record's class; None if it is not known.

        Returns:
            the period's r reports, one after another, each of the campaign's record length.

        Raises:
            InputError: ``campaign_unknown``, ``record_invalid``, ``value_refused``;
            DocumentError: ``expired``, ``not_yet_valid``; PolicyError: ``policy_refused``,
            ``budget_exhausted``; StorageError. None of them was caused by a value, except
            ``value_refused`` in campaigns that ask for it. No ε was spent.
        """
        with self._state.transaction():
            campaign = self._campaign(campaign_id)
            now = self._now()
            last = self._state.last_entry(campaign.id)
            period = campaign.period_at(now)
            if last is not None and last.period >= period:
                return last.reports
            self._check_open(campaign, now, period)
            spent = self._state.spent_micro()
            self._policy.check_campaign(campaign)
            self._policy.check_budget(spent, campaign.epsilon_micro)
            observation = campaign.schema.observe(record)
            label_code = campaign.schema.label.code(label)
            predicted = 0 if campaign.model is None else self._predicted(campaign, record)
            seeds = [self._entropy(SEED_BYTES) for _ in range(campaign.answers)]
            records = answer(campaign, observation, label_code, self._secret, period, seeds, predicted)
            reports = b"".join(records)
            self._state.write_answers(campaign.id, Entry(period, campaign.epsilon_micro, reports), now, records)
        return reports

    def _predicted(self, campaign: Campaign, record: Mapping[str, object]) -> int:
        """Code of the class that the evaluated model predicts for a record.

        Raises:
            InputError: ``model_unknown``, the very model that the campaign names is not installed;
            DocumentError: ``invalid_campaign``, its classes are not the campaign's.
        """
        from edge_sdk.classifier import open_classifier

        payload = self._state.document_by_digest("model", campaign.model or b"")
        if payload is None:
            raise InputError("model_unknown", "the campaign evaluates a model that is not installed here")
        classifier = open_classifier(payload, self._now)
        if classifier.classes != campaign.schema.label.classes:
            raise DocumentError("invalid_campaign", "its classes are not those of the model that it evaluates")
        return classifier.classes.index(classifier.predict(record))

    @staticmethod
    def _check_open(campaign: Campaign, now: int, period: int) -> None:
        if now >= campaign.header.expires or period > MAX_PERIOD:
            raise DocumentError("expired", f"the campaign ended at {campaign.header.expires}")
        if now < campaign.header.not_before:
            raise DocumentError("not_yet_valid", f"the campaign begins at {campaign.header.not_before}")

    def drain(self, path: str | os.PathLike[str]) -> int:
        """Seal all unsent reports into a batch file, atomically, and empty the spool.

        The file holds one batch per campaign, one after another; only the device's user can read it. If the
        process dies between the file and the emptying, or the emptying fails, the same reports are sealed
        again next time; repeats are harmless.

        Returns:
            the number of reports in the file; no file is written for none.

        Raises:
            StorageError: ``file_exists``, ``io_failed``, ``disk_full``, ``state_busy``, ``state_damaged``; the
            spool is kept. The text says so if the file is there all the same.
        """
        from edge_sdk.outbox import write_outbox
        from protocol.batch import Header as BatchHeader

        place = _path_of(path, "the path")
        sealed = 0
        unemptied = None
        try:
            with self._state.transaction():
                batches = [
                    (BatchHeader(campaign_id, _layout_of(records[0]), len(records[0])), records)
                    for campaign_id, records in self._state.spooled().items()
                ]
                if batches:
                    write_outbox(place, batches)
                    sealed = sum(len(records) for _, records in batches)
                    self._state.clear_spool()
        except StorageError as error:
            if not sealed:
                raise
            unemptied = error
        if unemptied is not None:
            raise StorageError(
                unemptied.reason,
                f"{unemptied.detail}; the batch file is whole and holds the reports, send it; "
                "they stay in the spool too and will be sealed once more, which is harmless",
            )
        return sealed

    def status(self) -> Status:
        """What was spent, what is left, what waits to be sent, which documents are installed."""
        from edge_sdk.classifier import open_classifier

        now = self._now()
        spent = self._state.spent_micro()
        return Status(
            spent_micro=spent,
            left_micro=max(0, self._policy.lifetime_micro - spent),
            spooled=self._state.spool_count(),
            campaigns=tuple((c.header.name, c.header.version, c.id.hex()) for c in self.campaigns()),
            models=tuple(
                (m.header.name, m.header.version, now >= m.header.expires)
                for m in (open_classifier(payload, self._now).model for _, _, payload in self._state.documents("model"))
            ),
            root_version=self._trust().root.header.version,
            root_expired=now >= self._trust().root.header.expires,
        )


def _check_bytes(value: object, what: str) -> None:
    """Refuse a path or text where a file's bytes are wanted: the natural mistake.

    Raises:
        InputError: ``argument_invalid``.
    """
    if not isinstance(value, bytes):
        raise InputError("argument_invalid", f"{what} is given as bytes, not as {type(value).__name__}")


def _path_of(value: object, what: str) -> str:
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise InputError("argument_invalid", f"{what} is the path of a file or folder")
    return path


def _layout_of(record: bytes) -> int:
    """The layout of a report: the extension type in its header."""
    width = {0xC7: 2, 0xC8: 3}.get(record[0], 1)
    return record[width]


def _not_provisioned() -> StorageError:
    return StorageError("not_provisioned", "this device has no trust root yet; provision it with a .hst file")


def _make_folder(path: str) -> None:
    problem = ""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        problem = error.strerror or "it can not be made"
    if problem:
        raise StorageError("io_failed", f"the state folder can not be used: {problem}")


def _provision(state: State, root: bytes | None, now: int, entropy: Callable[[int], bytes]) -> None:
    """Pin the first root and draw the device's secret, or follow the chain from the stored root."""
    with state.transaction():
        stored = state.trust()
        if stored is None:
            if root is None:
                return
            state.write_secret(entropy(SEED_BYTES))
            state.write_trust(trust.pin(root, now))
        elif root is not None:
            newer = trust.reconcile_pinned(stored, root, now)
            if newer is not stored:
                state.write_trust(newer)
