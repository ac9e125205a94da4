"""A store's folder: the campaign file, and the manifest, which names all other files and ends with its own digest.

Replacing the manifest commits a change. A file that it does not name may be left from a crash. The lock file says which
generation was committed last: an older manifest restored alone is refused, since it would remove the newer parts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.common.files import ORDINARY, storage_errors, sync_folder
from aggregator.reports.storage.locking import LOCK_FILE, LOCK_TIMEOUT_SECONDS, TEMPORARY, exclusive, write_durably
from protocol.documents.campaign import UNDERSTOOD, Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.payload import check_understood
from protocol.errors import DocumentError, StorageError

FILE_NAME = "manifest.json"
SUMMARIES_FILE = "nodes.sqlite"
TOTALS_FILE = "totals.hsc"
"""Name of the file by which a store of a shared campaign's totals is known."""
TO_COLLECTORS = (
    "the reports of a shared campaign go to its two collectors (hearsay collector check); hearsay ingest takes the "
    "totals (.hsz) that hearsay collector finish writes"
)
"""What to do with reports of a shared campaign, in words."""
"""The file of a store of nodes' summaries, which is no store of reports (:mod:`aggregator.nodes`)."""
FORMAT = 2
CLAMPED = 2
"""How integer answers were added up, as manifests say it: each was clamped to the bounds of its mechanism first."""
REPORTS, INPUTS, FORGOTTEN, QUARANTINE = "reports", "inputs", "forgotten", "quarantine"
"""Names of the folders in a store's folder."""
BUCKETS = 16
"""Number of buckets of a new store, unless its maker asks for another power of two."""
MAX_BUCKETS = 1 << 12
MAX_GENERATION = 10**8 - 1
"""The largest number that the eight digits in the names of files can hold."""
MANIFEST_MISSING = "its manifest.json is missing; put the newest copy back"
PERIODS = 1 << 32
"""Number of possible periods. A report states its period in four bytes."""
_NOTED = re.compile(rb"[0-9]{8}\n")
_SEAL = b',\n "sha256": "'


class Part(NamedTuple):
    """A Parquet file with records of one bucket (records that agree in the low bits of their ids), and its digest."""

    bucket: int
    name: str
    records: int
    sha256: str

    @property
    def path(self) -> str:
        """Return the path of the part's file, relative to the store's folder."""
        return f"{REPORTS}/bucket={self.bucket:02d}/{self.name}"


class SideFile(NamedTuple):
    """A Parquet file without records: an index of input files, or the counts of forgotten periods."""

    name: str
    rows: int
    sha256: str


class Forgotten(NamedTuple):
    """What a manifest says of forgotten periods, those before ``before``, whose reports were removed.

    ``counts``: the file with their counts. ``way``: how integers were added up, always :data:`CLAMPED`. The others are
    numbers of removed records that did not count.
    """

    before: int
    counts: SideFile
    replayed: int
    conflicting: int
    superseded: int
    way: int = CLAMPED


class Manifest(NamedTuple):
    """The state of a store.

    ``buckets``: a power of two; a record's bucket is its id modulo this number. ``generation``: number of replacements
    so far, part of new files' names. ``inputs``: files of the index of input files. ``claims``, ``superseded``: first
    eight bytes, as numbers, of the digests that damaged batches state; of ``superseded`` the complete batch is in the
    store. ``forgotten``: counts of the forgotten periods, or None. ``closed``: only enrolled devices, as the first
    ingest decides.
    """

    campaign: bytes
    buckets: int
    generation: int = 0
    parts: tuple[Part, ...] = ()
    inputs: tuple[SideFile, ...] = ()
    rejected: Mapping[str, int] = {}
    claims: frozenset[int] = frozenset()
    superseded: frozenset[int] = frozenset()
    forgotten: Forgotten | None = None
    closed: bool = False

    @property
    def first_period(self) -> int:
        """Return the first period whose reports are accepted: 0, or the first period that was not forgotten."""
        return 0 if self.forgotten is None else self.forgotten.before

    @property
    def records(self) -> int:
        """Return the number of records in all Parquet parts, including repeated ones."""
        return sum(part.records for part in self.parts)

    def bucket_parts(self, bucket: int) -> list[Part]:
        """Return all Parquet parts with records of the bucket with number ``bucket``."""
        return [part for part in self.parts if part.bucket == bucket]

    def paths(self) -> set[str]:
        """Return the paths of all files that the manifest names, relative to the store's folder."""
        found = {part.path for part in self.parts} | {f"{INPUTS}/{file.name}" for file in self.inputs}
        if self.forgotten is not None:
            found.add(f"{FORGOTTEN}/{self.forgotten.counts.name}")
        return found


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically. This commits a change of the store.

    Raises StorageError ``store_damaged``: it was replaced too often, which only an edited manifest says. Raises
    OSError: the old manifest stays, unless only the flush of the folder failed.
    """
    if manifest.generation > MAX_GENERATION:
        raise damaged(f"its manifest can not be replaced more than {MAX_GENERATION} times")
    write_durably(folder / FILE_NAME, _to_bytes(manifest))


def note_generation(folder: Path, generation: int) -> None:
    """Write into the lock file, durably, that the manifest of this ``generation`` was committed."""
    descriptor = os.open(folder / LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, ORDINARY)
    try:
        os.pwrite(descriptor, b"%08d\n" % generation, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def noted_generation(folder: Path) -> int:
    """Return the generation (number of committed manifests) that the lock file states; 0 if it states none."""
    noted = b""
    with suppress(OSError):
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            noted = file.read(16)
    return int(noted) if _NOTED.fullmatch(noted) else 0


def fingerprint(manifest: Manifest) -> bytes:
    """Return the SHA-256 of a manifest's file. Manifests with equal fingerprints name the same files."""
    return sha256(_to_bytes(manifest)).digest()


def _to_bytes(manifest: Manifest) -> bytes:
    forgotten = manifest.forgotten
    body = {
        "format": FORMAT,
        "campaign": manifest.campaign.hex(),
        "buckets": manifest.buckets,
        "generation": manifest.generation,
        "parts": [part._asdict() for part in sorted(manifest.parts)],
        "inputs": [file._asdict() for file in manifest.inputs],
        "rejected": dict(sorted(manifest.rejected.items())),
        "claims": _hex(manifest.claims),
        "superseded": _hex(manifest.superseded),
        "forgotten": forgotten and {**forgotten._asdict(), "counts": forgotten.counts._asdict()},
        "closed": manifest.closed,
    }
    return sealed(body)


def sealed(body: Mapping[str, Any]) -> bytes:
    """Return the JSON text of ``body``, with a last member ``sha256``: the digest of all bytes before it."""
    said = json.dumps(body, indent=1, ensure_ascii=True).encode().removesuffix(b"\n}")
    return said + _seal(said)


def _seal(said: bytes) -> bytes:
    return _SEAL + sha256(said).hexdigest().encode() + b'"\n}'


def _is_sealed(raw: bytes) -> bool:
    said, mark, rest = raw.rpartition(_SEAL)
    return mark + rest == _seal(said)


def _no_manifest(folder: Path, *, has_mark: bool) -> StorageError:
    """Return why a folder has no manifest: it is another store, was damaged (``has_mark``), or is none."""
    if (folder / SUMMARIES_FILE).exists():
        return StorageError(
            "store_of_nodes",
            "this store has summaries of nodes, and this command is for reports of devices; it has ingest, status, "
            "estimate, publish, export and quarantine ls",
        )
    if (folder / TOTALS_FILE).exists():
        return StorageError(
            "store_of_totals",
            "this store has totals of two collectors, and this command is for a store with the reports of devices; it "
            "has ingest, status, estimate, publish, diff and report",
        )
    if has_mark:
        return damaged(MANIFEST_MISSING)
    return StorageError("not_a_store", f"there is no report store at '{folder}'")


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a store.

    Raises StorageError: ``not_a_store``; ``store_of_nodes``: the folder is a store of nodes' summaries;
    ``store_of_totals``: it has totals of collectors; ``store_newer``, ``store_older``: newer or older software wrote
    the store; ``store_damaged``: the content is no manifest, was changed, or is older than the last change of the
    store.
    """
    noted = noted_generation(folder)  # read before the manifest, so that a change in between is no fault
    try:
        raw = (folder / FILE_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _no_manifest(folder, has_mark=bool(noted)) from None
    except OSError as error:
        raise StorageError("io_failed", f"the store at '{folder}' can not be read: {error.strerror}") from error
    found, manifest, problem = FORMAT, None, "its manifest is not readable"
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        body = json.loads(raw)
        found = _count(body["format"])
        if found == FORMAT:
            manifest = _parse(body)
            problem = "" if _is_sealed(raw) else "its manifest is not as it was written"
    if found > FORMAT:
        raise StorageError("store_newer", "the store was made by newer software; update this one")
    if found < FORMAT:
        raise StorageError("store_older", "the store was made by older software; ingest its files into a new one")
    if manifest is not None and manifest.generation < noted and not problem:
        problem = f"its manifest is of generation {manifest.generation}, and {noted} was the last"
    if manifest is None or problem:
        raise damaged(problem)
    return manifest


def _parse(body: dict[str, Any]) -> Manifest:
    """Return the manifest that a file's content states, or raise ``ValueError``, ``KeyError`` or ``TypeError``."""
    campaign, buckets, forgotten = bytes.fromhex(body["campaign"]), _count(body["buckets"]), body["forgotten"]
    manifest = Manifest(
        campaign,
        buckets,
        _count(body["generation"], MAX_GENERATION),
        tuple(
            Part(_count(part["bucket"], buckets - 1), _name(part["name"]), _count(part["records"]), _digest(part))
            for part in body["parts"]
        ),
        tuple(map(_parse_file, body["inputs"])),
        {reason: _count(count) for reason, count in body["rejected"].items()},
        _parse_hex(body["claims"]),
        _parse_hex(body["superseded"]),
        None if forgotten is None else _parse_forgotten(forgotten),
        body["closed"],
    )
    named = len(manifest.parts) + len(manifest.inputs) + (forgotten is not None)
    if len(campaign) != 32 or not is_bucket_count(buckets) or type(manifest.closed) is not bool:
        raise ValueError
    if len(manifest.paths()) != named:
        raise ValueError
    return manifest


def is_bucket_count(number: int) -> bool:
    """Return whether a store may have ``number`` buckets: a power of two, at most :data:`MAX_BUCKETS`."""
    return 1 <= number <= MAX_BUCKETS and number & (number - 1) == 0


def _parse_file(file: dict[str, Any]) -> SideFile:
    return SideFile(_name(file["name"]), _count(file["rows"]), _digest(file))


def _parse_forgotten(found: dict[str, Any]) -> Forgotten:
    if found["way"] != CLAMPED:
        raise ValueError
    before, counts = _count(found["before"], PERIODS), _parse_file(found["counts"])
    replayed, conflicting, superseded = (_count(found[name]) for name in ("replayed", "conflicting", "superseded"))
    return Forgotten(before, counts, replayed, conflicting, superseded)


def _hex(numbers: Iterable[int]) -> list[str]:
    return [f"{number:016x}" for number in sorted(numbers)]


def _parse_hex(numbers: list[str]) -> frozenset[int]:
    found = frozenset(int.from_bytes(bytes.fromhex(number)) for number in numbers)
    if _hex(found) != sorted(numbers) or any(len(number) != 16 for number in numbers):
        raise ValueError
    return found


def _count(value: object, most: float = inf) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError
    return value


def _name(value: object) -> str:
    """Return ``value`` if it is a file name; refuse a path, which could lead out of the folder."""
    if not isinstance(value, str) or not {"/", "\0"}.isdisjoint(value) or not value.endswith(".parquet"):
        raise ValueError
    value.encode()  # raises ValueError for a lone surrogate, which no file name can hold
    return value


def _digest(file: dict[str, Any]) -> str:
    """Return the SHA-256 that a manifest states of a ``file``, in lower-case hexadecimal as ``hexdigest`` writes it."""
    value = file["sha256"]
    if not isinstance(value, str) or bytes.fromhex(value).hex() != value or len(value) != 64:
        raise ValueError
    return value


def damaged(problem: str) -> StorageError:
    """Make the error ``store_damaged`` for missing, changed or inconsistent files. ``problem`` names the fault."""
    return StorageError(
        "store_damaged", f"{problem}; restore the store from a copy, or ingest its files into a new one"
    )


CAMPAIGN_FILE = "campaign.hsc"


class Opened(NamedTuple):
    """A store's manifest, its campaign, and the signed campaign file."""

    manifest: Manifest
    campaign: Campaign
    campaign_bytes: bytes


def read_documents(folder: Path) -> Opened:
    """Read a store's manifest and campaign. Raises as :func:`read_manifest`, for a bad campaign file, too."""
    manifest = read_manifest(folder)
    problem = ""
    try:
        raw = (folder / CAMPAIGN_FILE).read_bytes()
        campaign = read_campaign(raw)
    except OSError:
        problem = "its campaign file can not be read"
    except DocumentError as error:
        problem = f"its campaign file is not acceptable ({error.reason})"
    if problem:
        raise damaged(problem)
    if campaign.id != manifest.campaign:
        raise damaged("its campaign file is that of another campaign")
    return Opened(manifest, campaign, raw)


def read_campaign(raw: bytes) -> Campaign:
    """Parse a signed campaign file that the caller has verified. Raises ``DocumentError``, also for unknown parts."""
    campaign = parse_campaign(read_envelope(raw, "campaign").payload)
    check_understood(campaign.header, UNDERSTOOD)
    return campaign


def remove_orphans(folder: Path, manifest: Manifest) -> None:
    """Delete Parquet files and temporary files that the manifest does not name, for example after a crash.

    Folders, links and other files are kept. Raises StorageError ``store_damaged``, and deletes nothing, if a named file
    is missing, since the manifest may be an old copy, or if a folder of the store is a link.
    """
    named = manifest.paths()
    found: set[str] = set()
    orphans: list[str] = []
    places = [f"{REPORTS}/bucket={bucket:02d}" for bucket in range(manifest.buckets)]
    for place in ("", REPORTS, *places, INPUTS, FORGOTTEN, QUARANTINE):
        endings = (".parquet", TEMPORARY) if place not in ("", QUARANTINE) else TEMPORARY
        for entry in _entries(folder, place):
            path = f"{place}/{entry.name}" if place else entry.name
            found.add(path)
            if path not in named and entry.name.endswith(endings) and entry.is_file(follow_symlinks=False):
                orphans.append(path)
    missing = named - found
    if missing:
        raise damaged(f"'{min(missing)}' is missing")
    for path in orphans:
        (folder / path).unlink()


def _entries(folder: Path, place: str) -> list[os.DirEntry[str]]:
    """Return the entries of the folder ``place`` of the store; empty if it does not exist."""
    path = folder / place
    if place and path.is_symlink():
        # Files behind a link may belong to another program, and must not be deleted.
        raise damaged(f"'{place}' is a link in place of a folder")
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def create_folder(folder: Path, campaign: Campaign, campaign_bytes: bytes, buckets: int) -> None:
    """Make the folder of a new store, divided into ``buckets``, and missing folders above it. A store stays as it is.

    Raises StorageError: ``not_a_store``: the path is a file, or a folder that holds something else; ``store_damaged``:
    it is a store without its manifest; ``store_busy``: another process holds its lock.
    """
    with storage_errors(f"the store at '{folder}' can not be made"):
        if folder.exists() and not folder.is_dir():
            raise StorageError("not_a_store", f"'{folder}' is a file")
        if (folder / FILE_NAME).exists():
            return
        _check_unused(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / LOCK_FILE, LOCK_TIMEOUT_SECONDS):
            if not (folder / FILE_NAME).exists():
                sync_folder(folder.parent)
                write_durably(folder / CAMPAIGN_FILE, campaign_bytes)
                write_manifest(folder, Manifest(campaign.id, buckets))


def _check_unused(folder: Path) -> None:
    """Raise ``not_a_store`` if the folder has other files than those of an interrupted attempt to make a store."""
    names = {entry.name.removesuffix(".tmp") for entry in folder.iterdir()} if folder.is_dir() else set()
    if not names <= {LOCK_FILE, CAMPAIGN_FILE, FILE_NAME}:
        if noted_generation(folder):
            raise damaged(MANIFEST_MISSING)
        raise StorageError("not_a_store", f"'{folder}' holds other files; choose a new folder")
