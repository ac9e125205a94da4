"""Batch files that appear whole or not at all: written beside, flushed, then renamed."""

from __future__ import annotations

import contextlib
import os
from hashlib import sha256
from typing import TYPE_CHECKING

from protocol.batch import Header, trailer
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def write_outbox(path: str, batches: Sequence[tuple[Header, Sequence[bytes]]]) -> None:
    """Write one batch after another into a new file at ``path``; file and folder are flushed to disk.

    Raises:
        StorageError: ``file_exists``: a batch that may not have been sent is never overwritten;
            ``disk_full``, ``io_failed``. No file is left behind at ``path``.
    """
    if os.path.exists(path):
        raise StorageError("file_exists", "there is already a file of that name; send it, or choose another name")
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.tmp")
    problem = 0
    try:
        with open(temporary, "wb") as file:
            for header, records in batches:
                body = header.to_bytes() + b"".join(records)
                file.write(body + trailer(len(records), sha256(body).digest()))
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
        flush_folder(folder or ".")
    except OSError as error:
        problem = error.errno or 5
        _remove(temporary)
    if problem:
        reason = "disk_full" if problem in (28, 122) else "io_failed"
        raise StorageError(reason, f"the batch file can not be written: {os.strerror(problem)}")


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def flush_folder(folder: str) -> None:
    """Make a rename in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
