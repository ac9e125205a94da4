"""Closed fleets: the list with the name and the secret of every device, and the report ids that follow from it.

The fleet list holds all names and secrets; each device gets one provisioning file. A mark is a digest of a report id: a
file of marks lets an ingest refuse other devices' reports without a secret. Source: docs/formats.md, sections 2 and 8.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from struct import Struct
from typing import IO, Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from aggregator.common.files import new_folder, read_file
from aggregator.common.sealing import STANDARD, Cost, check_sealed, open_secret, seal_secret
from protocol import canonical
from protocol.batches.report import ID_BYTES, ID_PREFIX
from protocol.documents.campaign import Campaign
from protocol.documents.memory_terms import PLACE_PREFIX
from protocol.documents.payload import is_text
from protocol.documents.provisioning import SECRET_BYTES, Provisioning, build_provisioning
from protocol.errors import DocumentError, InputError, StorageError

FORMAT = 1
LIST_FILE, DEVICES = "fleet.hsf", "devices"
MAX_LIST_BYTES = 1 << 30
_MAX_FILE_NAME = 200
_KEYS = {"hearsay_fleet", "fleet", "devices", "secrets"}


class Roster(NamedTuple):
    """The list of a closed fleet: names of all devices, and their secrets, 32 bytes each. Its ``repr`` shows none."""

    fleet: str
    devices: tuple[str, ...]
    secrets: bytes

    def __repr__(self) -> str:
        return f"Roster({self.fleet!r}, {len(self.devices)} devices)"

    def each_secret(self) -> Iterator[bytes]:
        """Return an iterator of the devices' secrets."""
        return each_secret(self.secrets)

    def provisionings(self) -> Iterator[Provisioning]:
        """Yield the content of the provisioning file of each device."""
        for name, secret in zip(self.devices, self.each_secret(), strict=True):
            yield Provisioning(self.fleet, name, secret)

    def without(self, names: Iterable[str]) -> Roster:
        """Return the fleet without ``names``. Raises ``device_unknown``, or ``fleet_empty`` if no device is left."""
        gone = self._known(names)
        rest = [given for given in self.provisionings() if given.device not in gone]
        if not rest:
            raise InputError("fleet_empty", "no device is left in the list")
        return Roster(self.fleet, tuple(given.device for given in rest), b"".join(given.secret for given in rest))

    def renewed(self, names: Iterable[str], *, entropy: Callable[[int], bytes] = os.urandom) -> Roster:
        """Return the fleet with new secrets for ``names``: their old ones end. Raises ``device_unknown``."""
        lost = self._known(names)
        secrets = [entropy(SECRET_BYTES) if given.device in lost else given.secret for given in self.provisionings()]
        return self._replace(secrets=b"".join(secrets))

    def _known(self, names: Iterable[str]) -> frozenset[str]:
        wanted = frozenset(names)
        for name in sorted(wanted - set(self.devices)):
            raise InputError("device_unknown", f"the fleet '{self.fleet}' has no device '{name}'")
        return wanted


def new_roster(fleet: str, names: Iterable[str], *, entropy: Callable[[int], bytes] = os.urandom) -> Roster:
    """Make a fleet: draw a secret for every device. Run by the operator, once. ``entropy(n)`` returns n random bytes.

    Raises InputError ``name_invalid``: a name is empty, too long or not printable; ``device_repeated``: a name occurs
    twice, perhaps in other cases of letters; ``fleet_empty``.
    """
    names = tuple(names)
    if not is_text(fleet):
        raise InputError("name_invalid", "the fleet's name is empty, too long, or does not print")
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not is_text(name) or len(_file_name(name)) > _MAX_FILE_NAME:
            raise InputError("name_invalid", f"the name of device {number} is empty, too long, or does not print")
        if _file_name(name).casefold() in seen:
            problem = f"'{name}', device {number}, is in the list already; capitals and small letters are the same here"
            raise InputError("device_repeated", problem)
        seen.add(_file_name(name).casefold())
    if not names:
        raise InputError("fleet_empty", "no device is named")
    return Roster(fleet, names, b"".join(entropy(SECRET_BYTES) for _ in names))


def each_secret(secrets: bytes) -> Iterator[bytes]:
    """Return an iterator of secrets. ``secrets`` joins them, 32 bytes each."""
    return (secrets[at : at + SECRET_BYTES] for at in range(0, len(secrets), SECRET_BYTES))


def distinct_secrets(rosters: Iterable[Roster]) -> bytes:
    """Return the secrets of all devices in ``rosters``, 32 bytes each, each once, sorted and joined."""
    return b"".join(sorted({secret for roster in rosters for secret in roster.each_secret()}))


def _file_name(device: str) -> str:
    """Return the file name of a device. Its name can neither leave the folder nor make a hidden file."""
    quoted = quote(device, safe=" ")
    return f"%2E{quoted[1:]}.hsp" if quoted.startswith(".") else f"{quoted}.hsp"


def write_roster(
    out: str | Path,
    roster: Roster,
    passphrase: bytes | None,
    *,
    devices: Collection[str] | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    cost: Cost = STANDARD,
) -> None:
    """Write the fleet list, and provisioning files for devices: all files or none, readable only by their owner.

    Raises InputError: ``output_exists``: a file, a link or a folder with content is there; ``output_invalid``: the
    parent is no folder, or the path has a zero byte; ``passphrase_missing``: the passphrase is empty. Raises
    StorageError ``memory_short``: too little memory for the passphrase. Nothing is left behind, unless only the last
    flush failed.

    Args:
        out: a folder that does not exist, or is empty.
        roster: the fleet.
        passphrase: encrypts the list; None writes the list as plain text.
        devices: names of the devices that get a provisioning file; None for all.
        entropy: ``entropy(n)`` returns n random bytes, for the encryption.
        cost: of one attempt at the passphrase.
    """
    out = Path(out)
    if "\0" in str(out):
        raise InputError("output_invalid", "the path of a folder can not have a zero byte; choose another name")
    if os.path.lexists(out) and not (out.is_dir() and not out.is_symlink() and not any(out.iterdir())):
        raise InputError("output_exists", f"'{out}' exists and is not an empty folder")
    if not out.absolute().parent.is_dir():
        raise InputError("output_invalid", f"'{out}' is in a folder that does not exist")
    sealed = list_bytes(roster, passphrase, entropy=entropy, cost=cost)
    with new_folder(out, f"'{out}' could not be made") as hidden:
        (hidden / DEVICES).mkdir(mode=0o700)
        for given in roster.provisionings():
            if devices is not None and given.device not in devices:
                continue
            _write_private(hidden / DEVICES / _file_name(given.device), build_provisioning(given))
        _write_private(hidden / LIST_FILE, sealed)
        os.sync()  # one flush of all files is faster than a flush of each


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def list_bytes(
    roster: Roster,
    passphrase: bytes | None,
    *,
    entropy: Callable[[int], bytes] = os.urandom,
    cost: Cost = STANDARD,
) -> bytes:
    """Return the content of a fleet list's file. The arguments and errors are those of :func:`write_roster`."""
    body = {"hearsay_fleet": FORMAT, "fleet": roster.fleet, "devices": roster.devices, "secrets": roster.secrets}
    listed = canonical.pack(body)
    return listed if passphrase is None else seal_secret(listed, passphrase, entropy=entropy, cost=cost)


def read_roster(path: str | Path, passphrase: bytes | Callable[[], bytes]) -> Roster:
    """Read a fleet list. The arguments and errors are those of :func:`open_roster`."""
    return open_roster(path, passphrase)[0]


def open_roster(path: str | Path, passphrase: bytes | Callable[[], bytes]) -> tuple[Roster, bytes | None]:
    """Read a fleet list, and return it with its passphrase, or with None if the list is plain text.

    ``passphrase`` is the passphrase of the list, or a function that returns it and is called only for an encrypted
    list. Raises the errors of :func:`~aggregator.common.files.read_file` and
    :func:`~aggregator.common.sealing.open_secret`. Raises StorageError: as
    :func:`~aggregator.common.sealing.open_secret`; ``fleet_damaged``: the file was decrypted and holds no fleet list.
    """
    raw = read_file(path, MAX_LIST_BYTES)
    roster = _parse(raw)
    if roster is not None:
        return roster, None
    check_sealed(raw)  # A damaged file is refused before the user is asked for a passphrase.
    used = passphrase if isinstance(passphrase, bytes) else passphrase()
    roster = _parse(open_secret(raw, used))
    if roster is None:
        raise StorageError("fleet_damaged", f"'{path}' opens and holds no fleet list that this software knows")
    return roster, used


def _parse(content: bytes) -> Roster | None:
    body: Any = None
    try:
        body = canonical.unpack(content)
    except DocumentError:
        return None
    if not isinstance(body, dict) or body.get("hearsay_fleet") != FORMAT or body.keys() != _KEYS:
        return None
    fleet, names, secrets = body["fleet"], body["devices"], body["secrets"]
    if not is_text(fleet) or not isinstance(names, list) or not all(map(is_text, names)):
        return None
    if not isinstance(secrets, bytes) or len(secrets) != SECRET_BYTES * len(names) or len(set(names)) != len(names):
        return None
    return Roster(fleet, tuple(names), secrets)


Ids = NDArray[np.uint64]


MAGIC, FILE_VERSION = b"hsyi", 2
BARE_IDS = 1
"""The version of files of marks that held the ids themselves."""
MARK_PREFIX = b"hearsay/1/enrolled-id-mark"
DIGEST_BYTES = 32
_HEAD = Struct(">4sB32sIIHQ")
_TAIL = Struct(">IH")
_ID = Struct(f"{ID_BYTES}s")
_BLOCK_BYTES = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_WORTH_A_PROCESS = 1_000_000
"""For at least this many ids, further processes save more time than their start takes."""
_CHUNK_BYTES = 1 << 20
_HALF = np.uint64(32)


class IdMaker:
    """Computes the report ids of many devices from the HMAC states of their secrets: a million per second and core.

    ``bounds``: of a campaign with memory the bounds of its questions, between which a device's ids stay; else empty.
    """

    def __init__(self, secrets: Iterable[bytes], campaign_id: bytes, bounds: Sequence[int] = ()) -> None:
        keys = [secret.ljust(_BLOCK_BYTES, b"\0") for secret in secrets]
        self._states = [(sha256(key.translate(_INNER)), sha256(key.translate(_OUTER))) for key in keys]
        self._campaign_id = campaign_id
        self._low: Ids | None = None
        if bounds:
            ends = np.array([0, *bounds], np.uint64)
            place = np.searchsorted(ends[1:], self._digests(PLACE_PREFIX + campaign_id) >> _HALF, side="right")
            self._low, self._width = ends[place], ends[place + 1] - ends[place]

    def ids(self, period: int, index: int) -> Ids:
        """Return the devices' report ids for the answer ``index``, from 0, of a period: (devices,) uint64."""
        ids = self._digests(ID_PREFIX + self._campaign_id + _TAIL.pack(period, index))
        if self._low is None:
            return ids
        first = self._low + ((ids >> _HALF) * self._width >> _HALF)
        return np.asarray(first << _HALF | ids & np.uint64(0xFFFFFFFF))

    def _digests(self, message: bytes) -> Ids:
        raw = b"".join([_finish(inner.copy(), outer.copy(), message) for inner, outer in self._states])
        return np.frombuffer(raw, ">u8").astype(np.uint64)


def kept_bounds(campaign: Campaign) -> tuple[int, ...]:
    """Return the bounds of the questions of a campaign with memory, for :class:`IdMaker`; empty for other campaigns."""
    return () if campaign.memory is None else tuple(question.bound for question in campaign.questions)


def _finish(inner: Any, outer: Any, message: bytes) -> bytes:
    """Return the report id of ``message``: first bytes of its HMAC, by copies of the hash states of both steps."""
    inner.update(message)
    outer.update(inner.digest())
    return bytes(outer.digest()[:ID_BYTES])


def marks(campaign_id: bytes, period: int, index: int, ids: Ids) -> Ids:
    """Return the marks SHA-256(prefix ‖ campaign ‖ period ‖ index ‖ id)[:8] of N ids: (N,) uint64 → (N,) uint64."""
    begun = sha256(MARK_PREFIX + campaign_id + _TAIL.pack(period, index))
    raw = ids.astype(">u8").tobytes()
    found = b"".join([_marked(begun.copy(), identifier) for (identifier,) in _ID.iter_unpack(raw)])
    return np.frombuffer(found, ">u8").astype(np.uint64)


def _marked(state: Any, identifier: bytes) -> bytes:
    """Return the mark of one id. ``state`` is a copy of the hash of all bytes before the id."""
    state.update(identifier)
    return bytes(state.digest()[:ID_BYTES])


class PeriodIds(NamedTuple):
    """The report ids of one period: for each answer of a device the sorted ids of all devices, (devices,) uint64."""

    period: int
    by_index: tuple[Ids, ...]


class FleetIds:
    """The ids of the devices of fleet lists that take part in a campaign. ``digest`` names the set of ids."""

    periods = range(1 << 32)

    def __init__(self, rosters: Sequence[Roster], campaign: Campaign) -> None:
        self._secrets = members(distinct_secrets(rosters), campaign)
        self._campaign_id, self._bounds = campaign.id, kept_bounds(campaign)
        self._answers = campaign.answers
        self.devices = len(self._secrets) // SECRET_BYTES
        self.digest = sha256(b"hearsay/v1/enrolment" + campaign.id + self._secrets).digest()

    def __repr__(self) -> str:
        return f"FleetIds({self.devices} devices)"

    def maker(self) -> IdMaker:
        """Return the object that computes the ids. It takes more memory than the secrets."""
        return IdMaker(each_secret(self._secrets), self._campaign_id, self._bounds)

    def known_as(self, period: int, index: int, ids: Ids) -> Ids:  # noqa: ARG002 - another source needs both
        """Return N ``ids``, (N,) uint64, unchanged. :class:`IdReader` returns their marks instead."""
        return ids

    def known(self, period: int, maker: IdMaker | None = None) -> tuple[Ids, ...]:
        """Return the ids of all devices in a period: for each answer of a device a sorted array, (devices,) uint64."""
        maker = maker or self.maker()
        return tuple(np.sort(maker.ids(period, index)) for index in range(self._answers))


def fleet_ids(
    rosters: Sequence[Roster], campaign: Campaign, periods: range, *, processes: int = 1
) -> Iterator[PeriodIds]:
    """Yield the ids of all devices that take part in a campaign, period by period. Run by the holder of the fleet list.

    In a campaign of a series only the devices in its share take part. Each has an id in every period, and may be in
    several of the ``rosters``. Up to ``processes`` processes are started for a million ids or more.
    """
    ids = FleetIds(rosters, campaign)
    if processes <= 1 or len(periods) * campaign.answers * ids.devices < _WORTH_A_PROCESS:
        maker = ids.maker()
        yield from (PeriodIds(period, ids.known(period, maker)) for period in periods)
        return
    fresh = get_context("spawn")  # A forked process could hang: it inherits locks that threads of this process hold.
    with ProcessPoolExecutor(processes, fresh, initializer=_prepare, initargs=(ids,)) as pool:
        waiting = iter(periods)
        ahead = [pool.submit(_of_period, period) for period in islice(waiting, 2 * processes)]
        while ahead:  # bounds the number of periods whose ids wait in memory
            yield ahead.pop(0).result()
            ahead += [pool.submit(_of_period, period) for period in islice(waiting, 1)]


def members(secrets: bytes, campaign: Campaign) -> bytes:
    """Return the joined secrets of the devices that take part: all, or in a series of campaigns those in its share."""
    series = campaign.series
    if series is None:
        return secrets
    return b"".join(secret for secret in each_secret(secrets) if series.has(secret))


_work: tuple[FleetIds, IdMaker] | None = None
"""The state of a worker process. The initializer of its pool sets it."""


def _prepare(ids: FleetIds) -> None:
    global _work  # noqa: PLW0603 - the only way to give a worker process its state once
    _work = ids, ids.maker()


def _of_period(period: int) -> PeriodIds:
    assert _work is not None
    ids, maker = _work
    return PeriodIds(period, ids.known(period, maker))


class IdFile(NamedTuple):
    """The header of a file of marks (digests of ids): per period and answer of a device, one mark for each device."""

    campaign: bytes
    periods: range
    answers: int
    devices: int

    @property
    def period_bytes(self) -> int:
        """Return the size of the marks of one period, in bytes, without the digest that follows."""
        return self.answers * self.devices * ID_BYTES


def write_ids(
    sink: Any, campaign: Campaign, periods: range, found: Iterable[PeriodIds], done: Callable[[int], None]
) -> int:
    """Write the marks of the ids ``found`` into the open file ``sink``. Returns the number of written marks.

    ``done`` is called after each period with the number of periods written so far. Raises InputError
    ``periods_absent``: there is no period; nothing was written.
    """
    if not periods:
        raise InputError("periods_absent", "the range of periods is empty, so there are no ids")
    written, digest = 0, b""
    for number, (period, by_index) in enumerate(found, 1):
        if not digest:
            devices = len(by_index[0])
            about = (campaign.id, periods[0], periods[-1], campaign.answers, devices)
            head = _HEAD.pack(MAGIC, FILE_VERSION, *about)
            sink.write(head)
            digest = sha256(head).digest()
        state = sha256(digest)
        for index, ids in enumerate(by_index):
            raw = np.sort(marks(campaign.id, period, index, ids)).astype(">u8").tobytes()
            state.update(raw)
            sink.write(raw)
            written += len(ids)
        digest = state.digest()
        sink.write(digest)
        done(number)
    return written


class _BareIdsError(Exception):
    """The file has version 1, and holds ids instead of marks."""


class IdReader:
    """Reads marks of enrolled ids from a file, by period. Keeps no file open, so it can be sent to another process.

    The digest of the whole file is checked first, and that of a period again when its marks are read. ``about`` is the
    header, ``digest`` the last digest in the file, which depends on all other bytes. Raises InputError:
    ``file_not_found``; ``ids_invalid``: the file can not be read, holds no marks, holds ids in place of marks, or was
    changed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digests: list[bytes] = []
        self.about: IdFile = self._read(self._check)
        self.digest = self._digests[-1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_path": self._path.absolute()}  # The other process may have another working folder.

    @property
    def periods(self) -> range:
        """Return the numbers of the periods that the file covers."""
        return self.about.periods

    def known_as(self, period: int, index: int, ids: Ids) -> Ids:
        """Return the marks of N ids, (N,) uint64, to be looked for among the marks of enrolled ids (:meth:`known`)."""
        return marks(self.about.campaign, period, index, ids)

    def known(self, period: int) -> tuple[Ids, ...]:
        """Return the sorted marks of all enrolled ids of one period: for each answer of a device (devices,) uint64.

        The arrays are empty if the file does not cover the period. Raises InputError ``file_not_found``,
        ``ids_invalid``: the file is no longer as it was when it was opened.
        """
        if period not in self.periods:
            nobody: Ids = np.empty(0, np.uint64)
            return (nobody,) * self.about.answers
        place, size = period - self.periods[0], self.about.period_bytes

        def read(file: IO[bytes]) -> bytes:
            file.seek(_HEAD.size + place * (size + DIGEST_BYTES))
            raw = file.read(size)
            if sha256(self._digests[place] + raw).digest() != self._digests[place + 1]:
                raise ValueError
            return raw

        ids = np.frombuffer(self._read(read), ">u8").astype(np.uint64)
        return tuple(ids.reshape(self.about.answers, self.about.devices))

    def _check(self, file: IO[bytes]) -> IdFile:
        head = file.read(_HEAD.size)
        if len(head) != _HEAD.size:
            raise ValueError
        magic, version, campaign, first, last, answers, devices = _HEAD.unpack(head)
        about = IdFile(campaign, range(first, last + 1), answers, devices)
        whole = _HEAD.size + len(about.periods) * (about.period_bytes + DIGEST_BYTES)
        if (magic, version) == (MAGIC, BARE_IDS):
            raise _BareIdsError
        if (magic, version) != (MAGIC, FILE_VERSION) or not about.periods or not answers:
            raise ValueError
        if os.fstat(file.fileno()).st_size != whole:
            raise ValueError
        self._digests.append(sha256(head).digest())
        for _ in about.periods:
            state, left = sha256(self._digests[-1]), about.period_bytes
            while left:
                chunk = file.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    raise ValueError
                state.update(chunk)
                left -= len(chunk)
            self._digests.append(state.digest())
            if file.read(DIGEST_BYTES) != self._digests[-1]:
                raise ValueError
        return about

    def _read(self, what: Callable[[IO[bytes]], Any]) -> Any:
        try:
            with self._path.open("rb") as file:
                return what(file)
        except FileNotFoundError:
            problem = InputError("file_not_found", f"there is no file '{self._path}'")
        except _BareIdsError:
            why = "holds bare ids, with which whoever reads it can vote; delete it and run 'hearsay fleet ids' again"
            problem = InputError("ids_invalid", f"'{self._path}' {why}")
        except (OSError, ValueError):
            detail = f"'{self._path}' is no file of enrolled ids, or was changed; 'hearsay fleet ids' makes one"
            problem = InputError("ids_invalid", detail)
        raise problem
