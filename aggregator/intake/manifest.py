"""The manifest: the one small file that says which parts and which input files a store consists of.

Whatever it does not name is not part of the store, so replacing it is what commits an ingest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from aggregator.intake.durable import write_durably
from protocol.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE_NAME = "manifest.json"
FORMAT = 1
BUCKETS = 16
"""Parts are divided by the id modulo this, a power of two: ids are pseudo-random, so evenly."""


class Part(NamedTuple):
    """One Parquet file.

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
        return f"reports/bucket={self.bucket:02d}/{self.name}"


class Ingested(NamedTuple):
    """What was found in one input file.

    Attributes:
        name: its name, without folders, when it was read.
        size_bytes: its length.
        present: the period in which it was last read; later ones were too early then.
        proven: good records in batches with the right digest and count.
        unproven: good records in other batches.
        rejected: records and stretches set aside, by reason.
    """

    name: str
    size_bytes: int
    present: int
    proven: int
    unproven: int
    rejected: dict[str, int]


class Manifest(NamedTuple):
    """The state of a store.

    Attributes:
        campaign: id of the only campaign whose reports it holds.
        generation: how often it was replaced; names the parts of the next ingest.
        parts: all parts, in order of bucket and name.
        files: SHA-256 of the content in hex → what was found.
    """

    campaign: bytes
    generation: int
    parts: tuple[Part, ...]
    files: Mapping[str, Ingested]

    def rejected(self) -> dict[str, int]:
        """Records and stretches set aside in all files, by reason."""
        totals: dict[str, int] = {}
        for file in self.files.values():
            for reason, count in file.rejected.items():
                totals[reason] = totals.get(reason, 0) + count
        return totals


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step: the commit."""
    body = {
        "format": FORMAT,
        "campaign": manifest.campaign.hex(),
        "buckets": BUCKETS,
        "generation": manifest.generation,
        "parts": [part._asdict() for part in sorted(manifest.parts)],
        "files": {digest: file._asdict() for digest, file in sorted(manifest.files.items())},
    }
    write_durably(folder / FILE_NAME, json.dumps(body, indent=1, ensure_ascii=True).encode())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a store.

    Raises:
        StorageError: ``not_a_store``, there is none; ``store_newer``, made by newer software;
            ``store_damaged``, it does not say what a manifest must; ``io_failed``.
    """
    try:
        raw = (folder / FILE_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise StorageError("not_a_store", f"there is no report store at '{folder}'") from None
    except OSError as error:
        raise StorageError("io_failed", f"the store at '{folder}' can not be read: {error.strerror}") from error
    try:
        body = json.loads(raw)
        newer = type(body["format"]) is int and body["format"] > FORMAT
        manifest = None if newer else _parse(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise damaged("its manifest is not readable") from None
    if manifest is None:
        raise StorageError("store_newer", "the store was made by newer software; update this one")
    return manifest


def _parse(body: dict[str, Any]) -> Manifest:
    campaign = bytes.fromhex(body["campaign"])
    if body["format"] != FORMAT or body["buckets"] != BUCKETS or len(campaign) != 32:
        raise ValueError
    parts = tuple(map(_parse_part, body["parts"]))
    if len({part.path for part in parts}) != len(parts):
        raise ValueError
    files = {digest: _parse_file(file) for digest, file in body["files"].items()}
    return Manifest(campaign, _count(body["generation"]), parts, files)


def _parse_part(part: dict[str, Any]) -> Part:
    parsed = Part(_count(part["bucket"]), _name(part["name"]), _count(part["records"]), _digest(part["sha256"]))
    if parsed.bucket >= BUCKETS:
        raise ValueError
    return parsed


def _parse_file(file: dict[str, Any]) -> Ingested:
    return Ingested(
        name=str(file["name"]),
        size_bytes=_count(file["size_bytes"]),
        present=_count(file["present"]),
        proven=_count(file["proven"]),
        unproven=_count(file["unproven"]),
        rejected={reason: _count(count) for reason, count in file["rejected"].items()},
    )


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _name(value: object) -> str:
    """A part's file name; never a path that leads out of its bucket."""
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
