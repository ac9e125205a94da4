"""The store: a folder with one campaign's reports. A crash during a change leaves the old store or the new one.

An ingest writes quarantine and parts (Parquet files) first and then replaces the manifest in one step. Until then no
manifest names the new parts; the next change removes parts that a crash left. Files: docs/reference/store.md.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from aggregator.common.files import storage_errors
from aggregator.common.notebooks import facts
from aggregator.common.periods import shown
from aggregator.estimates.recurrence import at_most, known
from aggregator.estimates.reports import estimate
from aggregator.estimates.statistics import Statistics
from aggregator.models.published import published
from aggregator.reports.answering_devices import Conflict, conflicts, squares_of_answers
from aggregator.reports.fleet import Roster
from aggregator.reports.intake.enrolment import Enrolled, check_enrolment
from aggregator.reports.intake.reader import processors
from aggregator.reports.intake.remote import Executor, job_of, on_store, read_remotely
from aggregator.reports.intake.sources import check_folder, expand
from aggregator.reports.intake.transaction import IngestSummary, IngestTransaction, joined, read_with_threads
from aggregator.reports.retention import Removal, forget, forgotten_counts
from aggregator.reports.storage.locking import LOCK_FILE, LOCK_TIMEOUT_SECONDS, exclusive
from aggregator.reports.storage.manifest import (
    BUCKETS,
    MAX_BUCKETS,
    QUARANTINE,
    TO_COLLECTORS,
    Manifest,
    create_folder,
    is_bucket_count,
    note_generation,
    read_campaign,
    read_documents,
    read_manifest,
    remove_orphans,
    write_manifest,
)
from aggregator.reports.storage.quarantine import LIMIT_BYTES, Quarantine, QuarantinedFile
from aggregator.reports.tally.counting import count_partition, partitions
from aggregator.reports.tally.scope import EVERYTHING, Scope
from aggregator.reports.tally.tally import Tally, TallyReport
from protocol.documents.campaign import Campaign
from protocol.errors import InputError, StorageError

if TYPE_CHECKING:
    import pandas as pd


STEP_SECONDS = 120.0
MEMORY_BYTES = 1 << 30
"""Memory that counting uses for records, unless ``Store.memory_bytes`` is changed."""

Result = TypeVar("Result")


def create_store(path: str | os.PathLike[str], campaign_bytes: bytes, *, buckets: int = BUCKETS) -> Store:
    """Make a store for a campaign, or open the existing store of the same campaign, which keeps its buckets.

    The caller must have verified the campaign's signatures. Records are divided into ``buckets``, a power of two, by
    their ids: stores of some billion reports need more buckets. Missing folders above the store are made, too. Raises
    InputError: ``buckets_invalid``: no power of two, or too large; ``store_not_folder``: the path is a URL;
    ``campaign_for_nodes``: nodes answer the campaign, not devices; ``campaign_shared``: its reports go to its
    collectors; ``campaign_ended``: this version of the campaign asks no question, so it has no reports. Raises
    DocumentError: the campaign is not acceptable (:func:`aggregator.reports.storage.manifest.read_campaign`). Raises
    StorageError: ``other_campaign``; ``not_a_store``: the path is a file, or a folder that holds something else; the
    errors of :meth:`Store.changing`.
    """
    check_folder(path)
    folder = Path(path)
    if not is_bucket_count(buckets):
        raise InputError("buckets_invalid", f"the number of buckets is a power of two, at most {MAX_BUCKETS}")
    campaign = read_campaign(campaign_bytes)
    if campaign.nodes is not None:
        raise InputError("campaign_for_nodes", "the campaign is for nodes; a store of summaries takes them")
    if campaign.shared is not None:
        raise InputError("campaign_shared", TO_COLLECTORS)
    if campaign.ended:
        raise InputError("campaign_ended", "this version only ends its campaign; name the file of the version before")
    create_folder(folder, campaign, campaign_bytes, buckets)
    store = open_store(folder)
    if store.campaign.id != campaign.id:
        raise StorageError("other_campaign", f"the store at '{folder}' holds the reports of another campaign")
    return store


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open an existing store, without a lock. Raises ``store_not_folder`` and the errors of ``read_documents``."""
    check_folder(path)
    folder = Path(path)
    _, campaign, raw = read_documents(folder)
    return Store(folder, campaign, raw)


class Store:
    """One campaign's reports on the disk, in the folder ``path``. Made by :func:`create_store` or :func:`open_store`.

    ``lock_timeout_seconds``: how long a change waits for another one; ``workers``: threads that read and count;
    ``memory_bytes``: for records while counting; ``quarantine_bytes``: beyond it, pieces are only counted; ``cluster``:
    an executor in place of this process's threads, or None; ``step_seconds``: an ingest commits about this often;
    ``monotonic``: a clock in seconds that never goes back.
    """

    def __init__(self, path: Path, campaign: Campaign, campaign_bytes: bytes) -> None:
        self.path = path
        self.campaign = campaign
        self.campaign_bytes = campaign_bytes
        self.lock_timeout_seconds = LOCK_TIMEOUT_SECONDS
        self.workers = processors()
        self.memory_bytes = MEMORY_BYTES
        self.quarantine_bytes = LIMIT_BYTES
        self.cluster: Executor | None = None
        self.step_seconds = STEP_SECONDS
        self.monotonic = monotonic

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, campaign {self.campaign.header.name!r})"

    def _repr_html_(self) -> str:
        header, manifest = self.campaign.header, read_manifest(self.path)
        about: dict[str, object] = {"campaign": header.name, "version": header.version, "folder": str(self.path)}
        about |= {"records": manifest.records, "closed fleet": "yes" if manifest.closed else "no"}
        return facts("Store", about)

    @contextmanager
    def changing(self) -> Iterator[Manifest]:
        """Context manager that holds the store's lock during its block, and returns the manifest.

        Files that a crash left are removed first. An ``OSError`` of the block becomes a ``StorageError``. Raises
        StorageError ``store_busy``, ``not_a_store``, ``store_newer``, ``store_older``, ``store_damaged``.
        """
        with (
            storage_errors(f"the store at '{self.path}' can not be written"),
            exclusive(self.path / LOCK_FILE, self.lock_timeout_seconds),
        ):
            manifest = read_manifest(self.path)
            remove_orphans(self.path, manifest)
            yield manifest

    def commit(self, manifest: Manifest) -> None:
        """Replace the store's manifest, and remove files that it no longer names, inside :meth:`changing`.

        Raises StorageError ``store_damaged``: a named file is missing, or the manifest was replaced too often. Raises
        OSError: the disk failed. The manifest may have been replaced before.
        """
        write_manifest(self.path, manifest)
        note_generation(self.path, manifest.generation)
        remove_orphans(self.path, manifest)

    def ingest(
        self,
        files: Iterable[str | os.PathLike[str]],
        *,
        now: int,
        enrolled: Enrolled | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> IngestSummary:
        """Add the reports of some files.

        Ingests may be repeated and come in any order. A store knows a file by its content and skips it the second time,
        unless refused reports may now be good: their period has begun since, or other enrolled ids are given now.

        Files are read in steps of about ``step_seconds``, and each step is committed: of one step the store has all
        reports or, after an error, none. On a cluster all files are one step. If the error came after the manifest was
        replaced, the step's reports are in the store. Ingesting the files again is right in all these cases. Raises
        InputError: ``protocol_unknown``, ``missing_extra``: no file system here reads such a URL; ``file_not_found``,
        ``ids_invalid``: the file of the enrolled ids changed after it was opened. Raises PolicyError
        ``enrolment_needed``, ``store_open``, ``cluster_open``: the enrolled ids do not fit to the store, or their
        secrets would be sent to a cluster unencrypted. Raises StorageError ``input_shortened``: a file became shorter
        while it was read; the errors of :meth:`changing`, and on a cluster ``cluster_lost``, ``cluster_differs``,
        ``store_not_shared``.

        Args:
            files: report files (``.hsr``), by path or URL; a URL may be a pattern. A file that can not be read does not
                keep the others out.
            now: the present, in seconds since 1970.
            enrolled: the ids of a closed fleet; reports with other ids are refused as ``id_not_enrolled``. A store
                whose first ingest had ids takes no reports without ids.
            progress: called after each file with (files finished, files given).
        """
        given = expand(files)
        done = itertools.count(1)

        def finished(more: int) -> None:
            for number in itertools.islice(done, more):
                if progress is not None:
                    progress(number, len(given))

        rest, steps = given, list[IngestSummary]()
        while rest or not steps:
            steps.append(self._ingest_step(rest, now, enrolled, finished))
            rest = rest[steps[-1].files :]
        return joined(steps)

    def _ingest_step(
        self,
        files: Sequence[str | os.PathLike[str]],
        now: int,
        enrolled: Enrolled | None,
        progress: Callable[[int], None],
    ) -> IngestSummary:
        """Read the first of ``files``, as many as ``step_seconds`` allow, and commit their reports."""
        with self.changing() as manifest:
            begun = manifest._replace(closed=check_enrolment(manifest, enrolled))
            quarantine = Quarantine(self.path / QUARANTINE, self.quarantine_bytes)
            found = IngestTransaction(self.path, self.campaign, begun, quarantine)
            if self.cluster is None:
                stop = self.monotonic() + self.step_seconds
                threads, enough = self.workers, lambda: self.monotonic() >= stop
                taken = read_with_threads(
                    found, files, now=now, enrolled=enrolled, threads=threads, enough=enough, progress=progress
                )
            else:
                read_remotely(found, files, self.cluster, now=now, enrolled=enrolled, progress=progress)
                taken = len(files)
            changed = found.commit()
            if changed is not None:
                self.commit(changed)
        return found.summary(taken)

    def forget(self, before: int, *, now: int) -> Removal:
        """Remove the reports of all periods before ``before``, and keep their counts. This can not be undone.

        Every tally gives the same numbers as before. Reports of the removed periods that arrive later are refused as
        ``period_forgotten``. If a kept report has the id of a removed report, the id and period of the removed report
        stay. Raises InputError ``period_not_over``: one of the periods to forget has not ended at ``now``. Raises
        StorageError: the errors of :meth:`changing`. The store is then as before, unless the manifest was replaced
        already.
        """
        if before > self.campaign.period_at(now):
            last = shown(before - 1, self.campaign.time_precision)
            raise InputError("period_not_over", f"period {last} has not ended; its reports still arrive")
        with self.changing() as manifest:
            left = manifest
            if before > manifest.first_period:
                left = forget(self.path, self.campaign, manifest, before, self.memory_bytes)
                self.commit(left)
        return Removal(left.first_period, manifest.records - left.records, left.records)

    def tally(self, scope: Scope = EVERYTHING) -> Tally:
        """Count the reports in ``scope`` exactly, each id once. The errors are those of :meth:`tally_report`."""
        return self.tally_report(scope).tally

    def tally_report(self, scope: Scope = EVERYTHING) -> TallyReport:
        """Count the reports in ``scope`` exactly, each id once, and all records of the store that do not count."""
        return self.at_rest(lambda manifest: self._tally_report(manifest, scope))

    def at_rest(self, read: Callable[[Manifest], Result]) -> Result:
        """Read the store without its lock: call ``read`` with the manifest, and return its result.

        Another process may remove Parquet files that the manifest named. So after a ``StorageError`` ``read`` is called
        again if the manifest was replaced; otherwise the error is raised.
        """
        manifest = read_manifest(self.path)
        while True:
            try:
                return read(manifest)
            except StorageError:
                newer = read_manifest(self.path)
                if newer.generation == manifest.generation:
                    raise
                manifest = newer

    def _tally_report(self, manifest: Manifest, scope: Scope) -> TallyReport:
        kept = scope._replace(first=max(scope.first, manifest.first_period))
        counted = forgotten_counts(self.path, self.campaign, manifest, scope)
        for found in self.over_partitions(count_partition, manifest, kept, ids_only=True):
            counted = counted.merge(found)
        return counted.report(manifest.rejected)

    def over_partitions(
        self, function: Callable[..., Result], manifest: Manifest, *more: object, ids_only: bool = False
    ) -> Iterator[Result]:
        """Call ``function(folder, campaign, manifest, partition, *more)`` for every partition, and yield the results.

        A partition has all records of each of its ids. Results come in any order. The function, defined at the top of a
        module, runs in threads or on the cluster. With ``ids_only`` it keeps only ids in memory. Raises its errors, and
        StorageError on a cluster: ``cluster_lost``, ``cluster_differs``, ``store_not_shared``.
        """
        at_once = self.workers if self.cluster is None else self.cluster.threads_each
        width = self.campaign.layout.answer_bytes
        work = partitions(manifest, width, self.memory_bytes, at_once, ids_only=ids_only)
        if self.cluster is not None:
            job = job_of(self.path, manifest)
            yield from self.cluster.run(on_store, [(job, function, which, *more) for which in work])
            return
        with ThreadPoolExecutor(self.workers) as pool:
            yield from pool.map(lambda which: function(self.path, self.campaign, manifest, which, *more), work)

    def statistics(self, scope: Scope = EVERYTHING, *, rosters: Sequence[Roster] = ()) -> Statistics:
        """Return unbiased estimates with variances, also for fewer reports than the campaign's smallest batch.

        Call ``Statistics.check_publishable`` before anybody else sees the result. With ``rosters``, all fleet lists of
        a closed fleet, the number of answers of each device is known; without them it is bounded. Raises InputError
        ``periods_absent``: no report of the periods in scope is counted; with ``rosters`` also ``fleet_incomplete``,
        ``reports_forgotten`` (``answering_devices.squares_of_answers``). Raises StorageError: the errors of
        :meth:`tally_report`.
        """
        if rosters:
            found, squares = self.at_rest(
                lambda manifest: (
                    self._tally_report(manifest, scope),
                    squares_of_answers(self.path, self.campaign, manifest, self.memory_bytes, scope, rosters),
                )
            )
            recurrence = known(self.campaign, found.tally, squares, found.turnout)
        else:
            found = self.tally_report(scope)
            recurrence = at_most(self.campaign, found.tally, found.turnout)
        if not found.reports and scope.periods != EVERYTHING.periods:
            raise InputError(
                "periods_absent", "no report of these periods is counted; hearsay status lists the periods with reports"
            )
        return estimate(
            self.campaign,
            found.tally,
            recurrence=recurrence,
            rejected=found.rejected,
            unproven=found.unproven,
            superseded=found.superseded,
            periods=scope.periods,
            proven_only=scope.proven_only,
        )

    def conflicts(self, rosters: Sequence[Roster], scope: Scope = EVERYTHING) -> list[Conflict]:
        """Return the devices that sent different reports with one id. Run by the holder of the fleet lists."""
        return self.at_rest(
            lambda manifest: conflicts(self.path, self.campaign, manifest, self.memory_bytes, scope, rosters)
        )

    def quarantined(self) -> list[QuarantinedFile]:
        """Return the input files with rejected pieces, each with the pieces that are kept. Raises ``store_damaged``."""
        return list(Quarantine(self.path / QUARANTINE, self.quarantine_bytes).files())

    def estimates(self) -> pd.DataFrame:
        """Return the estimates from all reports as a table, with ``published``, the values that a model would have.

        Raises ``batch_too_small`` below the campaign's smallest batch.
        """
        statistics = self.statistics()
        statistics.check_publishable()
        return statistics.frame(published(statistics))
