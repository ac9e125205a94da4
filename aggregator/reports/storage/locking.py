"""Atomic writes of files, which after a power cut have their old or their new content, and one lock per folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from aggregator.common.files import ORDINARY, sync_folder
from protocol.errors import StorageError

TEMPORARY = ".tmp"
"""Suffix of a file that is being written. Files with this suffix that a crash leaves are never read."""
LOCK_FILE = "lock"
"""Name of the file in a store's folder that a process locks while it changes the store."""
LOCK_TIMEOUT_SECONDS = 60.0
"""How long a process waits for the lock, unless ``Store.lock_timeout_seconds`` is changed."""
_POLL_SECONDS = 0.05
_FLUSHERS = 16
"""Largest number of files that are flushed at a time."""


def write_durably(path: Path, data: bytes, mode: int = ORDINARY) -> None:
    """Write ``data`` to ``path`` atomically with permissions ``mode``, through no link, and flush file and folder."""
    write_temporary(path, data, mode)
    replace_durably([path])


def write_temporary(path: Path, data: bytes, mode: int = ORDINARY) -> None:
    """Write ``data`` under the temporary name of ``path``, without a flush. :func:`replace_durably` moves it."""
    temporary = _temporary(path)
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
        file.write(data)


def replace_durably(paths: Sequence[Path]) -> None:
    """Flush temporary files of one folder to the disk, rename each to its path, and flush the folder once.

    Several files are flushed at a time, which is many times as fast as one by one. After an error each of the ``paths``
    has its old content or its new content.
    """
    if len(paths) > 1:
        with ThreadPoolExecutor(_FLUSHERS) as flusher:
            list(flusher.map(_sync, map(_temporary, paths)))
    else:
        list(map(_sync, map(_temporary, paths)))
    for path in paths:
        _temporary(path).replace(path)
    for folder in {path.parent for path in paths}:
        sync_folder(folder)


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + TEMPORARY)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder unless it exists, also in several threads, and flush its entry in the parent to the disk."""
    if not path.is_dir():
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


@contextmanager
def exclusive(
    path: Path,
    timeout_seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Context manager that holds the lock file at ``path``, which the system releases when the process ends or crashes.

    ``clock`` and ``sleep`` measure and pass the time. Raises OSError: ``path`` is a link, or can not be opened;
    StorageError ``store_busy``: another process held the lock for ``timeout_seconds``.
    """
    deadline = clock() + timeout_seconds
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, ORDINARY), "wb") as file:
        while not try_lock(file.fileno()):
            if clock() >= deadline:
                raise StorageError("store_busy", "another process is writing to this store; try again later")
            sleep(_POLL_SECONDS)
        yield


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder, unless another process or descriptor has locked it; return whether it is locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
