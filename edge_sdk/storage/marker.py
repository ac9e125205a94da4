"""Keep the install marker, a small file beside the state that shows a lost state, and the id of the machine.

A new state in place of a lost one would forget what was spent, so the owner must ask for a reset. A digest of the
machine's id is stored in the state and shows that the state was copied to another machine.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.atomic_files import is_no_file, os_errors, read_regular, replace
from protocol.database import NO_MACHINE_ID, machine_ids
from protocol.errors import InputError, StorageError
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from edge_sdk.storage.database import State

MARKER_FILE = "installed"
_FORMAT = 2
_COPIES = 2
"""Copies of the marker's line, each with its own digest. One changed bit damages one copy at most."""
_DIGEST_CHARACTERS = 64
_MAX_BYTES = 1 << 16
_MAX_ENDED = 32
_MARKER_TAG = b"hearsay/2/installed"
_USED_TAG = b"hearsay/1/used"
_MACHINE_TAG = b"hearsay/1/machine"
_MAX_ID = 4096


def system_machine() -> bytes | None:
    """Return 32 bytes that tell this machine from others; None if the system has no id.

    The bytes are a digest of the system's machine id and the board's serial number, so the state reveals neither.
    """
    ids = machine_ids()
    return sha256(_MACHINE_TAG + ids).digest() if ids.strip(b"\0") else None


def machine_in_file(path: str) -> bytes | None:
    """Return a digest, 32 bytes, of the machine's id in the file at ``path``; None if it has none or is unreadable."""
    with suppress(OSError):
        found = read_regular(path, _MAX_ID).strip(b"\0\n ").removeprefix(NO_MACHINE_ID)
        return sha256(_MACHINE_TAG + b"file\0" + found).digest() if found else None
    return None


def machine_file_of(state: State) -> str | None:
    """Return the path of the file with the machine's id that ``state`` names; None if it names none."""
    path = state.meta("machine_file")
    return None if path is None else os.fsdecode(path)


class Machine:
    """What tells this machine from others: a function of the application, a file, or else the ids of the system."""

    def __init__(self, function: Callable[[], bytes | None] | None = None, file: str | None = None) -> None:
        """Keep a ``function`` that returns the machine's 32 bytes or None, or the path of a ``file``; not both."""
        if function is not None and file is not None:
            raise InputError("argument_invalid", "give machine= or machine_id=, not both")
        self._function = function
        self._file = file

    def of(self, state: State) -> bytes:
        """Return 32 bytes that tell the present machine from others; empty bytes if it has no id.

        They come from the application's function; without it from the file that ``state`` names, or else from the
        system.
        """
        if self._function is not None:
            return self._function() or b""
        file = machine_file_of(state)
        return (system_machine() if file is None else machine_in_file(file)) or b""

    def check(self) -> None:
        """Raise ``machine_unknown`` if the file of the machine's id is empty or unreadable."""
        if self._file is not None and machine_in_file(self._file) is None:
            raise InputError("machine_unknown", f"the file '{self._file}' of the machine's id is empty or unreadable")

    def write(self, state: State) -> None:
        """Store this machine's id in a new ``state``. The caller must have opened a transaction."""
        self.check()
        if self._file is not None:
            state.write_meta("machine_file", os.fsencode(self._file))
        state.write_meta("machine", self.of(state))

    def after(self, file: str | None) -> Machine:
        """Return this machine; if it has neither function nor file, with ``file``, which the replaced state names."""
        return Machine(None, file) if self._function is None and self._file is None else self


class Marker(NamedTuple):
    """The content of the install marker.

    Attributes:
        lifetime_micro: the largest lifetime ε, in millionths, under which anything was answered here.
        enrolments: digests of the secrets of all provisioning files that were used here. None of them is used again,
            since it would answer old periods a second time.
        pending: those of ``enrolments`` that a change was about to use. Whether the change reached the disk, the state
            shows (:func:`edge_sdk.storage.secret.used_here`).
        whole: whether ``enrolments`` is surely complete. It is not after a marker was damaged.
        policy: whether the owner ever had a policy file here.
        delta_pico: the largest lifetime δ, in 10⁻¹², under which anything was answered here.
        ended: digests of the newest secrets that an opt-out has deleted. A state that has one of them is an older copy.
    """

    lifetime_micro: int = 0
    enrolments: tuple[str, ...] = ()
    whole: bool = True
    policy: bool = False
    delta_pico: int = 0
    pending: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()

    def is_used(self, mark: str, held: tuple[str, ...] | None, left: str | None) -> bool:
        """Return whether the provisioning file whose secret has this ``mark`` (digest) was used here.

        Args:
            mark: the result of :func:`used_mark` for the file's secret.
            held: the marks that the present state holds; None if the state can not be read.
            left: mark of the file that a stopped reset was about to use; None if there is none.
        """
        if mark in (held or ()):
            return True
        undone = mark in self.pending and (held is not None or mark == left)
        return mark in self.enrolments and not undone

    def used(self, held: tuple[str, ...] | None, left: str | None) -> tuple[str, ...]:
        """Return the marks of all provisioning files that were used here (:meth:`is_used`)."""
        return tuple(mark for mark in self.enrolments if self.is_used(mark, held, left))


def used_mark(secret: bytes) -> str:
    """Return a digest of ``secret``, 64 hexadecimal digits, by which the marker recognises it without revealing it."""
    return sha256(_USED_TAG + secret).digest().hex()


def read_marker(path: str) -> Marker | None:
    """Return the install marker at ``path``; None if there is none. A damaged one is empty, with ``whole`` false.

    Raise StorageError ``state_damaged`` if it is no regular file.
    """
    problem, lines, absent = "", [], False
    try:
        lines = read_regular(path, _MAX_BYTES).split(b"\n")
    except (FileNotFoundError, NotADirectoryError) as error:
        problem, absent = str(error.strerror), not os.path.lexists(path)
    except OSError as error:
        problem = error.strerror or "the system refused it"
    if absent:
        return None
    if problem and is_no_file(path):
        raise StorageError(
            "state_damaged",
            f"'{MARKER_FILE}' in the state folder is no regular file, but a folder, a pipe, a device or a link that "
            "leads nowhere; move it away, put an empty file there, and try again",
        )
    if problem:
        raise StorageError("io_failed", f"the install marker can not be read: {problem}")
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            return _read_line(line)
    return Marker(whole=False)


def _read_line(line: bytes) -> Marker:
    """Return the marker in a line; ValueError if its digest is wrong. The digest detects accidents, not forgery."""
    digest, text = line[:_DIGEST_CHARACTERS], line[_DIGEST_CHARACTERS + 1 :]
    if digest != _digest(text):
        raise ValueError
    body = json.loads(text)
    return Marker(
        int(body["epsilon_lifetime_micro"]),
        tuple(map(str, body["enrolments"])),
        bool(body["whole"]),
        bool(body.get("policy")),
        int(body.get("delta_lifetime_pico", 0)),
        tuple(map(str, body.get("pending", ()))),
        tuple(map(str, body.get("ended", ()))),
    )


def _digest(text: bytes) -> bytes:
    return sha256(_MARKER_TAG + text).digest().hex().encode()


def write_marker(path: str, marker: Marker) -> None:
    """Write ``marker`` to ``path``, or replace the marker there, and flush it to disk."""
    content = {
        "format": _FORMAT,
        "epsilon_lifetime_micro": marker.lifetime_micro,
        "enrolments": list(marker.enrolments),
        "whole": marker.whole,
        "policy": marker.policy,
    }
    later = {"delta_lifetime_pico": marker.delta_pico, "pending": list(marker.pending), "ended": list(marker.ended)}
    text = json.dumps({**content, **{key: value for key, value in later.items() if value}}).encode()
    with os_errors("the install marker can not be written"):
        replace(path, b"\n\n".join([_digest(text) + b" " + text] * _COPIES) + b"\n")


def note_in_marker(
    folder: str,
    lifetime: tuple[int, int] = (0, 0),
    *,
    uses: Iterable[str] = (),
    pending: str | None = None,
    policy: bool = False,
    ended: str | None = None,
) -> None:
    """Add facts to the install marker, and write it if that changes it. Other processes wait meanwhile.

    Args:
        lifetime: the ε in millionths and the δ in 10⁻¹² that the owner allows; the marker keeps the largest of each.
        uses, pending: marks of provisioning files that were used here, and of one that is about to be used.
        policy: whether there is a policy file; the marker keeps a true value for ever.
        ended: mark of the secret that an opt-out has deleted. The marker keeps the newest 32.
    """
    place, used = os.path.join(folder, MARKER_FILE), tuple(uses)
    with _alone(folder):
        known = read_marker(place)
        old = known or Marker()
        waits = old.pending if pending is None or pending in old.enrolments else (*old.pending, pending)
        new = old._replace(
            lifetime_micro=max(old.lifetime_micro, lifetime[0]),
            delta_pico=max(old.delta_pico, lifetime[1]),
            enrolments=tuple(dict.fromkeys((*old.enrolments, *used, *(() if pending is None else (pending,))))),
            pending=tuple(mark for mark in waits if mark not in used),
            policy=old.policy or policy,
            ended=old.ended if ended is None or ended in old.ended else (*old.ended, ended)[-_MAX_ENDED:],
        )
        if new != known:
            write_marker(place, new)


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Let one process and thread at a time change the marker, where the system can lock a folder."""
    descriptor = None
    with suppress(ImportError, OSError):
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):  # a child process that was forked meanwhile holds the descriptor, too
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def state_lost() -> StorageError:
    """Return the error for a device that was installed here and whose state is missing or damaged."""
    return StorageError(
        "state_lost",
        "a device was installed here and its state is missing or damaged; what it had spent is not known. "
        "Nothing is answered until its owner resets it, which counts its whole budget as spent",
    )


def check_own_machine(state: State) -> None:
    """Raise StorageError ``state_copied`` if the state was made on another machine."""
    if state.copied:
        raise StorageError(
            "state_copied",
            f"{state.copied}: a copy would answer, and spend, a second time. Its models still classify. Its owner can "
            "reset it, which makes a new secret and counts the whole budget as spent",
        )
