"""The facade that an application embeds: enrol, report, drain, acknowledge, install, predict.

Randomness, time and storage are arguments; :meth:`Device.open` has defaults for them. Each method calls a module that
does the work; modules that not every device needs are imported where they are used, for a short start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from edge_sdk.answering.acceptance import Acceptance
from edge_sdk.answering.answer import AboutRecord, Meanings, Models
from edge_sdk.answering.reporting import Reporting
from edge_sdk.arguments import is_called, path_of, system_clock, system_entropy, system_uptime
from edge_sdk.log import logged
from edge_sdk.storage.documents import Documents
from edge_sdk.storage.marker import Machine
from edge_sdk.timekeeping import Timekeeper
from protocol.documents.campaign import parse_campaign
from protocol.documents.model import named_once, schema_read
from protocol.documents.payload import quoted
from protocol.errors import InputError, StorageError
from protocol.schema import FROM_RECORD

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from edge_sdk.answering.reporting import Reply
    from edge_sdk.classifier import Classifier
    from edge_sdk.policy import Policy, PolicyFile, PolicyGiven
    from edge_sdk.status import Status
    from edge_sdk.storage.database import State
    from edge_sdk.storage.ledger import Answered
    from protocol.documents.campaign import Campaign
    from protocol.errors import DocumentError
    from protocol.schema import Check


class FollowedDocument(NamedTuple):
    """A document other than campaigns and models that ``sync`` fetches, to accept newer versions.

    Attributes:
        role: ``nodes``, a list of nodes, or ``keys``, a key book.
        name: name of the list of nodes, or of the campaign to which the key book belongs, at the source.
        version: the version that was accepted last; None if none was accepted yet.
        accept: function that verifies and stores a file of the document, and returns its version.
        most_bytes: largest size of a file that can be accepted.
    """

    role: str
    name: str
    version: int | None
    accept: Callable[[bytes], int]
    most_bytes: int


class Device:
    """A device that answers at most once per campaign and period, also after crashes, if its disk keeps its state.

    A device is thread-safe, and several processes may share its state folder. Its ``repr`` shows the numbers of
    campaigns and unsent reports, or that the state can not be read. All methods that use the state may raise
    StorageError: ``state_closed`` after :meth:`close`; ``state_busy``, ``state_damaged``, ``state_lost``,
    ``state_forked``.
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
        """Wrap a state that was made before. Applications call :meth:`open` instead."""
        self._state = state
        self._documents = Documents(state)
        self._time = Timekeeper(state, self._documents, clock, uptime)
        self._entropy = entropy
        self._models = Models(self._documents, self._time.now)
        self._meanings = Meanings()
        self._reporting = Reporting(state, self._documents, self._time, allowed, self._models)
        self._acceptance = Acceptance(state, self._documents, self._time, self._reporting)

    @property
    def folder(self) -> str | None:
        """The state folder; None for a state in memory."""
        return self._state.folder

    @property
    def policy(self) -> Policy:
        """The owner's policy that holds now.

        Raises:
            InputError: ``policy_invalid``, ``policy_missing``: the policy file can not be read, or is gone.
        """
        return self._reporting.allowed()

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
        machine: Callable[[], bytes | None] | None = None,
    ) -> Self:
        """Open the state in a folder where a device was installed (:meth:`provision`), or make one in memory.

        No state is made in a folder: one that is gone, or whose disk is not mounted, can not be told from a folder
        where no device was installed. A new device there would answer, and spend, a second time.

        A state that was made on another machine is opened too: its models classify, and its status can be read. Methods
        that would make an answer are refused there (``state_copied``).

        Args:
            state_dir: the folder of this device. None makes a state in memory, which is for simulations: after a
                restart nobody knows what was spent.
            trust: a root file (``.hst``, the signed list of keys) that the owner trusts; a state in memory needs one.
                It is ignored if it is older than the stored root, whose keys must have signed a newer one.
            policy: the owner's limits. By default they are read from ``policy.toml`` in the folder, again whenever
                the file changes; without the file, the defaults of :class:`Policy` hold. If the file of an existing
                state can not be read, or is gone, ``policy``, ``explain``, ``enrol`` and answers for new periods are
                refused, and all else works.
            enrolment: for a state in memory, the bytes of a provisioning file of a closed fleet (one with a list of its
                devices), whose secret makes this device's report ids. In a folder only the present secret's file
                passes.
            clock: returns seconds since 1970; may be wrong. The default is the system's clock. An application that
                gives a clock without ``uptime`` states that this clock is right.
            uptime: returns a name of the present boot and the seconds since the boot. These bound how many periods a
                wrong clock can open. The default is the system's, if ``clock`` is the system's too.
            entropy: n → n fresh random bytes.
            machine: returns 32 bytes that tell this machine from others, or None if that is not known; the same as
                for :meth:`provision`. The default is the file that was named there, or else the system's ids.

        Raises:
            InputError: ``argument_invalid``; ``enrolment_late``: the device has another secret than the file's.
            DocumentError: the root or the provisioning file is not acceptable; ``bad_signature``: the keys of the
                stored root have not signed the newer root.
            StorageError: ``not_provisioned``: there is no device here; ``state_lost``: a device was installed here,
                and its state is missing, damaged or an older copy; ``state_newer``, ``state_older``: software of
                another version wrote it; ``state_damaged``, ``state_busy``, ``entropy_unavailable``.
        """
        return cls._opened(state_dir, trust, Machine(machine), policy, enrolment, clock, uptime, entropy, makes=False)

    @classmethod
    @logged("provision")
    def provision(
        cls,
        state_dir: str | os.PathLike[str] | None,
        trust: bytes,
        *,
        policy: Policy | None = None,
        enrolment: bytes | None = None,
        clock: Callable[[], int] | None = None,
        uptime: Callable[[], tuple[str, int]] | None = None,
        entropy: Callable[[int], bytes] = system_entropy,
        machine: Callable[[], bytes | None] | None = None,
        machine_id: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Make the state of a new device in a folder, and open it. An installation calls this once.

        A folder that has a device is refused. So a program that by mistake calls this at every start, in place of
        :meth:`open`, fails at its second start.

        A digest of the machine's id is stored, so that a copy of the state is noticed on another machine that has an
        id, and answers nothing there. So do not provision in a disk image for many machines.

        Args:
            state_dir: a folder for this device alone, created with mode 0700; None makes a state in memory.
            trust: the root file (``.hst``) that the owner trusts.
            policy, clock, uptime, entropy: the same as in :meth:`open`. A new state is not made under a ``policy.toml``
                that can not be read.
            enrolment: the bytes of a provisioning file of a closed fleet, whose secret makes this device's ids.
            machine: returns 32 bytes that tell this machine from others, or None if that is not known. The
                application then gives it at every opening. The default is the system's machine id and board.
            machine_id: instead of ``machine``, the path of a file whose content no other machine has and no update
                changes. The state stores the path, and every opening reads the file.

        Raises:
            InputError: ``already_provisioned``: there is a device here; ``machine_unknown``: the file ``machine_id`` is
                empty or can not be read; ``policy_invalid``; ``argument_invalid``.
            DocumentError, StorageError: those of :meth:`open`, except ``not_provisioned``.
        """
        file = None if machine_id is None else path_of(machine_id, "machine_id")
        whose = Machine(machine, file)
        return cls._opened(state_dir, trust, whose, policy, enrolment, clock, uptime, entropy, makes=True)

    @classmethod
    def _opened(
        cls,
        state_dir: str | os.PathLike[str] | None,
        trust: bytes | None,
        machine: Machine,
        policy: Policy | None,
        enrolment: bytes | None,
        clock: Callable[[], int] | None,
        uptime: Callable[[], tuple[str, int]] | None,
        entropy: Callable[[int], bytes],
        *,
        makes: bool,
    ) -> Self:
        from edge_sdk.opening import open_state

        if clock is None:
            clock, uptime = system_clock, uptime or system_uptime
        state, allowed = open_state(state_dir, trust, machine, policy, enrolment, clock(), entropy, makes=makes)
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
        machine: Callable[[], bytes | None] | None = None,
        machine_id: str | os.PathLike[str] | None = None,
    ) -> int:
        """Begin again after a state was lost or copied: with a new secret, and with the old budget counted as spent.

        The whole lifetime ε counts as spent: the largest of the owner's present limit, the highest limit under which
        anything was answered, and the ε that was spent. So nothing is answered until the owner raises the limit.
        Campaigns, models, evidence and unsent reports are forgotten. The lines of the old ledger stay if all of them
        can be read, so their periods and days are not paid twice. If a line is damaged or missing, no line stays, and
        the present period may be paid for once more. The device answers a series (campaigns in which a device answers
        once in all) only if the series begins after the reset. Stop every program that uses the state before the reset.

        Args:
            state_dir, trust, policy, clock, entropy: the same as in :meth:`open`; ``state_dir`` may not be None.
            enrolment: in a closed fleet, the bytes of a new provisioning file.
            leave_fleet: begin under a random secret, although the device was in a closed fleet.
            machine, machine_id: the same as in :meth:`provision`. If neither is given, the file that the old state
                names is used, or, if that can not be read, the system's ids.

        Returns:
            The ε that counts as spent, in millionths.

        Raises:
            InputError: ``policy_invalid``, ``policy_missing``: the policy file can not be read, or is gone;
                ``enrolment_missing``: the device was in a closed fleet, and neither a file nor ``leave_fleet`` is
                given; ``enrolment_used``: the file was used on this device; ``machine_unknown``: the file of the
                machine's id can not be read; ``argument_invalid``. The old state is then untouched.
            DocumentError: the root or the provisioning file is not acceptable. The old state is then untouched.
            StorageError: ``state_busy``: another program holds the state; ``state_damaged``: the install marker was
                damaged, so it is not known which lifetime ε was allowed here, nor which provisioning files were used;
                the old state is then untouched; ``entropy_unavailable``. After ``disk_full`` and ``io_failed`` the
                folder may have the old state without its outbox, the new state, or no state; reset again.
        """
        from edge_sdk.opening import reset_state

        whose = Machine(machine, None if machine_id is None else path_of(machine_id, "machine_id"))
        now = (clock or system_clock)()
        return reset_state(state_dir, trust, whose, policy, enrolment, now, entropy, leave_fleet=leave_fleet)

    def close(self) -> None:
        """Release the state file. Later uses raise StorageError ``state_closed``; a second ``close`` does nothing."""
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
            return f"<{type(self).__name__} whose state is closed or can not be read>"
        return f"<{type(self).__name__} with {enrolled} campaigns, {waiting} unsent reports>"

    def explain(self, raw: bytes, *, model: bytes | Iterable[bytes] | None = None) -> str:
        """Say in words what a signed campaign asks and costs, or how a model was made. The state is not changed.

        The words on a model are from the publisher's card: what it was learned from, its cost in ε, its expected
        accuracy, and who could have falsified it.

        Args:
            raw: the ``.hsc`` file of a campaign, or the ``.hsm`` file of a model, before it is accepted.
            model: the ``.hsm`` files of the models that the campaign evaluates, if they are not installed; or one file.

        Raises:
            DocumentError: the campaign or the model is not acceptable. What the policy refuses is explained instead.
            InputError: ``model_unknown``: an evaluated model is neither given nor installed, or a model is given that
                the campaign does not evaluate; ``policy_invalid``, ``policy_missing``, ``argument_invalid``.
        """
        models = [model] if isinstance(model, bytes) else [] if model is None else list(model)
        return self._acceptance.explain(raw, models)

    @logged("enrol", lambda campaign: f"{campaign.header.name} version {campaign.header.version}")
    def enrol(self, raw: bytes, *, name: str | None = None) -> Campaign:
        """Verify a campaign, check it against the policy and store it. A newer version replaces the older one.

        Args:
            raw: the ``.hsc`` file.
            name: the expected name; a campaign of another name is refused. None accepts every name.

        Raises:
            DocumentError: ``other_name``: not the expected name; ``bad_signature``: not signed by trusted keys;
                ``rollback``: older than the accepted version; ``equivocation``: another document of the accepted
                version, which is kept as evidence (:meth:`evidence`); ``not_yet_valid``, ``expired``,
                ``invalid_campaign``, ``epsilon_understated`` and the reasons of a file that can not be read.
            PolicyError: ``policy_refused``; ``disabled``: the owner has opted out.
            InputError: ``model_unknown``: a model that it evaluates is not installed; ``campaign_for_nodes``,
                ``campaign_for_devices``: the first campaign of this state was of the other kind; ``policy_invalid``,
                ``policy_missing``, ``argument_invalid``.
        """
        return self._acceptance.enrol(raw, name)

    @logged("install", lambda model: f"{model.name} version {model.version}")
    def install(self, raw: bytes, *, name: str | None = None) -> Classifier:
        """Verify a model, store it, and return it ready to classify.

        Args:
            raw: the ``.hsm`` file.
            name: the expected name; a model of another name is refused. None accepts every name.

        Raises:
            DocumentError, InputError: those of :meth:`enrol`, with ``invalid_model`` for ``invalid_campaign``.
        """
        from edge_sdk.classifier import Classifier

        return Classifier(self._acceptance.install(raw, name), self._time.now)

    @logged("rotate", lambda version: f"root {version} is trusted")
    def rotate(self, roots: Iterable[bytes]) -> int:
        """Accept newer trust roots, each signed by the keys of the root before it, beginning with the stored root.

        Campaigns that the new root's keys have not signed end, since their keys were revoked. Models still classify.
        ``roots`` are the bytes of root files (``.hst``), in any order. Return the version of the root that is now
        trusted.

        Raises:
            DocumentError: ``bad_signature``: no given root continues the stored one; ``not_yet_valid``, ``expired``:
                the newest root that continues it is out of date; ``equivocation``, after which the roots are kept as
                evidence; ``rollback``; and the reasons of a file that can not be read. No root is then accepted.
            InputError: ``argument_invalid``.
        """
        return self._acceptance.rotate(roots)

    @logged("follow", lambda found: f"root {found[0]} is trusted")
    def follow(self, roots: Iterable[bytes]) -> tuple[int, DocumentError | None]:
        """Accept newer trust roots, given in the order of their versions, up to the newest that is in date.

        If a root is refused, the roots before it stay accepted, and the refusal is returned. (:meth:`rotate` raises
        it.) A root that is not bytes raises InputError ``argument_invalid``.

        Returns:
            The version of the root that is now trusted, and the error because of which later roots were not accepted;
            None instead of the error if all were.
        """
        return self._acceptance.follow(roots)

    def evidence(self) -> list[tuple[str, bytes, bytes]]:
        """Return the stored pairs of different signed documents of one name and version, eight pairs at most.

        Each pair has the role (``root``, ``campaign``, ``model`` or ``nodes``), the file that came first, which is the
        accepted one unless both are roots that came together, and the file that was refused.
        """
        return self._documents.evidence()

    def campaigns(self) -> list[Campaign]:
        """Return the accepted campaigns, sorted by name, including those that expired or that their publisher ended.

        Campaigns that ended because a new root revoked their keys are deleted; :meth:`status` has their names.
        """
        return [parse_campaign(payload) for _, _, payload in self._documents.all("campaign")]

    def campaign(self, called: bytes | str) -> Campaign:
        """Return an accepted campaign: by its id as bytes; or by its name, or the first hexadecimal digits of its id.

        Raise InputError ``campaign_unknown`` if no accepted campaign, or more than one, is called so.
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
        """Return the installed model called ``name``. If ``name`` is None, return the only installed model.

        Raise InputError ``model_unknown`` if there is none, ``model_ambiguous`` if several are installed and none is
        named.
        """
        from edge_sdk.classifier import Classifier
        from protocol.documents.model import parse_model

        installed = self._documents.all("model")
        chosen = [payload for model_name, _, payload in installed if name in (None, model_name)]
        if not chosen:
            raise InputError("model_unknown", "no such model is installed")
        if len(chosen) > 1:
            raise InputError("model_ambiguous", f"name one of {', '.join(quoted(name) for name, _, _ in installed)}")
        return Classifier(parse_model(chosen[0]), self._time.now)

    def followed(self) -> list[FollowedDocument]:
        """Return the documents beside campaigns and models that ``sync`` fetches for this state. A device has none."""
        return []

    def report(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> bytes:
        """Answer about one record, at most once per period.

        The reports and the ε that they cost are stored in one durable transaction. A second call in the same period, or
        in an earlier one after the clock was set back, returns the same bytes, whatever the record: an answer about a
        changed record would cost a second ε.

        Args:
            campaign_id: ``Campaign.id``; or as text its name, or the first hexadecimal digits of its id.
            record: feature name → value. None or an absent key is a missing value. Other keys are ignored. To see
                beforehand which values have no meaning, use ``Campaign.check``.
            label: the record's class; None if it is not known. The default is the record's value under the label's
                name.

        Returns:
            The bytes of the period's ``Campaign.answers`` reports, joined; each has the campaign's record length.

        Raises:
            InputError: ``campaign_unknown``: no such campaign was accepted, or a new root has ended it;
                ``campaign_for_nodes``: the campaign asks nodes for sums, see :meth:`edge_sdk.Node.summarise`;
                ``model_unknown``: the model that the campaign evaluates is not installed; ``record_invalid``: the
                record is no mapping; ``value_refused``: a value is unlisted, and the campaign refuses such values (no
                other refusal depends on a value); ``policy_invalid``, ``policy_missing``, ``argument_invalid``.
            DocumentError: ``expired``, ``not_yet_valid``, ``campaign_ended``; ``invalid_campaign``: the evaluated model
                has other classes.
            PolicyError: ``period_answered``: the period was paid for before, and there is no answer to return;
                ``policy_refused``: the owner's policy does not allow the campaign; ``budget_exhausted``: the limit on ε
                for the device's life is reached; ``budget_paused``: the limit of a day or of the window is reached;
                ``series_answered``, ``series_begun``, ``series_not_member``: the campaign belongs to a series
                (campaigns in which a device answers once in all), and this device answers no further period of it,
                whatever its record; ``disabled``: the owner has opted out.
            StorageError: ``entropy_unavailable``, or the state can not be read or written. After a failed write the
                answer is either stored and paid, or neither; call again. After all other errors no ε was spent.
        """
        return self.answer(campaign_id, record, label).reports

    def check(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> Check:
        """Return which features of a record would count as missing or unlisted. Nothing is answered, spent or kept.

        It is the result of ``Campaign.check``, but for a campaign that evaluates a model the model's features are
        checked. The arguments are those of :meth:`report`. Raises InputError ``campaign_unknown``, ``model_unknown``,
        ``record_invalid``, ``argument_invalid``; DocumentError ``invalid_campaign``: the model has other classes.
        """
        if isinstance(campaign_id, str):
            campaign_id = self.campaign(campaign_id).id
        campaign = self._reporting.campaign(campaign_id)
        return named_once(schema_read(campaign, self._models.evaluated(campaign)).check(record, label))

    @logged("report")
    def answer(self, campaign_id: bytes | str, record: Mapping[str, object], label: object = FROM_RECORD) -> Reply:
        """Answer like :meth:`report`, and also return the period, and whether it was answered before."""
        if isinstance(campaign_id, str):
            campaign_id = self.campaign(campaign_id).id
        about = AboutRecord(
            record, label, models=self._models, meanings=self._meanings, entropy=self._entropy, state=self._state
        )
        return self._reporting.answer(campaign_id, about)

    @logged("drain", lambda count: f"{count} reports sealed")
    def drain(self, path: str | os.PathLike[str]) -> int:
        """Seal all unacknowledged reports into a new batch file at ``path``, atomically. They stay stored.

        The file holds one batch per campaign, and only the device's user can read it. A node's file holds either
        summaries or the messages of masked campaigns (:meth:`file_ending` tells which). If both kinds wait, the file
        ends before the first answer of the other kind, and the next call after :meth:`ack` seals that. Call :meth:`ack`
        once the file has arrived. Before that, each further call seals the same reports again; the aggregator counts
        them once.

        Returns:
            The number of reports in the file; if it is 0, no file is written.

        Raises:
            InputError: ``argument_invalid``.
            StorageError: ``file_exists``: there is a file at ``path``, which stays unchanged. After other reasons there
                is either no new file, or a complete one: send it or remove it. The reports stay stored.
        """
        from edge_sdk.answering.sealing import drain

        return drain(self._state, self._documents, self._reporting.spool, path, self._time.now)

    def file_ending(self) -> str | None:
        """Return the ending for the name of the file that :meth:`drain` would seal now; None if no report waits.

        It is ``.hsr`` for reports of a device, ``.hsn`` for summaries of a node, and ``.hse`` for a node's messages of
        masked campaigns.
        """
        from edge_sdk.answering.sealing import ending

        return ending(self._documents, self._reporting.spool)

    @logged("ack", lambda count: f"{count} reports released")
    def ack(self, path: str | os.PathLike[str]) -> int:
        """Forget the reports of a file that :meth:`drain` sealed, because the file has arrived.

        ``path`` is where the file was sealed, even if it is no longer there; or where it is now. Return the number of
        reports released; 0 if they were acknowledged or dropped before. Raise InputError ``batch_unknown`` if this
        device has not sealed that file, or too long ago; ``argument_invalid``.
        """
        from edge_sdk.answering.sealing import ack

        return ack(self._state, self._reporting.spool, path)

    @logged("disable", lambda _: "the device answers nothing any more")
    def disable(self) -> None:
        """Opt out: delete the secret, all stored reports, and the outbox and notes of ``sync`` in the state folder.

        If ``sync`` was given another folder, the files that this device has sealed into its outbox are deleted too, if
        they can be reached. Files that :meth:`drain` sealed elsewhere stay. The ledger and the documents stay, and
        models still classify. This works on a full disk, too, if the disk can overwrite a file in its place.

        Raises:
            StorageError: the device still takes part, but files of the outbox may have been removed; call again.
        """
        from edge_sdk.storage.secret import disable_state

        disable_state(self._state, self._reporting.ledger, self._reporting.spool)
        self._meanings.clear()

    @logged("enable", lambda _: "the device answers again")
    def enable(self, enrolment: bytes | None = None, *, leave_fleet: bool = False) -> None:
        """Take part again after :meth:`disable`, under a new secret. What was spent stays spent.

        Periods that were answered before are refused: their reports were deleted and are not made again. A device that
        takes part already keeps its secret.

        Args:
            enrolment: in a closed fleet, the bytes of a new provisioning file, whose secret is used.
            leave_fleet: without a file, take part under a random secret, although the device is in a closed fleet.

        Raises:
            InputError: ``enrolment_missing``: the device is in a closed fleet, and no file is given;
                ``enrolment_used``: the file was used on this device before;
                ``enrolment_late``: the device takes part already, under another secret than the file's, or in the
                fleet that it is to leave: disable it first; ``argument_invalid``: both arguments are given.
            DocumentError: ``malformed``, ``too_large``, ``unsupported_version``: the file is not acceptable.
            StorageError: ``state_copied``: the state was made on another machine; ``state_damaged``: the install
                marker is damaged, so it is not known whether the file was used here; ``entropy_unavailable``.
        """
        from edge_sdk.storage.secret import enable_state, note_uses

        with self._state.transaction():
            enable_state(self._state, enrolment, self._entropy, leave_fleet=leave_fleet)
        if enrolment is not None:
            note_uses(self._state)

    def history(self, campaign: bytes | str | None = None) -> list[Answered]:
        """List what was answered, when and at which ε, oldest first. Answers themselves are not shown.

        If ``campaign`` is given, list only its answers: by its id as bytes; or by its name, for all versions, or the
        first hexadecimal digits of its id. None lists all answers, and the cost that a reset counted as spent.
        """
        lines = self._reporting.ledger.history()
        if campaign is None:
            return lines
        if isinstance(campaign, bytes):
            return [line for line in lines if line.id == campaign]
        return [line for line in lines if line.id and is_called(campaign, line.campaign, line.id)]

    def status(self) -> Status:
        """Return what was spent and is left, which reports wait, what is installed, and what the clocks say."""
        from edge_sdk.status import gather

        with self._state.reading():
            return gather(self._state, self._documents, self._time, self._reporting, self._meanings)
