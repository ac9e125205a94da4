"""The store: a folder with one campaign's reports, that any crash leaves as it was or as it should be.

    campaign.hsc                       the signed campaign file, as the operator gave it
    manifest.json                      which parts and input files the store consists of
    reports/bucket=NN/<part>.parquet   the records, by the low bits of their ids
    quarantine/<digest>.jsonl          what was set aside
    lock                               held by whoever writes

An ingest writes quarantine and parts first and then replaces the manifest in one step. Until then
nothing refers to what it wrote; parts that a crash left behind are removed by the next ingest.
"""

from __future__ import annotations

import errno
import stat
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aggregator.files import sync_folder
from aggregator.intake.columns import Columns
from aggregator.intake.decode import Decoder
from aggregator.intake.durable import exclusive, make_folder, storage_errors, write_durably
from aggregator.intake.manifest import (
    BUCKETS,
    FILE_NAME,
    Ingested,
    Manifest,
    Part,
    damaged,
    read_manifest,
    write_manifest,
)
from aggregator.intake.parts import by_bucket, read_part, to_parquet
from aggregator.intake.quarantine import Quarantine
from aggregator.intake.tally import Tally, TallyReport, count, settle
from aggregator.reading import read_regular
from aggregator.statistics import Statistics, estimate
from protocol.campaign import UNDERSTOOD, Campaign, parse_campaign
from protocol.document import check_understood
from protocol.envelope import read_envelope
from protocol.errors import DocumentError, InputError, StorageError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    import pandas as pd

    from aggregator.intake.decode import Decoded

CAMPAIGN_FILE, LOCK_FILE, REPORTS, QUARANTINE = "campaign.hsc", "lock", "reports", "quarantine"
LOCK_TIMEOUT_SECONDS = 60.0
MAX_FILE_BYTES = 4 << 30
_FLUSH_RECORDS = 1 << 22


class Unreadable(NamedTuple):
    """A path given to :meth:`Store.ingest` that nothing was read from.

    Attributes:
        file: as it was given.
        reason: ``file_not_found``, ``is_folder``, ``empty_file``, ``permission_denied``, ``too_large`` for more
            than 4 GiB or than fits into memory, or ``unreadable`` for a pipe, a device, a name that can not
            be one, and a disk that fails.
    """

    file: str
    reason: str


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


def create_store(path: str | os.PathLike[str], campaign_bytes: bytes) -> Store:
    """Make a store for a campaign, or open the one that is already there for the same campaign.

    The campaign is taken as given: verify its signatures before.

    Args:
        path: a folder that is absent, empty, or such a store.
        campaign_bytes: the signed campaign file.

    Raises:
        DocumentError: the campaign is not acceptable.
        InputError: ``campaign_ended``: this version of it asks nothing, so no report belongs to it.
        StorageError: ``other_campaign``, the store holds reports of another one; ``not_a_store``, the
            folder holds something else; ``store_busy``, ``store_newer``, ``store_damaged``, ``io_failed``.
    """
    folder = Path(path)
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
                    write_manifest(folder, Manifest(campaign.id, 0, (), {}))
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
        StorageError: ``not_a_store``, ``store_newer``, ``store_damaged``, ``io_failed``.
    """
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
    """

    def __init__(self, path: Path, campaign: Campaign, campaign_bytes: bytes) -> None:
        self.path = path
        self.campaign = campaign
        self.campaign_bytes = campaign_bytes
        self.lock_timeout_seconds = LOCK_TIMEOUT_SECONDS

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, campaign {self.campaign.header.name!r})"

    def ingest(
        self,
        paths: Iterable[str | os.PathLike[str]],
        *,
        now: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> IngestSummary:
        """Add the reports of some files. Idempotent, in any order; all of it is added or nothing.

        A file is known by its content: given again it is skipped, unless it held reports from periods
        that had not begun and some of them have begun since. Then just those are added.

        Args:
            paths: report files (``.hsr``). One that can not be read does not keep the others out.
            now: the present, in seconds since 1970.
            progress: called after each file with (files done, files given).

        Raises:
            StorageError: ``store_busy``, ``store_newer``, ``store_damaged``, ``disk_full``, ``io_failed``;
                the store is then as before.
        """
        files = [Path(path) for path in paths]
        with (
            storage_errors(f"the store at '{self.path}' can not be written"),
            exclusive(self.path / LOCK_FILE, self.lock_timeout_seconds),
        ):
            run = _Ingest(self.path, self.campaign, read_manifest(self.path), now)
            for done, file in enumerate(files, 1):
                run.add(file)
                if progress is not None:
                    progress(done, len(files))
            run.commit()
        return IngestSummary(
            len(files),
            run.repeated,
            tuple(run.unreadable),
            run.proven,
            run.unproven,
            dict(sorted(run.rejected.items())),
        )

    def tally(self) -> Tally:
        """Exact integer counts of the reports, each device's answer once."""
        return self.tally_report().tally

    def tally_report(self) -> TallyReport:
        """The tally, and what became of the records that are not in it.

        Raises:
            StorageError: ``store_damaged``, ``store_newer``, ``not_a_store``, ``io_failed``.
        """
        manifest = read_manifest(self.path)
        tally = Tally.zero(self.campaign)
        rejected = Counter(manifest.rejected())
        unproven = superseded = 0
        for bucket in range(BUCKETS):
            settled = settle(self._bucket(manifest, bucket))
            try:
                tally = tally.merge(count(self.campaign, settled.records))
            except InputError as error:
                raise damaged(error.detail) from None
            rejected["report_replayed"] += settled.replayed
            rejected["report_conflict"] += settled.conflicting
            unproven += int((~settled.records.proven).sum())
            superseded += settled.superseded
        found = {reason: number for reason, number in sorted(rejected.items()) if number}
        return TallyReport(tally, sum(tally.n), found, unproven, superseded)

    def _bucket(self, manifest: Manifest, bucket: int) -> Columns:
        """All records of one bucket, repeats included."""
        layout = self.campaign.layout
        parts = [part for part in manifest.parts if part.bucket == bucket]
        return Columns.join([read_part(self.path / part.path, part, layout) for part in parts], layout.answer_bytes)

    def statistics(self) -> Statistics:
        """Unbiased estimates with variances, however few the reports; see ``check_publishable``."""
        found = self.tally_report()
        return estimate(
            self.campaign,
            found.tally,
            rejected=found.rejected,
            unproven=found.unproven,
            superseded=found.superseded,
        )

    def estimates(self) -> pd.DataFrame:
        """The estimates as a table: question, cell, n, estimate, sd, low, high.

        Raises:
            PolicyError: ``batch_too_small``: fewer reports than the campaign promises to wait for.
        """
        statistics = self.statistics()
        statistics.check_publishable()
        return statistics.frame()


class _Ingest:
    """One ingest under the lock: what it has read so far, and the manifest it will end in."""

    def __init__(self, folder: Path, campaign: Campaign, manifest: Manifest, now: int) -> None:
        self._folder = folder
        self._campaign = campaign
        self._manifest = manifest
        self._now = now
        self._decoder = Decoder(campaign)
        self._quarantine = Quarantine(folder / QUARANTINE)
        self._files: dict[str, Ingested] = dict(manifest.files)
        self._parts: list[Part] = []
        self._waiting: list[Columns] = []
        self._waiting_records = 0
        self._flushes = 0
        self.repeated = self.proven = self.unproven = 0
        self.unreadable: list[Unreadable] = []
        self.rejected: Counter[str] = Counter()
        self._remove_orphans()

    def _remove_orphans(self) -> None:
        """Delete the parts and temporary files that no manifest names: a crash left them.

        Nothing else: folders and files of other kinds are not from here.
        """
        named = {self._folder / part.path for part in self._manifest.parts}
        in_buckets = f"{REPORTS}/bucket=*/*"
        for pattern in (f"{in_buckets}.parquet", f"{in_buckets}.tmp", f"{QUARANTINE}/*.tmp", "*.tmp"):
            for path in self._folder.glob(pattern):
                if path not in named and stat.S_ISREG(path.lstat().st_mode):
                    path.unlink()

    def add(self, file: Path) -> None:
        """Read one file and keep what is new in it."""
        try:
            found = self._read(file)
        except MemoryError:
            found = Unreadable(str(file), "too_large")
        if isinstance(found, Unreadable):
            self.unreadable.append(found)
        elif found is None:
            self.repeated += 1
        else:
            self._keep(file.name, *found)

    def _read(self, file: Path) -> tuple[str, int, Decoded] | Unreadable | None:
        """Digest, length and content of one file; None if the store has all of it."""
        data = _read_file(file)
        if isinstance(data, Unreadable):
            return data
        digest = sha256(data).hexdigest()
        known = self._files.get(digest)
        present = self._campaign.period_at(self._now)
        if known is not None and not (known.present < present and known.rejected.get("report_too_early")):
            return None
        return digest, len(data), self._decoder.decode(data, now=self._now)

    def _keep(self, name: str, digest: str, size_bytes: int, decoded: Decoded) -> None:
        known = self._files.get(digest)
        entry = _entry(name, size_bytes, self._campaign.period_at(self._now), decoded)
        self._quarantine.keep(digest, name, decoded.pieces)
        new = decoded.records
        if known is not None:  # the rest of it is in the store already
            new = new.take(new.period > known.present)
        self._files[digest] = entry
        self._note(new, Counter(entry.rejected) - Counter(known.rejected if known is not None else {}))

    def _note(self, new: Columns, rejected: Counter[str]) -> None:
        proven = int(new.proven.sum())
        self.proven += proven
        self.unproven += new.size - proven
        self.rejected += rejected
        for start in range(0, new.size, _FLUSH_RECORDS):  # a flush takes memory for so many, however large the file
            piece = new.take(slice(start, start + _FLUSH_RECORDS))
            self._waiting.append(piece)
            self._waiting_records += piece.size
            if self._waiting_records >= _FLUSH_RECORDS:
                self._flush()

    def _flush(self) -> None:
        """Write the waiting records, one part per bucket; nothing names these parts yet."""
        layout = self._campaign.layout
        records = Columns.join(self._waiting, layout.answer_bytes)
        name = f"{self._manifest.generation + 1:08d}-{self._flushes:04d}.parquet"
        make_folder(self._folder / REPORTS)
        for bucket, columns in by_bucket(records):
            raw = to_parquet(columns, layout)
            part = Part(bucket, name, columns.size, sha256(raw).hexdigest())
            path = self._folder / part.path
            make_folder(path.parent)
            write_durably(path, raw)
            self._parts.append(part)
        self._waiting, self._waiting_records = [], 0
        self._flushes += 1

    def commit(self) -> None:
        """Replace the manifest, unless nothing changed."""
        if self._waiting:
            self._flush()
        if self._files != self._manifest.files:
            parts = (*self._manifest.parts, *self._parts)
            write_manifest(self._folder, Manifest(self._campaign.id, self._manifest.generation + 1, parts, self._files))


def _read_file(path: Path) -> bytes | Unreadable:
    """A file's content, or why there is none."""
    reason = "unreadable"
    try:
        data = read_regular(path, MAX_FILE_BYTES)
        if data:
            return data
        reason = "empty_file"
    except FileNotFoundError:
        reason = "file_not_found"
    except IsADirectoryError:
        reason = "is_folder"
    except PermissionError:
        reason = "permission_denied"
    except ValueError:
        pass  # a name with a zero byte
    except OSError as error:
        reason = "too_large" if error.errno == errno.EFBIG else "unreadable"
    return Unreadable(str(path), reason)


def _entry(name: str, size_bytes: int, present: int, decoded: Decoded) -> Ingested:
    proven = int(decoded.records.proven.sum())
    return Ingested(name, size_bytes, present, proven, decoded.records.size - proven, decoded.rejected)
