"""How a campaign's intake stands: reports by day, period and question, and how far they reach.

For question j with n answers of which each cell's share has a 95 % interval of half width h, the half
width reached is the largest over its cells. Variance falls as 1/n, so a half width t needs

    n' = ⌈n·(h/t)²⌉ answers,   (n' − n)/w more devices,   w = the share of devices that are asked j

of which a stratum's questions have 1 in all. A device that answers again in another period counts again.
Nothing that follows from answers is told before the campaign's ``min_batch_size`` is reached.
"""

from __future__ import annotations

from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aggregator.intake.counting import EVERYTHING, Counted, checked_count, load, settle_slice
from aggregator.intake.forgetting import forgotten_by_period, forgotten_counts
from aggregator.intake.manifest import read_manifest
from aggregator.intake.store import report_of
from aggregator.intake.tally import Tally
from aggregator.intervals import Z95
from aggregator.notebooks import facts, table
from aggregator.periods import begins
from aggregator.statistics import estimate, question_name
from protocol.document import DAY_SECONDS
from protocol.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from aggregator.intake.counting import Slice
    from aggregator.intake.manifest import Manifest
    from aggregator.intake.store import Store
    from aggregator.statistics import QuestionEstimate
    from protocol.campaign import Campaign

_WORD = 1 << 32


class PeriodCounts(NamedTuple):
    """Reports by period.

    Attributes:
        period: shape (P,), rising.
        reports: shape (P,), counted in each.
    """

    period: NDArray[np.int64]
    reports: NDArray[np.int64]

    def merge(self, other: PeriodCounts) -> PeriodCounts:
        """Both together."""
        period, place = np.unique(np.concatenate([self.period, other.period]), return_inverse=True)
        reports = np.zeros(len(period), np.int64)
        np.add.at(reports, place, np.concatenate([self.reports, other.reports]))
        return PeriodCounts(period, reports)


class DayCount(NamedTuple):
    """Reports of the periods that begin on one day.

    Attributes:
        day: days since 1970, UTC.
        first, last: its periods that have reports.
        reports: counted.
    """

    day: int
    first: int
    last: int
    reports: int


class Reach(NamedTuple):
    """How far one question's answers reach.

    Attributes:
        question: in words.
        n: answers counted.
        half_width: of the widest 95 % interval of its cells' shares (of moments: of their means, in units
            of the feature's half range); None before the smallest batch, or without answers.
        devices_needed: how many more must answer for the target; None without target or half width.
    """

    question: str
    n: int
    half_width: float | None
    devices_needed: int | None


class Status(NamedTuple):
    """What ``hearsay status`` shows.

    Attributes:
        campaign: its id.
        name: of the campaign.
        reports: counted.
        min_batch_size: how many the campaign promises to wait for.
        unproven, superseded, rejected: as in ``TallyReport``.
        forgotten_before: reports of earlier periods were removed; their counts are here.
        periods: reports by period.
        days: the same by day.
        questions: in the campaign's order.
        target: the half width asked for.
        devices_needed: for every question to reach it; None if that is not known.
        time_precision: seconds in a period.
    """

    campaign: bytes
    name: str
    reports: int
    min_batch_size: int
    unproven: int
    superseded: int
    rejected: dict[str, int]
    forgotten_before: int
    periods: PeriodCounts
    days: tuple[DayCount, ...]
    questions: tuple[Reach, ...]
    target: float | None
    devices_needed: int | None
    time_precision: int

    @property
    def enough(self) -> bool:
        """Whether estimates may be shown and models published."""
        return self.reports >= self.min_batch_size

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"campaign": self.name, "reports": self.reports}
        about["smallest batch"] = f"{self.min_batch_size}, {'reached' if self.enough else 'not reached'}"
        about |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        reached = [(reach.question, reach.n, reach.half_width, reach.devices_needed) for reach in self.questions]
        return facts("Status", about) + table(("question", "reports", "± (95 %)", "devices needed"), reached)

    def to_json(self) -> dict[str, Any]:
        """What ``hearsay status --json`` prints."""
        pairs = zip(self.periods.period.tolist(), self.periods.reports.tolist(), strict=True)
        return {
            **self._asdict(),
            "min_batch_size_reached": self.enough,
            "periods": [
                {"period": period, "begins": begins(period, self.time_precision), "reports": reports}
                for period, reports in pairs
            ],
            "days": [{**day._asdict(), "day": date_of(day.day)} for day in self.days],
            "questions": [reach._asdict() for reach in self.questions],
        }


def date_of(day: int) -> str:
    """A day since 1970 as people write it; the number where the calendar ends."""
    return str(np.datetime64(day, "D")) if day < 2_932_897 else str(day)


def status(store: Store, *, target: float | None = None) -> Status:
    """Everything about a store's reports but the answers themselves. Run by the operator.

    Args:
        store: whose.
        target: a half width to reach, of a share.

    Raises:
        StorageError: ``store_damaged``, ``store_newer``, ``io_failed``.
    """
    manifest = read_manifest(store.path)
    while True:
        try:
            return _status(store, manifest, target)
        except StorageError:
            newer = read_manifest(store.path)
            if newer.generation == manifest.generation:
                raise
            manifest = newer  # an ingest replaced parts meanwhile


def _status(store: Store, manifest: Manifest, target: float | None) -> Status:
    campaign = store.campaign
    counted = forgotten_counts(store.path, campaign, manifest, EVERYTHING)
    periods = PeriodCounts(*forgotten_by_period(store.path, manifest))
    for some, by_period in store.over_slices(_of_slice, manifest):
        counted, periods = counted.merge(some), periods.merge(by_period)
    found = report_of(manifest, counted)
    enough = found.reports >= campaign.min_batch_size
    shares = _asked_shares(campaign)
    reaches = tuple(
        _reach(question_name(one.question, campaign.schema), one, share, target if enough else None, enough=enough)
        for one, share in zip(estimate(campaign, found.tally).questions, shares, strict=True)
    )
    needed = [reach.devices_needed for reach in reaches]
    known = [number for number in needed if number is not None]
    return Status(
        campaign.id,
        campaign.header.name,
        found.reports,
        campaign.min_batch_size,
        found.unproven,
        found.superseded,
        dict(found.rejected),
        manifest.first_period,
        periods,
        _days(periods, campaign.time_precision),
        reaches,
        target,
        max(known) if known and len(known) == len(needed) else None,
        campaign.time_precision,
    )


def _of_slice(folder: Path, campaign: Campaign, manifest: Manifest, which: Slice) -> tuple[Counted, PeriodCounts]:
    settling = settle_slice(load(folder, campaign, manifest, which), manifest, which)
    tally, unproven = Tally.zero(campaign), 0
    periods = PeriodCounts(np.empty(0, np.int64), np.empty(0, np.int64))
    for records in settling.kept():
        counted = records.take(records.period >= manifest.first_period)
        tally = tally.merge(checked_count(campaign, counted))
        unproven += counted.size - int(np.count_nonzero(counted.proven))
        period, reports = np.unique(counted.period, return_counts=True)
        periods = periods.merge(PeriodCounts(period.astype(np.int64), reports.astype(np.int64)))
    return Counted(tally, unproven, settling.superseded, settling.replayed, settling.conflicting), periods


def _days(periods: PeriodCounts, time_precision: int) -> tuple[DayCount, ...]:
    day = periods.period * time_precision // DAY_SECONDS
    found, start = np.unique(day, return_index=True)
    ends = np.append(start, len(day))[1:]
    return tuple(
        DayCount(
            int(number), int(periods.period[first]), int(periods.period[end - 1]), int(periods.reports[first:end].sum())
        )
        for number, first, end in zip(found.tolist(), start.tolist(), ends.tolist(), strict=True)
    )


def _asked_shares(campaign: Campaign) -> list[float]:
    """Per question the share of devices that are asked it in a period."""
    intervals = [campaign.assignment.interval(i, question.stratum) for i, question in enumerate(campaign.questions)]
    return [(high - low) / _WORD for low, high in intervals]


def _reach(name: str, found: QuestionEstimate, share: float, target: float | None, *, enough: bool) -> Reach:
    if not found.n or not enough:
        return Reach(name, found.n, None, None)
    # The narrower the interval of a rare value the closer it is to an end: the wider side counts.
    sides = np.maximum(found.high - found.estimate, found.estimate - found.low)
    width = float(np.max(sides)) / found.n
    if not isfinite(width):
        return Reach(name, found.n, None, None)
    if target is None:
        return Reach(name, found.n, width, None)
    missing = max(0, ceil(found.n * (width / target) ** 2) - found.n)
    return Reach(name, found.n, width, ceil(missing / share))


def half_width_of(sd: float) -> float:
    """The half width of a 95 % interval with this standard deviation."""
    return Z95 * sd
