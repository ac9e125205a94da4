"""The facade that an application embeds: enrol, report, drain, acknowledge, install, predict.

Randomness, time and storage are arguments; :meth:`Device.open` has defaults for them. Two habits keep the start of a
small device short: paths are handled by ``os.path``, and modules that not every device needs are imported where they
are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from edge_sdk.acceptance import Acceptance
from edge_sdk.entropy import system_entropy
from edge_sdk.log import logged
from edge_sdk.reporting import Reporting
from edge_sdk.storage.documents import Documents
from edge_sdk.storage.marker import system_machine
from edge_sdk.timekeeping.timekeeper import Timekeeper
from protocol.errors import StorageError
from protocol.schema import FROM_RECORD

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from edge_sdk.classifier import Classifier
    from edge_sdk.policy import Policy, PolicyFile, PolicyGiven
    from edge_sdk.reporting import Said
    from edge_sdk.status import Status
    from edge_sdk.storage.database import State
    from edge_sdk.storage.ledger import Answered
    from protocol.documents.campaign import Campaign
    from protocol.errors import DocumentError
    from protocol.schema import Check


class Device:
    """A device that answers at most once per campaign and period, also after crashes.

    A device is thread-safe, and several processes may share its state folder. Its ``repr`` shows counts only.
    """

    def __init__(
        self,
        state: State,
        allowed: PolicyFile | PolicyGiven,
        *,
        clock: Callable[[], int],
        uptime: Callable[[], tuple[str, int]] | None,
        entropy: Callable[[int], bytes],
    ) -> None:
        """Wrap a state that is already provisioned. Applications use :meth:`open`."""
        self._state = state
        self._documents = Documents(state)
        self._time = Timekeeper(state, self._documents, clock, uptime)
        self._reporting = Reporting(state, self._documents, self._time, allowed, entropy)
        self._acceptance = Acceptance(state, self._documents, self._time, self._reporting)

    @property
    def folder(self) -> str | None:
        """The state folder; None for a state in memory."""
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
        """Open the state in a folder, or create it if a root is given and no device was installed there.

        An installation gives the root, once. A program that opens the state at every start gives none: a folder that
        is gone, or whose disk is not mounted, can not be told from a folder where no device was installed.

        Args:
            state_dir: a folder for this device alone; it is created with mode 0700. None keeps the state in memory,
                which is for simulations: after a restart nobody knows what was spent.
            trust: the root file (``.hst``) that the owner trusts. It is needed the first time only. Later, a root
                that is older than the stored one is ignored, and a newer one must continue the stored one's chain.
            policy: the owner's limits. By default they are read from ``policy.toml`` in the folder, again whenever
                the file changes; without the file, the defaults of :class:`Policy` hold. If the file can not be read,
                or is gone, only what needs no policy is done: ``status``, ``history``, ``disable``, ``rotate``.
            enrolment: a provisioning file of a closed fleet, whose secret makes this device's ids. It is accepted the
                first time only.
            clock: seconds since 1970; may be wrong. The default is the system's clock. An application that gives a
                clock without ``uptime`` states that this clock is right.
            uptime: a name of the present boot and the seconds since it began. They bound how many periods a wrong
                clock can open. The default is the system's, if ``clock`` is the system's too.
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
        leave_fleet: bool = False,
        clock: Callable[[], int] | None = None,
        entropy: Callable[[int], bytes] = system_entropy,
        machine: Callable[[], bytes | None] = system_machine,
    ) -> int:
        """Begin again after a state was lost or copied: with a new secret, and with the old budget counted as spent.

        The owner's whole lifetime ε counts as spent until the owner raises it. Campaigns, models and unsent reports
        are forgotten. Lines of the old ledger that can be read stay, so their periods and days are not paid twice. If
        the old ledger can not be read, the present period may be paid for once more. Stop every program that uses the
        state before the reset.

        Args:
            state_dir, trust, policy, clock, entropy, machine: as :meth:`open`.
            enrolment, leave_fleet: as :meth:`enable`.

        Returns:
            The ε that counts as spent, in millionths.

        Raises:
            InputError, DocumentError, StorageError: as :meth:`open` and :meth:`enable`; the old state is then
                untouched.
        """
        from edge_sdk.opening import reset_state
        from edge_sdk.timekeeping.clock import system_clock

        now = (clock or system_clock)()
        return reset_state(
            state_dir,
            trust,
            policy=policy,
            enrolment=enrolment,
            leave_fleet=leave_fleet,
            now=now,
            entropy=entropy,
            machine=machine,
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

    def explain(self, raw: bytes, *, model: bytes | None = None) -> str:
        """Say in words what a signed campaign asks and costs, before it is accepted. Nothing is changed.

        Args:
            raw: the ``.hsc`` file.
            model: the ``.hsm`` file of the model that the campaign evaluates, if that model is not installed.

        Raises:
            DocumentError: the campaign or the model is not acceptable. What the policy refuses is explained instead.
            InputError: ``model_unknown``: the evaluated model is neither given nor installed, or another is given;
                ``policy_invalid``, ``policy_missing``: the policy can not be read, or is gone.
        """
        return self._acceptance.explain(raw, model)

    @logged("enrol", lambda campaign: f"{campaign.header.name} version {campaign.header.version}")
    def enrol(self, raw: bytes, *, name: str | None = None) -> Campaign:
        """Verify a campaign, check it against the policy and store it. A newer version replaces the older one.

        Args:
            raw: the ``.hsc`` file.
            name: the expected name; a campaign of another name is refused. None accepts every name.

        Raises:
            DocumentError: the campaign is not acceptable, or ``other_name``; PolicyError: ``policy_refused``,
            ``disabled``; InputError: ``model_unknown``, it evaluates a model that is not installed.
            A refusal changes nothing, except that contradictory documents of one publisher are kept as evidence.
        """
        return self._acceptance.enrol(raw, name)

    @logged("install", lambda model: f"{model.name} version {model.version}")
    def install(self, raw: bytes, *, name: str | None = None) -> Classifier:
        """Verify a model, store it, and return it ready to classify.

        Args:
            raw: the ``.hsm`` file.
            name: as for :meth:`enrol`.

        Raises:
            DocumentError: the model is not acceptable, or ``other_name``.
            A refusal changes nothing, except that contradictory documents of one publisher are kept as evidence.
        """
        from edge_sdk.classifier import Classifier

        return Classifier(self._acceptance.install(raw, name), self._time.now)

    @logged("rotate", lambda version: f"root {version} is trusted")
    def rotate(self, roots: Iterable[bytes]) -> int:
        """Follow newer trust roots from the stored one, as far as they form a chain. They may come in any order.

        Campaigns that the new root's keys have not signed end, since their keys were revoked. Models still classify.

        Returns:
            The version of the root that is now trusted.

        Raises:
            DocumentError: no root is a next step, or the last one is out of date; the state is unchanged.
        """
        return self._acceptance.rotate(roots)

    @logged("follow", lambda found: f"root {found[0]} is trusted")
    def follow(self, roots: Iterable[bytes]) -> tuple[int, DocumentError | None]:
        """Follow trust roots that are given in the order of their versions, up to the newest that is in date.

        Unlike :meth:`rotate`, this keeps what was reached before a root that is refused. Each root is verified once.

        Returns:
            The version of the root that is now trusted; why the next root was refused, None if none was.
        """
        return self._acceptance.follow(roots)

    def evidence(self) -> list[tuple[str, bytes, bytes]]:
        """Pairs of signed documents that contradict each other: role, the accepted file, the refused file."""
        return self._documents.evidence()

    def campaigns(self) -> list[Campaign]:
        """The accepted campaigns by name, including ended ones."""
        return self._acceptance.campaigns()

    def campaign(self, called: bytes | str) -> Campaign:
        """Find an accepted campaign by its id, its name, or the first hexadecimal digits of its id.

        Raises:
            InputError: ``campaign_unknown``: there is none, or more than one.
        """
        return self._acceptance.campaign(called)

    def model(self, name: str | None = None) -> Classifier:
        """The installed model of a name, or the only installed model.

        Raises:
            InputError: ``model_unknown``; ``model_ambiguous`` where a name is needed.
        """
        from edge_sdk.classifier import Classifier

        return Classifier(self._acceptance.model(name), self._time.now)

    # Reports --------------------------------------------------------------------------------------

    def report(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> bytes:
        """Answer about one record, once per period. Payment and reports are stored in one durable transaction.

        A second call in the same period returns the same bytes, whatever the record: an answer about a changed
        record would cost a second ε.

        Args:
            campaign_id: ``Campaign.id``, or what :meth:`campaign` takes.
            record: feature name → value. None or an absent key is a missing value. Other keys are ignored. To see
                beforehand which values have no meaning, use ``Campaign.check``.
            label: the record's class; None if it is not known. The default is the record's value under the label's
                name.

        Returns:
            The period's r reports, joined, each of the campaign's record length.

        Raises:
            InputError: ``campaign_unknown``, ``model_unknown``, ``record_invalid``, ``value_refused``;
            DocumentError: ``expired``, ``not_yet_valid``, ``campaign_ended``; PolicyError: ``period_answered``,
            ``policy_refused``, ``budget_exhausted``, ``budget_paused``, ``disabled``; StorageError. No ε was spent.
            Only ``value_refused`` depends on a value, in campaigns that ask for it.
        """
        return self.answer(campaign_id, record, label).reports

    def check(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> Check:
        """Tell which features of a record would count as missing or unlisted. Nothing is answered, spent or kept.

        This is ``Campaign.check``, except that a campaign that evaluates a model reads the model's features.

        Raises:
            InputError: ``campaign_unknown``, ``model_unknown``, ``record_invalid``.
        """
        if isinstance(campaign_id, str):
            campaign_id = self.campaign(campaign_id).id
        return self._reporting.check(campaign_id, record, label)

    @logged("report")
    def answer(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> Said:
        """As :meth:`report`; also tells the period of the reports, and whether it was answered before."""
        if isinstance(campaign_id, str):
            campaign_id = self.campaign(campaign_id).id
        return self._reporting.answer(campaign_id, record, label)

    @logged("drain", lambda count: f"{count} reports sealed")
    def drain(self, path: str | os.PathLike[str]) -> int:
        """Seal all unacknowledged reports into a new batch file, atomically. The reports stay in the spool.

        The file holds one batch per campaign, and only the device's user can read it. Call :meth:`ack` once the file
        has arrived. If the device stops before that, the next call seals the same reports again; repeated reports are
        counted once.

        Returns:
            The number of reports in the file; if it is 0, no file is written.

        Raises:
            StorageError: ``file_exists``, ``io_failed``, ``disk_full``, ``state_busy``, ``state_damaged``;
            the spool is kept. If there is a file all the same, it is complete: send it or remove it.
        """
        return self._reporting.drain(path)

    @logged("ack", lambda count: f"{count} reports released")
    def ack(self, path: str | os.PathLike[str]) -> int:
        """Forget the reports of a file that :meth:`drain` sealed, because the file has arrived.

        Args:
            path: where the file was sealed, even if it is no longer there; or where the file is now.

        Returns:
            The number of reports released; 0 if they were acknowledged or dropped before.

        Raises:
            InputError: ``batch_unknown``; StorageError: nothing was forgotten.
        """
        return self._reporting.ack(path)

    # The owner ------------------------------------------------------------------------------------

    @logged("disable", lambda _: "the device answers nothing any more")
    def disable(self) -> None:
        """Opt out: delete the secret, the spool, the outbox and the notes on fetched documents.

        The ledger and the documents stay, and models still classify.

        Raises:
            StorageError: nothing changed, except that some files of the outbox may have been removed.
        """
        from edge_sdk.storage.secret import disable_state

        with self._state.transaction():
            disable_state(self._state, self._reporting.ledger, self._reporting.spool)
            self._reporting.meanings.clear()

    @logged("enable", lambda _: "the device answers again")
    def enable(self, enrolment: bytes | None = None, *, leave_fleet: bool = False) -> None:
        """Take part again after :meth:`disable`, under a new secret. What was spent stays spent.

        Periods that were answered before are refused: their reports were deleted and are not made again.

        Args:
            enrolment: in a closed fleet, a new provisioning file.
            leave_fleet: take part under a random secret, although the device is in a closed fleet.

        Raises:
            InputError: ``enrolment_missing``: the device is in a closed fleet, and no file is given;
                ``enrolment_used``: the file's secret has answered on this device before;
                ``enrolment_late``: the device takes part already, under another secret than the file's.
        """
        from edge_sdk.storage.secret import enable_state

        with self._state.transaction():
            enable_state(self._state, enrolment, self._reporting.entropy, leave_fleet=leave_fleet)

    def history(self, campaign: bytes | str | None = None) -> list[Answered]:
        """List what was answered, when and at which ε, oldest first. Answers themselves are not shown.

        Args:
            campaign: an id, the first hexadecimal digits of ids, or a name: only the lines of these campaigns, in all
                versions of the name. A campaign that was never answered has no lines.
        """
        return self._reporting.history(campaign)

    def status(self) -> Status:
        """Tell what was spent, what is left, what waits, which documents are installed, and what the clocks say."""
        from edge_sdk.status import gather

        reporting = self._reporting
        with self._state.reading():
            return gather(
                self._documents,
                reporting.ledger,
                reporting.spool,
                reporting.allowed,
                reporting.meanings,
                self._time,
                disabled=self._state.meta("secret") is None,
                folder=self._state.folder,
            )
