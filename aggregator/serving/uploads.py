"""Uploads: batch files that devices send, stored in the folder ``reports/`` of a published tree.

A file is complete on disk before its sender is answered with 2xx. Limits on the size of one file and of all files keep
a sender from filling the disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from io import BufferedIOBase
from pathlib import Path
from typing import IO, NamedTuple

from aggregator.common.files import PRIVATE, failure_of, open_output
from protocol.errors import InputError, StorageError

LEAST_COST = 4096
"""Least number of bytes that a file counts as, because many small files fill a disk too."""
ABANDONED_SECONDS = 600.0
"""No upload lasts this long: an incomplete file that did not change for so long is of a server that was killed."""
_INCOMPLETE = re.compile(r"\.[0-9a-f]{1,64}[.a-z]*\.[0-9a-f]{16}\.tmp")
_BLOCK = 1 << 16


class Limits(NamedTuple):
    """Limits of uploads.

    Attributes:
        file_bytes: most bytes of one batch file.
        all_bytes: most bytes of all files in ``reports/`` at one time.
    """

    file_bytes: int = 16 << 20
    all_bytes: int = 1 << 30


class Uploads:
    """The folder of uploaded batches.

    Args:
        folder: ``reports/`` of a published tree. It is made again if it is missing.
        limits: limits of uploads.
        problem: called with a sentence for the operator if this machine keeps an upload from being stored.

    Attributes:
        limits: the argument.
    """

    def __init__(self, folder: Path, limits: Limits, problem: Callable[[str], None] = lambda _: None) -> None:
        self._folder = folder
        self._problem = problem
        self.limits = limits
        self._quota = _DiskQuota(folder, limits.all_bytes)

    def store(self, name: str, body: RequestBody) -> HTTPStatus:
        """Store a batch file that only this user may read, and flush it to disk.

        The same file may be uploaded again. Another content for an existing name is refused.

        Args:
            name: file name in ``reports/``, already checked.
            body: body of the request. It is read to its end for status 201 and 204; otherwise a rest may be unread.

        Returns:
            The status to answer: 201 stored; 204 an existing file has this content; 409 an existing file has another
            content, or can not be compared; 400 the body is shorter than announced; 507 there is no room: the limit of
            the folder, or a full disk; 503 another fault of the server, so the client may try again: a write or read
            failed, the file appeared meanwhile, or ``reports/`` is gone and can not be made.
        """
        path = self._folder / name
        if os.path.lexists(path):
            return HTTPStatus.NO_CONTENT if _has_content(path, body) else HTTPStatus.CONFLICT
        size = body.left
        if not self._quota.reserve(size):
            return HTTPStatus.INSUFFICIENT_STORAGE
        status = HTTPStatus.SERVICE_UNAVAILABLE
        try:
            self._folder.mkdir(exist_ok=True)
            with open_output(path, mode=PRIVATE) as file:
                while block := body.read():
                    file.write(block)
            status = HTTPStatus.CREATED
        except EOFError:
            status = HTTPStatus.BAD_REQUEST
        except StorageError as error:
            self._problem(f"an upload could not be stored: {error}")
            if error.reason == "disk_full":
                status = HTTPStatus.INSUFFICIENT_STORAGE
        except InputError:
            pass  # Another request has just written this file.
        except OSError as error:
            self._problem(f"'{self._folder}' can not be written: {failure_of(error)[1]}")
        finally:
            self._quota.release(size, kept=status == HTTPStatus.CREATED)
        return status


class RequestBody:
    """The body of a request, read block by block to its announced end.

    Attributes:
        left: number of announced bytes that were not read yet.
    """

    def __init__(self, stream: BufferedIOBase, length: int) -> None:
        self._stream = stream
        self.left = length

    def read(self) -> bytes:
        """The next block; empty at the end.

        Raises:
            EOFError: the body is shorter than announced.
            OSError: the connection failed.
        """
        if not self.left:
            return b""
        block = self._stream.read(min(_BLOCK, self.left))
        if not block:
            raise EOFError
        self.left -= len(block)
        return block

    def discard(self, most: int) -> None:
        """Discard the rest of the body, about ``most`` bytes at most: a client reads the answer only after sending."""
        with contextlib.suppress(EOFError, OSError):
            while most > 0 and (block := self.read()):
                most -= len(block)


def _has_content(path: Path, body: RequestBody) -> bool:
    """Whether a file has the content of a request body. False also if file or body can not be read to the end."""
    try:
        with open_regular(path) as file:
            while block := body.read():
                if file.read(len(block)) != block:
                    return False
            return not file.read(1)
    except (OSError, EOFError):
        return False


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading. Links are not followed, and a pipe does not block.

    Raises:
        OSError: the path is no regular file, or can not be opened.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(path)
    return file


class _DiskQuota:
    """Limit on the bytes of all files in a folder.

    The folder is measured at the start, and again when a file would not fit. From then on files that were moved away
    no longer count. Each time, incomplete files of killed servers are removed.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._guard = threading.Lock()
        self._used = self._measure()
        self._reserved = 0

    def reserve(self, size: int) -> bool:
        """Reserve room for a file of ``size`` bytes that arrives. Returns False if the folder would be too full."""
        size = max(size, LEAST_COST)
        with self._guard:
            if self._used + size > self._most:
                self._used = self._measure() + self._reserved
            if self._used + size > self._most:
                return False
            self._used += size
            self._reserved += size
            return True

    def release(self, size: int, *, kept: bool) -> None:
        """End the reservation of ``size`` bytes. If the file was not kept, the bytes no longer count."""
        size = max(size, LEAST_COST)
        with self._guard:
            self._reserved -= size
            if not kept:
                self._used -= size

    def _measure(self) -> int:
        """Bytes of the complete files, each counted as at least :data:`LEAST_COST`.

        Names of incomplete files begin with a dot; those of uploads under way are reserved for. A file that vanishes
        meanwhile does not count.

        Returns:
            The sum; 0 if there is no folder; the limit, so that nothing more fits, if the folder can not be read.
        """
        used = 0
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if not entry.name.startswith("."):
                            used += max(found.st_size, LEAST_COST)
                        elif _INCOMPLETE.fullmatch(entry.name) and found.st_mtime < time.time() - ABANDONED_SECONDS:
                            (self._folder / entry.name).unlink()
        except FileNotFoundError:
            return 0
        except OSError:
            return self._most
        return used
