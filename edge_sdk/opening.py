"""Opening a device's state, or making a new one: the only places where a device can begin.

A device begins when nothing was installed in its folder, or when its owner resets it. Everything else
that is missing or damaged is ``state_lost``: beginning again by itself would forget what was spent.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from edge_sdk.arguments import check_bytes, path_of
from edge_sdk.policy import POLICY_FILE, Policy, load_policy
from edge_sdk.storage.atomic_files import flush_folder, make_folder, remove
from edge_sdk.storage.database import STATE_FILE, State
from edge_sdk.storage.documents import Documents
from edge_sdk.storage.fetched import forget_fetched
from edge_sdk.storage.highest import HIGHEST_FILE
from edge_sdk.storage.ledger import Ledger, Lines
from edge_sdk.storage.marker import MARKER_FILE, Marker, read_marker, state_lost, used_mark, write_marker
from edge_sdk.storage.outbox import Outbox
from edge_sdk.storage.spool import Spool
from protocol.documents import trust
from protocol.errors import InputError, StorageError
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_JOURNAL = "-journal"


class PolicyFile:
    """The owner's policy in a state folder, read again where the file has changed: a running device obeys it at once.

    Its larger lifetime ε goes into the marker before anything is answered under it.
    """

    def __init__(self, folder: str) -> None:
        """Read it.

        Raises:
            InputError: ``policy_invalid``.
        """
        self._folder = folder
        self._path = os.path.join(folder, POLICY_FILE)
        self._seen = _look_of(self._path)
        self._policy = load_policy(self._path)

    def __call__(self) -> Policy:
        """What holds now.

        Raises:
            InputError: ``policy_invalid``; StorageError: the marker can not be written.
        """
        seen = _look_of(self._path)
        if seen != self._seen:
            policy = load_policy(self._path)
            marker = read_marker(os.path.join(self._folder, MARKER_FILE))
            if marker is not None and policy.lifetime_micro > marker.lifetime_micro:
                _mark(self._folder, marker, policy.lifetime_micro, None)
            self._policy, self._seen = policy, seen
        return self._policy


def _look_of(path: str) -> tuple[int, ...]:
    """Which file a path leads to and when it was changed; nothing where there is none."""
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
    """The state in a folder, provisioned, and what tells the policy that holds; see :meth:`edge_sdk.Device.open`."""
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
            state.recall()
            if state.read_only:
                _look(state, machine())
            else:
                used = _provision(state, root, enrolment, now, entropy, machine())
                if marker is None or not marker.whole:  # some of it can be told by the state
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


def _look(state: State, machine: bytes | None) -> None:
    """See that a state which can only be read is this device's own."""
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
    """Leave the install marker, or bring it up to date."""
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
    """Pin the first root and take or draw the device's secret, or follow the chain from the stored root.

    Returns:
        the device's secret if it came from a provisioning file, which is then used up.

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
    """The first lines of a new state."""
    state.write_meta("secret", secret)
    if enrolled:
        state.write_meta("enrolled", b"1")
    Documents(state).write_trust(trust.pin(root, now))
    if machine is not None:
        state.write_meta("machine", machine)


def _secret(enrolment: bytes | None, entropy: Callable[[int], bytes]) -> bytes:
    """The secret of a closed fleet's provisioning file, else a fresh one."""
    if enrolment is None:
        return entropy(SEED_BYTES)
    from protocol.documents.provisioning import parse_provisioning

    return parse_provisioning(enrolment).secret


def fresh_secret(known: Marker | None, enrolment: bytes | None, entropy: Callable[[int], bytes]) -> bytes:
    """A secret that has answered nothing here.

    Raises:
        InputError: ``enrolment_used``: the provisioning file's secret may have;
        StorageError: ``state_damaged``: nobody knows whether it has.
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

    The old file, if there is one, is set aside before its journal is removed: whenever the device stops in
    between, either the old state is whole or the new one is, or there is none, which is ``state_lost``.
    """
    check_bytes(root, "trust")
    folder = path_of(state_dir, "state_dir")
    place = os.path.join(folder, STATE_FILE)
    allowed = load_policy(os.path.join(folder, POLICY_FILE)) if policy is None else policy
    trust.pin(root, now)  # what can not be trusted is found before anything is changed
    known = read_marker(os.path.join(folder, MARKER_FILE))
    secret = fresh_secret(known, enrolment, entropy)
    _make_folder(folder)
    total, lines = _readable(place)
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
        Outbox(folder).clear()  # the old state's reports, which its owner takes back
        forget_fetched(folder)
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, HIGHEST_FILE))  # the new ledger has none of the old one's lines
        _discard(place)
        flush_folder(folder)  # no power cut may bring the old journal back beside the new file
        os.rename(fresh, place)
        remove(fresh + _JOURNAL)
        flush_folder(folder)
    except OSError as error:
        problem = error.strerror or "the system refused it"
    else:
        return micro
    raise StorageError("io_failed", f"the state can not be replaced: {problem}")


def _readable(place: str) -> tuple[int, Lines]:
    """What the old state says it has spent, and its lines if all are whole, as far as it can still say so."""
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
    """Remove a state file: first its name, so that its journal is never played into another file."""
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
