"""How often each device of a closed fleet answered: by its secret, which alone links its reports.

Only sums over the fleet leave this module (ΣT² of every stratum), and nothing is written. docs/math.md, section 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggregator.fleet.ids import IdMaker
from aggregator.fleet.roster import distinct_secrets
from aggregator.periods import shown
from aggregator.store.export import exported_records
from aggregator.store.retention import forgotten_counts
from protocol.documents.provisioning import SECRET_BYTES
from protocol.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from aggregator.decoding.columns import Columns
    from aggregator.fleet.roster import Roster
    from aggregator.storage.manifest import Manifest
    from aggregator.store.store import Store
    from aggregator.tally.counting import Scope

_RECORD_BYTES = 64
"""What a report takes here, with room for sorting."""


def squares_of_answers(store: Store, manifest: Manifest, scope: Scope, rosters: Sequence[Roster]) -> tuple[int, ...]:
    """ΣT² of every stratum over the devices of a fleet. Run by whoever holds the fleet lists.

    Args:
        store: with the reports.
        manifest: what is in it.
        scope: which reports count.
        rosters: fleet lists that together hold every device that answered.

    Raises:
        InputError: ``fleet_incomplete``: a report is of none of these devices; ``reports_forgotten``: some are no
            longer there, so whose they were is not known.
        StorageError: ``store_damaged``.
    """
    if forgotten_counts(store.path, store.campaign, manifest, scope).turnout.answers.size:
        first = shown(manifest.first_period, store.campaign.time_precision)
        raise InputError(
            "reports_forgotten",
            f"whose the reports before period {first} were is no longer known; leave out --fleet, "
            f"or begin --periods with {manifest.first_period}",
        )
    secrets = distinct_secrets(rosters)
    fleet = _Fleet(store, secrets)
    for reports in _lots(store, manifest, scope):
        fleet.add(*reports)
    if fleet.strangers:
        raise InputError(
            "fleet_incomplete",
            f"{fleet.strangers} of the reports are of no device of this fleet; give every list of it with --fleet",
        )
    return tuple((fleet.times**2).sum(axis=1).tolist())


class _Fleet:
    """Counts answers by stratum and device: ``times``, shape (r, devices)."""

    def __init__(self, store: Store, secrets: bytes) -> None:
        self._campaign = store.campaign
        self._maker = IdMaker(secrets[at : at + SECRET_BYTES] for at in range(0, len(secrets), SECRET_BYTES))
        self.times = np.zeros((store.campaign.answers, len(secrets) // SECRET_BYTES), np.int64)
        self.strangers = 0

    def add(self, ids: NDArray[np.uint64], place: NDArray[np.int64]) -> None:
        """Reports by id, and by period·r + stratum."""
        order = np.argsort(place, kind="stable")
        found, starts = np.unique(place[order], return_index=True)
        for one, mine in zip(found.tolist(), np.split(ids[order], starts[1:]), strict=True):
            period, stratum = divmod(one, len(self.times))
            theirs = np.isin(self._maker.ids(self._campaign.id, period, stratum), mine)
            self.times[stratum] += theirs
            self.strangers += len(mine) - int(theirs.sum())


def _lots(store: Store, manifest: Manifest, scope: Scope) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """Ids and places of the counted reports, as many at a time as fit into memory: each lot takes all ids once."""
    most = max(1, store.memory_bytes // _RECORD_BYTES)
    strata = np.array([question.stratum for question in store.campaign.questions], np.int64)
    ids: list[NDArray[np.uint64]] = []
    places: list[NDArray[np.int64]] = []
    for records in exported_records(store, manifest, scope, everything=False):
        ids.append(records.id)
        places.append(_place(records, strata, store.campaign.answers))
        if sum(map(len, ids)) >= most:
            yield np.concatenate(ids), np.concatenate(places)
            ids, places = [], []
    if ids:
        yield np.concatenate(ids), np.concatenate(places)


def _place(records: Columns, strata: NDArray[np.int64], answers: int) -> NDArray[np.int64]:
    return records.period.astype(np.int64) * answers + strata[records.question]
