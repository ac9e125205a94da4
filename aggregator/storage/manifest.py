"""The manifest: the one small file that says which other files a store consists of.

Whatever it does not name is not part of the store, so replacing it is what commits an ingest. It ends with the
digest of what it says, so that a change by others, or by a disk, is noticed.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.storage.locking import write_durably
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FILE_NAME = "manifest.json"
FORMAT = 2
REPORTS, INPUTS, FORGOTTEN, QUARANTINE = "reports", "inputs", "forgotten", "quarantine"
"""Folders of a store."""
BUCKETS = 16
"""How many a new store is divided into unless another power of two is asked for."""
MAX_BUCKETS = 1 << 12
MAX_GENERATION = 10**8 - 1
"""What the eight digits in the names of files can tell apart."""
_SEAL = b',\n "sha256": "'


class Part(NamedTuple):
    """One Parquet file of records.

    Attributes:
        bucket: which one its records belong to.
        name: its file name.
        records: how many it holds.
        sha256: digest of its bytes, in hexadecimal: a part that was changed, or put in the place of
            another, is not counted.
    """

    bucket: int
    name: str
    records: int
    sha256: str

    @property
    def path(self) -> str:
        """Where it is, from the store's folder."""
        return f"{REPORTS}/bucket={self.bucket:02d}/{self.name}"


class SideFile(NamedTuple):
    """A Parquet file of something else than records: the input files of an ingest, or forgotten counts."""

    name: str
    rows: int
    sha256: str


class Forgotten(NamedTuple):
    """What is left of the periods whose reports were removed.

    Attributes:
        before: the first period that is still kept.
        counts: the file with their integer counts.
        replayed, conflicting, superseded: what became of their records that are not counted.
        way: how integers were added up: 1 whole, as older software did; 2 as docs/formats.md, section 4, says.
    """

    before: int
    counts: SideFile
    replayed: int
    conflicting: int
    superseded: int
    way: int = 2


class Manifest(NamedTuple):
    """The state of a store.

    Attributes:
        campaign: id of the only campaign whose reports it holds.
        buckets: into how many its records are divided, a power of two: by their ids modulo this.
        generation: how often it was replaced; names the files of the next ingest.
        parts: all parts, in order of bucket and name.
        inputs: what the input files were, oldest first; of one content the last entry is valid.
        rejected: records and stretches set aside in all input files, by reason.
        claims: of the damaged batches, the digests they claim, as far as no such batch is in the store;
            eight bytes each, as a number.
        superseded: the same of those of which the whole batch is in the store: their records do not count.
        forgotten: None if no period was forgotten.
        closed: only reports of enrolled devices are taken, ever since its first ingest.
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
        """Reports of earlier periods are no longer taken."""
        return 0 if self.forgotten is None else self.forgotten.before

    @property
    def records(self) -> int:
        """How many records are in its parts, repeats included."""
        return sum(part.records for part in self.parts)

    def bucket_parts(self, bucket: int) -> list[Part]:
        """The parts of one bucket."""
        return [part for part in self.parts if part.bucket == bucket]

    def paths(self) -> set[str]:
        """Every file that it names, from the store's folder."""
        found = {part.path for part in self.parts} | {f"{INPUTS}/{file.name}" for file in self.inputs}
        if self.forgotten is not None:
            found.add(f"{FORGOTTEN}/{self.forgotten.counts.name}")
        return found


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step: the commit."""
    write_durably(folder / FILE_NAME, _to_bytes(manifest))


def fingerprint(manifest: Manifest) -> bytes:
    """SHA-256 of a manifest as it is written: two processes that agree on it see one store."""
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
    """What a manifest says, as JSON whose last member ``sha256`` is the digest of all bytes before it."""
    said = json.dumps(body, indent=1, ensure_ascii=True).encode().removesuffix(b"\n}")
    return said + _seal(said)


def _seal(said: bytes) -> bytes:
    return _SEAL + sha256(said).hexdigest().encode() + b'"\n}'


def _is_sealed(raw: bytes) -> bool:
    said, mark, rest = raw.rpartition(_SEAL)
    return mark + rest == _seal(said)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a store.

    Raises:
        StorageError: ``not_a_store``, there is none; ``store_newer``, made by newer software;
            ``store_older``, made by older software whose stores are no longer read;
            ``store_damaged``, it does not say what a manifest must, or was changed; ``io_failed``.
    """
    try:
        raw = (folder / FILE_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError("not_a_store", f"there is no report store at '{folder}'") from None
    except OSError as error:
        raise StorageError("io_failed", f"the store at '{folder}' can not be read: {error.strerror}") from error
    manifest = None
    try:
        body = json.loads(raw)
        found = _count(body["format"])
        changed = found == FORMAT and not _is_sealed(raw)
        manifest = _parse(body) if found == FORMAT else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged("its manifest is not readable") from None
    if changed:
        raise damaged("its manifest is not as it was written")
    if manifest is not None:
        return manifest
    if found > FORMAT:
        raise StorageError("store_newer", "the store was made by newer software; update this one")
    raise StorageError("store_older", "the store was made by older software; ingest its files into a new one")


def _parse(body: dict[str, Any]) -> Manifest:
    campaign, buckets = bytes.fromhex(body["campaign"]), _count(body["buckets"])
    if len(campaign) != 32 or not is_bucket_count(buckets):
        raise ValueError
    manifest = Manifest(
        campaign,
        buckets,
        _generation(body["generation"]),
        tuple(_parse_part(part, buckets) for part in body["parts"]),
        tuple(map(_parse_file, body["inputs"])),
        {reason: _count(count) for reason, count in body["rejected"].items()},
        _parse_hex(body["claims"]),
        _parse_hex(body["superseded"]),
        None if body["forgotten"] is None else _parse_forgotten(body["forgotten"]),
        _flag(body["closed"]),
    )
    if len(manifest.paths()) != len(manifest.parts) + len(manifest.inputs) + (manifest.forgotten is not None):
        raise ValueError
    return manifest


def is_bucket_count(number: int) -> bool:
    """Whether a store can have so many buckets: a power of two, at most :data:`MAX_BUCKETS`."""
    return 1 <= number <= MAX_BUCKETS and number & (number - 1) == 0


def _parse_part(part: dict[str, Any], buckets: int) -> Part:
    parsed = Part(_count(part["bucket"]), _name(part["name"]), _count(part["records"]), _digest(part["sha256"]))
    if parsed.bucket >= buckets:
        raise ValueError
    return parsed


def _parse_file(file: dict[str, Any]) -> SideFile:
    return SideFile(_name(file["name"]), _count(file["rows"]), _digest(file["sha256"]))


def _parse_forgotten(found: dict[str, Any]) -> Forgotten:
    return Forgotten(
        _count(found["before"]),
        _parse_file(found["counts"]),
        _count(found["replayed"]),
        _count(found["conflicting"]),
        _count(found["superseded"]),
        _way(found.get("way", 1)),
    )


def _way(value: object) -> int:
    if type(value) is not int or value not in (1, 2):
        raise ValueError
    return value


def _hex(numbers: Iterable[int]) -> list[str]:
    return [f"{number:016x}" for number in sorted(numbers)]


def _parse_hex(numbers: list[str]) -> frozenset[int]:
    return frozenset(int.from_bytes(bytes.fromhex(number)) for number in numbers)


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _generation(value: object) -> int:
    generation = _count(value)
    if generation > MAX_GENERATION:
        raise ValueError
    return generation


def _name(value: object) -> str:
    """A file name; never a path that leads out of its folder."""
    if not isinstance(value, str) or not {"/", "\0"}.isdisjoint(value) or not value.endswith(".parquet"):
        raise ValueError
    return value


def _digest(value: object) -> str:
    """A SHA-256 digest in the one spelling that ``hexdigest`` has."""
    if not isinstance(value, str) or bytes.fromhex(value).hex() != value or len(value) != 64:
        raise ValueError
    return value


def damaged(problem: str) -> StorageError:
    """The error for a store whose files do not fit together."""
    return StorageError(
        "store_damaged", f"{problem}; restore the store from a copy, or ingest its files into a new one"
    )
