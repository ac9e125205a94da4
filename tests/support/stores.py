"""Stores with report files in them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from aggregator.operations.report_store import create_store
from aggregator.reports.fleet import Roster
from aggregator.reports.storage.manifest import read_manifest, sealed
from aggregator.reports.storage.parts import _OpenPart
from aggregator.reports.storage.quarantine import Quarantine
from support.publisher import NOW
from support.reports import CAMPAIGN, digest, report
from support.sources import Cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


class Broken:
    """Within it the ``at``-th change of a file fails, with an error of the disk; or with ``Cut``, after which all fail.

    Attributes:
        steps: the changes so far, by the names of the functions that were called.
    """

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error = at, error
        self.steps: list[str] = []
        self._patch = pytest.MonkeyPatch()

    def _counted(self, name: str, plain: Callable, counts: Callable = lambda *_: True) -> Callable:
        def step(*arguments: object, **options: object) -> object:
            if counts(*arguments):
                self.steps.append(name)
                past = len(self.steps) - self.at
                if self.at and (past == 0 or (past > 0 and isinstance(self.error, Cut))):
                    raise self.error
            return plain(*arguments, **options)

        return step

    def __enter__(self) -> Self:
        for owner, name, *counts in (
            (Path, "replace"), (Path, "mkdir"), (Path, "unlink"), (os, "fsync"),
            (Path, "open", lambda _, mode="r", *__: "w" in mode),
            (os, "open", lambda _, flags, *__: flags & os.O_EXCL),
            (_OpenPart, "write", lambda sink, _: not sink.closed),
        ):  # fmt: skip
            self._patch.setattr(owner, name, self._counted(name, getattr(owner, name), *counts))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._patch.undo()
        return kind is Cut
