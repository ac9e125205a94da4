"""Files of unacknowledged reports, summaries or encrypted sums: their bytes, and how they are written."""

from __future__ import annotations

import errno
import os
from typing import IO, TYPE_CHECKING

from edge_sdk.storage.atomic_files import write_new
from edge_sdk.storage.documents import NODE
from edge_sdk.storage.outbox import MESSAGES, REPORTS, SUMMARIES
from edge_sdk.storage.rows import damaged
from protocol.batches.framing import Header, write_batch
from protocol.batches.report import layout_kind
from protocol.documents.envelope import role_of
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def batches(reports: Mapping[bytes, Sequence[bytes]]) -> bytes:
    """The bytes of a file with one batch per campaign.

    Args:
        reports: campaign id → its reports, at least one.

    Raises:
        StorageError: ``state_damaged``: the reports of a campaign differ in length.
        InputError: ``batch_invalid``: the reports of a campaign are more than 2^32 − 1.
    """
    if any(len(set(map(len, records))) != 1 for records in reports.values()):
        raise damaged()
    return b"".join(
        write_batch(Header(campaign, layout_kind(records[0]), len(records[0])), records)
        for campaign, records in reports.items()
    )


def summaries(reports: Mapping[bytes, Sequence[bytes]]) -> bytes:
    """The bytes of a file of a node's signed summaries, in the order of docs/formats.md, section 6.

    Args:
        reports: campaign id → its summaries, each a whole envelope.
    """
    from protocol.nodes.summary import read_summary
    from protocol.nodes.summary_files import SummarySet

    found = SummarySet()
    for records in reports.values():
        for each in records:
            found.add(each, lambda raw: read_summary(raw)[1])
    return found.to_bytes()


def messages(reports: Mapping[bytes, Sequence[bytes]]) -> bytes:
    """The bytes of a file of a node's encrypted sums, in the order of docs/formats.md, section 6.

    Args:
        reports: id of each masked campaign → its messages, each a whole envelope.
    """
    from protocol.masked.message import MessageSet

    found = MessageSet()
    for records in reports.values():
        for each in records:
            found.add(each, MessageSet.parse)
    return found.to_bytes()


FILES: Mapping[str, Callable[[Mapping[bytes, Sequence[bytes]]], bytes]] = {
    REPORTS: batches,
    SUMMARIES: summaries,
    MESSAGES: messages,
}
"""Ending of a file's name → the function that makes the bytes of such files."""


def ending_of(kind: str | None, answer: bytes) -> str:
    """How the name of a file with this answer ends.

    Args:
        kind: of the state.
        answer: the bytes of one period's reports, or the envelope of a node.
    """
    if kind != NODE:
        return REPORTS
    return MESSAGES if role_of(answer) == "masked" else SUMMARIES


def write_outbox(path: str, content: bytes) -> None:
    """Write ``content``, sealed batches, to a new file at ``path``, completely or not at all, and flush it to disk.

    Only the device's user can read the file, since it shows in which campaigns this device takes part.

    Raises:
        StorageError: ``file_exists``: there is a file already, which may not have been sent; it stays. ``disk_full``,
            ``io_failed``: the file can not be written; what was written is removed, if the system allows it.
    """

    def write(file: IO[bytes]) -> None:
        file.write(content)

    problem = 0
    try:
        write_new(path, write)
    except OSError as error:
        problem = error.errno or errno.EIO
    if problem == errno.EEXIST:
        raise StorageError("file_exists", "there is already a file of that name; send it, or choose another name")
    if problem:
        if problem == errno.ENOENT:
            raise StorageError("io_failed", "the folder that the batch file is to be in is not there; make it first")
        reason = "disk_full" if problem in (errno.ENOSPC, errno.EDQUOT) else "io_failed"
        raise StorageError(reason, f"the batch file can not be written: {os.strerror(problem)}")
