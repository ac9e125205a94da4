"""Stores with report files in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aggregator.operations.report_store import create_store
from aggregator.reports.fleet import Roster
from aggregator.reports.storage.manifest import read_manifest, sealed
from aggregator.reports.storage.quarantine import Quarantine
from support.publisher import NOW
from support.reports import CAMPAIGN, digest, report

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from aggregator.operations.report_store import Store
    from aggregator.reports.decoding.decode import Rejected
    from protocol.documents.campaign import Campaign


def reports(devices: Iterable[int], campaign: Campaign = CAMPAIGN, **options: int) -> list[bytes]:
    """One report of each device."""
    return [report(campaign, device, device, **options) for device in devices]


def files_of(folder: Path, *contents: bytes) -> list[Path]:
    """Files with these contents, named by their numbers."""
    paths = []
    for number, content in enumerate(contents):
        paths.append(folder / f"{number}.hsr")
        paths[-1].write_bytes(content)
    return paths


def stored(folder: Path, raw: bytes, *contents: bytes, now: int = NOW, **options: int) -> Store:
    """Make a store for a campaign and ingest files with these contents."""
    made = create_store(folder / "store", raw, **options)
    made.ingest(files_of(folder, *contents), now=now)
    return made


def check_whole(store: Store) -> None:
    """The store's folder has the Parquet files that the manifest names, and no temporary files."""
    on_disk = {str(path.relative_to(store.path)) for path in store.path.rglob("*.parquet")}
    assert on_disk == read_manifest(store.path).paths()
    assert not list(store.path.rglob("*.tmp"))


def edit_manifest(folder: Path, **changes: object) -> None:
    """Change fields of a store's manifest, and seal it again."""
    path = folder / "manifest.json"
    body = {**json.loads(path.read_text()), **changes}
    del body["sha256"]
    path.write_bytes(sealed(body))


def kept_pieces(store: Store) -> list[Rejected]:
    """The rejected records and byte ranges in a store's quarantine."""
    return [piece for file in Quarantine(store.path / "quarantine").files() for piece in file.pieces]


def roster(devices: Iterable[int]) -> Roster:
    """The fleet list of devices whose reports are those of ``support.reports.report``."""
    devices = list(devices)
    return Roster("f", tuple(map(str, devices)), b"".join(digest("secret", device) for device in devices))
