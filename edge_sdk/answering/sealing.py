"""Sealing unacknowledged reports into files, and forgetting the reports of files that have arrived.

Each step is one transaction. :class:`edge_sdk.Device` documents these methods for the application.
"""

from __future__ import annotations

import os
from contextlib import suppress
from stat import S_ISREG
from typing import TYPE_CHECKING

from edge_sdk.arguments import path_of
from protocol.digest import sha256
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_sdk.storage.database import State
    from edge_sdk.storage.documents import Documents
    from edge_sdk.storage.spool import Batch, Spool

_BLOCK_BYTES = 1 << 18


class Sealing:
    """Moves reports from the spool to files: batches of reports, or summaries if the state is a node's.

    ``now`` returns seconds since 1970.
    """

    def __init__(self, state: State, documents: Documents, spool: Spool, now: Callable[[], int]) -> None:
        self._state = state
        self._documents = documents
        self._spool = spool
        self._now = now

    def drain(self, path: str | os.PathLike[str]) -> int:
        """Seal the unacknowledged reports into a new file at ``path``. They stay in the spool.

        A file holds one kind: reports, summaries, or messages of masked campaigns. Of a node with both of these, the
        oldest of one kind are sealed, up to the first of the other.

        Returns the number of reports in the file; if it is 0, no file is written. The errors are those of
        :meth:`edge_sdk.Device.drain`.
        """
        from edge_sdk.storage.batch_file import FILES, write_outbox

        place = path_of(path, "the path")
        sealed = False
        try:
            with self._state.transaction():
                batch = self._oldest()
                if batch is not None:
                    content = FILES[batch.kind](batch.reports)
                    write_outbox(place, content)
                    sealed = True
                    self._spool.note_sealed(place, content, batch.through, self._now())
        except StorageError as error:
            if not sealed:
                raise
            problem = error
        else:
            return 0 if batch is None else sum(map(len, batch.reports.values()))
        raise StorageError(
            problem.reason,
            f"{problem.detail}; the batch file is whole and holds the reports, but it can not be acknowledged: "
            "send it or remove it, the same reports will be sealed again, which is harmless",
        )

    def ending(self) -> str | None:
        """How the name of the file that :meth:`drain` would seal now should end, for example ``.hsr``.

        None if nothing waits.
        """
        batch = self._oldest()
        return None if batch is None else batch.kind

    def _oldest(self) -> Batch | None:
        from edge_sdk.storage.batch_file import ending_of

        kind = self._documents.kind()
        return self._spool.oldest(lambda answer: ending_of(kind, answer))

    def ack(self, path: str | os.PathLike[str]) -> int:
        """Forget the reports of the sealed file at ``path``, because the file has arrived.

        Returns the number of reports released; 0 if they were released or dropped before. The errors are those of
        :meth:`edge_sdk.Device.ack`.
        """
        place = path_of(path, "the path")
        digest = _digest_of(place)
        with self._state.transaction():
            return self._spool.forget_through(self._spool.sealed_through(place, digest))


def _digest_of(path: str) -> bytes | None:
    """SHA-256 of a regular file; None if there is no such file, or it can not be read.

    Other kinds of files are not read, since a pipe may never end.
    """
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if S_ISREG(os.fstat(descriptor).st_mode):
                digest = sha256()
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
                return digest.digest()
    return None
