"""Read files of other users: only regular files, and at most a given number of bytes."""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_regular(path: Path | str, most: int = sys.maxsize) -> bytes:
    """Read a regular file of at most ``most`` bytes. Bytes that are appended meanwhile are left out.

    Pipes and devices are refused, since reading them may never end.

    Raises:
        OSError: with ``errno`` ``EFBIG`` if the file has more than ``most`` bytes, ``EISDIR`` for a folder, ``EINVAL``
            for anything else that is no regular file; or an error of the operating system.
        ValueError: ``path`` has a zero byte in it.
    """
    _check(os.stat(path), most)  # noqa: PTH116 - making a Path takes as long as reading a small file
    # Another file may have taken the name since the check. So opening must not block, and the open file is checked.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        _check(found, most)
        return _read(descriptor, found.st_size)
    finally:
        os.close(descriptor)


def _read(descriptor: int, size: int) -> bytes:
    """Read ``size`` bytes, or fewer if the file ends."""
    data = os.read(descriptor, size)
    if len(data) == size:
        return data
    pieces = [data]  # one call reads at most 2 GiB
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
    """Make the ``OSError`` for content that exceeds its limit: ``errno`` is ``EFBIG``."""
    return OSError(errno.EFBIG, os.strerror(errno.EFBIG))
