"""Open a device's state, make a new state, and begin again after a state was lost.

If there is an install marker (a small file that shows that a device was installed), a missing or damaged state is
refused as ``state_lost``: a new state would forget what was spent. A state that was made on another machine is opened,
and answers nothing (``state_copied``): its models still classify.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.arguments import check_bytes, path_of
from edge_sdk.policy import PolicyFile, PolicyGiven
from edge_sdk.storage.atomic_files import flush_folder, make_folder, os_errors, remove
from edge_sdk.storage.database import HIGHEST_FILE, STATE_FILE, Highest, State, read_highest, replace_highest
from edge_sdk.storage.documents import Documents
from edge_sdk.storage.ledger import Ledger, Lines
from edge_sdk.storage.marker import (
    MARKER_FILE,
    Machine,
    Marker,
    machine_file_of,
    note_in_marker,
    read_marker,
    state_lost,
    used_mark,
)
from edge_sdk.storage.outbox import clear_outboxes
from edge_sdk.storage.secret import (
    check_secret,
    fresh_secret,
    keep_opt_out,
    note_fleet,
    note_used,
    secret_of,
    used_here,
)
from edge_sdk.storage.spool import Spool
from edge_sdk.timekeeping import carry_track, stored_track
from protocol.documents import trust
from protocol.errors import InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_sdk.policy import Policy

_JOURNAL = "-journal"


def open_state(
    state_dir: str | os.PathLike[str] | None,
    root: bytes | None,
    machine: Machine,
    policy: Policy | None,
    enrolment: bytes | None,
    now: int,
    entropy: Callable[[int], bytes],
    *,
    makes: bool,
) -> tuple[State, PolicyFile | PolicyGiven]:
    """Open the state in a folder; or, if ``makes`` is true, make it, if no device was installed there.

    An existing state is opened even if its policy file can not be read, so that its owner can look at it and opt out. A
    new state is not made then. Arguments and errors are those of :meth:`edge_sdk.Device.open` and
    :meth:`edge_sdk.Device.provision`; ``now`` is the present by a clock that may be wrong. Return the provisioned
    state, and an object whose call returns the policy that holds now.
    """
    if root is not None:
        check_bytes(root, "trust")
    if state_dir is None:
        if root is None:
            raise StorageError("not_provisioned", "a state in memory is made from a root; give trust=")
        state = State(None)
        _provision(state, root, enrolment, now, entropy, None)
        return state, PolicyGiven(policy)
    folder = path_of(state_dir, "state_dir")
    place = os.path.join(folder, STATE_FILE)
    begins = not _is_there(place)
    marker = read_marker(os.path.join(folder, MARKER_FILE))
    _prepare_folder(folder, marker, root if makes else None, enrolment, now, machine, present=not begins)
    allowed = PolicyFile(folder) if policy is None else PolicyGiven(policy)
    if begins:
        allowed()  # no state is made under a policy that can not be read
    lost = False
    try:
        state = State(place)
        try:
            ledger = Ledger(state)
            ledger.check()
            state.check_highest()
            if state.read_only:
                _check_read_only(state, root, now, makes=makes)
                _check_machine(state, machine)
            else:
                _provision(state, root, enrolment, now, entropy, machine, makes=makes, marker=marker)
                # What the state knows is written again into a marker that is new, damaged or an older copy.
                spent = ledger.last_total(), ledger.deltas.spent_pico()
                note_in_marker(folder, spent, uses=used_here(state), policy=allowed.in_file)
                keep_opt_out(state, ledger, Spool(state), marker)
                allowed.marks = True
        except BaseException:
            state.close()
            raise
    except StorageError as error:
        lost = marker is not None and error.reason == "state_damaged"
        if not lost:
            raise
    if lost:
        raise state_lost()
    return state, allowed


def _check_read_only(state: State, root: bytes | None, now: int, *, makes: bool) -> None:
    """Raise an error if a state on a read-only disk has no root, or a given root does not continue the stored one."""
    stored = Documents(state).trust()
    if stored is None:
        raise _unfinished()
    if makes:
        raise _already_provisioned()
    if root is not None:
        trust.reconcile_pinned(stored, root, now)


def _check_machine(state: State, machine: Machine) -> bytes:
    """Note in ``state.copied`` if the state was made on another machine. Return this one's id, 32 bytes or none."""
    known, found = state.meta("machine"), machine.of(state)
    if known is not None and known != found:
        state.copied = (
            "this state was made where the machine had no id, as in an image that is built for many machines, and this "
            "one has an id"
            if not known
            else "this state was made on another machine"
            if found
            else "this state was made on a machine with an id, and nothing tells this one from others"
        )
    return found


def _prepare_folder(
    folder: str,
    marker: Marker | None,
    root: bytes | None,
    enrolment: bytes | None,
    now: int,
    machine: Machine,
    *,
    present: bool,
) -> None:
    """Raise an error if no device may begin in a folder without a state; else make the folder."""
    if not present:
        if marker is not None:
            raise state_lost()
        if root is None:
            raise _not_provisioned(folder)
        trust.pin(root, now)
        if enrolment is not None:
            from protocol.documents.provisioning import parse_provisioning

            parse_provisioning(enrolment)
        machine.check()
    if marker is None:
        with os_errors("the state folder can not be used"):
            make_folder(folder)
        if not present:
            # The file is of an earlier device. Its owner has removed the state and the marker.
            remove(os.path.join(folder, HIGHEST_FILE))


def _provision(
    state: State,
    root: bytes | None,
    enrolment: bytes | None,
    now: int,
    entropy: Callable[[int], bytes],
    machine: Machine | None,
    *,
    makes: bool = True,
    marker: Marker | None = None,
) -> None:
    """Write the first root and secret into a new state, if ``makes`` is true; or bring the stored root up to date.

    ``machine`` is None for a state in memory. Digests of used provisioning files are copied from ``marker``.
    """
    documents = Documents(state)
    with state.transaction():
        stored = documents.trust()
        if stored is None:
            if root is None or not makes:
                raise _unfinished()
            _begin(state, root, secret_of(enrolment, entropy), now, machine, enrolment)
            return
        if makes:
            raise _already_provisioned()
        if machine is not None:
            found = _check_machine(state, machine)
            # Older software has provisioned the state on a machine without an id.
            if found and state.meta("machine") is None:
                state.write_meta("machine", found)
        if root is not None:
            newer = trust.reconcile_pinned(stored, root, now)
            if newer is not stored:
                documents.write_trust(newer)
                for role in ("campaign", "nodes"):
                    documents.end_unsigned(role, newer.root.roles["campaign"])
        check_secret(state, enrolment)
        if enrolment is not None:
            note_fleet(state, enrolment)  # older software has not stored the names
        note_used(state, () if marker is None else marker.used(used_here(state), None))


def _begin(
    state: State, root: bytes, secret: bytes, now: int, machine: Machine | None, enrolment: bytes | None
) -> None:
    """Write the first entries of a new state: secret, trusted root and machine. The caller has opened a transaction."""
    state.write_meta("secret", secret)
    note_fleet(state, enrolment)
    note_used(state, used_here(state))
    Documents(state).write_trust(trust.pin(root, now))
    if machine is not None:
        machine.write(state)


def reset_state(
    state_dir: str | os.PathLike[str],
    root: bytes,
    machine: Machine,
    policy: Policy | None,
    enrolment: bytes | None,
    now: int,
    entropy: Callable[[int], bytes],
    *,
    leave_fleet: bool,
) -> int:
    """Replace a lost, copied or unwanted state by a new state, and count the old budget as spent.

    The new state is complete before anything of the old state is removed. The outbox is removed first: its reports are
    never sent under the new state. A state whose ledger can be read is replaced by one rename, so a device that stops
    at any step has the old state or the new one. A damaged state is renamed before its journal is removed; a device
    that stops between these two steps is refused as ``state_lost``. The file ``highest`` names a line of each of the
    two states before the renaming, and only a line of the new state after it. So an older copy of the old state is
    refused at each step.

    The arguments and errors are those of :meth:`edge_sdk.Device.reset`. Returns the ε that counts as spent, in
    millionths.
    """
    check_bytes(root, "trust")
    folder = path_of(state_dir, "state_dir")
    place, fresh = os.path.join(folder, STATE_FILE), os.path.join(folder, f"{STATE_FILE}.new")
    highest = os.path.join(folder, HIGHEST_FILE)
    _is_there(place)  # a folder that can not be read is refused
    allowed = PolicyFile(folder) if policy is None else PolicyGiven(policy)
    lifetime = allowed().lifetime
    pinned = trust.pin(root, now)  # a root that can not be trusted is refused before anything is changed
    known = _undamaged_marker(folder)
    # A reset that was stopped before its renaming has left its new state. Nothing has used its provisioning file.
    old, left = _read_old(place), _read_old(fresh).own
    enrolled = bool(known and known.enrolments) if old.enrolled is None else old.enrolled
    secret = fresh_secret(
        known, enrolment, entropy, held=old.used, left=left, enrolled=enrolled, leave_fleet=leave_fleet
    )
    whose = machine.after(old.machine_file)
    whose.check()
    with os_errors("the state folder can not be used"):
        make_folder(folder)
    budget = _whole_budget(lifetime, known, old)
    used = (*(old.used or ()), *(() if known is None else known.used(old.used, left)))
    note_in_marker(folder, budget, uses=used, policy=allowed.in_file)

    def begin(state: State) -> None:
        _begin(state, root, secret, now, whose, enrolment)
        note_used(state, used)

    with os_errors("the state can not be replaced"):
        line = _make_next(fresh, old, budget, now, max(now, pinned.time_floor, old.latest), begin)
        if enrolment is not None:
            # Until the renaming, the new state beside the old one shows that the provisioning file was not used.
            note_in_marker(folder, pending=used_mark(secret))
        # The files in the outboxes hold reports of the old state, which must not be sent any more.
        clear_outboxes(folder, old.sealed)
        before = next(iter(read_highest(highest)), old.newest)
        if before is not None or not old.whole:  # else the old ledger has no line that a copy could lack
            replace_highest(highest, tuple(dict.fromkeys((before or line, line))))
        _put_in_place(fresh, place, old_is_whole=old.whole)
    # If a step fails from here on, the next opening does it.
    with suppress(OSError):
        replace_highest(highest, (line,))
    if enrolment is not None:
        with suppress(StorageError):
            note_in_marker(folder, uses=[used_mark(secret)])
    return budget[0]


def _undamaged_marker(folder: str) -> Marker | None:
    """Return the install marker; None if there is none. Raise ``state_damaged`` if it was damaged."""
    known = read_marker(os.path.join(folder, MARKER_FILE))
    if known is not None and not known.whole:
        raise StorageError(
            "state_damaged",
            f"the file '{MARKER_FILE}' was damaged, so it is not known which epsilon_lifetime was the largest that "
            f"was ever allowed here; set epsilon_lifetime to that number or more, remove '{MARKER_FILE}', nothing "
            "else, and reset again. A provisioning file may be given only if it surely was not used here",
        )
    return known


def _put_in_place(fresh: str, place: str, *, old_is_whole: bool) -> None:
    """Remove the old state's journal, then rename the new state to the old state's name."""
    if old_is_whole:
        with suppress(FileNotFoundError):
            # The journal is empty, since the state could be read.
            os.unlink(place + _JOURNAL)
    else:
        _discard(place)
    # After a power cut the old journal must not be there again beside the new file.
    flush_folder(os.path.dirname(place))
    os.rename(fresh, place)
    remove(fresh + _JOURNAL)
    flush_folder(os.path.dirname(place))


def _make_next(
    fresh: str, old: _OldState, spent: tuple[int, int], now: int, series_after: int, begin: Callable[[State], None]
) -> Highest:
    """Make at ``fresh`` the state that will replace the ``old`` one. Return the newest line of its ledger.

    ``spent``: the ε in millionths and the δ in 10⁻¹² that count as spent. ``series_after``: see
    :meth:`Ledger.begin_after_reset`. ``begin`` is called inside a transaction, to write the first entries.
    """
    part = f"{fresh}.part"
    _discard(part)
    with closing(State(part)) as state, state.transaction():
        begin(state)
        line = Ledger(state).begin_after_reset(spent, now, old.lines, series_after)
        if old.track is not None:
            carry_track(state, old.track, [each.number for each in old.lines.paid])
        Spool(state).begin_after(line.number)
    remove(fresh + _JOURNAL)
    os.rename(part, fresh)
    remove(part + _JOURNAL)
    flush_folder(os.path.dirname(fresh))
    return Highest(line.number, line.seal)


class _OldState(NamedTuple):
    """The parts of the state that a reset replaces. A part that can not be read has its default.

    Attributes:
        enrolled: whether the old secret is of a provisioning file.
        total_micro, delta_pico: the ε in millionths and the δ in 10⁻¹² that were spent in all.
        lines, newest: the old ledger, and its last line; no lines if one of them is damaged.
        whole: whether the complete ledger was read; the old file then needs no journal.
        latest: the latest time of an answer, or of an earlier reset, in seconds since 1970.
        sealed: paths of the files that the old state has sealed.
        track: bytes of the time by which limits were counted, with its steps.
        machine_file: path of the file that tells this machine from others; None if the state names none.
        used, own: digests of the secrets of used provisioning files, and of the one whose secret the state has, if any.
    """

    enrolled: bool | None = None
    total_micro: int = 0
    delta_pico: int = 0
    lines: Lines = Lines((), ())
    whole: bool = False
    latest: int = 0
    sealed: tuple[str, ...] = ()
    track: bytes | None = None
    machine_file: str | None = None
    used: tuple[str, ...] | None = None
    own: str | None = None
    newest: Highest | None = None


def _whole_budget(lifetime: tuple[int, int], known: Marker | None, old: _OldState) -> tuple[int, int]:
    """Return the most ε in millionths and δ in 10⁻¹² that may have been spent. ``lifetime``: the present limits."""
    marked = (0, 0) if known is None else (known.lifetime_micro, known.delta_pico)
    return max(lifetime[0], marked[0], old.total_micro), max(lifetime[1], marked[1], old.delta_pico)


def _read_old(place: str) -> _OldState:
    """Return the readable parts of the state at ``place``. Parts that are missing or damaged keep their defaults."""
    old = _OldState()
    if not _is_there(place):
        return old
    try:
        with closing(State(place)) as state:
            old = old._replace(enrolled=state.meta("enrolled") is not None, used=used_here(state))
            secret = state.meta("secret")
            old = old._replace(machine_file=machine_file_of(state))
            old = old._replace(own=used_mark(secret) if old.enrolled and secret is not None else None)
            ledger = Ledger(state)
            old = old._replace(total_micro=ledger.last_total())
            old = old._replace(latest=max(ledger.latest(), ledger.series_after() or 0))
            old = old._replace(delta_pico=ledger.deltas.spent_pico())
            old = old._replace(lines=ledger.lines(), track=stored_track(state), whole=True)
            old = old._replace(newest=state.newest_line())
            return old._replace(sealed=tuple(Spool(state).sealed_paths()))
    except StorageError as error:
        busy = error.detail if error.reason == "state_busy" else None
    if busy is not None:
        raise StorageError("state_busy", busy)
    return old


def _discard(place: str) -> None:
    """Remove a state file and its journal. It is renamed first: SQLite would replay the journal into a new file."""
    aside = f"{place}.old"
    for path in (aside, aside + _JOURNAL):
        remove(path)
    with suppress(FileNotFoundError):
        os.rename(place, aside)
    with suppress(FileNotFoundError):
        os.unlink(place + _JOURNAL)
    remove(aside)


def _is_there(place: str) -> bool:
    """Return whether a file or a link is at ``place``. Raise ``io_failed`` if its folder can not be read."""
    problem = ""
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        problem = error.strerror or "the system refused it"
    if problem:
        raise StorageError(
            "io_failed",
            f"the state folder '{os.path.dirname(place)}' can not be read: {problem}; a state is used by the user who "
            "has provisioned it",
        )
    return True


def _not_provisioned(folder: str) -> StorageError:
    found = "no device is installed in it" if os.path.isdir(folder) else "there is no such folder"
    return StorageError(
        "not_provisioned",
        f"'{folder}': {found}. If a device was installed there, mount its disk or bring its folder back, and do not "
        "provision: that makes a new device, which answers and spends anew. Where none ever was, provision one",
    )


def _unfinished() -> StorageError:
    return StorageError("not_provisioned", "the installation of this device was not finished; provision it once more")


def _already_provisioned() -> InputError:
    return InputError(
        "already_provisioned", "a device is installed in this folder; a program that uses it opens it, without a root"
    )
