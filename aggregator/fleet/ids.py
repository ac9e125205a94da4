"""The report ids that a closed fleet's devices have: from their secrets, or from a file made of these.

Source: docs/formats.md, section 2 (ids) and 8 (the file). A file of ids lets an ingest refuse everyone
else's reports without holding a secret: who has the file can link no report to a device.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from itertools import islice
from multiprocessing import get_context
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from protocol.errors import InputError
from protocol.report import ID_BYTES, ID_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from aggregator.fleet.roster import Roster
    from protocol.campaign import Campaign

    Ids = NDArray[np.uint64]

FORMAT = 1
METADATA = b"hearsay_ids"
SCHEMA = pa.schema([("period", pa.uint32()), ("index", pa.uint16()), ("id", pa.uint64())])
_TAIL = Struct(">IH")
_BLOCK_BYTES = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_WORTH_A_PROCESS = 1_000_000
"""So many ids take longer than it takes to start another process."""
_ROWS_PER_GROUP = 1 << 20


class IdMaker:
    """Ids of many devices, at over a million a second and core: HMAC with each key's two states kept."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        keys = [secret.ljust(_BLOCK_BYTES, b"\0") for secret in secrets]
        self._states = [(sha256(key.translate(_INNER)), sha256(key.translate(_OUTER))) for key in keys]

    def ids(self, campaign_id: bytes, period: int, index: int) -> Ids:
        """Shape (devices,), in their order: :func:`protocol.report.report_id` of each as a number."""
        message = ID_PREFIX + campaign_id + _TAIL.pack(period, index)
        raw = b"".join([_finish(inner.copy(), outer.copy(), message) for inner, outer in self._states])
        return np.frombuffer(raw, ">u8").astype(np.uint64)


def _finish(inner: Any, outer: Any, message: bytes) -> bytes:
    """HMAC's two hashes from copies of their states."""
    inner.update(message)
    outer.update(inner.digest())
    return bytes(outer.digest()[:ID_BYTES])


class PeriodIds(NamedTuple):
    """The ids of one period.

    Attributes:
        period: which.
        by_index: for every index 0 … r − 1 the fleet's ids, sorted.
    """

    period: int
    by_index: tuple[Ids, ...]


def fleet_ids(
    rosters: Sequence[Roster], campaign: Campaign, periods: range, *, processes: int = 1
) -> Iterator[PeriodIds]:
    """All valid ids, period by period. Run by whoever holds the fleet list.

    Args:
        rosters: one or more fleet lists; together they are the fleet.
        campaign: whose ids.
        periods: which; ``step`` 1.
        processes: how many may compute at once.
    """
    secrets = b"".join(roster.secrets for roster in rosters)
    answers = campaign.answers
    amount = len(periods) * answers * (len(secrets) // 32)
    if processes <= 1 or amount < _WORTH_A_PROCESS:
        _prepare(secrets, campaign.id, answers)
        yield from map(_of_period, periods)
        return
    fresh = get_context("spawn")  # a fork would copy the threads of a progress bar half
    given = (secrets, campaign.id, answers)
    with ProcessPoolExecutor(processes, fresh, initializer=_prepare, initargs=given) as pool:
        waiting = iter(periods)
        ahead = [pool.submit(_of_period, period) for period in islice(waiting, 2 * processes)]
        while ahead:  # a few periods ahead and no more: their ids wait in memory
            yield ahead.pop(0).result()
            ahead += [pool.submit(_of_period, period) for period in islice(waiting, 1)]


_prepared: tuple[IdMaker, bytes, int] | None = None
"""What a process computes ids with; its pool's initializer sets it."""


def _prepare(secrets: bytes, campaign_id: bytes, answers: int) -> None:
    global _prepared  # noqa: PLW0603 - the one way to hand a worker process its state once
    maker = IdMaker(secrets[at : at + 32] for at in range(0, len(secrets), 32))
    _prepared = maker, campaign_id, answers


def _of_period(period: int) -> PeriodIds:
    assert _prepared is not None
    maker, campaign_id, answers = _prepared
    return PeriodIds(period, tuple(np.sort(maker.ids(campaign_id, period, index)) for index in range(answers)))


class IdFile(NamedTuple):
    """What a file of enrolled ids says of itself.

    Attributes:
        campaign: id of the campaign.
        periods: which it covers.
        answers: r.
    """

    campaign: bytes
    periods: range
    answers: int


def write_ids(
    sink: Any, campaign: Campaign, periods: range, found: Iterable[PeriodIds], done: Callable[[int], None]
) -> int:
    """Write enrolled ids as Parquet, a period at a time; returns how many.

    Args:
        sink: an open binary file.
        campaign: whose ids.
        periods: which they are for.
        found: their ids, in order.
        done: called with the number of periods written.
    """
    about = {
        "format": FORMAT,
        "campaign": campaign.id.hex(),
        "first": periods[0],
        "last": periods[-1],
        "answers": campaign.answers,
    }
    schema = SCHEMA.with_metadata({METADATA: json.dumps(about).encode()})
    written = 0
    with pq.ParquetWriter(sink, schema, compression="none", use_dictionary=["period", "index"]) as writer:
        for number, (period, by_index) in enumerate(found, 1):
            ids = np.concatenate(by_index)
            index = np.repeat(np.arange(len(by_index), dtype=np.uint16), [len(part) for part in by_index])
            columns = [np.full(len(ids), period, np.uint32), index, ids]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=_ROWS_PER_GROUP)
            written += len(ids)
            done(number)
    return written


class IdReader:
    """Enrolled ids from a file, by period. Keeps no file open, so it can be sent to another process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.about: IdFile = self._read(lambda file: _about(file.schema_arrow.metadata))
        self._groups: dict[int, list[int]] = self._read(_groups)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_path": self._path.absolute()}  # another process may work in another folder

    def period_ids(self, period: int) -> tuple[Ids, ...]:
        """For every index the ids, sorted; all empty for a period that the file does not cover."""
        groups = self._groups.get(period)
        if groups is None:
            nobody: Ids = np.empty(0, np.uint64)
            return (nobody,) * self.about.answers
        table = self._read(lambda file: file.read_row_groups(groups, columns=["index", "id"]))
        index, ids = table["index"].to_numpy(), table["id"].to_numpy()
        if len(index) and int(index.max()) >= self.about.answers:
            raise _invalid(self._path)
        found: tuple[Ids, ...] = tuple(np.sort(ids[index == number]) for number in range(self.about.answers))
        return found

    def _read(self, what: Callable[[Any], Any]) -> Any:
        try:
            with pq.ParquetFile(self._path) as file:
                return what(file)
        except FileNotFoundError:
            problem = InputError("file_not_found", f"there is no file '{self._path}'")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
            problem = _invalid(self._path)
        raise problem


def _invalid(path: Path) -> InputError:
    return InputError("ids_invalid", f"'{path}' is no file of enrolled ids; 'hearsay fleet ids' makes one")


def _about(metadata: dict[bytes, bytes]) -> IdFile:
    about = json.loads(metadata[METADATA])
    campaign = bytes.fromhex(about["campaign"])
    first, last, answers = (about[key] for key in ("first", "last", "answers"))
    if about["format"] != FORMAT or not all(type(value) is int for value in (first, last, answers)):
        raise ValueError
    if not 0 <= first <= last < 1 << 32 or not 1 <= answers < 1 << 16 or len(campaign) != 32:
        raise ValueError
    return IdFile(campaign, range(first, last + 1), answers)


def _groups(file: Any) -> dict[int, list[int]]:
    """Which row groups hold which period; each holds one."""
    found: dict[int, list[int]] = {}
    if not file.schema_arrow.remove_metadata().equals(SCHEMA):
        raise ValueError
    for number in range(file.metadata.num_row_groups):
        period = file.metadata.row_group(number).column(0).statistics
        if period is None or period.min != period.max:
            raise ValueError
        found.setdefault(int(period.min), []).append(number)
    return found
