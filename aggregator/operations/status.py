"""The status of a store: reports by day, period and question, and the accuracy that they allow.

The share of each possible reply (cell) has a 95 % interval; h is the largest half width. A target t needs n' =
⌈n·(h/t)²⌉ answers, n the present ones, and (n' − n)/w more devices, w the share that is asked. No value that depends on
answers, and no alarm, is shown before ``min_batch_size`` reports are counted.
"""

from __future__ import annotations

from math import ceil, inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from aggregator.cards.alarms import Alarms, alarms
from aggregator.cards.manipulation import weights_of
from aggregator.common.notebooks import facts, table
from aggregator.common.periods import begins
from aggregator.estimates.cells import question_name
from aggregator.estimates.debias import Z95
from aggregator.estimates.question_estimate import QuestionEstimate
from aggregator.estimates.recurrence import at_most
from aggregator.estimates.reports import estimate
from aggregator.operations.report_store import Store, open_store
from aggregator.reports.retention import forgotten_counts
from aggregator.reports.storage.manifest import Manifest
from aggregator.reports.tally.counting import count_partition
from aggregator.reports.tally.scope import EVERYTHING
from aggregator.reports.tally.turnout import ByPeriod
from protocol.documents.payload import DAY_SECONDS
from protocol.errors import InputError

LEAST_TARGET = 1e-6
"""Smallest target of a half width. It needs some 10¹² devices; for far smaller targets the number is no float."""


class DayCount(NamedTuple):
    """Reports, and bounds of the number of devices, of the periods ``first`` to ``last``, which begin on ``day``."""

    day: int
    first: int
    last: int
    reports: int
    devices_at_least: int
    devices_at_most: int


class QuestionAccuracy(NamedTuple):
    """The accuracy of one question's estimates, after ``n`` answers.

    ``half_width``: largest distance from an estimate to an end of its 95 % interval, as a share, or as a mean in units
    of the feature's half range. None before the smallest batch is reached, or without answers. ``devices_needed``:
    number of further devices that the target needs; None without a target or a half width.
    """

    question: str
    n: int
    half_width: float | None
    devices_needed: int | None


class Status(NamedTuple):
    """The contents of ``hearsay status``.

    ``reports``, ``unproven``, ``superseded``, ``rejected``: as in :class:`~aggregator.reports.tally.tally.TallyReport`.
    ``forgotten_before``: first period whose reports are kept. ``periods``, ``days``: reports and devices by period, and
    by day; over all periods there are ``devices_at_least`` to ``devices_at_most``. ``target``: a half width, which all
    questions reach with ``devices_needed`` further devices. ``enough``: there are ``min_batch_size`` reports, or with
    memory reports of so many devices; else estimates are not shown, models not published, and ``alarms`` are None.
    """

    campaign: bytes
    name: str
    reports: int
    min_batch_size: int
    unproven: int
    superseded: int
    rejected: dict[str, int]
    forgotten_before: int
    periods: ByPeriod
    days: tuple[DayCount, ...]
    devices_at_least: int
    devices_at_most: int
    questions: tuple[QuestionAccuracy, ...]
    target: float | None
    devices_needed: int | None
    time_precision: int
    enough: bool
    alarms: Alarms | None = None

    def _repr_html_(self) -> str:
        about: dict[str, object] = {"campaign": self.name, "reports": self.reports}
        about["smallest batch"] = f"{self.min_batch_size}, {'reached' if self.enough else 'not reached'}"
        about |= {f"set aside: {reason}": count for reason, count in self.rejected.items()}
        about |= {} if self.alarms is None else {"alarms": self.alarms.summary()}
        reached = [(reach.question, reach.n, reach.half_width, reach.devices_needed) for reach in self.questions]
        return facts("Status", about) + table(("question", "reports", "± (95 %)", "devices needed"), reached)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``hearsay status --json`` prints, where ``campaign`` is hexadecimal text."""
        names = self.periods._fields
        rows = zip(*(column.tolist() for column in self.periods), strict=True)
        return {
            **self._asdict(),
            "min_batch_size_reached": self.enough,
            "periods": [
                dict(zip(names, row, strict=True)) | {"begins": begins(row[0], self.time_precision)} for row in rows
            ],
            "days": [{**day._asdict(), "day": date_of(day.day)} for day in self.days],
            "questions": [reach._asdict() for reach in self.questions],
            "alarms": None if self.alarms is None else self.alarms.to_json(),
        }


def date_of(day: int) -> str:
    """Return the date of a day counted from 1970, as YYYY-MM-DD. After the calendar's end it is the number itself."""
    return str(np.datetime64(day, "D")) if day < 2_932_897 else str(day)


def status(store: Store | str | Path, *, target: float | None = None) -> Status:
    """Summarise a store's reports, without their estimates. Raises the errors of :meth:`.Store.tally_report`.

    ``target`` is a half width of a share's interval to reach, at least :data:`LEAST_TARGET` (else InputError
    ``argument_invalid``); None for no target.
    """
    if target is not None and not LEAST_TARGET <= target < inf:
        raise InputError("argument_invalid", "a target is a half width of 0.000001 or more, for example 0.01")
    opened = open_store(store) if isinstance(store, str | Path) else store
    return opened.at_rest(lambda manifest: _status(opened, manifest, target))


def _status(store: Store, manifest: Manifest, target: float | None) -> Status:
    campaign = store.campaign
    counted = forgotten_counts(store.path, campaign, manifest, EVERYTHING)
    kept = EVERYTHING._replace(first=manifest.first_period)
    for some in store.over_partitions(count_partition, manifest, kept, True, ids_only=True):
        counted = counted.merge(some)
    periods = counted.turnout.by_period()
    recurrence = at_most(campaign, counted.tally, counted.turnout)
    found = counted.report(manifest.rejected)
    enough = recurrence.devices(found.reports) >= campaign.min_batch_size
    shares = weights_of(campaign)
    estimates = estimate(campaign, found.tally, recurrence=recurrence)
    reaches = tuple(
        _reach(question_name(one.subject, campaign.schema), one, share, target if enough else None, enough=enough)
        for one, share in zip(estimates.questions, shares, strict=True)
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
        _days(periods, campaign.time_precision, once=campaign.series is not None),
        int(periods.devices.max(initial=0) if campaign.series is None else periods.devices.sum()),
        int(periods.devices.sum()),
        reaches,
        target,
        max(known) if known and len(known) == len(needed) else None,
        campaign.time_precision,
        enough,
        alarms(campaign, found.tally, estimates, counted.profile) if enough and found.reports else None,
    )


def _days(periods: ByPeriod, time_precision: int, *, once: bool) -> tuple[DayCount, ...]:
    """Return the counts by day. ``once`` says that a device answers in one period only."""
    least = np.add.reduce if once else np.maximum.reduce
    day = periods.period * time_precision // DAY_SECONDS
    found, start = np.unique(day, return_index=True)
    ends = np.append(start, len(day))[1:]
    return tuple(
        DayCount(
            int(number),
            int(periods.period[first]),
            int(periods.period[end - 1]),
            int(periods.reports[first:end].sum()),
            int(least(periods.devices[first:end])),
            int(periods.devices[first:end].sum()),
        )
        for number, first, end in zip(found.tolist(), start.tolist(), ends.tolist(), strict=True)
    )


def _reach(name: str, found: QuestionEstimate, share: float, target: float | None, *, enough: bool) -> QuestionAccuracy:
    """Return the accuracy of one question. Without ``enough`` reports (the smallest batch) it has no numbers.

    ``share``: the part of the devices that is asked this question in a period. ``target``: the wanted half width.
    """
    if not found.n or not enough:
        return QuestionAccuracy(name, found.n, None, None)
    # The interval of a share near 0 or 1 is not symmetric. The half width is then the wider one of its two sides.
    sides = np.maximum(found.high - found.estimate, found.estimate - found.low)
    width = float(np.max(sides)) / found.n
    if not isfinite(width):
        return QuestionAccuracy(name, found.n, None, None)
    if target is None:
        return QuestionAccuracy(name, found.n, width, None)
    missing = max(0, ceil(found.n * (width / target) ** 2) - found.n)
    return QuestionAccuracy(name, found.n, width, ceil(missing / share))


def half_width_of(sd: float) -> float:
    """Return the half width of a symmetric 95 % interval of an estimate with standard deviation ``sd``: 1.96·sd."""
    return Z95 * sd
