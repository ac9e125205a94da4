"""Stores with report files in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.operations.report_store import create_store

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator.operations.report_store import Store


def files_of(folder: Path, *contents: bytes) -> list[Path]:
    """Files with these contents, named by their numbers."""
    paths = []
    for number, content in enumerate(contents):
        paths.append(folder / f"{number}.hsr")
        paths[-1].write_bytes(content)
    return paths


def stored(folder: Path, raw: bytes, *contents: bytes, now: int) -> Store:
    """Make a store for a campaign and ingest files with these contents."""
    made = create_store(folder / "store", raw)
    made.ingest(files_of(folder, *contents), now=now)
    return made
