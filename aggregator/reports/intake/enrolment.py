"""Closed fleets: accept only records that an enrolled device can have made. Source: docs/formats.md, section 8.

A record is enrolled if its id is that of some device for the record's period and an index i, and its question belongs
to stratum i (the i-th group of questions, of which a device answers one). This rule is checked last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aggregator.common.arrays import run_starts
from aggregator.reports.decoding.columns import Columns
from aggregator.reports.fleet import FleetIds, IdReader, Ids, Roster
from aggregator.reports.storage.manifest import Manifest
from protocol.documents.campaign import Campaign
from protocol.errors import InputError, PolicyError

REASON = "id_not_enrolled"
CACHE_BYTES = 256 << 20
"""Memory for the ids of recent periods; the ids of one period are always kept."""


class _Source(Protocol):
    """Where the ids of a fleet come from: the devices' secrets, or a file of marks (digests of ids)."""

    @property
    def digest(self) -> bytes: ...
    @property
    def periods(self) -> range: ...
    def known(self, period: int) -> tuple[Ids, ...]: ...
    def known_as(self, period: int, index: int, ids: Ids) -> Ids: ...


class Enrolled:
    """The ids, or their marks (digests), of a closed fleet's devices in one campaign, which other processes may get."""

    def __init__(self, campaign: Campaign, source: _Source, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._source = source
        self._stratum = np.array([question.stratum for question in campaign.questions], np.int64)
        self._indices = campaign.answers
        self._cache: OrderedDict[int, tuple[Ids, ...]] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._used = 0
        self._lock = threading.Lock()

    @property
    def digest(self) -> bytes:
        """Return 32 bytes that name the set of ids. Files with refused records are read again with another set."""
        return self._source.digest

    def covers(self, period: int) -> bool:
        """Return whether there are ids for ``period``. Otherwise no report of that period is accepted."""
        return period in self._source.periods

    @property
    def holds_secrets(self) -> bool:
        """Return whether this object holds the devices' secrets, and so must not be sent unencrypted."""
        return isinstance(self._source, FleetIds)

    def accepts(self, records: Columns) -> NDArray[np.bool_]:
        """Return which of N otherwise good records an enrolled device made: (N,) bool. Raises as ``IdReader.known``."""
        accepted = np.zeros(records.size, np.bool_)
        group = records.period.astype(np.int64) * self._indices + self._stratum[records.question]
        order = np.argsort(group, kind="stable")
        group = group.take(order)
        starts = run_starts(group)
        # Not strict: without records, starts is empty, but np.split still gives one empty part.
        for start, rows in zip(starts, np.split(order, starts[1:]), strict=False):
            period, index = divmod(int(group[start]), self._indices)
            known = self._ids(period)[index]
            accepted[rows] = _is_in(self._source.known_as(period, index, records.id[rows]), known)
        return accepted

    def has(self, period: int, ids: Ids) -> NDArray[np.bool_]:
        """Return which of N ids are those of a device's only answer in a period: (N,) uint64 → (N,) bool."""
        return _is_in(self._source.known_as(period, 0, ids), self._ids(period)[0])

    def _ids(self, period: int) -> tuple[Ids, ...]:
        """Return the ids of a period, one array for each index of an answer. They are computed once for all threads."""
        with self._lock:
            known = self._cache.get(period)
            if known is None:
                known = self._cache[period] = self._source.known(period)
                self._used += _size(known)
                while len(self._cache) > 1 and self._used > self._cache_bytes:
                    self._used -= _size(self._cache.popitem(last=False)[1])
            self._cache.move_to_end(period)
            return known

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_cache", "_lock")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _cache=OrderedDict(), _used=0, _lock=threading.Lock())


def _size(by_index: tuple[Ids, ...]) -> int:
    return sum(ids.nbytes for ids in by_index)


def _is_in(wanted: Ids, sorted_ids: Ids) -> NDArray[np.bool_]:
    """Return which of N ``wanted`` ids, (N,) uint64, are among M rising ids, (M,) uint64: (N,) bool."""
    if not len(sorted_ids):
        return np.zeros(len(wanted), np.bool_)
    place = np.minimum(np.searchsorted(sorted_ids, wanted), len(sorted_ids) - 1)
    return np.asarray(sorted_ids[place] == wanted, np.bool_)


def check_enrolment(manifest: Manifest, enrolled: Enrolled | None) -> bool:
    """Return whether the store belongs to a closed fleet. The first ingest into an empty store decides this.

    Raises PolicyError: ``enrolment_needed``: it does, and no ids are given; ``store_open``: ids are given, and the
    store has taken reports without.
    """
    if manifest.closed and enrolled is None:
        raise PolicyError("enrolment_needed", "the store is that of a closed fleet; give --enrolled or --fleet")
    if enrolled is not None and not manifest.closed and manifest.inputs:
        raise PolicyError("store_open", "the store has taken reports of anybody; make a new one for a closed fleet")
    return manifest.closed or enrolled is not None


def enrolled_from_file(campaign: Campaign, reader: IdReader) -> Enrolled:
    """Return the ids in a file that ``hearsay fleet ids`` made. Raises ``other_campaign`` for those of another one."""
    if (reader.about.campaign, reader.about.answers) != (campaign.id, campaign.answers):
        raise InputError("other_campaign", "the enrolled ids are for another campaign")
    return Enrolled(campaign, reader)


def enrolled_from_rosters(campaign: Campaign, rosters: Sequence[Roster]) -> Enrolled:
    """Return the ids of all devices in fleet lists. A period's ids are computed when its first record is checked."""
    return Enrolled(campaign, FleetIds(rosters, campaign))
