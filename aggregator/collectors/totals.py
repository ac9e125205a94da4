"""A store of a shared campaign's totals: a folder with the signed campaign, and the signed total of each period.

    totals.hsc       the campaign
    PERIOD.hsz       the total of a period, as the leading collector signed it

A file appears complete or not at all, and is verified whenever it is read. One total counts for each period.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.collectors.noise import variance_of
from aggregator.collectors.statistics import Shared, shared_statistics
from aggregator.collectors.total import Total, read_total
from aggregator.common.files import read_file, storage_errors, sync_folder, write_output
from aggregator.common.periods import begins
from aggregator.estimates.statistics import Statistics
from aggregator.reports.storage.manifest import TO_COLLECTORS, TOTALS_FILE, read_campaign
from aggregator.reports.tally.scope import EVERYTHING, Scope
from protocol.batches.batch import Batch, read_batches
from protocol.documents.envelope import SIZE_LIMITS, role_of
from protocol.errors import DocumentError, InputError, PolicyError, StorageError
from protocol.shared.report import terms_of

CAMPAIGN_FILE, ENDING = TOTALS_FILE, ".hsz"
_NAME = re.compile("0|[1-9][0-9]{0,9}")
TOTALS = (ENDING,)
"""Ends of the names of files that are taken from folders."""


class TotalsIngest(NamedTuple):
    """What became of files of totals.

    Attributes:
        files: number of files.
        taken, repeated: number of totals that are new, and that the store had.
        periods: number of periods in the store.
    """

    files: int
    taken: int
    repeated: int
    periods: int


class TotalsStatus(NamedTuple):
    """The contents of ``hearsay status`` for a store of totals.

    Attributes:
        campaign, name, time_precision, min_batch_size: of the campaign.
        reports: number of accepted reports of all periods.
        noise_sd: standard deviation of the noise of one cell over all periods, in devices.
        rejected: reason → number of reports that the collectors did not count.
        periods: period → number of accepted reports. Every total has at least the smallest batch.
    """

    campaign: bytes
    name: str
    time_precision: int
    min_batch_size: int
    reports: int
    noise_sd: float
    rejected: dict[str, int]
    periods: dict[int, int]

    @property
    def enough(self) -> bool:
        """Whether there is a total, and each is of enough reports for estimates and models."""
        return bool(self.periods) and min(self.periods.values()) >= self.min_batch_size

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``hearsay status --json`` prints."""
        rows = [
            {"period": period, "begins": begins(period, self.time_precision), "reports": count}
            for period, count in self.periods.items()
        ]
        return {**self._asdict(), "min_batch_size_reached": self.enough, "periods": rows}


def is_total_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder is a store of totals."""
    return (Path(path) / CAMPAIGN_FILE).is_file()


class TotalStore:
    """An open store of totals. Nothing is locked, and no file stays open.

    Attributes:
        campaign, campaign_bytes: the campaign, and its signed file.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a store.

        Raises:
            StorageError: ``not_a_store``: the folder holds no campaign of totals.
        """
        self.path = Path(path)
        if not is_total_store(path):
            raise StorageError("not_a_store", f"'{path}' is no store of totals; hearsay ingest makes one")
        self.campaign_bytes = read_file(self.path / CAMPAIGN_FILE, SIZE_LIMITS["campaign"])
        self.campaign = read_campaign(self.campaign_bytes)

    @classmethod
    def make(cls, path: str | os.PathLike[str], campaign_bytes: bytes) -> TotalStore:
        """Make a store for a shared campaign, or open the store of the same campaign.

        Raises:
            InputError: ``campaign_not_shared``.
            StorageError: ``other_campaign``: the store is of another campaign; ``not_a_store``: the folder holds other
                files.
        """
        folder, campaign = Path(path), read_campaign(campaign_bytes)
        terms_of(campaign)
        if not is_total_store(folder):
            with storage_errors(f"the store at '{folder}' can not be made"):
                if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                    raise StorageError("not_a_store", f"'{folder}' holds other files; choose a new folder")
                folder.mkdir(parents=True, exist_ok=True)
                write_output(folder / CAMPAIGN_FILE, campaign_bytes)
                sync_folder(folder.parent)
        store = cls(folder)
        if store.campaign.id != campaign.id:
            raise StorageError("other_campaign", f"the store at '{folder}' is of another campaign")
        return store

    def ingest(self, files: Sequence[str | os.PathLike[str]]) -> TotalsIngest:
        """Take in files of totals. Nothing is taken if one of them is wrong.

        Raises:
            DocumentError: the reasons of :func:`aggregator.collectors.total.read_total`; ``equivocation``: the leader
                has signed two different totals of a period.
            InputError: a file can not be read; ``campaign_shared``: it has reports of devices.
        """
        found: dict[int, bytes] = {}
        repeated = 0
        for file in files:
            raw = read_file(Path(file), SIZE_LIMITS["total"])
            _refuse_reports(file, raw)
            period = read_total(raw, self.campaign).period
            known = found.get(period) or self._bytes(period)
            if known is not None and known != raw:
                raise DocumentError("equivocation", f"there are two different totals of period {period}")
            repeated += known is not None
            found[period] = raw
        for period, raw in found.items():
            write_output(self.path / f"{period}{ENDING}", raw, force=True)
        return TotalsIngest(len(files), len(files) - repeated, repeated, len(self.periods()))

    def periods(self) -> list[int]:
        """Return the numbers of the periods in the store."""
        names = (path.stem for path in self.path.glob(f"*{ENDING}"))
        return sorted(int(name) for name in names if _NAME.fullmatch(name))

    def totals(self, scope: Scope = EVERYTHING) -> list[Total]:
        """Return the verified totals of the periods in a scope."""
        chosen = [period for period in self.periods() if scope.first <= period <= scope.last]
        return [self._total(period) for period in chosen]

    def status(self) -> TotalsStatus:
        """Return how many reports the totals have, by period."""
        totals, header = self.totals(), self.campaign.header
        return TotalsStatus(
            self.campaign.id,
            header.name,
            self.campaign.time_precision,
            self.campaign.min_batch_size,
            sum(one.accepted for one in totals),
            (len(totals) * variance_of(self.campaign)) ** 0.5,
            _refused(totals),
            {one.period: one.accepted for one in totals},
        )

    def statistics(self, scope: Scope = EVERYTHING) -> Statistics:
        """Return the statistics of the totals in a scope.

        Raises:
            PolicyError: ``batch_too_small``: there is no total, or one of too few reports.
        """
        totals = self.totals(scope)
        if not totals:
            raise PolicyError("batch_too_small", "there is no total of these periods; hearsay ingest takes totals in")
        return shared_statistics(
            Shared(
                self.campaign,
                {one.period: one.numbers for one in totals},
                {one.period: one.accepted for one in totals},
                _refused(totals),
            )
        )

    def _bytes(self, period: int) -> bytes | None:
        path = self.path / f"{period}{ENDING}"
        return read_file(path, SIZE_LIMITS["total"]) if path.is_file() else None

    def _total(self, period: int) -> Total:
        problem = ""
        try:
            found = read_total(self._bytes(period) or b"", self.campaign)
        except (DocumentError, InputError) as error:
            problem = error.detail
        if problem or found.period != period:
            raise StorageError("store_damaged", f"'{period}{ENDING}' can not be used: {problem or 'another period'}")
        return found


def ingest_totals(
    path: str | os.PathLike[str], campaign_bytes: bytes, files: Sequence[str | os.PathLike[str]]
) -> TotalsIngest:
    """Take files of totals into a store, which is made if there is none and all files are totals of the campaign.

    Raises:
        InputError, DocumentError, StorageError: those of :meth:`TotalStore.make` and :meth:`TotalStore.ingest`.
    """
    campaign = read_campaign(campaign_bytes)
    if not is_total_store(path):
        for file in files:
            raw = read_file(Path(file), SIZE_LIMITS["total"])
            _refuse_reports(file, raw)
            read_total(raw, campaign)
    return TotalStore.make(path, campaign_bytes).ingest(files)


def _refuse_reports(file: str | os.PathLike[str], raw: bytes) -> None:
    if role_of(raw) is None and any(isinstance(piece, Batch) for piece in read_batches(raw)):
        raise InputError("campaign_shared", f"'{file}' has reports of devices, and {TO_COLLECTORS}")


def _refused(totals: Sequence[Total]) -> dict[str, int]:
    """Return reason → number of reports that the collectors did not count, over all totals."""
    refused: Counter[str] = Counter()
    for one in totals:
        refused.update(one.refused)
    return dict(refused)
