"""The mark file beside a dealer's journal: it shows that old content was written into the dealer's own files.

A backup that is copied over the folder (``cp -a backup/. dealer/``) keeps every inode, so the inode of the journal
tells nothing. The file ``dealer.mark`` is therefore replaced, by a rename, before every change of the journal. The
journal names the mark's random number, its inode and the time at which its inode changed last. That time is the
kernel's, and no program can set it: a file that was written again has another one. So an old journal does not fit the
present mark, and an old mark does not fit the time that the old journal names.

A process can be killed after the mark is replaced and before the journal changes. The mark is then one step ahead: it
names the random number that the journal holds as the one before, and the set of parties that was about to be recorded.
That set counts as released. Layout: docs/formats.md, section 11.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from aggregator.files import PRIVATE, open_output
from aggregator.masked.rows import ReleaseRow
from protocol import canonical
from protocol.errors import DocumentError, InputError
from protocol.masked.release import MAX_REQUEST_BYTES

if TYPE_CHECKING:
    from pathlib import Path

NONCE_BYTES = 16
NO_MARK = bytes(NONCE_BYTES)
"""What a journal names that has no mark yet."""
_TAG = "hearsay dealer mark 1"
_SEAL_BYTES = 8
_MOST_BYTES = MAX_REQUEST_BYTES + 1024
_MOST_DELAY = 60 * 10**9
"""Longest time between the writing of a mark and its rename, in nanoseconds, for a mark that no journal names yet."""


class Place(NamedTuple):
    """What the file system knows of a mark: the inode, and the time of its last change in nanoseconds since 1970."""

    inode: int
    changed: int


class Mark(NamedTuple):
    """The content of a mark file.

    Attributes:
        nonce: its random number, 16 bytes.
        before: random number of the mark that it replaced; :data:`NO_MARK` for the first.
        inode: of the file.
        written: when the file was made, in nanoseconds since 1970, by the clock of the file system.
        pending: the set of parties that the journal was about to record; None if the change was another one.
    """

    nonce: bytes
    before: bytes
    inode: int
    written: int
    pending: ReleaseRow | None

    def was_written_at(self, place: Place) -> bool:
        """Whether a mark that is one step ahead of its journal is in the file that it was written to, and only then."""
        return self.inode == place.inode and 0 <= place.changed - self.written <= _MOST_DELAY


def read_mark(path: Path) -> tuple[Mark, Place] | None:
    """The mark file and its place; None if there is no file, or its content is not what this software writes.

    Raises:
        OSError: the file is there and can not be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        raw, place = file.read(_MOST_BYTES + 1), _place(descriptor)
    packed, seal = raw[:-_SEAL_BYTES], raw[-_SEAL_BYTES:]
    if len(raw) > _MOST_BYTES or seal != _seal(packed):
        return None
    try:
        tag, nonce, before, inode, written, pending = canonical.unpack(packed)
        mark = Mark(nonce, before, inode, written, None if pending is None else ReleaseRow(*pending))
    except (DocumentError, InputError, TypeError, ValueError):
        return None
    numbers = isinstance(mark.inode, int) and isinstance(mark.written, int)
    return (mark, place) if tag == _TAG and numbers else None


def write_mark(path: Path, nonce: bytes, before: bytes, pending: ReleaseRow | None) -> Place:
    """Replace the mark file. The new file and its name are on the disk when this returns.

    Args:
        path: of the file.
        nonce: a new random number, 16 bytes.
        before: random number of the mark that the journal names.
        pending: the set of parties that the journal is about to record, or None.

    Raises:
        StorageError: ``disk_full``, ``io_failed``.
        OSError: the new file can not be flushed.
    """
    with open_output(path, force=True, mode=PRIVATE) as file:
        place = _place(file.fileno())
        packed = canonical.pack([_TAG, nonce, before, *place, None if pending is None else list(pending)])
        file.write(packed + _seal(packed))
    with path.open("rb") as renamed:
        os.fsync(renamed.fileno())  # The rename changed the inode's time, which the journal is to name.
        return _place(renamed.fileno())


def _place(descriptor: int) -> Place:
    status = os.fstat(descriptor)
    return Place(status.st_ino, status.st_ctime_ns)


def _seal(packed: bytes) -> bytes:
    return sha256(packed).digest()[:_SEAL_BYTES]
