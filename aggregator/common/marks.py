"""The mark of a ledger: an empty file beside an SQLite file, which shows that old content came into the ledger's place.

Run by a dealer's journal and by a curator's budget. Each change of the ledger makes a mark of its own, with a random
number in its name. The ledger names the number, the mark's inode, and the time at which that inode changed last. The
time is the kernel's, and no program can set it: a mark that was written again, copied or restored has another one.

The order of a change is: make the new mark, commit the ledger that names it, remove the old mark; then something may
leave. So at every moment the ledger fits a mark that is there, and nothing has to be tolerated:

- An old ledger that is restored alone names a mark that was removed.
- An old mark that is restored alone is one mark too many, and is removed.
- Ledger and mark that are restored together do not fit: the mark has another time.
- A process that was killed leaves one mark too many. Before anything leaves, the next one removes all but the named.

A mark never moves: a rename, a link or a change of its mode or owner would change its time. The folder that holds it
may be renamed. Layout: docs/formats.md, section 11.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from aggregator.common.files import PRIVATE, sync_folder

NONCE_BYTES = 16
_LARGEST = (1 << 63) - 1
"""An inode number of 64 bits is cut to what an SQLite integer holds."""
_NAME = re.compile(f"[0-9a-f]{{{2 * NONCE_BYTES}}}\\.mark")


class Mark(NamedTuple):
    """A mark, as the ledger names it.

    Attributes:
        nonce: its random number, 16 bytes.
        inode: of the file.
        changed: when the inode changed last, in nanoseconds since 1970, by the clock of the kernel.
    """

    nonce: bytes
    inode: int
    changed: int


def as_mark(values: Sequence[object]) -> Mark | None:
    """A mark of the values that a ledger holds; None if no mark has such values."""
    match values:
        case bytes(nonce), int(inode), int(changed) if len(nonce) == NONCE_BYTES:
            return Mark(nonce, inode, changed)
    return None


def no_mark() -> Mark:
    """A mark that no file is: a ledger that names it fits no place, and has to be adopted."""
    return Mark(secrets.token_bytes(NONCE_BYTES), 0, 0)


def new_mark(ledger: Path) -> Mark:
    """Make a mark beside a ledger. It is on the disk when this returns.

    Raises:
        OSError: the file can not be made or flushed.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    descriptor = os.open(path_of(ledger, nonce), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        os.fsync(descriptor)
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(ledger.parent)
    return Mark(nonce, found.st_ino & _LARGEST, found.st_ctime_ns)


def is_there(ledger: Path, named: Mark) -> bool:
    """Whether the mark that a ledger names is beside it, unchanged since it was made.

    Raises:
        OSError: the file can not be examined.
    """
    try:
        found = os.lstat(path_of(ledger, named.nonce))
    except FileNotFoundError:
        return False
    return (found.st_ino & _LARGEST, found.st_ctime_ns) == named[1:]


def marks_beside(ledger: Path) -> list[Path]:
    """All marks of a ledger, also those that it does not name.

    Raises:
        OSError: the folder can not be read.
    """
    before = f"{ledger.name}."
    names = [each.name for each in os.scandir(ledger.parent)]
    return [
        ledger.with_name(name) for name in names if name.startswith(before) and _NAME.fullmatch(name[len(before) :])
    ]


def superfluous_marks(ledger: Path, named: Mark) -> list[Path]:
    """The marks of a ledger that it does not name: of killed changes, or restored.

    Raises:
        OSError: the folder can not be read.
    """
    own = path_of(ledger, named.nonce)
    return [each for each in marks_beside(ledger) if each != own]


def remove_marks(ledger: Path, marks: list[Path]) -> None:
    """Remove marks, so that no older ledger fits. They are gone from the disk when this returns.

    Raises:
        OSError: a mark can not be removed, or the folder not be flushed.
    """
    for each in marks:
        each.unlink(missing_ok=True)
    sync_folder(ledger.parent)


def make_durable(ledger: Path) -> None:
    """Make the commit of a process that was killed durable, before the mark of the ledger before it is removed.

    Such a process may have ended its commit for all readers by cutting SQLite's own journal, without flushing that. A
    power cut would then undo the commit, and bring back a ledger whose mark is gone.

    Raises:
        OSError: the journal can not be flushed.
    """
    with suppress(FileNotFoundError):
        descriptor = os.open(f"{ledger}-journal", os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(ledger.parent)


def path_of(ledger: Path, nonce: bytes) -> Path:
    """Where the mark with this random number is."""
    return ledger.with_name(f"{ledger.name}.{nonce.hex()}.mark")
