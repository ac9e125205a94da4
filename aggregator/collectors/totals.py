"""A store of a shared campaign's totals: a folder with the signed campaign, and the signed total of each period.

    totals.hsc       the campaign
    PERIOD.hsz       the total of a period, as the leading collector signed it

A file appears complete or not at all, and is verified whenever it is read. One total counts for each period.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aggregator.collectors.statistics import Shared, shared_statistics
from aggregator.collectors.total import Total, read_total
from aggregator.common.files import read_file, storage_errors, sync_folder, write_output
from aggregator.estimates.statistics import Statistics
from aggregator.reports.storage.manifest import read_campaign
from aggregator.reports.tally.scope import EVERYTHING, Scope
from protocol.documents.envelope import SIZE_LIMITS
from protocol.errors import DocumentError, InputError, PolicyError, StorageError
from protocol.shared.report import terms_of

CAMPAIGN_FILE, ENDING = "totals.hsc", ".hsz"


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


def is_total_store(path: str | Path) -> bool:
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
    def make(cls, path: str | Path, campaign_bytes: bytes) -> TotalStore:
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

    def ingest(self, files: Sequence[str | Path]) -> TotalsIngest:
        """Take in files of totals. Nothing is taken if one of them is wrong.

        Raises:
            DocumentError: the reasons of :func:`aggregator.collectors.total.read_total`; ``equivocation``: the leader
                has signed two different totals of a period.
            InputError: a file can not be read.
        """
        found: dict[int, bytes] = {}
        repeated = 0
        for file in files:
            raw = read_file(file, SIZE_LIMITS["total"])
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
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def totals(self, scope: Scope = EVERYTHING) -> list[Total]:
        """Return the verified totals of the periods in a scope."""
        chosen = [period for period in self.periods() if scope.first <= period <= scope.last]
        return [self._total(period) for period in chosen]

    def statistics(self, scope: Scope = EVERYTHING) -> Statistics:
        """Return the statistics of the totals in a scope.

        Raises:
            PolicyError: ``batch_too_small``: there is no total, or one of too few reports.
        """
        totals = self.totals(scope)
        if not totals:
            raise PolicyError("batch_too_small", "there is no total of these periods; hearsay ingest takes totals in")
        refused: Counter[str] = Counter()
        for one in totals:
            refused.update(one.refused)
        return shared_statistics(
            Shared(
                self.campaign,
                {one.period: one.numbers for one in totals},
                {one.period: one.accepted for one in totals},
                dict(refused),
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
