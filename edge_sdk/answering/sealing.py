"""Seal unacknowledged reports into files, and forget the reports of files that have arrived."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import chain
from stat import S_ISREG
from typing import TYPE_CHECKING

from edge_sdk.arguments import path_of
from edge_sdk.storage.atomic_files import os_errors, write_new
from edge_sdk.storage.documents import NODE
from edge_sdk.storage.outbox import MESSAGES, REPORTS, SUMMARIES
from edge_sdk.storage.rows import damaged
from protocol.batches.report import layout_kind
from protocol.documents.envelope import role_of
from protocol.errors import StorageError
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_sdk.storage.database import State
    from edge_sdk.storage.documents import Documents
    from edge_sdk.storage.spool import Batch, Spool

_BLOCK_BYTES = 1 << 18


def drain(
    state: State, documents: Documents, spool: Spool, path: str | os.PathLike[str], now: Callable[[], int]
) -> int:
    """Seal the oldest unacknowledged reports of one kind into a new file (:meth:`edge_sdk.Device.drain`)."""
    place = path_of(path, "the path")
    sealed = False
    try:
        with state.transaction():
            batch = _oldest(documents, spool)
            if batch is not None:
                content = FILES[batch.kind](batch.reports)
                write_outbox(place, content)
                sealed = True
                spool.note_sealed(place, content, batch.through, now())
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


def ending(documents: Documents, spool: Spool) -> str | None:
    """Return the ending of the file that :func:`drain` would seal now; None if no report waits."""
    batch = _oldest(documents, spool)
    return None if batch is None else batch.kind


def _oldest(documents: Documents, spool: Spool) -> Batch | None:
    kind = documents.kind()
    return spool.oldest(lambda answer: ending_of(kind, answer))


def ack(state: State, spool: Spool, path: str | os.PathLike[str]) -> int:
    """Forget the reports of the sealed file at ``path``, and return their number (:meth:`edge_sdk.Device.ack`)."""
    place = path_of(path, "the path")
    digest = _digest_of(place)
    with state.transaction():
        return spool.forget_through(spool.sealed_through(place, digest))


def _digest_of(path: str) -> bytes | None:
    """Return a file's SHA-256; None if it can not be read, or is not regular: a pipe may never end."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if S_ISREG(os.fstat(descriptor).st_mode):
                digest = sha256()
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
                return digest.digest()
    return None


def batches(reports: Mapping[bytes, Sequence[bytes]]) -> bytes:
    """Return a file with one batch per campaign. ``reports``: campaign id → its reports, one or more of one length.

    Raise InputError ``batch_invalid`` if a campaign has more than 2^32 − 1 reports.
    """
    from protocol.batches.framing import Header, write_batch

    if any(len(set(map(len, records))) != 1 for records in reports.values()):
        raise damaged()
    return b"".join(
        write_batch(Header(campaign, layout_kind(records[0]), len(records[0])), records)
        for campaign, records in reports.items()
    )


def summaries(reports: Mapping[bytes, Sequence[bytes]]) -> bytes:
    """Return the bytes of a file of a node's signed summaries (docs/formats.md, section 6)."""
    from protocol.nodes.summary import SummarySet, read_summary

    found = SummarySet()
    for each in chain.from_iterable(reports.values()):
        found.add(each, lambda raw: read_summary(raw)[1])
    return found.to_bytes()


def messages(reports: Mapping[bytes, Sequence[bytes]]) -> bytes:
    """Return the bytes of a file of a node's encrypted sums (docs/formats.md, section 6)."""
    from protocol.masked.message import MessageSet

    found = MessageSet()
    for each in chain.from_iterable(reports.values()):
        found.add(each, MessageSet.parse)
    return found.to_bytes()


FILES: Mapping[str, Callable[[Mapping[bytes, Sequence[bytes]]], bytes]] = {
    REPORTS: batches,
    SUMMARIES: summaries,
    MESSAGES: messages,
}
"""Ending of a file's name → the function that makes the bytes of such files."""


def ending_of(kind: str | None, answer: bytes) -> str:
    """Return the ending of a file's name for ``answer``, the bytes of one period, in a state of this ``kind``."""
    if kind != NODE:
        return REPORTS
    return MESSAGES if role_of(answer) == "masked" else SUMMARIES


def write_outbox(path: str, content: bytes) -> None:
    """Write ``content``, sealed batches, to a new file at ``path``, completely or not at all, and flush it to disk.

    Only the device's user can read the file, since it shows in which campaigns this device takes part. Raise
    StorageError ``file_exists`` if there is a file already, which may not have been sent; it stays.
    """
    refusal: StorageError | None = None
    with os_errors("the batch file can not be written"):
        try:
            write_new(path, lambda file: file.write(content))
        except FileExistsError:
            told = "there is already a file of that name; send it, or choose another name"
            refusal = StorageError("file_exists", told)
        except FileNotFoundError:
            told = "the folder that the batch file is to be in is not there; make it first"
            refusal = StorageError("io_failed", told)
    if refusal is not None:
        raise refusal
