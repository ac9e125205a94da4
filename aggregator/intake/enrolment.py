"""Closed fleets at intake: of the good records only those that an enrolled device can have made.

Source: docs/formats.md, section 8. A record is enrolled if its id is that of some device for the record's
period and an index i, and its question is of stratum i; else it is ``id_not_enrolled``. This is the last
of the reasons, so ids are needed only for periods that have begun and that the campaign has, however
many periods a stranger writes into his reports.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

import numpy as np

from protocol.errors import InputError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from aggregator.decoding.columns import Columns
    from aggregator.fleet.ids import IdReader, Ids
    from aggregator.fleet.roster import Roster
    from aggregator.storage.manifest import Manifest
    from protocol.documents.campaign import Campaign

REASON = "id_not_enrolled"
CACHE_BYTES = 256 << 20
"""Ids of recent periods that are kept, at least one period."""


class _Source(Protocol):
    @property
    def digest(self) -> bytes: ...
    @property
    def periods(self) -> range: ...
    def known(self, period: int) -> tuple[Ids, ...]: ...
    def known_as(self, period: int, index: int, ids: Ids) -> Ids: ...


class FromRosters:
    """Ids computed from the fleet's secrets, when a period is first met.

    Attributes:
        digest: names the set of ids.
        periods: for which there are ids: all.
    """

    periods = range(1 << 32)

    def __init__(self, rosters: Sequence[Roster], campaign: Campaign) -> None:
        from aggregator.fleet.roster import distinct_secrets

        self._secrets = distinct_secrets(rosters)
        self._campaign_id = campaign.id
        self._answers = campaign.answers
        self.digest = sha256(b"hearsay/v1/enrolment" + campaign.id + self._secrets).digest()

    def __repr__(self) -> str:
        return f"FromRosters({len(self._secrets) // 32} devices)"

    def known_as(self, period: int, index: int, ids: Ids) -> Ids:  # noqa: ARG002 - that of marks needs to know
        """The ids as they are: whoever has the secrets needs no marks."""
        return ids

    def known(self, period: int) -> tuple[Ids, ...]:
        """For every index the ids, sorted."""
        from aggregator.fleet.ids import IdMaker

        maker = IdMaker(self._secrets[at : at + 32] for at in range(0, len(self._secrets), 32))
        return tuple(np.sort(maker.ids(self._campaign_id, period, index)) for index in range(self._answers))


class Enrolled:
    """The ids that a closed fleet's devices have in one campaign, or their marks. Can be sent to another process."""

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
        """Names the set of ids: an ingest with another one may take what was refused with this one."""
        return self._source.digest

    def covers(self, period: int) -> bool:
        """Whether there are ids for a period, so that a report of it can be accepted."""
        return period in self._source.periods

    @property
    def holds_secrets(self) -> bool:
        """Whether it computes ids from the devices' secrets, so that it must not be sent in the clear."""
        return isinstance(self._source, FromRosters)

    def accepts(self, records: Columns) -> NDArray[np.bool_]:
        """Which of these records are enrolled. Run by the aggregator.

        Args:
            records: good ones by all other rules: their questions exist.
        """
        accepted = np.zeros(records.size, np.bool_)
        group = records.period.astype(np.int64) * self._indices + self._stratum[records.question]
        order = np.argsort(group, kind="stable")
        group = group.take(order)
        starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]])) if len(group) else order
        for start, rows in zip(starts, np.split(order, starts[1:]), strict=False):  # without records there is one split
            period, index = divmod(int(group[start]), self._indices)
            known = self._ids(period)[index]
            accepted[rows] = _is_in(self._source.known_as(period, index, records.id[rows]), known)
        return accepted

    def _ids(self, period: int) -> tuple[Ids, ...]:
        with self._lock:  # the threads of an ingest ask for the same periods
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
    if not len(sorted_ids):
        return np.zeros(len(wanted), np.bool_)
    place = np.minimum(np.searchsorted(sorted_ids, wanted), len(sorted_ids) - 1)
    return np.asarray(sorted_ids[place] == wanted, np.bool_)


def check_enrolment(manifest: Manifest, enrolled: Enrolled | None) -> bool:
    """Whether a store is that of a closed fleet, once an ingest has these ids.

    Raises:
        PolicyError: ``enrolment_needed``: it is, and there are no ids; ``store_open``: it is not, and has
            taken reports of anybody.
    """
    if manifest.closed and enrolled is None:
        raise PolicyError("enrolment_needed", "the store is that of a closed fleet; give --enrolled or --fleet")
    if enrolled is not None and not manifest.closed and manifest.inputs:
        raise PolicyError("store_open", "the store has taken reports of anybody; make a new one for a closed fleet")
    return manifest.closed or enrolled is not None


def enrolled_from_file(campaign: Campaign, reader: IdReader) -> Enrolled:
    """The ids of a file that ``hearsay fleet ids`` made.

    Raises:
        InputError: ``other_campaign``: they are for another campaign.
    """
    if (reader.about.campaign, reader.about.answers) != (campaign.id, campaign.answers):
        raise InputError("other_campaign", "the enrolled ids are for another campaign")
    return Enrolled(campaign, reader)


def enrolled_from_rosters(campaign: Campaign, rosters: Sequence[Roster]) -> Enrolled:
    """The ids that fleet lists lead to, computed for each period when it is met."""
    return Enrolled(campaign, FromRosters(rosters, campaign))
