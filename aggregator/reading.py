"""Reading files that others put there: plain files only, and no more of them than was allowed."""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_regular(path: Path | str, most: int = sys.maxsize) -> bytes:
    """The content of a plain file: as many bytes as it has when it is opened.

    Pipes and devices are not read, since they may never end or never begin.

    Raises:
        OSError: with ``errno`` ``EFBIG`` if it has more than ``most`` bytes, ``EISDIR`` if it is a folder,
            ``EINVAL`` if it is another thing; or whatever the operating system says.
        ValueError: ``path`` has a zero byte in it.
    """
    _check(os.stat(path), most)  # noqa: PTH116 - of a small file, making a Path takes as long as reading it
    # Something else may stand there by now: opening must not wait for it, and it is looked at again.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        _check(found, most)
        return _read(descriptor, found.st_size)
    finally:
        os.close(descriptor)


def _read(descriptor: int, size: int) -> bytes:
    """So many bytes, or as many as there are."""
    data = os.read(descriptor, size)
    if len(data) == size:
        return data
    pieces = [data]  # the system gives at most 2 GiB at a time
    left = size - len(data)
    while left and pieces[-1]:
        pieces.append(os.read(descriptor, left))
        left -= len(pieces[-1])
    return b"".join(pieces)


def _check(found: os.stat_result, most: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a plain file")
    if found.st_size > most:
        raise too_large()


def too_large() -> OSError:
    """The error for content that exceeds its limit."""
    return OSError(errno.EFBIG, os.strerror(errno.EFBIG))
