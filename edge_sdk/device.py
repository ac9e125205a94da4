"""The facade that an application embeds: enrol, report, drain, acknowledge, install, predict.

Randomness, time and storage are arguments; :meth:`Device.open` has defaults for them. Two habits keep the start of a
small device short: paths are handled by ``os.path``, and modules that not every device needs are imported where they
are used.

This module has the methods that open, close and reset a state, and those for the owner. The methods for signed
documents and those for reports are in the room ``answering``. Each method calls a module that does the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from edge_sdk.answering.acceptance import Acceptance
from edge_sdk.answering.answer import Meanings, Models
from edge_sdk.answering.report_methods import ReportMethods
from edge_sdk.answering.reporting import Reporting
from edge_sdk.answering.sealing import Sealing
from edge_sdk.arguments import path_of, system_entropy
from edge_sdk.log import logged
from edge_sdk.storage.documents import Documents
from edge_sdk.storage.marker import Machine
from edge_sdk.timekeeping import Timekeeper
from protocol.errors import StorageError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from edge_sdk.policy import Policy, PolicyFile, PolicyGiven
    from edge_sdk.status import Status
    from edge_sdk.storage.database import State
    from edge_sdk.storage.ledger import Answered


class Device(ReportMethods):
    """A device that answers at most once per campaign and period, also after crashes, if its disk keeps its state.

    A device is thread-safe, and several processes may share its state folder. Its ``repr`` shows counts only, or that
    the state can not be read. All methods that use the state may raise StorageError: ``state_closed`` after
    :meth:`close`; ``state_busy``, ``state_damaged``, ``state_lost``, ``state_forked``, ``disk_full``, ``io_failed``.
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
        self._entropy = entropy
        self._models = Models(self._documents, self._time.now)
        self._meanings = Meanings()
        self._reporting = Reporting(state, self._documents, self._time, allowed, self._models)
        self._sealing = Sealing(state, self._documents, self._reporting.spool, self._time.now)
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
            StorageError: ``io_failed``, ``disk_full``: the install marker can not be read or written.
        """
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
        machine: Callable[[], bytes | None] | None = None,
    ) -> Self:
        """Open the state in a folder where a device was installed (:meth:`provision`), or make one in memory.

        No state is made in a folder: one that is gone, or whose disk is not mounted, can not be told from a folder
        where no device was installed. A new device there would answer, and spend, a second time.

        A state that was made on another machine is opened too: its models classify, and its status can be read. What
        would answer is refused there (``state_copied``).

        Args:
            state_dir: the folder of this device. None makes a state in memory, which is for simulations: after a
                restart nobody knows what was spent.
            trust: a root file (``.hst``) that the owner trusts. A root that is older than the stored one is ignored,
                and a newer one must continue the stored one's chain. A state in memory needs one.
            policy: the owner's limits. By default they are read from ``policy.toml`` in the folder, again whenever
                the file changes; without the file, the defaults of :class:`Policy` hold. If the file of an existing
                state can not be read, or is gone, the device opens all the same. Then ``policy``, ``explain``,
                ``enrol`` and answers for new periods are refused, and all else works.
            enrolment: the bytes of a provisioning file of a closed fleet, whose secret makes this device's ids. It is
                given to :meth:`provision`, or for a state in memory. The file of the present secret changes nothing,
                and others are refused.
            clock: returns seconds since 1970; may be wrong. The default is the system's clock. An application that
                gives a clock without ``uptime`` states that this clock is right.
            uptime: returns a name of the present boot and the seconds since the boot. These bound how many periods a
                wrong clock can open. The default is the system's, if ``clock`` is the system's too.
            entropy: n → n fresh random bytes.
            machine: returns 32 bytes that tell this machine from others, or None if that is not known; the same as
                for :meth:`provision`. The default is the file that was named there, or else the system's ids.

        Raises:
            InputError: ``argument_invalid``; ``enrolment_late``: the device has another secret than the file's.
            DocumentError: the root or the provisioning file is not acceptable; ``bad_signature``: a newer root is no
                step from the stored root.
            StorageError: ``not_provisioned``: there is no device here; ``state_lost``: a device was installed here,
                and its state is missing, damaged or an older copy; ``state_newer``, ``state_older``: software of
                another version wrote it; ``state_damaged``, ``state_busy``, ``disk_full``, ``io_failed``,
                ``entropy_unavailable``.
        """
        return cls._opened(
            state_dir, trust, makes=False, policy=policy, enrolment=enrolment, clock=clock, uptime=uptime,
            entropy=entropy, machine=Machine(machine),
        )  # fmt: skip

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

        A program that reports opens the device (:meth:`open`) and never makes one. Here a device that is there is
        refused, so that such a program fails at its second start, and not after its folder was lost.

        What tells this machine from others is stored as a digest. Without it (``Status.machine`` is ``none``) a copy
        of the state is noticed only on a machine that has an id, so that what is provisioned in an image that is built
        for many machines answers on none of them.

        Args:
            state_dir: a folder for this device alone; it is created with mode 0700. None as for :meth:`open`.
            trust: the root file (``.hst``) that the owner trusts.
            policy, clock, uptime, entropy: as for :meth:`open`. A new state is not made under a ``policy.toml`` that
                can not be read.
            enrolment: the bytes of a provisioning file of a closed fleet, whose secret makes this device's ids.
            machine: returns 32 bytes that tell this machine from others, or None if that is not known. The
                application then gives it at every opening. The default is the system's machine id and board.
            machine_id: instead, a file whose content no other machine has and no update changes. The state names it,
                and every opening reads it.

        Raises:
            InputError: ``already_provisioned``: there is a device here; ``machine_unknown``: the file ``machine_id`` is
                empty or can not be read; ``policy_invalid``; ``argument_invalid``.
            DocumentError: the root or the provisioning file is not acceptable.
            StorageError: ``state_lost``: a device was installed here, and its state is missing or damaged;
                ``state_newer``, ``state_older``, ``state_damaged``, ``state_busy``, ``disk_full``, ``io_failed``,
                ``entropy_unavailable``.
        """
        file = None if machine_id is None else path_of(machine_id, "machine_id")
        return cls._opened(
            state_dir, trust, makes=True, policy=policy, enrolment=enrolment, clock=clock, uptime=uptime,
            entropy=entropy, machine=Machine(machine, file),
        )  # fmt: skip

    @classmethod
    def _opened(
        cls,
        state_dir: str | os.PathLike[str] | None,
        trust: bytes | None,
        *,
        makes: bool,
        policy: Policy | None,
        enrolment: bytes | None,
        clock: Callable[[], int] | None,
        uptime: Callable[[], tuple[str, int]] | None,
        entropy: Callable[[int], bytes],
        machine: Machine,
    ) -> Self:
        from edge_sdk.opening import open_state

        if clock is None:
            from edge_sdk.arguments import system_clock, system_uptime

            clock, uptime = system_clock, uptime or system_uptime
        state, allowed = open_state(
            state_dir,
            trust,
            makes=makes,
            policy=policy,
            enrolment=enrolment,
            now=clock(),
            entropy=entropy,
            machine=machine,
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
        machine: Callable[[], bytes | None] | None = None,
        machine_id: str | os.PathLike[str] | None = None,
    ) -> int:
        """Begin again after a state was lost or copied: with a new secret, and with the old budget counted as spent.

        The whole lifetime ε counts as spent: the owner's present one, the largest that held at an answer, or what was
        spent, whichever is most. So nothing is answered until the owner raises it. Campaigns, models, evidence and
        unsent reports are forgotten. The lines of the old ledger stay if all of them can be read, so their periods and
        days are not paid twice. If one is damaged or missing, none stays, and the present period may be paid for once
        more. Of a series, in which a device answers once, the device answers nothing unless the series begins after
        the reset. Stop every program that uses the state before the reset.

        Args:
            state_dir: the state folder. It may not be None.
            trust: the root file that the device trusts from now on.
            enrolment: in a closed fleet, the bytes of a new provisioning file.
            leave_fleet: begin under a random secret, although the device was in a closed fleet.
            policy: the owner's limits. By default they are read from ``policy.toml`` in the folder.
            clock: returns seconds since 1970; may be wrong. The default is the system's clock.
            entropy: n → n fresh random bytes.
            machine, machine_id: as for :meth:`provision`. Without them, the file that the old state names is used, if
                that can be read, or else the system's ids.

        Returns:
            The ε that counts as spent, in millionths.

        Raises:
            InputError: ``argument_invalid``; ``policy_invalid``, ``policy_missing``: the policy file can not be read,
                or is gone; ``enrolment_missing``: the device was in a closed fleet, and neither a file nor
                ``leave_fleet`` is given; ``enrolment_used``: the file was used on this device; ``machine_unknown``:
                the file of the machine's id can not be read. The old state is then untouched.
            DocumentError: the root or the provisioning file is not acceptable. The old state is then untouched.
            StorageError: ``state_busy``: another program holds the state, which is then untouched;
                ``state_damaged``: the install marker was damaged, so it is not known which lifetime ε was the largest
                that was allowed here, nor which provisioning files were used; the old state is then untouched;
                ``entropy_unavailable``, ``disk_full``, ``io_failed``. There may then be the old state without its
                outbox, the new state, or, if the old one was damaged, none; reset again.
        """
        from edge_sdk.arguments import system_clock
        from edge_sdk.opening import reset_state

        now = (clock or system_clock)()
        file = None if machine_id is None else path_of(machine_id, "machine_id")
        return reset_state(
            state_dir,
            trust,
            policy=policy,
            enrolment=enrolment,
            leave_fleet=leave_fleet,
            now=now,
            entropy=entropy,
            machine=Machine(machine, file),
        )

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

    @logged("disable", lambda _: "the device answers nothing any more")
    def disable(self) -> None:
        """Opt out: delete the secret, all stored reports, and the outbox and notes of ``sync`` in the state folder.

        If ``sync`` was given another folder, the files that this device has sealed into its outbox are deleted too, if
        they can be reached. Files that :meth:`drain` sealed elsewhere stay. The ledger and the documents stay, and
        models still classify. A full disk does not prevent it where the disk can overwrite a file in its place.

        Raises:
            StorageError: the device still takes part, but files of the outbox and the notes may have been removed;
                call again.
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
                marker is damaged, so it is not known whether the file was used here; ``entropy_unavailable``; or the
                state or the marker can not be read or written.
        """
        from edge_sdk.storage.secret import enable_state, note_uses

        with self._state.transaction():
            enable_state(self._state, enrolment, self._entropy, leave_fleet=leave_fleet)
        if enrolment is not None:
            note_uses(self._state)

    def history(self, campaign: bytes | str | None = None) -> list[Answered]:
        """List what was answered, when and at which ε, oldest first. Answers themselves are not shown.

        Args:
            campaign: only lines of this campaign: an id as bytes; or as text a name, in all its versions, or the first
                hexadecimal digits of ids. None for all lines, with the cost that a reset counted.
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
                self._meanings,
                self._time,
                secret=self._state.meta("secret"),
                state=self._state,
            )
