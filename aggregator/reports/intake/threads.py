"""Reading an ingest's files with the threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack

from aggregator.reports.intake.enrolment import Enrolled
from aggregator.reports.intake.reader import Reader
from aggregator.reports.intake.results import Read
from aggregator.reports.intake.sources import Source, Unreadable, read_source, shares
from aggregator.reports.intake.transaction import IngestTransaction
from aggregator.reports.intake.work_sharing import WorkSharingPool

_OFFERED = 4
"""Blocks of one large file that wait or are judged at a time, for each thread."""


def read_with_threads(
    transaction: IngestTransaction,
    files: Sequence[str | os.PathLike[str]],
    *,
    now: int,
    enrolled: Enrolled | None,
    threads: int,
    enough: Callable[[], bool],
    progress: Callable[[int], None],
) -> int:
    """Read files and write their new records into parts. Run by a store's ingest on one machine.

    Args:
        transaction: collects what is found.
        files: paths and URLs without patterns.
        now: the present, in seconds since 1970.
        enrolled: ids of a closed fleet; reports with other ids are refused. None for all ids.
        threads: number of threads that read.
        enough: asked after every share of files whether no further share is to be read.
        progress: called with a number of files that are finished.

    Returns:
        The number of files that were read, from the first on.

    Raises:
        StorageError: ``input_shortened``: a file became shorter while it was read.
        InputError: ``file_not_found``, ``ids_invalid``: the file of the enrolled ids changed after it was opened.
        OSError: a part, or a file of the quarantine, can not be written.
    """
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(threads)
        sharing = WorkSharingPool(pool, _OFFERED * threads) if threads > 1 else None
        reader = stack.enter_context(transaction.reader(now, enrolled, sharing))
        stack.enter_context(
            pool
        )  # The pool ends before the reader is closed: no thread then gives records to the reader any more.
        taken = _read_all(transaction, reader, pool, threads, files, enough, progress)
        transaction.add_parts(reader.finish())
    return taken


def _read_all(
    transaction: IngestTransaction,
    reader: Reader,
    pool: ThreadPoolExecutor,
    threads: int,
    files: Sequence[str | os.PathLike[str]],
    enough: Callable[[], bool],
    report: Callable[[int], None],
) -> int:
    taken = 0
    similar: list[tuple[int, str]] = []
    pending: set[Future[list[Read]]] = set()
    for share in shares(files):
        for number, found in share.unreadable:
            transaction.note_unreadable(number, found)
        similar += share.similar
        report(len(share.unreadable))
        pending.add(pool.submit(reader.read, share.sources))
        while len(pending) > threads:  # bounds the number of shares in memory
            pending = _note_some(transaction, pending, report)
        taken += len(share.sources) + len(share.unreadable) + len(share.similar)
        if enough():
            break
    while pending:
        pending = _note_some(transaction, pending, report)
    # A similar file (same length and last bytes) may be a copy of a file read above. The index of inputs can tell
    # only after all files read above are noted in it.
    for number, file in similar:
        _read_similar(transaction, reader, number, file)
        report(1)
    return taken


def _note_some(
    transaction: IngestTransaction, pending: set[Future[list[Read]]], report: Callable[[int], None]
) -> set[Future[list[Read]]]:
    """Wait for at least one share, and note its files. Returns the shares that are still being read."""
    done, rest = wait(pending, return_when=FIRST_COMPLETED)
    for future in done:
        for read in future.result():
            transaction.note(read)
            report(1)
    return rest


def _read_similar(transaction: IngestTransaction, reader: Reader, number: int, file: str) -> None:
    """Read a file that has the length and the last bytes of another file. A copy is noted as repeated."""
    loaded = read_source(file)
    if isinstance(loaded, Unreadable):
        transaction.note_unreadable(number, loaded)
        return
    for read in reader.read([Source(number, file, *loaded)], may_repeat=True):
        transaction.note(read)
