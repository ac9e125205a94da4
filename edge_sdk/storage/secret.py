"""Make a device's secret, random or from a closed fleet's provisioning file; opt out, and take part again."""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from edge_sdk.storage.atomic_files import remove
from edge_sdk.storage.database import STATE_FILE
from edge_sdk.storage.marker import (
    MARKER_FILE,
    Marker,
    check_own_machine,
    note_in_marker,
    read_marker,
    used_mark,
)
from edge_sdk.storage.outbox import clear_outboxes
from edge_sdk.storage.rows import KEPT
from protocol.errors import InputError, StorageError
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from edge_sdk.storage.database import State
    from edge_sdk.storage.ledger import Ledger
    from edge_sdk.storage.spool import Spool

_DISABLED = "disabled"
"""Key of the digest of the secret that an opt-out has deleted. Older software has stored ``1``."""
_USED = "used"
"""Key of the marks (digests of the secrets) of all provisioning files that were used here, parted by spaces."""


def secret_of(enrolment: bytes | None, entropy: Callable[[int], bytes]) -> bytes:
    """Return the secret, 32 bytes, in the provisioning file ``enrolment``; a random one if that is None.

    Raises DocumentError ``malformed``, ``too_large``, ``unsupported_version``: the file is not acceptable; StorageError
    ``entropy_unavailable``: the system has no random bytes yet.
    """
    if enrolment is None:
        return entropy(SEED_BYTES)
    from protocol.documents.provisioning import parse_provisioning

    return parse_provisioning(enrolment).secret


def used_here(state: State) -> tuple[str, ...]:
    """Return the digests of the secrets of the provisioning files that were used here, as far as ``state`` knows.

    The install marker has them too; if one of the two is lost or put back, they are copied from the other.
    """
    stored = state.meta(_USED)
    if stored is not None:
        return tuple(stored.decode(errors="replace").split())
    secret = state.meta("secret")
    return () if secret is None or state.meta("enrolled") is None else (used_mark(secret),)


def note_used(state: State, used: Iterable[str]) -> None:
    """Add digests of used provisioning files' secrets to ``state``. The caller must have opened a transaction."""
    marks = dict.fromkeys((*used_here(state), *used))
    if marks:
        state.write_meta(_USED, " ".join(marks).encode())


def fresh_secret(
    known: Marker | None,
    enrolment: bytes | None,
    entropy: Callable[[int], bytes],
    *,
    held: tuple[str, ...] | None,
    left: str | None = None,
    enrolled: bool,
    leave_fleet: bool,
) -> bytes:
    """Return a new secret. A provisioning file's secret is refused if marker or state say that it was used here.

    A file may be given again if the change that was to use it did not reach the disk.

    Args:
        known: the install marker; None if there is none.
        enrolment: a provisioning file; None for a random secret.
        entropy: n → n random bytes.
        held: marks of the files that the present state has used; None if it can not be read.
        left: mark of the file that a stopped reset was about to use; None if none was stopped.
        enrolled: whether the device is in a closed fleet, which counts no report under a random secret.
        leave_fleet: whether the owner wants the random secret all the same.

    Raises:
        InputError: ``enrolment_missing``: the device is in a closed fleet, no file is given, and it may not leave;
            ``enrolment_used``; ``argument_invalid``: a file is given although the device is to leave its fleet.
        StorageError: ``state_damaged``: the marker was damaged, so it is not known whether the file was used here.
        DocumentError, StorageError: the errors of :func:`secret_of`.
    """
    _check_choice(enrolment, leave_fleet=leave_fleet)
    if enrolled and enrolment is None and not leave_fleet:
        raise InputError(
            "enrolment_missing",
            "this device is in a closed fleet, which would not count its reports under a random secret; "
            "give a new provisioning file (--enrolment), or leave the fleet (--leave-fleet)",
        )
    secret = secret_of(enrolment, entropy)
    if enrolment is not None and known is not None and not known.whole:
        raise StorageError(
            "state_damaged",
            f"the file '{MARKER_FILE}' was damaged, so it is not known whether this provisioning file was used here; "
            "if it surely was not, remove that file, nothing else, and try again",
        )
    if enrolment is not None and (known or Marker()).is_used(used_mark(secret), held, left):
        raise InputError(
            "enrolment_used", "this provisioning file was used here; ask the fleet's operator for a new one"
        )
    return secret


def _check_choice(enrolment: bytes | None, *, leave_fleet: bool) -> None:
    if leave_fleet and enrolment is not None:
        raise InputError(
            "argument_invalid", "give a provisioning file (--enrolment), or leave the fleet (--leave-fleet), not both"
        )


def check_secret(state: State, enrolment: bytes | None) -> None:
    """Raise ``enrolment_late`` if a provisioning file is given and holds another secret than the state."""
    if enrolment is None:
        return
    from protocol.documents.provisioning import parse_provisioning

    held = state.meta("secret")
    if parse_provisioning(enrolment).secret == held:
        return
    raise InputError(
        "enrolment_late",
        "its owner has opted this device out; give the file to 'enable'"
        if held is None
        else "this device has a secret already; another one would answer periods anew. "
        "To take part under a new one, 'disable' the device and give the file to 'enable'",
    )


def enable_state(
    state: State, enrolment: bytes | None, entropy: Callable[[int], bytes], *, leave_fleet: bool = False
) -> None:
    """Give a state whose owner has opted out a new secret (:meth:`edge_sdk.Device.enable`).

    The caller must have opened a transaction. A state that has a secret keeps it, and a given file is only checked
    (:func:`check_secret`).
    """
    check_own_machine(state)
    _check_choice(enrolment, leave_fleet=leave_fleet)
    if state.meta("secret") is not None:
        check_secret(state, enrolment)
        if enrolment is not None:
            note_fleet(state, enrolment)  # older software has not stored the names
        if leave_fleet and state.meta("enrolled") is not None:
            raise InputError(
                "enrolment_late",
                "this device takes part in a closed fleet; to leave it, 'disable' the device first, "
                "then 'enable' it with --leave-fleet",
            )
        return
    folder = state.folder
    known = None if folder is None else read_marker(os.path.join(folder, MARKER_FILE))
    enrolled = state.meta("enrolled") is not None
    held = used_here(state)
    secret = fresh_secret(known, enrolment, entropy, held=held, enrolled=enrolled, leave_fleet=leave_fleet)
    if enrolment is not None:
        if folder is not None:
            # A reset that did not end may have left a state with this secret.
            remove(os.path.join(folder, f"{STATE_FILE}.new"))
            note_in_marker(folder, pending=used_mark(secret))
        note_used(state, (*(() if known is None else known.used(held, None)), used_mark(secret)))
    note_fleet(state, enrolment)
    state.write_meta("secret", secret)
    state.remove_meta(_DISABLED)


def note_uses(state: State) -> None:
    """Note in the marker which provisioning files a state has used. The state must be on the disk.

    If that fails, the next opening of the state does it.
    """
    if state.folder is not None:
        with suppress(StorageError):
            note_in_marker(state.folder, uses=used_here(state))


def note_fleet(state: State, enrolment: bytes | None) -> None:
    """Store the names of fleet and device in a provisioning file whose secret the state has; none if it is None.

    The caller must have opened a transaction. The names are shown to the owner and are in no report.
    """
    if enrolment is None:
        state.remove_meta("enrolled")
        return
    from protocol.documents.provisioning import parse_provisioning

    fleet, device, _ = parse_provisioning(enrolment)
    state.write_meta("enrolled", f"{fleet}\n{device}".encode())


def fleet_of(state: State) -> tuple[str, str] | None:
    """Return the closed fleet of a state's newest secret and the device's name in it; None if the secret is random.

    Both names are empty in a state whose provisioning file was used by older software, which has stored no names.
    """
    stored = state.meta("enrolled")
    if stored is None:
        return None
    fleet, line_break, device = stored.decode(errors="replace").partition("\n")
    return (fleet, device) if line_break else ("", "")


def disable_state(state: State, ledger: Ledger, spool: Spool) -> None:
    """Opt out: delete the secret, the stored reports and answers, and the outboxes and notes of ``sync``.

    The lines of the ledger and the documents stay. The function opens a transaction of its own; on a full disk a second
    one, with the journal in memory, in which a power cut may damage the state. After an error the device still takes
    part, and files of the outboxes may have been removed.
    """
    for journal in (nullcontext, state.journal_in_memory):
        try:
            with journal(), state.transaction():
                _opt_out(state, ledger, spool)
        except StorageError as error:
            if error.reason != "disk_full":
                raise
        else:
            note_ended(state)
            return
    raise StorageError(
        "disk_full",
        "there is no space left for the state; the device still takes part, but files of its outbox may have been "
        "removed; make room and disable it again",
    )


def note_ended(state: State) -> None:
    """Note in the marker which secret an opt-out has deleted, so that no older copy of the state takes part.

    If that fails, the next opening of the state does it.
    """
    mark = state.meta(_DISABLED)
    if state.folder is not None and mark is not None and len(mark) == SEED_BYTES:
        with suppress(StorageError):
            note_in_marker(state.folder, ended=mark.hex())


def keep_opt_out(state: State, ledger: Ledger, spool: Spool, marker: Marker | None) -> None:
    """Opt out a state again, if by the ``marker`` an opt-out has deleted its secret: the state is an older copy."""
    secret = state.meta("secret")
    if marker is not None and secret is not None and used_mark(secret) in marker.ended:
        disable_state(state, ledger, spool)
    note_ended(state)


def _opt_out(state: State, ledger: Ledger, spool: Spool) -> None:
    """Write the opt-out, then remove the files: they stay if a write fails. The caller must open a transaction."""
    sealed, secret = spool.sealed_paths(), state.meta("secret")
    state.remove_meta("secret")
    for key in state.all_meta():
        if key.startswith(KEPT):
            state.remove_meta(key)
    spool.clear("disabled")
    ledger.forget_answers()
    if secret is not None:
        state.write_meta(_DISABLED, bytes.fromhex(used_mark(secret)))
    # Before the commit: once the device is disabled, no file may be left that a later sync would send.
    clear_outboxes(state.folder, sealed)
