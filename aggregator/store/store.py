"""The store: a folder with one campaign's reports, that any crash leaves as it was or as it should be.

    campaign.hsc                       the signed campaign file, as the operator gave it
    manifest.json                      which other files the store consists of
    reports/bucket=NN/<part>.parquet   the records, by the low bits of their ids
    inputs/<run>.parquet               which input files were read, by their content
    forgotten/<run>.parquet            counts of the periods whose reports were removed
    quarantine/<digest>.jsonl          what was set aside
    lock                               held by whoever writes

An ingest writes quarantine and parts first and then replaces the manifest in one step. Until then
nothing refers to what it wrote; parts that a crash left behind are removed by the next ingest.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aggregator.estimates.recurrence import at_most, known
from aggregator.estimates.reports import estimate
from aggregator.files import sync_folder
from aggregator.intake.enrolment import check_enrolment
from aggregator.intake.transaction import Ingest, remove_orphans
from aggregator.intake.urls import check_folder, expand
from aggregator.notebooks import facts
from aggregator.periods import shown
from aggregator.storage.locking import exclusive, storage_errors, write_durably
from aggregator.storage.manifest import (
    BUCKETS,
    FILE_NAME,
    MAX_BUCKETS,
    Manifest,
    damaged,
    is_bucket_count,
    read_manifest,
    write_manifest,
)
from aggregator.store.retention import Removal, forget, forgotten_counts
from aggregator.tally.counting import EVERYTHING, Counted, Scope, count_slice, slices
from aggregator.tally.tally import Tally, TallyReport
from protocol.document import check_understood
from protocol.documents.campaign import UNDERSTOOD, Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.errors import DocumentError, InputError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from aggregator.estimates.statistics import Statistics
    from aggregator.fleet.roster import Roster
    from aggregator.intake.enrolment import Enrolled
    from aggregator.intake.executor import Workers
    from aggregator.intake.sources import Unreadable

CAMPAIGN_FILE, LOCK_FILE = "campaign.hsc", "lock"
LOCK_TIMEOUT_SECONDS = 60.0
MEMORY_BYTES = 1 << 30
"""What counting may take for the records, unless it is told otherwise."""

Result = TypeVar("Result")


class IngestSummary(NamedTuple):
    """What one call of :meth:`Store.ingest` did.

    Attributes:
        files: paths given.
        files_repeated: of these, whose content the store had already.
        unreadable: those that could not be read, each with its reason; nothing is stored of them.
        proven: good records added from whole batches.
        unproven: good records added from damaged ones.
        rejected: records and stretches set aside, by reason.
    """

    files: int
    files_repeated: int
    unreadable: tuple[Unreadable, ...]
    proven: int
    unproven: int
    rejected: Mapping[str, int]

    @property
    def accepted(self) -> int:
        """Good records added, before repeats are removed."""
        return self.proven + self.unproven


def create_store(path: str | os.PathLike[str], campaign_bytes: bytes, *, buckets: int = BUCKETS) -> Store:
    """Make a store for a campaign, or open the one that is already there for the same campaign.

    The campaign is taken as given: verify its signatures before.

    Args:
        path: a folder that is absent, empty, or such a store.
        campaign_bytes: the signed campaign file.
        buckets: into how many a new store is divided, a power of two. More of them suit stores of some
            billion reports; fewer files suit small ones.

    Raises:
        InputError: ``buckets_invalid``; ``store_not_folder``, the path is a URL.
        DocumentError: the campaign is not acceptable.
        InputError: ``campaign_ended``: this version of it asks nothing, so no report belongs to it.
        StorageError: ``other_campaign``, the store holds reports of another one; ``not_a_store``, the
            folder holds something else; ``store_busy``, ``store_newer``, ``store_damaged``, ``io_failed``.
    """
    check_folder(path)
    folder = Path(path)
    if not is_bucket_count(buckets):
        raise InputError("buckets_invalid", f"the number of buckets is a power of two, at most {MAX_BUCKETS}")
    campaign = _read_campaign(campaign_bytes)
    if campaign.ended:
        raise InputError("campaign_ended", "this version only ends its campaign; name the file of the version before")
    with storage_errors(f"the store at '{folder}' can not be made"):
        if folder.exists() and not folder.is_dir():
            raise StorageError("not_a_store", f"'{folder}' is a file")
        if not (folder / FILE_NAME).exists():
            _check_unused(folder)
            folder.mkdir(parents=True, exist_ok=True)
            with exclusive(folder / LOCK_FILE, LOCK_TIMEOUT_SECONDS):
                if not (folder / FILE_NAME).exists():
                    sync_folder(folder.parent)
                    write_durably(folder / CAMPAIGN_FILE, campaign_bytes)
                    write_manifest(folder, Manifest(campaign.id, buckets))
    store = open_store(folder)
    if store.campaign.id != campaign.id:
        raise StorageError("other_campaign", f"the store at '{folder}' holds the reports of another campaign")
    return store


def _check_unused(folder: Path) -> None:
    """Refuse to make a store among foreign files; what an interrupted making left behind is fine."""
    names = {entry.name.removesuffix(".tmp") for entry in folder.iterdir()} if folder.is_dir() else set()
    if not names <= {LOCK_FILE, CAMPAIGN_FILE, FILE_NAME}:
        raise StorageError("not_a_store", f"'{folder}' holds other files; choose a new folder")


def open_store(path: str | os.PathLike[str]) -> Store:
    """Open an existing store.

    Raises:
        InputError: ``store_not_folder``: the path is a URL.
        StorageError: ``not_a_store``, ``store_newer``, ``store_damaged``, ``io_failed``.
    """
    check_folder(path)
    folder = Path(path)
    manifest = read_manifest(folder)
    problem = ""
    try:
        raw = (folder / CAMPAIGN_FILE).read_bytes()
        campaign = _read_campaign(raw)
    except OSError:
        problem = "its campaign file can not be read"
    except DocumentError as error:
        problem = f"its campaign file is not acceptable ({error.reason})"
    if problem:
        raise damaged(problem)
    if campaign.id != manifest.campaign:
        raise damaged("its campaign file is that of another campaign")
    return Store(folder, campaign, raw)


def _read_campaign(raw: bytes) -> Campaign:
    campaign = parse_campaign(read_envelope(raw, "campaign").payload)
    check_understood(campaign.header, UNDERSTOOD)
    return campaign


class Store:
    """One campaign's reports on disk. Made by :func:`create_store` or :func:`open_store`.

    Attributes:
        path: its folder.
        campaign: what was asked.
        campaign_bytes: the signed campaign file.
        lock_timeout_seconds: how long an ingest waits for another one to end.
        workers: how many threads read and count; as many as there are processors.
        memory_bytes: what counting may take for the records; on a cluster, on each worker.
        cluster: whose workers read and count instead of threads; None for threads.
    """

    def __init__(self, path: Path, campaign: Campaign, campaign_bytes: bytes) -> None:
        self.path = path
        self.campaign = campaign
        self.campaign_bytes = campaign_bytes
        self.lock_timeout_seconds = LOCK_TIMEOUT_SECONDS
        self.workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.memory_bytes = MEMORY_BYTES
        self.cluster: Workers | None = None

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, campaign {self.campaign.header.name!r})"

    def _repr_html_(self) -> str:
        header, manifest = self.campaign.header, read_manifest(self.path)
        about: dict[str, object] = {"campaign": header.name, "version": header.version, "folder": str(self.path)}
        about |= {"records": manifest.records, "closed fleet": "yes" if manifest.closed else "no"}
        return facts("Store", about)

    @contextmanager
    def changing(self) -> Iterator[Manifest]:
        """Hold the store's lock; what a crash left behind is removed first. Gives what the store consists of.

        Raises:
            StorageError: ``store_busy``, ``store_newer``, ``store_damaged``, ``disk_full``, ``io_failed``.
        """
        with (
            storage_errors(f"the store at '{self.path}' can not be written"),
            exclusive(self.path / LOCK_FILE, self.lock_timeout_seconds),
        ):
            manifest = read_manifest(self.path)
            remove_orphans(self.path, manifest)
            yield manifest

    def commit(self, manifest: Manifest) -> None:
        """Make this what the store consists of. Called inside :meth:`changing`."""
        write_manifest(self.path, manifest)
        remove_orphans(self.path, manifest)

    def ingest(
        self,
        files: Iterable[str | os.PathLike[str]],
        *,
        now: int,
        enrolled: Enrolled | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> IngestSummary:
        """Add the reports of some files. Idempotent, in any order; all of it is added or nothing.

        A file is known by its content: given again it is skipped, unless it held reports from periods
        that had not begun and some of them have begun since. Then just those are added.

        Args:
            files: report files (``.hsr``), by path or URL; a URL may be a pattern. One that can not be read
                does not keep the others out.
            now: the present, in seconds since 1970.
            enrolled: the ids of a closed fleet: all other reports are refused as ``id_not_enrolled``. A store
                whose first ingest had them takes no report without them.
            progress: called after each file with (files done, files given).

        Raises:
            InputError: ``protocol_unknown``, ``missing_extra``: no file system here reads such a URL.
            PolicyError: ``enrolment_needed``, the store is that of a closed fleet; ``store_open``, it has taken
                reports of anybody; ``cluster_open``.
            StorageError: ``store_busy``, ``store_newer``, ``store_damaged``, ``disk_full``, ``io_failed``, and
                those of a cluster; the store is then as before.
        """
        given = expand(files)
        with self.changing() as manifest:
            begun = manifest._replace(closed=check_enrolment(manifest, enrolled))
            if self.cluster is None:
                run = Ingest(self.path, self.campaign, begun, now, self.workers, enrolled)
            else:
                run = self.cluster.ingest(self.path, self.campaign, begun, now, enrolled)
            run.add(given, progress)
            changed = run.commit()
            if changed is not None:
                self.commit(changed)
        return IngestSummary(
            len(given),
            run.repeated,
            run.unreadable,
            run.proven,
            run.unproven,
            dict(sorted(run.rejected.items())),
        )

    def forget(self, before: int, *, now: int) -> Removal:
        """Remove the reports of all periods before one, and keep their counts. There is no way back.

        Every tally, of all periods or of some, is the same afterwards. Reports of these periods that
        arrive later are refused as ``period_forgotten``: whether they were counted is no longer known.

        Args:
            before: the first period that is kept.
            now: the present, in seconds since 1970.

        Raises:
            InputError: ``period_not_over``: one of the periods to forget has not ended yet.
            StorageError: as :meth:`ingest`.
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
        """Exact integer counts of the reports, each device's answer once."""
        return self.tally_report(scope).tally

    def tally_report(self, scope: Scope = EVERYTHING) -> TallyReport:
        """The tally, and what became of the records that are not in it.

        Args:
            scope: which periods and which standing are counted. What was rejected is that of the whole
                store: which records are repeats or in conflict does not depend on what is asked.

        Raises:
            StorageError: ``store_damaged``, ``store_newer``, ``store_older``, ``not_a_store``, ``io_failed``, and
                those of a cluster.
        """
        return self._at_rest(lambda manifest: self._tally_report(manifest, scope))

    def _at_rest(self, read: Callable[[Manifest], Result]) -> Result:
        """What is read from the parts of one manifest; again, if an ingest replaced them meanwhile."""
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
        for found in self.over_slices(count_slice, manifest, kept, ids_only=True):
            counted = counted.merge(found)
        return report_of(manifest, counted)

    def over_slices(
        self, function: Callable[..., Result], manifest: Manifest, *more: object, ids_only: bool = False
    ) -> Iterator[Result]:
        """``function(folder, campaign, manifest, slice, *more)`` of every slice, many at a time, in any order.

        Args:
            function: of a module, so that it can be named to another process.
            manifest: what is in the store.
            more: further arguments.
            ids_only: it keeps no more of the records in memory.

        Raises:
            StorageError: as :meth:`tally_report`, and what the function raises.
        """
        at_once = self.workers if self.cluster is None else self.cluster.threads_each
        width = self.campaign.layout.answer_bytes
        work = slices(manifest, width, self.memory_bytes, at_once, ids_only=ids_only)
        if self.cluster is not None:
            yield from self.cluster.over_slices(function, self.path, manifest, work, *more)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            yield from pool.map(lambda which: function(self.path, self.campaign, manifest, which, *more), work)

    def statistics(self, scope: Scope = EVERYTHING, *, rosters: Sequence[Roster] = ()) -> Statistics:
        """Unbiased estimates with variances, however few the reports; see ``check_publishable``.

        Args:
            scope: which reports.
            rosters: fleet lists of a closed fleet, all of it: how often each device answered is then known,
                where else it is bounded (``aggregator.estimates.recurrence``).

        Raises:
            InputError: ``fleet_incomplete``: a report is of none of these devices; ``reports_forgotten``: some
                are no longer there, so whose they were is not known.
            StorageError: as :meth:`tally_report`.
        """
        if rosters:
            from aggregator.store.returning import squares_of_answers

            found, squares = self._at_rest(
                lambda manifest: (
                    self._tally_report(manifest, scope),
                    squares_of_answers(self, manifest, scope, rosters),
                )
            )
            recurrence = known(self.campaign, found.tally, squares)
        else:
            found = self.tally_report(scope)
            recurrence = at_most(self.campaign, found.tally, found.turnout)
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

    def estimates(self) -> pd.DataFrame:
        """The estimates as a table; :meth:`aggregator.estimates.statistics.Statistics.frame` names its columns.

        Raises:
            PolicyError: ``batch_too_small``: fewer reports than the campaign promises to wait for.
        """
        statistics = self.statistics()
        statistics.check_publishable()
        return statistics.frame()


def report_of(manifest: Manifest, counted: Counted) -> TallyReport:
    """What a store counted and what it did not, from all its slices' counts."""
    rejected = Counter(manifest.rejected)
    rejected["report_replayed"] += counted.replayed
    rejected["report_conflict"] += counted.conflicting
    found = {reason: number for reason, number in sorted(rejected.items()) if number}
    return TallyReport(
        counted.tally, sum(counted.tally.n), found, counted.unproven, counted.superseded, counted.turnout
    )
