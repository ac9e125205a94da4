"""What the holder of a closed fleet's secrets can tell of its devices. Only a device's secret links its reports.

Only sums over the fleet, and the names of devices whose reports are in conflict (docs/math.md, section 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.common.periods import shown
from aggregator.reports.decoding.columns import Columns
from aggregator.reports.fleet import IdMaker, Roster, distinct_secrets, each_secret, kept_bounds
from aggregator.reports.retention import forgotten_counts
from aggregator.reports.storage.manifest import Manifest
from aggregator.reports.tally.counting import stored_records
from aggregator.reports.tally.scope import Scope
from protocol.documents.campaign import Campaign
from protocol.documents.provisioning import SECRET_BYTES
from protocol.errors import InputError

_RECORD_BYTES = 64
"""Memory for one report, with room for sorting."""


def squares_of_answers(
    folder: Path, campaign: Campaign, manifest: Manifest, memory_bytes: int, scope: Scope, rosters: Sequence[Roster]
) -> tuple[int, ...]:
    """Return ΣT² for every stratum, where T is the number of answers of a device, and Σ is over all devices.

    Run by the holder of the fleet lists. A stratum is a group of questions of which a device answers one. The reports
    in scope count, and ``rosters`` have all devices that answered. ``memory_bytes`` bounds the memory for reports.
    Raises InputError: ``fleet_incomplete``: a report is of no device in the lists; ``reports_forgotten``: some reports
    in scope were removed, so their devices are not known. Raises StorageError ``store_damaged``.
    """
    if forgotten_counts(folder, campaign, manifest, scope).turnout.answers.size:
        first = shown(manifest.first_period, campaign.time_precision)
        raise InputError(
            "reports_forgotten",
            f"whose the reports before period {first} were is no longer known; leave out --fleet, "
            f"or begin --periods with {manifest.first_period}",
        )
    secrets = distinct_secrets(rosters)
    fleet = _Fleet(campaign, secrets)
    records = stored_records(folder, campaign, manifest, memory_bytes, scope, everything=False)
    for reports in _batches(campaign, records, max(1, memory_bytes // _RECORD_BYTES)):
        fleet.add(*reports)
    if fleet.strangers:
        raise InputError(
            "fleet_incomplete",
            f"{fleet.strangers} of the reports are of no device of this fleet; give every list of it with --fleet",
        )
    return tuple((fleet.times**2).sum(axis=1).tolist())


class Conflict(NamedTuple):
    """Different reports of one device with one id, none of which counts. ``records`` is their number with copies."""

    fleet: str
    device: str
    period: int
    records: int


def conflicts(
    folder: Path, campaign: Campaign, manifest: Manifest, memory_bytes: int, scope: Scope, rosters: Sequence[Roster]
) -> list[Conflict]:
    """Return the devices whose reports are in conflict, by name and period. Run by the holder of the fleet lists.

    Two devices have one secret, a device lost its memory and answered again, or somebody else knows the secret.
    Forgotten periods have no conflicts. Arguments and errors are those of :func:`squares_of_answers`.
    """
    given = (folder, campaign, manifest, memory_bytes, scope)
    counted = [records.id for records in stored_records(*given, everything=False)]
    kept = np.sort(np.concatenate([np.empty(0, np.uint64), *counted]))
    ids, places = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    strata = np.array([question.stratum for question in campaign.questions], np.int64)
    for records in stored_records(*given, everything=True):
        left = ~np.isin(records.id, kept)
        ids.append(records.id[left])
        places.append(_place(records, strata, campaign.answers)[left])
    torn, place = np.concatenate(ids), np.concatenate(places)
    devices = {one.secret: one for roster in rosters for one in roster.provisionings()}
    maker = IdMaker(devices, campaign.id, kept_bounds(campaign))
    found = []
    for period, stratum in sorted({divmod(one, campaign.answers) for one in place.tolist()}):
        unsettled, records_each = np.unique(torn[place == period * campaign.answers + stratum], return_counts=True)
        times = dict(zip(unsettled.tolist(), records_each.tolist(), strict=True))
        for device, name in zip(devices.values(), maker.ids(period, stratum).tolist(), strict=True):
            if name in times:
                found.append(Conflict(device.fleet, device.device, period, times[name]))
    return sorted(found)


class _Fleet:
    """Counts the answers of each device to each stratum (group of questions of which a device answers one)."""

    def __init__(self, campaign: Campaign, secrets: bytes) -> None:
        self._maker = IdMaker(each_secret(secrets), campaign.id, kept_bounds(campaign))
        self.times = np.zeros((campaign.answers, len(secrets) // SECRET_BYTES), np.int64)
        self.strangers = 0

    def add(self, ids: NDArray[np.uint64], place: NDArray[np.int64]) -> None:
        """Count N reports by id, (N,) uint64, and ``place``, (N,) int64: period · number of strata + stratum."""
        order = np.argsort(place, kind="stable")
        found, starts = np.unique(place[order], return_index=True)
        for one, reported in zip(found.tolist(), np.split(ids[order], starts[1:]), strict=True):
            period, stratum = divmod(one, len(self.times))
            has_answered = np.isin(self._maker.ids(period, stratum), reported)
            self.times[stratum] += has_answered
            self.strangers += len(reported) - int(has_answered.sum())


def _batches(
    campaign: Campaign, found: Iterable[Columns], most: int
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """Yield ids and places (period·strata + stratum) of records, at least ``most`` at a time but for the last."""
    strata = np.array([question.stratum for question in campaign.questions], np.int64)
    ids: list[NDArray[np.uint64]] = []
    places: list[NDArray[np.int64]] = []
    for records in found:
        ids.append(records.id)
        places.append(_place(records, strata, campaign.answers))
        if sum(map(len, ids)) >= most:
            yield np.concatenate(ids), np.concatenate(places)
            ids, places = [], []
    if ids:
        yield np.concatenate(ids), np.concatenate(places)


def _place(records: Columns, strata: NDArray[np.int64], answers: int) -> NDArray[np.int64]:
    """Return period·strata + stratum of each of N records: (N,) int64, by the stratum of each question."""
    return records.period.astype(np.int64) * answers + strata[records.question]
