"""Batch files of reports that wait to be sent."""

from __future__ import annotations

import errno
import os
from hashlib import sha256
from typing import IO, TYPE_CHECKING

from edge_sdk.durable import write_new
from protocol.errors import StorageError
from protocol.framing import Header, trailer

if TYPE_CHECKING:
    from collections.abc import Sequence


def write_outbox(path: str, batches: Sequence[tuple[Header, Sequence[bytes]]]) -> None:
    """Write one batch after another into a new file at ``path``, whole or not at all, and flush it to disk.

    Only the device's user can read the file: it says that this device takes part, and in what.

    Raises:
        StorageError: ``file_exists``: a batch that may not have been sent is never overwritten;
            ``disk_full``, ``io_failed``. No file is left behind at ``path``.
    """

    def write(file: IO[bytes]) -> None:
        for header, records in batches:
            body = header.to_bytes() + b"".join(records)
            file.write(body + trailer(len(records), sha256(body).digest()))

    problem = 0
    try:
        write_new(path, write)
    except OSError as error:
        problem = error.errno or errno.EIO
    if problem == errno.EEXIST:
        raise StorageError("file_exists", "there is already a file of that name; send it, or choose another name")
    if problem:
        reason = "disk_full" if problem in (errno.ENOSPC, errno.EDQUOT) else "io_failed"
        raise StorageError(reason, f"the batch file can not be written: {os.strerror(problem)}")
