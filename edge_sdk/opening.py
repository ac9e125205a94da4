"""Opening a device's state, making a new one, and changing whose secret it holds: reset, opting out and in.

A new state is made only if nothing was installed in the folder before, or if the owner resets the device. In all other
cases a missing or damaged state is refused as ``state_lost``: a new state would forget what was spent.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from edge_sdk.arguments import check_bytes, path_of
from edge_sdk.policy import POLICY_FILE, Policy, load_policy
from edge_sdk.storage.atomic_files import flush_folder, make_folder, remove
from edge_sdk.storage.database import State
from edge_sdk.storage.documents import Documents
from edge_sdk.storage.fetched import forget_fetched
from edge_sdk.storage.highest import HIGHEST_FILE
from edge_sdk.storage.ledger import Ledger, Lines
from edge_sdk.storage.marker import MARKER_FILE, Marker, read_marker, state_lost, used_mark, write_marker
from edge_sdk.storage.outbox import Outbox
from edge_sdk.storage.spool import Spool
from edge_sdk.storage.state_file import STATE_FILE
from protocol.documents import trust
from protocol.errors import InputError, StorageError
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_JOURNAL = "-journal"


class PolicyFile:
    """The owner's policy file in a state folder. It is read again when it has changed, so changes hold at once.

    A larger lifetime ε is written into the install marker before anything is answered under it.
    """

    def __init__(self, folder: str) -> None:
        """Read the file.

        Raises:
            InputError: ``policy_invalid``.
        """
        self._folder = folder
        self._path = os.path.join(folder, POLICY_FILE)
        self._seen = _identity_of(self._path)
        self._policy = load_policy(self._path)

    def __call__(self) -> Policy:
        """The policy that holds now.

        Raises:
            InputError: ``policy_invalid``; StorageError: the marker can not be written.
        """
        seen = _identity_of(self._path)
        if seen != self._seen:
            policy = load_policy(self._path)
            marker = read_marker(os.path.join(self._folder, MARKER_FILE))
            if marker is not None and policy.lifetime_micro > marker.lifetime_micro:
                _mark(self._folder, marker, policy.lifetime_micro, None)
            self._policy, self._seen = policy, seen
        return self._policy


def _identity_of(path: str) -> tuple[int, ...]:
    """Device, inode, size and times of the file at a path. They differ if the file was changed or replaced."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return (0,) if os.path.lexists(path) else ()


def open_state(
    state_dir: str | os.PathLike[str] | None,
    root: bytes | None,
    *,
    policy: Policy | None,
    enrolment: bytes | None,
    now: int,
    entropy: Callable[[int], bytes],
    machine: Callable[[], bytes | None],
) -> tuple[State, Callable[[], Policy]]:
    """Open or make the state in a folder; see :meth:`edge_sdk.Device.open`.

    Returns:
        The provisioned state, and a function that returns the policy that holds now.
    """
    if root is not None:
        check_bytes(root, "trust")
    if state_dir is None:
        state = State(None)
        _provision(state, root, enrolment, now, entropy, None)
        held = policy or Policy()
        return state, lambda: held
    folder = path_of(state_dir, "state_dir")
    place = os.path.join(folder, STATE_FILE)
    marker = read_marker(os.path.join(folder, MARKER_FILE))
    _prepare_folder(folder, marker, root, enrolment, now)
    allowed: Callable[[], Policy] = PolicyFile(folder) if policy is None else lambda: policy
    lost = False
    try:
        state = State(place)
        try:
            Ledger(state).check()
            state.check_highest()
            if state.read_only:
                _check_read_only(state, machine())
            else:
                used = _provision(state, root, enrolment, now, entropy, machine())
                if marker is None or not marker.whole:  # the state knows a part of what the marker should say
                    used = state.meta("secret") if state.meta("enrolled") is not None else used
                _mark(folder, marker, allowed().lifetime_micro, used)  # before anything is answered
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


def _check_read_only(state: State, machine: bytes | None) -> None:
    """Check that a state on a read-only disk belongs to this device."""
    if Documents(state).trust() is None:
        raise _not_provisioned()
    _check_machine(state, machine)


def _check_machine(state: State, machine: bytes | None) -> None:
    known = state.meta("machine")
    if machine is not None and known is not None and known != machine:
        raise StorageError(
            "state_copied",
            "this state was made on another machine: a copy would answer, and spend, a second time. "
            "Its owner can reset it, which makes a new secret and counts the whole budget as spent",
        )


def _prepare_folder(folder: str, marker: Marker | None, root: bytes | None, enrolment: bytes | None, now: int) -> None:
    """Check that a device is in a folder or may begin there, and make the folder if it is not there.

    Raises:
        StorageError: ``io_failed``; StorageError, DocumentError: as :func:`_check_beginning`.
    """
    present = os.path.lexists(os.path.join(folder, STATE_FILE))
    if not present:
        _check_beginning(marker, root, enrolment, now)
    if marker is None:
        _make_folder(folder)
        if not present:
            remove(os.path.join(folder, HIGHEST_FILE))  # left by a device whose owner removed its state and marker


def _check_beginning(marker: Marker | None, root: bytes | None, enrolment: bytes | None, now: int) -> None:
    """Check that a device may begin, before anything is written: the files that were given must be acceptable.

    Raises:
        StorageError: ``state_lost``, ``not_provisioned``;
        DocumentError: as :func:`protocol.documents.trust.pin` and ``parse_provisioning``.
    """
    if marker is not None:
        raise state_lost()
    if root is None:
        raise _not_provisioned()
    trust.pin(root, now)
    if enrolment is not None:
        from protocol.documents.provisioning import parse_provisioning

        parse_provisioning(enrolment)


def _mark(folder: str, known: Marker | None, lifetime_micro: int, secret: bytes | None) -> None:
    """Write the install marker if it would change: the largest lifetime ε, and the secret if one is given."""
    old = known or Marker()
    enrolments = old.enrolments if secret is None else (*old.enrolments, used_mark(secret))
    new = Marker(max(old.lifetime_micro, lifetime_micro), tuple(dict.fromkeys(enrolments)), old.whole)
    if new != known:
        write_marker(os.path.join(folder, MARKER_FILE), new)


def _provision(
    state: State,
    root: bytes | None,
    enrolment: bytes | None,
    now: int,
    entropy: Callable[[int], bytes],
    machine: bytes | None,
) -> bytes | None:
    """Provision a new state with its first root and secret, or bring the stored root up to date.

    Returns:
        The device's secret if it came from a provisioning file, else None. That file is not accepted again.

    Raises:
        StorageError: ``not_provisioned``; ``state_copied``: the state was made on another machine.
    """
    documents = Documents(state)
    with state.transaction():
        stored = documents.trust()
        if stored is None:
            if root is None:
                raise _not_provisioned()
            secret = _secret(enrolment, entropy)
            _begin(state, root, secret, now, machine, enrolled=enrolment is not None)
            return None if enrolment is None else secret
        _check_machine(state, machine)
        if root is not None:
            newer = trust.reconcile_pinned(stored, root, now)
            if newer is not stored:
                documents.write_trust(newer)
                documents.end_unsigned("campaign", newer.root.roles["campaign"])
        if enrolment is None:
            return None
        if _secret(enrolment, entropy) != state.meta("secret"):
            raise InputError(
                "enrolment_late", "this device has a secret already; another one would answer periods anew"
            )
        return state.meta("secret")


def _begin(state: State, root: bytes, secret: bytes, now: int, machine: bytes | None, *, enrolled: bool) -> None:
    """Write the first entries of a new state."""
    state.write_meta("secret", secret)
    if enrolled:
        state.write_meta("enrolled", b"1")
    Documents(state).write_trust(trust.pin(root, now))
    if machine is not None:
        state.write_meta("machine", machine)


def _secret(enrolment: bytes | None, entropy: Callable[[int], bytes]) -> bytes:
    """The secret of a closed fleet's provisioning file; a random one without such a file."""
    if enrolment is None:
        return entropy(SEED_BYTES)
    from protocol.documents.provisioning import parse_provisioning

    return parse_provisioning(enrolment).secret


def fresh_secret(known: Marker | None, enrolment: bytes | None, entropy: Callable[[int], bytes]) -> bytes:
    """A secret that was never used on this device.

    Raises:
        InputError: ``enrolment_used``: the provisioning file's secret was used here;
        StorageError: ``state_damaged``: the marker is damaged, so it is not known whether it was used.
    """
    secret = _secret(enrolment, entropy)
    if enrolment is not None and known is not None and not known.whole:
        raise StorageError(
            "state_damaged",
            f"the file '{MARKER_FILE}' was damaged, so it is not known whether this provisioning file was used here; "
            "if it surely was not, remove that file, nothing else, and try again",
        )
    if known is not None and used_mark(secret) in known.enrolments:
        raise InputError(
            "enrolment_used", "this provisioning file was used here; ask the fleet's operator for a new one"
        )
    return secret


def enable_state(state: State, state_dir: str | None, enrolment: bytes | None, entropy: Callable[[int], bytes]) -> None:
    """Give a disabled state a new secret; see :meth:`edge_sdk.Device.enable`. Called inside a transaction."""
    known = None if state_dir is None else read_marker(os.path.join(state_dir, MARKER_FILE))
    secret = fresh_secret(known, enrolment, entropy)
    if state_dir is not None and enrolment is not None:
        _mark(state_dir, known, 0, secret)
    state.write_meta("secret", secret)
    state.remove_meta("disabled")


def disable_state(state: State, ledger: Ledger, spool: Spool) -> None:
    """Delete what an owner who opts out takes back; see :meth:`edge_sdk.Device.disable`.

    Called inside a transaction.
    """
    if state.folder is not None:
        Outbox(state.folder).clear()
        forget_fetched(state.folder)
    state.write_meta("disabled", b"1")
    state.remove_meta("secret")
    spool.clear("disabled")
    ledger.forget_answers()


def reset_state(
    state_dir: str | os.PathLike[str],
    root: bytes,
    *,
    policy: Policy | None,
    enrolment: bytes | None,
    now: int,
    entropy: Callable[[int], bytes],
    machine: Callable[[], bytes | None],
) -> int:
    """Replace a lost, copied or unwanted state; see :meth:`edge_sdk.Device.reset`.

    The old file is renamed before its journal is removed. So a device that stops at any step has the complete old
    state, the complete new state, or none, which is refused as ``state_lost``.
    """
    check_bytes(root, "trust")
    folder = path_of(state_dir, "state_dir")
    place = os.path.join(folder, STATE_FILE)
    allowed = load_policy(os.path.join(folder, POLICY_FILE)) if policy is None else policy
    trust.pin(root, now)  # a root that can not be trusted is refused before anything is changed
    known = read_marker(os.path.join(folder, MARKER_FILE))
    secret = fresh_secret(known, enrolment, entropy)
    _make_folder(folder)
    total, lines = _read_old_ledger(place)
    micro = max(allowed.lifetime_micro, 0 if known is None else known.lifetime_micro, total)
    _mark(folder, known, micro, None if enrolment is None else secret)
    fresh = f"{place}.new"
    try:
        _discard(fresh)
        state = State(fresh)
        try:
            with state.transaction():
                _begin(state, root, secret, now, machine(), enrolled=enrolment is not None)
                line = Ledger(state).begin_after_reset(micro, now, lines)
                Spool(state).begin_after(line)
        finally:
            state.close()
        Outbox(folder).clear()  # these reports are of the old state, and its owner takes them back
        forget_fetched(folder)
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, HIGHEST_FILE))  # it names a line of the old ledger
        _discard(place)
        flush_folder(folder)  # else a power cut could restore the old journal beside the new file
        os.rename(fresh, place)
        remove(fresh + _JOURNAL)
        flush_folder(folder)
    except OSError as error:
        problem = error.strerror or "the system refused it"
    else:
        return micro
    raise StorageError("io_failed", f"the state can not be replaced: {problem}")


def _read_old_ledger(place: str) -> tuple[int, Lines]:
    """Read what the old state has spent in all, and its lines if every line is undamaged.

    Returns:
        The total in millionths of ε, 0 if it can not be read; the lines, none if one of them is damaged.
    """
    total, lines = 0, Lines((), ())
    if os.path.lexists(place):
        with suppress(StorageError):
            state = State(place)
            try:
                ledger = Ledger(state)
                total = ledger.last_total()
                lines = ledger.lines()
            finally:
                state.close()
    return total, lines


def _discard(place: str) -> None:
    """Remove a state file and its journal.

    The file is renamed first: SQLite would replay its journal into any file of the old name.
    """
    aside = f"{place}.old"
    for path in (aside, aside + _JOURNAL):
        remove(path)
    with suppress(FileNotFoundError):
        os.rename(place, aside)
    with suppress(FileNotFoundError):
        os.unlink(place + _JOURNAL)
    remove(aside)


def _not_provisioned() -> StorageError:
    return StorageError("not_provisioned", "this device has no trust root yet; provision it with a .hst file")


def _make_folder(path: str) -> None:
    problem = ""
    try:
        make_folder(path)
    except OSError as error:
        problem = error.strerror or "it can not be made"
    if problem:
        raise StorageError("io_failed", f"the state folder can not be used: {problem}")
