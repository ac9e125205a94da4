"""The file ``policy.toml`` in a state folder, and how a running device follows it. :class:`Policy` says what it means.

Without the file the defaults of :class:`Policy` hold. If the install marker or the program's memory says that there was
a file, its absence is refused as ``policy_missing`` instead. An empty file is refused, since a power cut leaves such
files. So write a new file and ``mv`` it to this name.
"""

from __future__ import annotations

import codecs
import os
import re
from contextlib import suppress

from edge_sdk.policy.policy import Policy
from edge_sdk.storage.atomic_files import is_no_file, read_regular
from edge_sdk.storage.marker import MARKER_FILE, note_in_marker, read_marker
from protocol.errors import InputError

POLICY_FILE = "policy.toml"
_MAX_BYTES = 1 << 20
_EMPTY = (
    " is empty, as a power cut leaves a file that was being written; write a new file and mv it to this name. "
    "If the defaults are to hold, write the line '# defaults' into it"
)


def load_policy(path: str) -> Policy:
    """Read the owner's policy file at ``path``. If there is neither a file nor a link, the defaults hold.

    Raises:
        InputError: ``policy_invalid``: the file can not be read, is empty, is not TOML, or has an unknown key or a
            wrong value. The defaults do not replace a policy that can not be read.
    """
    if not os.path.lexists(path):
        return Policy()
    import tomllib

    try:
        raw = read_regular(path, _MAX_BYTES + 1)
        content = raw.removeprefix(codecs.BOM_UTF8)  # some editors begin a text with it
        if len(raw) > _MAX_BYTES:
            problem = f" has more than {_MAX_BYTES} bytes"
        elif content.strip():
            return Policy.of(**tomllib.loads(content.decode()))
        else:
            problem = _EMPTY
    except InputError as error:
        problem = f": {error.detail}"
    except (OSError, ValueError, RecursionError) as error:
        # Only the position of the error is told, since the error's text may quote the file.
        place = re.search(r"\(at [a-z0-9, ]*\)$", str(error))
        problem = f" can not be read: {type(error).__name__}{f' {place[0]}' if place else ''}"
        if is_no_file(path):
            problem = (
                " is no regular file, but a folder, a pipe, a device or a link that leads nowhere; put a file there"
            )
    raise InputError("policy_invalid", POLICY_FILE + problem)


class PolicyGiven:
    """The policy that an application gives, or the defaults; used in the place of :class:`PolicyFile`.

    Attributes:
        in_file, marks: false, since there is no file and nothing to write into the marker.
        origin: ``application``, or ``defaults`` if the application gives none.
    """

    in_file = False
    marks = False

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy or Policy()
        self.origin = "defaults" if policy is None else "application"

    def __call__(self) -> Policy:
        """The policy that holds now: always the same one."""
        return self._policy


class PolicyFile:
    """The owner's policy file in a state folder. It is read again when it has changed, so changes hold at once.

    The install marker remembers that there was such a file; this object remembers it too. So a file that is gone is
    refused, and the defaults do not replace it.

    Attributes:
        marks: whether the file is noted into the marker; false until the state is open for writing.
    """

    def __init__(self, folder: str) -> None:
        self.marks = False
        self._marker = os.path.join(folder, MARKER_FILE)
        self._folder = folder
        self._path = os.path.join(folder, POLICY_FILE)
        self._seen: tuple[int, ...] = ()
        self._was_there = False
        self._policy: Policy | None = None

    @property
    def in_file(self) -> bool:
        """Whether there is a file or a link named ``policy.toml`` in the folder."""
        return os.path.lexists(self._path)

    @property
    def origin(self) -> str:
        """Where the policy that holds now is from: ``policy.toml`` or ``defaults``."""
        return POLICY_FILE if self.in_file else "defaults"

    def __call__(self) -> Policy:
        """The policy that holds now.

        Raises:
            InputError: ``policy_invalid``: the file can not be read or has a wrong entry; ``policy_missing``: the file
                is gone.
            StorageError: ``io_failed``, ``disk_full``: the marker can not be read or written.
        """
        seen = _identity_of(self._path)
        if self._policy is None or seen != self._seen:
            self._policy = None
            self._was_there = self._was_there or bool(seen)
            policy = load_policy(self._path)
            marker = read_marker(self._marker)
            if not seen and (self._was_there or (marker is not None and marker.policy)):
                raise InputError(
                    "policy_missing",
                    f"{POLICY_FILE} was here and is gone; restore it, or put a file with the line '# defaults' there "
                    "if the defaults are to hold",
                )
            if marker is not None and self.marks:
                note_in_marker(self._folder, policy=bool(seen))
            self._policy, self._seen = policy, seen
        return self._policy


def _identity_of(path: str) -> tuple[int, ...]:
    """Device, inode, size and times of the file at a path, which differ if the file was changed or replaced.

    Empty if there is no file; (0,) if there is one that can not be examined.
    """
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return (0,) if os.path.lexists(path) else ()
