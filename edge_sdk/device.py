"""The facade: what an application embeds. Enrol, report, drain, acknowledge, install, predict.

Randomness, time and storage are arguments with real defaults in :meth:`Device.open`. Paths are handled
by ``os.path``, and modules that not every device needs are imported where they are used: both keep the
start of a small device short.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from edge_sdk.arguments import check_bytes, is_called
from edge_sdk.entropy import system_entropy
from edge_sdk.log import logged
from edge_sdk.policy import DAY_SECONDS, Spent
from edge_sdk.reporting import Reporting
from edge_sdk.storage.documents import Documents
from edge_sdk.storage.marker import system_machine
from edge_sdk.timekeeping.timekeeper import Timekeeper
from protocol.documents import campaign as campaigns
from protocol.documents import trust
from protocol.errors import DocumentError, InputError, StorageError
from protocol.schema import FROM_RECORD
from protocol.shown import quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from edge_sdk.classifier import Classifier
    from edge_sdk.policy import Policy
    from edge_sdk.reporting import Said
    from edge_sdk.status import Status
    from edge_sdk.storage.database import State
    from edge_sdk.storage.ledger import Answered
    from protocol.documents.campaign import Campaign
    from protocol.documents.trust import TrustState, Verdict
    from protocol.schema import Check


class Device:
    """A device that answers at most once per campaign and period, whatever crashes.

    Thread-safe; several processes may share a state folder. Its ``repr`` shows counts only.
    """

    def __init__(
        self,
        state: State,
        allowed: Callable[[], Policy],
        *,
        clock: Callable[[], int],
        uptime: Callable[[], tuple[str, int]] | None,
        entropy: Callable[[int], bytes],
    ) -> None:
        """Use :meth:`open`; this is for states that are already provisioned."""
        self._state = state
        self._documents = Documents(state)
        self._time = Timekeeper(state, self._documents, clock, uptime)
        self._reporting = Reporting(state, self._documents, self._time, allowed, entropy)

    @property
    def folder(self) -> str | None:
        """Where the state is; None in memory."""
        return self._state.folder

    @property
    def policy(self) -> Policy:
        """What the owner allows."""
        return self._reporting.policy

    @classmethod
    @logged("open")
    def open(
        cls,
        state_dir: str | os.PathLike[str] | None,
        trust: bytes | None = None,
        *,
        policy: Policy | None = None,
        enrolment: bytes | None = None,
        clock: Callable[[], int] | None = None,
        uptime: Callable[[], tuple[str, int]] | None = None,
        entropy: Callable[[int], bytes] = system_entropy,
        machine: Callable[[], bytes | None] = system_machine,
    ) -> Self:
        """Open the state in a folder, or create it.

        Args:
            state_dir: a folder of this device's own; created with mode 0700. None keeps everything in
                memory, which is for simulations: a restart would forget what was spent.
            trust: the root file (``.hst``) that the owner trusts; needed the first time. Later an older
                one than the stored is ignored and a newer one must continue its chain.
            policy: the owner's limits; by default ``policy.toml`` in the folder, which is read again when it
                changes, or else the defaults.
            enrolment: a provisioning file of a closed fleet: its secret makes this device's ids. Only the
                first time.
            clock: seconds since 1970; may be wrong. By default the system's. An application that brings
                its own vouches for it, unless it brings an ``uptime`` too.
            uptime: a name of the present boot and seconds since it began, to bound what a leap of the
                clock can open; by default the system's, if ``clock`` is.
            entropy: n → n fresh random bytes.
            machine: 32 bytes that tell this machine from others, or None.

        Raises:
            StorageError: ``state_lost``, ``state_copied``, ``state_newer``, ``not_provisioned`` and others;
            DocumentError, InputError: see ``docs/reasons.md``.
        """
        from edge_sdk.opening import open_state

        if clock is None:
            from edge_sdk.timekeeping.clock import system_clock, system_uptime

            clock, uptime = system_clock, uptime or system_uptime
        state, allowed = open_state(
            state_dir, trust, policy=policy, enrolment=enrolment, now=clock(), entropy=entropy, machine=machine
        )
        return cls(state, allowed, clock=clock, uptime=uptime, entropy=entropy)

    @staticmethod
    @logged("reset", lambda spent: f"{spent} millionths of ε count as spent")
    def reset(
        state_dir: str | os.PathLike[str],
        trust: bytes,
        *,
        policy: Policy | None = None,
        enrolment: bytes | None = None,
        clock: Callable[[], int] | None = None,
        entropy: Callable[[int], bytes] = system_entropy,
        machine: Callable[[], bytes | None] = system_machine,
    ) -> int:
        """Start afresh where a state was lost or copied, knowingly: a new secret, and the old budget is spent.

        Of the owner's lifetime ε nothing is left until the owner raises it. Campaigns, models and unsent reports are
        forgotten. Where the old ledger can be read its lines stay: no period, and no day's limit, is used twice.
        Where it can not, the present period may be paid for once more. Stop whatever uses the state first.

        Returns:
            what counts as spent, in millionths of ε.

        Raises:
            InputError, DocumentError, StorageError: as :meth:`open`; the old state is then untouched.
        """
        from edge_sdk.opening import reset_state
        from edge_sdk.timekeeping.clock import system_clock

        now = (clock or system_clock)()
        return reset_state(
            state_dir, trust, policy=policy, enrolment=enrolment, now=now, entropy=entropy, machine=machine
        )

    def close(self) -> None:
        """Release the state file."""
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            with self._state.reading():
                enrolled, waiting = len(self._documents.all("campaign")), self._reporting.spool.count()
        except StorageError:
            return "<Device whose state is closed or can not be read>"
        return f"<Device with {enrolled} campaigns, {waiting} unsent reports>"

    # Documents ------------------------------------------------------------------------------------

    def _trust(self) -> TrustState:
        stored = self._documents.trust()
        if stored is None:
            raise StorageError("not_provisioned", "this device has no trust root yet; provision it with a .hst file")
        return stored

    def _judge_campaign(self, raw: bytes) -> tuple[Verdict, Campaign]:
        """Signature, dates and value limits, in the order of docs/formats.md, before the owner's policy."""
        check_bytes(raw, "a campaign")
        verdict = trust.verify(self._trust(), raw, "campaign", self._time.wall(), campaigns.UNDERSTOOD)
        return verdict, campaigns.parse_campaign(verdict.payload)

    def explain(self, raw: bytes, *, model: bytes | None = None) -> str:
        """Say in words what a signed campaign asks and costs, before it is accepted. Changes nothing.

        Args:
            raw: the ``.hsc`` file.
            model: the ``.hsm`` file of the model that the campaign evaluates, if it is not installed.

        Raises:
            DocumentError: campaign or model is not acceptable, whatever the owner's policy;
            InputError: ``model_unknown``, the campaign evaluates a model that is neither given nor installed.
        """
        from edge_sdk.explain import explain

        verdict, campaign = self._judge_campaign(raw)
        given = None if model is None else self._judge_model(model).payload
        evaluated = self._reporting.evaluated(campaign, given)
        spent = self._reporting.spent(verdict.now)
        return explain(campaign, self._reporting.policy, spent, verdict.now, evaluated)

    def _judge_model(self, raw: bytes) -> Verdict:
        """Signature and dates of a model."""
        from edge_sdk.classifier import MODEL_KEYS

        check_bytes(raw, "a model")
        return trust.verify(self._trust(), raw, "model", self._time.wall(), MODEL_KEYS)

    @logged("enrol", lambda campaign: f"{campaign.header.name} version {campaign.header.version}")
    def enrol(self, raw: bytes, *, name: str | None = None) -> Campaign:
        """Verify a campaign, check it against the policy and store it. A newer version ends the older.

        Args:
            raw: the ``.hsc`` file.
            name: refuse it if its name is another, where somebody else chose what to bring.

        Raises:
            DocumentError: it is not acceptable, or ``other_name``; PolicyError: ``policy_refused``, ``disabled``;
            InputError: ``model_unknown``, it evaluates a model that is not installed.
            The state is unchanged, but for the evidence if a publisher contradicts itself.
        """
        with self._evidence("campaign", raw), self._state.transaction():
            self._reporting.secret()
            verdict, campaign = self._judge_campaign(raw)
            _check_name(verdict, name)
            self._reporting.policy.check_campaign(campaign, self._reporting.evaluated(campaign))
            self._store(verdict, raw)
        return campaign

    @logged("install", lambda model: f"{model.name} version {model.version}")
    def install(self, raw: bytes, *, name: str | None = None) -> Classifier:
        """Verify a model, store it and return it ready to classify.

        Args:
            raw: the ``.hsm`` file.
            name: as for :meth:`enrol`.

        Raises:
            DocumentError: it is not acceptable, or ``other_name``; the state is unchanged, but for the evidence
            if a publisher contradicts itself.
        """
        from edge_sdk.classifier import open_classifier

        with self._evidence("model", raw), self._state.transaction():
            verdict = self._judge_model(raw)
            _check_name(verdict, name)
            classifier = open_classifier(verdict.payload, self._time.now)
            self._store(verdict, raw)
        return classifier

    @logged("rotate", lambda version: f"root {version} is trusted")
    def rotate(self, roots: Iterable[bytes]) -> int:
        """Follow newer trust roots, given in any order, as far as they lead from the stored one.

        Campaigns that the new root's keys have not signed end here: their keys were revoked. Models go on
        classifying.

        Returns:
            the version of the root that is now trusted.

        Raises:
            DocumentError: no root is a next step, or the last is out of date; the state is unchanged.
        """
        given = list(roots)
        for raw in given:
            check_bytes(raw, "a root")
        with self._evidence("root", *given), self._state.transaction():
            before = self._trust()
            reached = trust.install_roots(before, given, self._time.wall())
            self._trust_root(before, reached)
        return reached.root.header.version

    @logged("follow", lambda found: f"root {found[0]} is trusted")
    def follow(self, roots: Iterable[bytes]) -> tuple[int, DocumentError | None]:
        """As :meth:`rotate` for roots in their order, as far as they lead and are in date; each is looked at once.

        Returns:
            the version of the root that is now trusted; why the next one of those given is not, None if all are.
        """
        given = list(roots)
        with self._state.transaction():
            before = self._trust()
            reached, problem = trust.follow_roots(before, given, self._time.wall())
            self._trust_root(before, reached)
            if problem is not None and problem.reason == "equivocation":
                self._documents.keep_contradictions("root", given)
        return reached.root.header.version, problem

    def _trust_root(self, before: TrustState, reached: TrustState) -> None:
        """Obey another root; what its keys have not signed ends."""
        if reached is not before:
            self._documents.write_trust(reached)
            self._documents.end_unsigned("campaign", reached.root.roles["campaign"])
            self._time.note_document(reached.root.header.issued_at)

    def _store(self, verdict: Verdict, raw: bytes) -> None:
        self._documents.write(verdict.role, verdict.header.name, verdict.digest, raw)
        self._documents.write_trust(verdict.state)
        self._time.note_document(verdict.header.issued_at)

    @contextmanager
    def _evidence(self, role: str, *raws: bytes) -> Iterator[None]:
        """Keep what contradicts an accepted document: its publisher signed both."""
        try:
            yield
        except DocumentError as error:
            if error.reason == "equivocation":
                with suppress(StorageError), self._state.transaction():
                    self._documents.keep_contradictions(role, raws)
            raise

    def evidence(self) -> list[tuple[str, bytes, bytes]]:
        """Pairs of signed documents that contradict each other: role, the accepted file, the refused file."""
        return self._documents.evidence()

    def campaigns(self) -> list[Campaign]:
        """The campaigns this device has accepted, by name; those that ended among them."""
        return [campaigns.parse_campaign(payload) for _, _, payload in self._documents.all("campaign")]

    def campaign(self, called: bytes | str) -> Campaign:
        """The accepted campaign of this id, of this name, or whose id begins with these hexadecimal digits.

        Raises:
            InputError: ``campaign_unknown``: there is none, or more than one.
        """
        accepted = self.campaigns()
        if isinstance(called, bytes):
            found = [campaign for campaign in accepted if campaign.id == called]
        else:
            found = [each for each in accepted if each.header.name == called]
            found = found or [each for each in accepted if is_called(called, each.header.name, each.id)]
        if len(found) != 1:
            known = ", ".join(f"{quoted(each.header.name)} ({each.id.hex()[:8]})" for each in accepted)
            raise InputError("campaign_unknown", f"name one accepted campaign: {known or 'none; enrol in one first'}")
        return found[0]

    def model(self, name: str | None = None) -> Classifier:
        """An installed model: the one of this name, or the only one.

        Raises:
            InputError: ``model_unknown``; ``model_ambiguous`` where a name is needed.
        """
        from edge_sdk.classifier import open_classifier

        installed = self._documents.all("model")
        chosen = [payload for model_name, _, payload in installed if name in (None, model_name)]
        if not chosen:
            raise InputError("model_unknown", "no such model is installed")
        if len(chosen) > 1:
            raise InputError("model_ambiguous", f"name one of {', '.join(quoted(name) for name, _, _ in installed)}")
        return open_classifier(chosen[0], self._time.now)

    # Reports --------------------------------------------------------------------------------------

    def report(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> bytes:
        """Answer about one record, once per period; spent and kept in one durable transaction.

        A second call in the same period returns the very same bytes, whatever its input: answering a
        changed record would cost a second ε.

        Args:
            campaign_id: ``Campaign.id``, or what :meth:`campaign` takes.
            record: feature name → value; None or absent is missing. Other keys are ignored. ``Campaign.check``
                says beforehand which of its values have no meaning.
            label: the record's class; None if it is not known. By default what the record holds under the
                label's name.

        Returns:
            the period's r reports, one after another, each of the campaign's record length.

        Raises:
            InputError: ``campaign_unknown``, ``model_unknown``, ``record_invalid``, ``value_refused``;
            DocumentError: ``expired``, ``not_yet_valid``, ``campaign_ended``; PolicyError: ``period_answered``,
            ``policy_refused``, ``budget_exhausted``, ``budget_paused``, ``disabled``; StorageError. None of
            them was caused by a value, except ``value_refused`` in campaigns that ask for it. No ε was spent.
        """
        return self.answer(campaign_id, record, label).reports

    def check(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> Check:
        """Which features of a record would count as missing or unlisted. Nothing is answered, spent or kept.

        As ``Campaign.check``; where the campaign evaluates a model, of the features that the model reads.

        Raises:
            InputError: ``campaign_unknown``, ``model_unknown``, ``record_invalid``.
        """
        if isinstance(campaign_id, str):
            campaign_id = self.campaign(campaign_id).id
        return self._reporting.check(campaign_id, record, label)

    @logged("report")
    def answer(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> Said:
        """As :meth:`report`; says also which period the reports are of, and whether it was answered before."""
        if isinstance(campaign_id, str):
            campaign_id = self.campaign(campaign_id).id
        return self._reporting.answer(campaign_id, record, label)

    @logged("drain", lambda count: f"{count} reports sealed")
    def drain(self, path: str | os.PathLike[str]) -> int:
        """Seal all reports that were not acknowledged into a new batch file, atomically. They stay in the spool.

        The file holds one batch per campaign, one after another; only the device's user can read it. Once it
        has arrived, say so with :meth:`ack`. If the device dies in between, the same reports are sealed again
        next time; repeats are harmless.

        Returns:
            the number of reports in the file; no file is written for none.

        Raises:
            StorageError: ``file_exists``, ``io_failed``, ``disk_full``, ``state_busy``, ``state_damaged``;
            the spool is kept. A file that is there all the same is whole: send it or remove it.
        """
        return self._reporting.drain(path)

    @logged("ack", lambda count: f"{count} reports released")
    def ack(self, path: str | os.PathLike[str]) -> int:
        """A file that :meth:`drain` sealed has arrived: forget the reports that are in it.

        Args:
            path: where it was sealed, whether it is still there or not; or where it is now.

        Returns:
            the number of reports released; 0 if they were acknowledged, or dropped, before.

        Raises:
            InputError: ``batch_unknown``; StorageError: nothing was forgotten.
        """
        return self._reporting.ack(path)

    # The owner ------------------------------------------------------------------------------------

    @logged("disable", lambda _: "the device answers nothing any more")
    def disable(self) -> None:
        """Opt out: delete secret, spool, outbox and what was fetched from where.

        Ledger and documents stay, and the model goes on classifying.

        Raises:
            StorageError: nothing changed, but for files of the outbox that are gone.
        """
        from edge_sdk.storage.fetched import forget_fetched
        from edge_sdk.storage.outbox import Outbox

        with self._state.transaction():
            if self.folder is not None:
                Outbox(self.folder).clear()
                forget_fetched(self.folder)
            self._state.write_meta("disabled", b"1")
            self._state.remove_meta("secret")
            self._reporting.spool.clear("disabled")
            self._reporting.meanings.clear()
            self._reporting.ledger.forget_answers()

    @logged("enable", lambda _: "the device answers again")
    def enable(self, enrolment: bytes | None = None) -> None:
        """Take part again after :meth:`disable`, under a new secret. What was spent stays spent.

        Periods that were answered before stay answered: their bytes are gone, and are not made again.

        Args:
            enrolment: in a closed fleet a new provisioning file.

        Raises:
            InputError: ``enrolment_used``: the file's secret has answered here before.
        """
        from edge_sdk.opening import enable_state

        with self._state.transaction():
            if self._state.meta("secret") is None:
                enable_state(self._state, self._state.folder, enrolment, self._reporting.entropy)

    def history(self, campaign: bytes | str | None = None) -> list[Answered]:
        """What was answered, when and at which ε, oldest first; never what was said.

        Args:
            campaign: only the lines of this one: an id, the first hexadecimal digits of ids, or a name, of all
                whose versions are shown. What nobody answered has no lines.
        """
        lines = self._reporting.ledger.history()
        if campaign is None:
            return lines
        if isinstance(campaign, bytes):
            return [line for line in lines if line.id == campaign]
        return [line for line in lines if line.id and is_called(campaign, line.campaign, line.id)]

    def status(self) -> Status:
        """What was spent, what is left, what waits, which documents are installed, what the clocks say."""
        from edge_sdk.status import gather

        reporting = self._reporting
        with self._state.reading():
            reading = self._time.read()
            moment = self._time.present(reading)
            return gather(
                self._documents,
                reporting.ledger,
                reporting.spool,
                reporting.policy,
                reporting.meanings,
                Spent(
                    reporting.ledger.spent_around(moment.now, DAY_SECONDS),
                    reporting.ledger.spent_around(moment.now, reporting.policy.window_seconds),
                    reporting.ledger.spent_micro(),
                ),
                reading,
                moment,
                disabled=self._state.meta("secret") is None,
            )


def _check_name(verdict: Verdict, name: str | None) -> None:
    if name is not None and verdict.header.name != name:
        raise DocumentError("other_name", f"the {verdict.role} has another name than the one that was asked for")
