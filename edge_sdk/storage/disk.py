"""Whether the disk of a state folder may forget what was written to it.

A state in memory, or in a layer above a read-only disk, is gone after the next start. The device then answers a period
again that it has answered, with new noise, and nothing that is left tells of it. Such a layer may also be kept, as a
container's is, so this is said in the status and is no refusal.

Only the folder's own file system is looked at. A disk image that lies in memory, a loop device or a RAM disk below an
ordinary file system is not found.
"""

from __future__ import annotations

import os
from contextlib import suppress

_MOUNTS = "/proc/self/mountinfo"
_FORGETTING = frozenset((b"tmpfs", b"ramfs", b"overlay", b"aufs"))


def disk_may_forget(folder: str, mounts: str = _MOUNTS) -> str | None:
    """The type of a folder's file system, for example ``tmpfs``, if it may be empty after the next start.

    Other file systems, and file systems of unknown type, give None.

    Args:
        folder: the state folder.
        mounts: path of the kernel's list of mounts.
    """
    with suppress(OSError, IndexError):
        number = os.stat(folder).st_dev
        called = b"%d:%d" % (os.major(number), os.minor(number))
        with open(mounts, "rb") as file:
            for line in file:
                before, _, after = line.partition(b" - ")
                kind = after.split()[0]
                if before.split()[2] == called and kind in _FORGETTING:
                    return kind.decode()
    return None
